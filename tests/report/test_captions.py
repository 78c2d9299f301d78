"""Captions of the report render without a complaint, for every kind of scenario."""

import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from docutils.core import publish_parts
from jinja2 import Environment

from subjectdp.figures.catalogue import CAPTIONS

REPORT = Path(__file__).resolve().parents[2] / "workflow" / "report"
FILES = sorted([*REPORT.glob("*.rst"), *CAPTIONS.glob("*.rst")])

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


@pytest.mark.slow
@pytest.mark.parametrize("config", SCENARIOS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_captions_render_without_complaint(path: Path, config: dict[str, object]) -> None:
    environment = Environment(trim_blocks=True, lstrip_blocks=True)  # as `snakemake --report` renders
    source = path.read_text() + "\n\n.. _Workflow: https://example.org\n"
    phrases = yaml.safe_load((REPORT / "phrases.yaml").read_text())
    snakemake = SimpleNamespace(config=config | {"phrases": phrases}, rule=path.stem)
    text = environment.from_string(source).render(snakemake=snakemake)
    warnings = io.StringIO()
    settings = {"warning_stream": warnings, "report_level": 2}
    page = publish_parts(text, writer="html", settings_overrides=settings)["body"]
    assert warnings.getvalue() == ""
    words = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    assert not set("{}`") & set(words)
    if path.stem == "workflow" and "sweep" in config:
        assert page.count("<li>") == 5 + 2
    assert ("Generated glyphs." in words) == ("synthetic_note" in config and "synthetic_note" in path.read_text())


def test_every_shared_phrase_is_used_and_known() -> None:
    used = {name for path in FILES for name in re.findall(r"phrases\.(\w+)", path.read_text())}
    assert used == set(yaml.safe_load((REPORT / "phrases.yaml").read_text()))
