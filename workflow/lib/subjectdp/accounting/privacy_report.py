"""The privacy report: a run's privacy statements as text (``card`` in manifests)."""

from collections.abc import Iterable
from typing import Any

from subjectdp.accounting.sound import noise_of_the_sum, own_noise_alone, participants, shares
from subjectdp.plan.plan import (
    AccountingMode,
    BudgetWeights,
    Clipping,
    DivisorRule,
    NoiseDistribution,
    NoiseRule,
    NoiseSource,
    PrivacyPlan,
    SamplingMethod,
    TrustModel,
)

_WIDTH = 32
UNITS = {"item": "one item", "subject_one_silo": "one subject, at one silo", "subject": "one subject, at all its silos"}
"""What a sound ε of a manifest is for."""
_NAMES = {**UNITS, "silo": "one silo's whole data"}
_SAMPLING = {
    SamplingMethod.POISSON: "Poisson, each item with probability",
    SamplingMethod.POISSON_SUBJECTS: "Poisson, each subject with probability",
    SamplingMethod.FIXED_BATCH_SIZE: "batches of fixed size B without replacement, B over the silo's items =",
}
_CLIPPED = {
    Clipping.NONE: "nothing",
    Clipping.PER_ITEM: "each item's gradient, then summed",
    Clipping.PER_ITEM_SUBJECT_MEAN: "each item's gradient, then averaged by subject and summed",
    Clipping.PER_SUBJECT: "each subject's mean gradient, then summed",
    Clipping.PER_BATCH: "the mean gradient of the mini-batch",
    Clipping.PER_UPDATE: "a silo's whole update of a round, once",
    Clipping.PER_SUBJECT_UPDATE: "each subject's model update of a round, then summed",
}
_DIVISORS = {
    DivisorRule.BATCH_SIZE: "the public (expected) batch size",
    DivisorRule.EXPECTED_SUBJECTS: "the public expected number of subjects in a mini-batch",
    DivisorRule.REALISED_SUBJECTS: "the number of subjects in the mini-batch (data)",
    DivisorRule.ONE: "none",
}
_WEIGHTS = {
    BudgetWeights.UNIFORM: "equal at the silos that hold it",
    BudgetWeights.PROPORTIONAL: "by its items there",
    BudgetWeights.FIXED: "one part for each silo that may hold it",
}
_NOISED_BY = {
    TrustModel.LOCAL: "each silo",
    TrustModel.SECURE_AGGREGATION: "each silo, its share of a sum that alone is seen (secure aggregation)",
    TrustModel.CENTRAL: "a trusted server",
}
_OWN_NOISE = "each silo, to its own sums; the other silos' noise is not counted"
_SOURCES = {
    NoiseSource.REPRODUCIBLE: "the seed, which must stay secret: the model is NOT FOR RELEASE (noise_source: secure)",
    NoiseSource.SECURE: "256 bits of the operating system for this run alone, deleted when it ended",
    NoiseSource.UNSTATED: "whatever your software draws it from (assumed secret)",
}
_ACCOUNTANTS = {
    "pld": "privacy loss distributions",
    "rdp": "Rényi divergences",
    "rdp_integer": "Rényi bounds for integer noise",
    "opacus": "Opacus' RDP accountant",
    "mironov": "the joint-noise paper's Rényi accounting",
}


def report_text(plan: PrivacyPlan, statements: dict[str, Any]) -> str:
    """The report on a plan with its statements (``statements.privacy_statements``)."""
    parts = [_head(plan), _published(statements["as_published"]), _sound(plan, statements)]
    if (predicted := statements.get("predicted")) is not None:
        parts.insert(0, _predicted(predicted))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _line(name: str, value: object) -> str:
    return f"{name:<{_WIDTH}} {value}"


def _head(plan: PrivacyPlan) -> Iterable[str]:
    mechanism, settings = plan.mechanism, plan.settings
    name = mechanism.algorithm if mechanism.variant is None else f"{mechanism.algorithm} ({mechanism.variant})"
    mode = "as published" if settings.mode is AccountingMode.AS_PUBLISHED else "sound"
    fractions = [round(silo.sampling_probability, 7) for silo in plan.silos]
    yield f"Privacy report: {name}, {mode}"
    if plan.delta_warning is not None and mechanism.noise_rule is not NoiseRule.NONE:
        yield f"WARNING: {plan.delta_warning}"
    yield _line("silos, rounds", f"{len(plan.silos)}, {plan.rounds}")
    if plan.total_subjects is not None:
        yield _line("subjects seen", str(plan.total_subjects))
    yield _line("local steps of a silo", f"{_span([silo.local_steps for silo in plan.silos])} a round")
    yield _line("sampling", f"{_SAMPLING[settings.sampling]} {_span(fractions)}")
    yield from _subjects(plan)
    clipped = _CLIPPED[mechanism.clipping]
    bounded = "" if mechanism.clipping is Clipping.NONE else f", to L2 norm {settings.clip_norm:g}"
    yield _line("clipped", clipped + bounded)
    yield from _noise(plan)
    yield _line("divisor", _DIVISORS[mechanism.divisor_rule])


def _predicted(record: dict[str, Any]) -> Iterable[str]:
    epsilon = "no epsilon" if record["epsilon"] is None else f"epsilon {record['epsilon']:.4g}"
    wanted, unit = f"{record['subjects']:,} subjects", record["unit"]
    yield f"PREDICTED NOISE: AN EXPERIMENT, NO GUARANTEE OF {epsilon.upper()} FOR THIS RUN"
    yield f"  The noise on the average is what {wanted} would have; this run has {record['present']:,}."
    yield f"  {wanted} alike would get {epsilon} at delta {record['delta']:g}, {unit} level."
    yield '  What this run gives its own subjects stands below, under "What this run gives".'


def _subjects(plan: PrivacyPlan) -> Iterable[str]:
    subject, held = plan.settings.subject, plan.silos_per_subject
    if not plan.mechanism.samples_subjects:
        most = [silo.max_items_per_subject for silo in plan.silos]
        kind = "enforced cap" if plan.cap_enforced else "seen in the data"
        bound = f"at most {_span(most)} ({kind})" if all(most) else "no cap given"
        yield _line("items of a subject at a silo", f"{bound}, at up to {held} silos")
        return
    items = "all of them" if subject.items is None else f"at most {subject.items}, drawn anew each time"
    yield _line("items of a sampled subject", items)
    if not plan.mechanism.shared_budget:
        yield _line("silos of a subject", f"up to {held}, each clips it on its own")
        return
    budget = "squares" if plan.mechanism.trust is TrustModel.LOCAL else "clip norms"
    yield _line("silos of a subject", f"up to {held}; the {budget} of its parts add up to one at most")
    yield _line("parts of a subject's clip norm", _WEIGHTS[subject.weights])


def _noise(plan: PrivacyPlan) -> Iterable[str]:
    mechanism, settings = plan.mechanism, plan.settings
    if mechanism.noise_rule is NoiseRule.NONE:
        yield _line("noise", "none")
        return
    if plan.group_noise_multipliers:
        table = [round(value, 6) for silo in plan.group_noise_multipliers for value in silo]
        size = f"multiplier {_span(table)} by the largest group of the mini-batch (data)"
    else:
        size = f"multiplier {noise_size(plan)}"
    skellam = settings.noise_distribution is NoiseDistribution.SKELLAM
    law = f"Skellam on a grid of {settings.gradient_bits} bits" if skellam else "Gaussian"
    yield _line("noise", f"{law}, {size}, {_when(plan)}")
    yield _line("noise is added by", _OWN_NOISE if own_noise_alone(plan) else _NOISED_BY[mechanism.trust])
    yield _line("noise is drawn from", _SOURCES[settings.noise_source])


def noise_size(plan: PrivacyPlan) -> str:
    """The noise multiplier: of the sum over silos and of each of them, where they share one noise."""
    own = _span([round(silo.noise_multiplier, 6) for silo in plan.silos])
    if shares(plan) == 1.0:
        return own
    whole = f"{round(noise_of_the_sum(plan), 6):g}"
    return f"{whole} of the sum over silos ({own} at each of {participants(plan)})"


def _when(plan: PrivacyPlan) -> str:
    if plan.mechanism.clipping is Clipping.PER_UPDATE:
        return "once a round"
    if plan.mechanism.shared_budget:
        where = "on the sum over silos" if plan.mechanism.trust is TrustModel.CENTRAL else "at each silo"
        return f"once a round, {where}"
    if plan.mechanism.trust is not TrustModel.CENTRAL:
        return "in every local step"
    if plan.mechanism.noise_rule is NoiseRule.CONSTANT:
        return "once a round, on the sum over silos"
    return "once a round and silo, on the silo's average, after the division"


def _published(record: dict[str, Any]) -> Iterable[str]:
    yield "As published (not a guarantee)"
    yield _line("  claim", record["claim"])
    if record["epsilon"] is not None:
        by = _ACCOUNTANTS.get(record["accountant"], record["accountant"])
        yield _line("  accounted as", f"q = {record['sampling_probability']:.6g}, {record['steps']} steps, by {by}")
    if record.get("epsilon_by_pld") is not None and record["accountant"] != "pld":
        yield _line("  the same claim", f"epsilon {record['epsilon_by_pld']:.4g} by {_ACCOUNTANTS['pld']}")


def _sound(plan: PrivacyPlan, statements: dict[str, Any]) -> Iterable[str]:
    yield "What this run gives"
    records = list(statements["sound"].values())
    for name, record in statements["sound"].items():
        yield _line(f"  {_NAMES[name]}", _epsilon(plan, record))
    yield _line("  seen by", records[0]["observer"])
    if used := {record["accountant"]: None for record in records if record["accountant"] is not None}:
        versions = ", ".join(f"{name} {number}" for name, number in records[0]["versions"].items())
        yield _line("  computed by", f"{', '.join(_ACCOUNTANTS[name] for name in used)} ({versions})")
        if any(record["mu_gdp"] is not None for record in records):
            yield _line("  mu", "of the Gaussian mechanism that has the same epsilon at this delta")
    sections = {
        "Provided that": dict.fromkeys(line for record in records for line in record["assumptions"]),
        "What an item is": statements.get("items"),
        "Not covered": statements["excluded"],
    }
    for title, lines in sections.items():
        if lines:
            yield title
            yield from (f"  - {line}" for line in lines)


def _epsilon(plan: PrivacyPlan, record: dict[str, Any]) -> str:
    if record["epsilon"] is None:
        constant = record.get("epsilon_if_constant")
        aside = "" if constant is None else f" (epsilon {constant:.4g} if it were a public constant)"
        return f"none: {record['reason']}{aside}"
    kind = "replaced" if record["adjacency"] == "replace" else "added or removed"
    fixed = ", batch size fixed" if record["sampling"] == SamplingMethod.FIXED_BATCH_SIZE else ""
    missing = [] if plan.cap_enforced or plan.mechanism.samples_subjects else ["no cap is enforced"]
    at_one_of_several = record["silos"] < plan.silos_per_subject
    missing += [] if plan.silos_bounded or at_one_of_several else ["no bound on silos"]
    rests = f", CONDITIONAL: {', '.join(missing)}" if record["guarantee"] == "conditional" else ""
    shown = f"epsilon {record['epsilon']:.4g} at delta {record['delta']:g}, {kind}{fixed}"
    return f"{shown} (mu {record['mu_gdp']:.3g}){rests}"


def _span(values: list[int] | list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
