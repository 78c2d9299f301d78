"""The privacy card: a run's privacy statements as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from subjectdp.mechanisms.plan import PrivacyPlan

_WIDTH = 32
_NAMES = {
    "item": "one item",
    "subject_one_silo": "one subject, at one silo",
    "subject": "one subject, at all its silos",
    "silo": "one silo's whole data",
}


def card_text(plan: PrivacyPlan, statements: dict[str, Any]) -> str:
    """The card of a plan with its statements (``statements.privacy_statements``)."""
    return (
        "\n".join([*_head(plan), "", *_published(statements["as_published"]), "", *_sound(statements)]) + "\n"
    )


def _line(name: str, value: object) -> str:
    return f"{name:<{_WIDTH}} {value}"


def _head(plan: PrivacyPlan) -> Iterable[str]:
    mechanism, settings = plan.mechanism, plan.settings
    name = (
        mechanism.algorithm if mechanism.variant is None else f"{mechanism.algorithm} ({mechanism.variant})"
    )
    noise = sorted({round(silo.noise_multiplier, 6) for silo in plan.silos})
    steps = sorted({silo.steps_per_round for silo in plan.silos})
    fractions = [silo.sampling_probability for silo in plan.silos]
    yield f"Privacy card: {name}, {settings.mode}"
    yield _line("silos, rounds, steps", f"{len(plan.silos)}, {plan.rounds}, {_span(steps)} a round")
    yield _line("sampling", f"{settings.sampling}, probability {_span([round(q, 7) for q in fractions])}")
    yield _line("clipping, clip norm", f"{mechanism.clipping}, {settings.clip_norm:g}")
    yield _line(
        "noise multiplier", _span(noise) if not plan.group_noise_multipliers else "by group size in the batch"
    )
    yield _line("divisor", mechanism.divisor_rule)
    yield _line("trust", mechanism.trust)


def _published(record: dict[str, Any]) -> Iterable[str]:
    yield "As published (not a guarantee)"
    yield _line("  claim", record["claim"])
    if record["epsilon"] is not None:
        yield _line("  accounted as", f"q = {record['sampling_probability']:.6g}, {record['steps']} steps")


def _sound(statements: dict[str, Any]) -> Iterable[str]:
    yield "What this run gives"
    first: dict[str, Any] = {}
    for name, record in statements["sound"].items():
        first = first or record
        yield _line(f"  {_NAMES[name]}", _epsilon(record))
    yield _line("  seen by", first["observer"])
    shown: list[str] = []
    for record in statements["sound"].values():
        shown.extend(line for line in record["assumptions"] if line not in shown)
    yield "Provided that"
    yield from (f"  - {line}" for line in shown)
    yield "Not covered"
    yield from (f"  - {line}" for line in statements["excluded"])


def _epsilon(record: dict[str, Any]) -> str:
    if record["epsilon"] is not None:
        return (
            f"epsilon {record['epsilon']:.4g} at delta {record['delta']:g} "
            f"(mu-GDP {record['mu_gdp']:.3g}, {record['accountant']}, {record['adjacency']})"
        )
    constant = record.get("epsilon_if_constant")
    aside = "" if constant is None else f" (epsilon {constant:.4g} if it were a public constant)"
    return f"none: {record['reason']}{aside}"


def _span(values: list[int] | list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
