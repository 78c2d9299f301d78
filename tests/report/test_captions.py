"""Captions of the report render without a complaint, for every kind of scenario."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from docutils.core import publish_parts
from jinja2 import Environment

REPORT = Path(__file__).resolve().parents[2] / "workflow" / "report"

SCENARIOS = [
    {
        "name": "embedded",
        "description": "d",
        "synthetic_note": "Generated glyphs.",
        "sweep": [{"seed": [0, 1], "algorithm": "fed_avg"}, {"name": "more: of it", "seed": [7]}],
    },
    {"name": "real"},
    {},
]


@pytest.mark.parametrize("config", SCENARIOS)
@pytest.mark.parametrize("path", sorted(REPORT.glob("*.rst")), ids=lambda path: path.stem)
def test_captions_render_without_complaint(path: Path, config: dict[str, object]) -> None:
    environment = Environment(trim_blocks=True, lstrip_blocks=True)  # as `snakemake --report` renders
    source = path.read_text() + "\n\n.. _Workflow: https://example.org\n"
    text = environment.from_string(source).render(snakemake=SimpleNamespace(config=config, rule=path.stem))
    warnings = io.StringIO()
    settings = {"warning_stream": warnings, "report_level": 2}
    page = publish_parts(text, writer="html", settings_overrides=settings)["body"]
    assert warnings.getvalue() == ""
    words = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    assert not set("{}`") & set(words)
    if path.stem == "workflow" and "sweep" in config:
        assert page.count("<li>") == 5 + 2
    assert ("Generated glyphs." in words) == ("synthetic_note" in config and "synthetic" in path.read_text())
