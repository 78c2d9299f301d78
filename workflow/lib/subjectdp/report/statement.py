"""One page on a run's privacy in plain language, for an ethics board or a data protection officer.

It answers what NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees, 2025) asks of a guarantee:
the unit, ε and δ, the trust model, what is public, and what lies outside. One list of sections is written as Markdown,
as HTML and as PDF.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment
from matplotlib.backends.backend_pdf import FigureCanvasPdf, PdfPages
from matplotlib.figure import Figure

from subjectdp.errors import expected
from subjectdp.io.atomic import atomic_path, write_text
from subjectdp.plan.plan import NoiseSource, PrivacyPlan, TrustModel

SUFFIXES = (".md", ".html", ".pdf")
_HTML = Path(__file__).with_name("statement.html")
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
_WHOM = {
    "subject": "each person, with all of their records at all silos together",
    "subject_one_silo": "each person, with their records at one silo",
    "item": "each single record; a person with several records has less protection than this",
    "silo": "each silo, with all of its records",
}
_HAPPENED = {
    "subject": "the person took part",
    "subject_one_silo": "the person took part at one silo",
    "item": "one record of the person was used",
    "silo": "the silo's own records or others were used",
}
_SEEN = {
    TrustModel.LOCAL: "Each silo adds the noise itself, before anything leaves it. Neither the server nor another silo "
    "has to be trusted.",
    TrustModel.SECURE_AGGREGATION: "Each silo adds its part of the noise. It is trusted that the server sees the sum "
    "over the silos alone, by a protocol for secure aggregation.",
    TrustModel.CENTRAL: "The server adds the noise. It sees what the silos send without noise, and is trusted with it.",
}
FALSE_ALARMS = 0.01


@dataclass(frozen=True)
class Section:
    """A question and its answer: paragraphs, then points."""

    title: str
    paragraphs: Sequence[str]
    points: Sequence[str] = ()


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
    unit, record = _main(privacy["sound"])
    return [
        Section("In short", list(_in_short(plan, unit, record, of))),
        Section("Who is protected, and how well", _protected(plan), list(_units(privacy["sound"]))),
        Section("What that means for a person", list(_risk(unit, record))),
        Section("Against whom", [f"Against {record['observer']}.", _SEEN[plan.mechanism.trust]]),
        Section(
            "What must be true for it to hold", ["(An item is a record, a subject a person.)"], record["assumptions"]
        ),
        Section("What is not covered", [], privacy["excluded"]),
        Section("How it was computed", list(_method(plan, privacy, record))),
    ]


def _main(sound: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The largest unit for which an ε is stated."""
    for unit in ("subject", "subject_one_silo", "silo", "item"):
        if unit in sound and sound[unit]["epsilon"] is not None:
            return unit, sound[unit]
    return "subject", sound["subject"]


def _in_short(plan: PrivacyPlan, unit: str, record: Mapping[str, Any], of: str) -> Iterator[str]:
    silos = f"{len(plan.silos)} silos" if len(plan.silos) > 1 else "one silo"
    yield (
        f"A model is trained on the records of {silos} in {plan.rounds} rounds ({of}). What silos send in a round, and "
        "the model, can be studied by others."
    )
    if record["epsilon"] is None:
        yield f"NO GUARANTEE can be stated for anybody: {record['reason']}."
        return
    yield (
        "It is differentially private: how far the result can depend on any one of the protected "
        f"({_WHOM[unit].split(';')[0]}) is bounded, by ε = {record['epsilon']:.4g} at δ = {record['delta']:g}."
    )
    if record["guarantee"] == "conditional":
        yield "The bound is CONDITIONAL: it rests on a number that was read from the records and not enforced."
    if plan.settings.noise_source is NoiseSource.REPRODUCIBLE:
        yield "NOT FOR RELEASE: the noise is made from a seed, for an experiment; whoever knows it can take it off."
    if plan.delta_warning is not None:
        yield f"WARNING: {plan.delta_warning}."


def _protected(plan: PrivacyPlan) -> list[str]:
    most = max(silo.max_items_per_subject for silo in plan.silos)
    if plan.mechanism.samples_subjects:
        held = "Each person counts once, however many records it has,"
    elif plan.cap_enforced:
        held = f"At most {most} records of a person are used at a silo, further ones are left out,"
    else:
        held = "The records of a person at a silo are not limited,"
    return [f"{held} and a person may be at up to {plan.silos_per_subject} silos."]


def _units(sound: Mapping[str, Any]) -> Iterator[str]:
    for unit, record in sound.items():
        if record["epsilon"] is None:
            yield f"{_WHOM[unit]}: no bound ({record['reason']})"
        else:
            how = "records replaced by others" if record["adjacency"] == "replace" else "added or removed"
            yield f"{_WHOM[unit]}: ε = {record['epsilon']:.4g} at δ = {record['delta']:g} ({how})"


def _risk(unit: str, record: Mapping[str, Any]) -> Iterator[str]:
    if record["epsilon"] is None:
        yield "Nothing can be promised: somebody who studies the result might learn that a person took part, and what."
        return
    epsilon, delta, happened = record["epsilon"], record["delta"], _HAPPENED[unit]
    guess = best_guess(epsilon, delta)
    yield (
        f"Suppose somebody knows all about a person and everybody else, and a fair coin decided whether {happened}. "
        "Whatever they compute from all that was released, their answer is right with probability at most "
        f"{_percent(guess)}; without looking it is 50 %. If they may be wrong in {_percent(FALSE_ALARMS)} of the cases "
        f"where it was not so, they find at most {_percent(most_found(epsilon, delta))} of those where it was."
    )
    if unit == "item":
        yield "That is said of one record alone: a person with several is recognised more easily."
    if guess > 0.95:
        yield (
            "With so large an ε the bound alone rules out little: it does not say that such an attack exists. Attacks "
            "that are known do worse, which is no promise."
        )
    yield (
        f"δ = {delta:g} is the probability, at most, with which the bound may fail: 1 in {1 / delta:,.0f} for each of "
        "the protected. What can be learned about people in general, whether a person took part or not, is no breach."
    )


def _percent(share: float) -> str:
    """Rounded up, to a tenth of a per cent, or a hundredth near one."""
    digits = 2 if share > 0.99 else 1
    return f"{math.ceil(share * 10 ** (2 + digits) - 1e-9) / 10**digits:g} %"


def _method(plan: PrivacyPlan, privacy: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[str]:
    numbers = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    by = "" if record["accountant"] is None else f" by {record['accountant']}"
    yield (
        f"Method: {plan.mechanism.title} ({plan.mechanism.reference}). ε is computed{by} with subjectdp ({numbers}) "
        "from what is sampled, clipped and noised, not from the claim of a paper. It is of this run alone: "
        "`subjectdp ledger` adds up all runs on the same people."
    )
    if privacy["as_published"]["epsilon"] is not None:
        claim = privacy["as_published"]
        yield f"The paper's accounting states ε = {claim['epsilon']:.4g} ({claim['unit']} level): no guarantee."


def write_statement(target: Path, sections: Sequence[Section], title: str) -> None:
    """Writes the page as its suffix says. Raises ConfigError for another suffix than ``SUFFIXES``."""
    if target.suffix not in SUFFIXES:
        raise expected("file of the statement", target.name, f"a name that ends in {', '.join(SUFFIXES)}")
    if target.suffix == ".pdf":
        _write_pdf(target, sections, title)
    else:
        write_text(target, rendered(sections, title, html=target.suffix == ".html"))


def rendered(sections: Sequence[Section], title: str, html: bool = False) -> str:
    """The page as HTML or Markdown."""
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
