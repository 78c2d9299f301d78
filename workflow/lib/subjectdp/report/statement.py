"""One page on a run's privacy in plain language, for an ethics board or a data protection officer.

It answers what NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees, 2025) asks of a guarantee:
the unit, ε and δ, the trust model, what is public, and what lies outside. The text is statement.jinja; its sections are
written as Markdown, as HTML and as PDF.
"""

import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, UndefinedError
from matplotlib.backends.backend_pdf import FigureCanvasPdf, PdfPages
from matplotlib.figure import Figure

from subjectdp.accounting.sound import own_noise_alone
from subjectdp.errors import DataError
from subjectdp.io.atomic import atomic_path, write_text
from subjectdp.plan.plan import PrivacyPlan, TrustModel

_TEXT, _HTML = (Path(__file__).with_name(f"statement.{ending}") for ending in ("jinja", "html"))
_MARKDOWN = """\
# {{ title }}

{% for section in sections %}
## {{ section.title }}

{% for text in section.paragraphs %}
{{ text }}

{% endfor %}
{% for text in section.points %}
- {{ text }}
{% endfor %}

{% endfor %}
"""
FALSE_ALARMS = 0.01


@dataclass(frozen=True)
class Section:
    """A question and its answer: paragraphs, then points."""

    title: str
    paragraphs: list[str]
    points: list[str]


def best_guess(epsilon: float, delta: float) -> float:
    """Most that anybody can be right, in the mean, on whether a person took part, if a fair coin decides: in [½, 1].

    (e^ε + δ)/(e^ε + 1): half of one plus the largest total variation of an (ε, δ) pair (Kairouz et al. 2015).
    """
    return 1.0 / (1.0 + math.exp(-epsilon)) + delta / (1.0 + math.exp(min(epsilon, 700.0)))


def most_found(epsilon: float, delta: float, false_alarms: float = FALSE_ALARMS) -> float:
    """Most of those who took part that a test finds which wrongly accuses that share of those who did not."""
    by_false_alarms = math.exp(min(epsilon, 700.0)) * false_alarms + delta
    by_misses = 1.0 - math.exp(-epsilon) * (1.0 - false_alarms - delta)
    return min(1.0, by_false_alarms, by_misses)


def statement_sections(plan: PrivacyPlan, privacy: Mapping[str, Any], of: str) -> list[Section]:
    """The page on a plan with its statements (``accounting.statements``); ``of`` names the run in the text."""
    environment = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters["percent"] = _percent
    try:
        unit, record = _main(privacy)
        told = {"plan": plan, "privacy": privacy, "of": of, "unit": unit, "record": record}
        told["apart"] = plan.mechanism.trust is TrustModel.LOCAL or own_noise_alone(plan)
        if record["epsilon"] is not None:
            told["guess"] = best_guess(record["epsilon"], record["delta"])
            told["found"] = most_found(record["epsilon"], record["delta"])
        text = environment.from_string(_TEXT.read_text(encoding="utf-8")).render(told, false_alarms=FALSE_ALARMS)
    except (KeyError, TypeError, UndefinedError) as problem:
        raise DataError(f"The record of {of} is damaged: {problem}. Remove it and run the workflow again.") from problem
    sections: list[Section] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        line = " ".join(block.split())
        if line.startswith("## "):
            sections.append(Section(line[3:], [], []))
        elif line.startswith("- "):
            sections[-1].points.append(line[2:])
        else:
            sections[-1].paragraphs.append(line)
    return sections


def _main(privacy: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The largest unit for which an ε is stated; an item where nothing says whose it is."""
    sound = privacy["sound"]
    if privacy.get("own_subjects"):
        return "item", sound["item"]
    for unit in ("subject", "subject_one_silo", "silo", "item"):
        if unit in sound and sound[unit]["epsilon"] is not None:
            return unit, sound[unit]
    return "subject", sound["subject"]


def _percent(share: float) -> str:
    """Rounded up, to a tenth of a per cent, or a hundredth near one."""
    digits = 2 if share > 0.99 else 1
    return f"{math.ceil(share * 10 ** (2 + digits) - 1e-9) / 10**digits:g} %"


def write_statement(target: Path, sections: Sequence[Section], title: str) -> None:
    """Writes the page as its suffix says, one of ``places.STATEMENT_SUFFIXES``."""
    if target.suffix == ".pdf":
        _write_pdf(target, sections, title)
    else:
        write_text(target, rendered(sections, title, html=target.suffix == ".html"))


def rendered(sections: Sequence[Section], title: str, html: bool = False) -> str:
    environment = Environment(autoescape=html, trim_blocks=True, lstrip_blocks=True)
    template = _HTML.read_text(encoding="utf-8") if html else _MARKDOWN
    return environment.from_string(template).render(title=title, sections=sections)


_A4 = (8.27, 11.69)
_LEFT, _TOP, _BOTTOM, _WIDTH = 0.08, 0.96, 0.04, 108
_BODY, _HEAD, _LINE = 8.4, 10.5, 0.0138


def _write_pdf(target: Path, sections: Sequence[Section], title: str) -> None:
    with atomic_path(target) as temporary, PdfPages(temporary) as pdf:
        page, height = Figure(figsize=_A4), _TOP
        for text, size, space in _lines(sections, title):
            if height - space < _BOTTOM:
                FigureCanvasPdf(page)
                pdf.savefig(page)
                page, height = Figure(figsize=_A4), _TOP
            height -= space
            page.text(_LEFT, height, text, fontsize=size, weight="bold" if size > _BODY else "normal", parse_math=False)
        pdf.savefig(page)


def _lines(sections: Sequence[Section], title: str) -> Iterator[tuple[str, float, float]]:
    """Each line of the page: text, size, and the part of a page's height that it takes."""
    for line in textwrap.wrap(title, _WIDTH * 2 // 3):
        yield line, 13.0, 2 * _LINE
    for section in sections:
        yield section.title, _HEAD, 1.9 * _LINE
        for text in section.paragraphs:
            for number, line in enumerate(textwrap.wrap(text, _WIDTH)):
                yield line, _BODY, _LINE * (1.0 if number else 1.15)
        for text in section.points:
            for number, line in enumerate(textwrap.wrap(text, _WIDTH - 4)):
                yield ("    " if number else "•  ") + line, _BODY, _LINE
