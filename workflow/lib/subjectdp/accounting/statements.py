"""Privacy statements of a run: what its paper claims, and what the same run provably gives, as JSON-able records."""

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from subjectdp.accounting import published, sound
from subjectdp.accounting.calibration import versions
from subjectdp.accounting.epsilon import FINAL, SEARCH
from subjectdp.accounting.events import PrivacyLoss, recorded, recorded_event
from subjectdp.accounting.gaussian import gdp_mu
from subjectdp.accounting.make_plan import with_noise_multipliers
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import (
    Accountant,
    Adjacency,
    BudgetWeights,
    Clipping,
    DivisorRule,
    Mechanism,
    NoiseDistribution,
    NoiseRule,
    NoiseSource,
    PrivacyPlan,
    PrivacyUnit,
    SamplingMethod,
    SiloChoice,
    TrustModel,
)

OBSERVERS = {
    TrustModel.LOCAL: "anyone who sees every noisy step of every silo, the server included",
    TrustModel.SECURE_AGGREGATION: "anyone who sees the sum over the silos of each round, the server included",
    TrustModel.CENTRAL: "anyone but the trusted server: it sees the silos' sums before the noise",
}
EXCLUDED = (
    "how records became features: classes, values of words and ranges of numbers are taken as public",
    "choice of hyperparameters on the same data",
    "side channels such as the running time",
    "validation and test items: their metrics are computed without noise",
    "what is recorded beside the model without noise: facts of the partition, sizes of mini-batches, clipped fractions",
    "other runs on these data, as they are or changed: ε is that of each run (subjectdp ledger composes several)",
)
CONDITIONAL = "conditional"
"""``guarantee`` of an ε that rests on a bound which was read from the data (:func:`condition`)."""

_POINTS = 4
_ARITHMETIC = {
    NoiseSource.REPRODUCIBLE: (
        "attacks on floating-point arithmetic, of the noise and of the sums that it is added to",
        "generators that are no ciphers: Philox (128-bit key) for sampling and integer noise, the GPU's (63-bit seed)",
    ),
    NoiseSource.SECURE: (
        "rounding of the sums before the noise (float32): a unit may move them by a little more than the clip norm",
        "the law of the noise is that of a floating-point sampler on a grid, not of an exact discrete one",
        "generators that are no ciphers: Philox (128-bit key, made from the secret) for sampling and integer noise",
        "whoever reads this machine's memory or what its disk keeps of deleted files",
    ),
    NoiseSource.UNSTATED: (
        "arithmetic and generators of the software that trains: floating-point attacks, predictable noise",
    ),
}
_DRAWN = {
    NoiseSource.REPRODUCIBLE: (
        "the seed stays secret: all draws are made from it (this is a simulation, whose manifest prints it)"
    ),
    NoiseSource.SECURE: (
        "nobody knows the secret that sampling and noise are drawn from (no file keeps it after the run)"
    ),
    NoiseSource.UNSTATED: "nobody can predict or learn the draws of sampling and noise",
}


@dataclass(frozen=True)
class ItemFacts:
    """What an item of the data is; no private fact but the number of copies, which the report says."""

    window: int = 0  # characters of a text item; 0: no text
    copies: int = 1  # the most equal items of one subject
    own_subjects: bool = False  # no subject ids


SCOPES = {
    "item": (PrivacyUnit.ITEM, False),
    "subject_one_silo": (PrivacyUnit.SUBJECT, False),
    "subject": (PrivacyUnit.SUBJECT, True),
}
"""What a sound ε of a manifest is for: the unit, and whether at all silos that may hold it."""


def stated_epsilons(plan: PrivacyPlan) -> dict[str, float | None]:
    """The ε of :func:`privacy_statements` alone, at a fraction of its time: ``as_published`` and the sound ones."""
    stated = {"as_published": _claimed_epsilon(plan), **dict.fromkeys(SCOPES)}
    if not plan.mechanism.data_dependence:
        for name, (unit, every) in SCOPES.items():
            with suppress(PrivacyError):
                stated[name] = _finite(_epsilon(plan, unit, every)[0])
    return stated


def privacy_statements(plan: PrivacyPlan, over_rounds: bool = True, items: ItemFacts | None = None) -> dict[str, Any]:
    """The manifest's privacy record: ``as_published``, ``sound`` (item, subject_one_silo, subject), ``over_rounds``.

    ``as_published`` always carries ``guarantee: false``; a sound ε that rests on a bound read from private data is
    :data:`CONDITIONAL`. A sound ε is null where none can be given, with the reason; where only a data-dependent σ or
    divisor stands in the way, ``epsilon_if_constant`` says what it would be for a public constant.
    """
    scopes = dict(SCOPES)
    if plan.mechanism.clipping in (Clipping.PER_BATCH, Clipping.PER_UPDATE):
        scopes["silo"] = (PrivacyUnit.SILO, False)
    return {
        "as_published": published_statement(plan),
        "sound": {name: sound_statement(plan, unit, every) for name, (unit, every) in scopes.items()},
        "predicted": predicted_statement(plan),
        "over_rounds": _over_rounds(plan) if over_rounds else None,
        "items": [] if items is None else list(_items(plan, items)),
        "own_subjects": items is not None and items.own_subjects,  # what is said of a subject is said of an item
        "excluded": [*_ARITHMETIC[plan.settings.noise_source], *EXCLUDED],
    }


def _items(plan: PrivacyPlan, items: ItemFacts) -> Iterable[str]:
    if items.own_subjects:
        yield "no subject ids: each item is its own subject, and a person with several has no more"
    if items.window:
        yield (
            f"an item is a window of {items.window} characters and the next one: a character of the text is in up to "
            f"{items.window + 1} items, and nothing is stated for a character or a sentence"
        )
    if items.copies > 1:
        held = _part_of_a_subject(plan, items.copies)
        yield (
            f"equal items count one by one: a subject has up to {items.copies} copies of one, and for all of them at "
            f"one silo {'no epsilon holds' if held is None else f'epsilon is {held:.4g}'}"
        )
    yield (
        "items are those of training, after split, partition and cap: one more item in the raw data may change which "
        "of its subject's items are among them"
    )


def _part_of_a_subject(plan: PrivacyPlan, items: int) -> float | None:
    """ε of so many items of one subject at a silo, where its others stay. They may turn a sampled subject's part around
    as one item may, and so a subject's clipped mean; of j clipped ones each moves its subject's mean by C at most."""
    mechanism, fixed = plan.mechanism, plan.settings.sampling is SamplingMethod.FIXED_BATCH_SIZE
    if mechanism.samples_subjects:
        return stated_epsilons(plan)["item"]
    if mechanism.clipping is Clipping.PER_SUBJECT and fixed:
        return None
    turned = {Clipping.PER_ITEM_SUBJECT_MEAN: Clipping.PER_ITEM, Clipping.PER_SUBJECT: Clipping.PER_BATCH}
    mechanism = replace(mechanism, clipping=turned.get(mechanism.clipping, mechanism.clipping))
    silos = tuple(replace(silo, max_items_per_subject=items) for silo in plan.silos)
    return stated_epsilons(replace(plan, mechanism=mechanism, silos=silos, silos_per_subject=1))["subject_one_silo"]


def published_statement(plan: PrivacyPlan) -> dict[str, Any]:
    """The paper's claim for the plan: never a guarantee of ours."""
    mechanism, settings = plan.mechanism, plan.settings
    if nothing := _claims_nothing(mechanism):
        return {"epsilon": None, "guarantee": False, "claim": nothing, "reference": mechanism.reference}
    facts = published.facts_of(plan)
    loss = [published.published_loss(mechanism, facts, settings, silo)[0] for silo in plan.silos]
    epsilon, by_pld = _claimed_epsilon(plan), None
    # the losses of integer noise are not those of a Gaussian
    if settings.noise_distribution is not NoiseDistribution.SKELLAM:
        by_pld = _claimed_epsilon(replace(plan, settings=replace(settings, accountant=Accountant.PLD)))
    unit = str(mechanism.claimed_unit)
    shown = "no epsilon" if epsilon is None else f"({epsilon:.4g}, {settings.delta:g})-differential privacy"
    return {
        "epsilon": epsilon,
        "delta": settings.delta,
        "unit": unit,
        "adjacency": str(mechanism.claimed_adjacency),
        "sampling": str(settings.sampling),
        "sampling_probability": max(part.shift.probabilities[-1] for part in loss),
        "steps": max(part.steps for part in loss),
        "accountant": settings.accountant,
        "epsilon_by_pld": by_pld,
        "horizontal": str(settings.horizontal),
        "guarantee": False,
        "claim": f"{shown} at {unit} level, by the accounting of {mechanism.reference}",
        "reference": mechanism.reference,
    }


def _claimed_epsilon(plan: PrivacyPlan) -> float | None:
    return None if _claims_nothing(plan.mechanism) else _finite(published.published_epsilon(plan))


def _claims_nothing(mechanism: Mechanism) -> str | None:
    if mechanism.clipping is Clipping.PER_UPDATE or mechanism.beyond_papers:
        return "none: the papers of this project do not publish this mechanism"
    if mechanism.claimed_unit is None or mechanism.noise_rule is NoiseRule.NONE:
        return "no privacy is claimed"
    return None


def predicted_statement(plan: PrivacyPlan) -> dict[str, Any] | None:
    """ε for the subjects that the noise was made for, not for the run itself; null where these are the run's own."""
    if (prediction := plan.prediction) is None:
        return None
    full = replace(with_noise_multipliers(plan, prediction.noise_multipliers, by_size=False), prediction=None)
    unit = full.mechanism.claimed_unit or PrivacyUnit.SUBJECT
    statement = sound_statement(full, unit, every_silo=True)
    return {
        "subjects": prediction.subjects,
        "present": prediction.present,
        "epsilon": statement["epsilon"],
        "delta": plan.settings.delta,
        "unit": str(unit),
        "guarantee": False,
        "reason": statement["reason"],
    }


def sound_statement(plan: PrivacyPlan, unit: PrivacyUnit, every_silo: bool) -> dict[str, Any]:
    """What the run gives one unit; see :func:`privacy_statements`."""
    statement = _conditions(plan, unit, every_silo)
    try:
        epsilon, accountant, losses = _epsilon(plan, unit, every_silo)
    except PrivacyError as error:
        unknown = dict.fromkeys(("epsilon", "epsilon_if_constant", "mu_gdp", "accountant", "event", "dp_event"))
        return {**statement, **unknown, "guarantee": False, "reason": str(error)}
    leaks = plan.mechanism.data_dependence
    finite = _finite(epsilon)
    reason = "; ".join(leaks) if leaks else ("the run adds no noise" if finite is None else None)
    given = None if leaks else finite
    statement.update(
        epsilon=given,
        epsilon_if_constant=finite if leaks else None,
        mu_gdp=None if given is None else gdp_mu(given, plan.settings.delta),
        guarantee=given is not None and (CONDITIONAL if condition(plan, unit, every_silo) else True),
        reason=reason,
        accountant=accountant,
        event=[recorded(loss, plan.settings.noise_distribution) for loss in losses],
        dp_event=[recorded_event(loss, plan.settings.noise_distribution) for loss in losses],
    )
    return statement


def condition(plan: PrivacyPlan, unit: PrivacyUnit, every_silo: bool) -> str | None:
    """What ε of the unit rests on that was read from private data; None where every bound is enforced or stated."""
    if unit is not PrivacyUnit.SUBJECT:
        return None
    read = []
    if not plan.cap_enforced and not plan.mechanism.samples_subjects:
        read.append("the largest number of a subject's items at a silo")
    alone = not every_silo and plan.silos_per_subject > 1
    if not plan.silos_bounded and not alone and not (every_silo and plan.mechanism.shared_budget):
        read.append("the largest number of silos of a subject")
    return f"{' and '.join(read)} was read from the data" if read else None


def _epsilon(plan: PrivacyPlan, unit: PrivacyUnit, every_silo: bool) -> tuple[float, str, list[PrivacyLoss]]:
    """ε, the accountant that proves it, and the losses that it is proven of.

    A bound for a subject over all its silos holds at one of them: it is taken where it is smaller, as the grid of an ε
    of thousands may round. Not where silos share a subject's budget: what leaves one changes what stays at the others.
    """
    one = _accounted(plan, unit, every_silo)
    several = plan.silos_per_subject > 1 and not plan.mechanism.shared_budget
    if unit is PrivacyUnit.SUBJECT and not every_silo and several:
        return min(one, _accounted(plan, unit, every_silo=True), key=lambda each: each[0])
    return one


def _accounted(plan: PrivacyPlan, unit: PrivacyUnit, every_silo: bool) -> tuple[float, str, list[PrivacyLoss]]:
    """ε with the plan's accountant where it certifies, else by PLD, or the Rényi bounds for integer noise."""
    losses = sound.unit_losses(plan, unit, every_silo)
    chosen = Accountant(plan.settings.accountant)
    chosen = _certifying(plan) if chosen.only_claims else chosen
    epsilon, worst = sound.largest(losses, plan.settings.delta, chosen)
    return epsilon, str(chosen), losses if len(losses) <= sound.FEW_LOSSES else [worst]


def _certifying(plan: PrivacyPlan) -> Accountant:
    integers = plan.settings.noise_distribution is NoiseDistribution.SKELLAM
    return Accountant.RDP_INTEGER if integers else Accountant.PLD


def _conditions(plan: PrivacyPlan, unit: PrivacyUnit, every_silo: bool) -> dict[str, Any]:
    fixed = plan.settings.sampling is SamplingMethod.FIXED_BATCH_SIZE
    adjacency = Adjacency.REPLACE if unit is PrivacyUnit.SILO else Adjacency.ADD_REMOVE
    return {
        "delta": plan.settings.delta,
        "unit": str(unit),
        "silos": plan.silos_per_subject if every_silo else 1,
        "adjacency": str(adjacency) + (" with a fixed batch size" if fixed else ""),
        "sampling": str(plan.settings.sampling),
        "clipping": str(plan.mechanism.clipping),
        "noise": str(plan.settings.noise_distribution),
        "trust": str(plan.mechanism.trust),
        # where each silo's own noise alone is counted, it may be seen apart from the other silos'
        "observer": OBSERVERS[TrustModel.LOCAL if sound.own_noise_alone(plan) else plan.mechanism.trust],
        "rounds": plan.rounds,
        "assumptions": list(_assumptions(plan, unit)),
        "versions": versions(),
    }


def _assumptions(plan: PrivacyPlan, unit: PrivacyUnit) -> Iterable[str]:
    yield from _public_facts(plan, unit)
    if unit is not PrivacyUnit.SILO:  # whose bound holds whatever is drawn
        yield from _sampling_assumptions(plan)
    yield _DRAWN[plan.settings.noise_source]
    central = plan.mechanism.trust is TrustModel.CENTRAL
    yield f"silos are honest: they clip {'' if central else 'and add noise '}as planned"
    if central:
        yield "the server is trusted with the silos' sums before the noise, and adds it as planned"
    elif plan.mechanism.trust is not TrustModel.LOCAL:
        yield from _assumptions_of_summing(plan)


def _public_facts(plan: PrivacyPlan, unit: PrivacyUnit) -> Iterable[str]:
    subjects = plan.mechanism.samples_subjects
    if subjects:
        where = "the federation" if plan.mechanism.shared_budget else "each silo"
        yield f"the number of subjects of {where} that the plan is made for is public (it fixes the divisor)"
    else:
        fixed = "it fixes the sampling probability and the local steps"
        yield f"the number of items at each silo that the plan is made for is public ({fixed})"
        if plan.mechanism.divisor_rule is DivisorRule.EXPECTED_SUBJECTS:
            yield "the number of subjects at each silo that the plan is made for is public (it fixes the divisor)"
    if unit is PrivacyUnit.SUBJECT:
        yield "which subject an item belongs to, and at how many silos a subject may be, is public"
        # A sampled subject is clipped as one, however many items it has; without a cap no ε of a subject is stated.
        if not subjects and all(silo.max_items_per_subject for silo in plan.silos):
            enforced = "the cap on a subject's items at a silo is enforced before training"
            taken = "the largest number of a subject's items at a silo was read from the data and is taken as public"
            yield enforced if plan.cap_enforced else taken
        if not plan.silos_bounded:
            yield "the largest number of silos of a subject was read from the data and is taken as public"
    if sound.participants(plan) < len(plan.silos):
        drawn = plan.settings.silo_choice is SiloChoice.RANDOM
        yield f"which silos take part in a round is public: {'drawn uniformly at random' if drawn else 'in turn'}"


def _assumptions_of_summing(plan: PrivacyPlan) -> Iterable[str]:
    if sound.noise_is_summed(plan):
        honest = sound.participants(plan) - plan.settings.colluding_silos
        yield f"only the sum over silos is seen, no silo drops out, and the noise of {honest} silos stays secret"
        yield "the silos' noisy sums are added before they are divided, by one public constant for all"
        if plan.settings.colluding_silos == 0:
            yield "a silo is no observer: it knows its own noise (joint.colluding_silos: 1 makes it one)"
    elif plan.settings.own_noise_only:
        yield "only each silo's own noise is counted (joint.own_noise_only)"
    elif sound.sums_noisy_gradients(plan):
        yield "only each silo's own noise is counted: over several local steps other silos' noise may cancel"
    else:
        yield "only each silo's own noise is counted: Adam's steps do not add up to a sum of noisy gradients"


def _sampling_assumptions(plan: PrivacyPlan) -> Iterable[str]:
    settings, budget = plan.settings, plan.mechanism.shared_budget
    if settings.sampling is SamplingMethod.POISSON:
        yield "every item is sampled independently in every step, and the draws stay secret"
    elif settings.sampling is SamplingMethod.FIXED_BATCH_SIZE:
        yield "every batch is a draw without replacement, and the draws stay secret"
    elif any(silo.sampling_probability < 1 for silo in plan.silos):
        coin = "in every round, by one coin that the silos alone know"
        where = coin if budget else "at every silo in every step"
        yield f"every subject is sampled independently {where}, and the draws stay secret"
    if budget:
        yield "silos clip a subject to its parts of one common budget, whatever other subjects there are"
        if settings.subject.weights is not BudgetWeights.FIXED:
            yield "silos tell one another, and nobody else, how many items of a subject they hold"


def epsilon_over_rounds(plan: PrivacyPlan, unit: PrivacyUnit) -> list[tuple[int, float]]:
    """(rounds, ε) after about four numbers of executed rounds, the last one included: the largest over the silos.

    Data-dependent σ or divisors are taken as constants, as in ``epsilon_if_constant``. By privacy loss distributions,
    before the last round on a coarse grid, or for integer noise by the Rényi bounds that hold for it.
    """
    accountant, counts, found = _certifying(plan), _spread(plan.rounds), list[float]()
    for rounds in counts:
        resolution = SEARCH if rounds < plan.rounds else FINAL  # remembered from a statement by this accountant
        found.append(sound.unit_epsilon(replace(plan, rounds=rounds), unit, True, accountant, resolution))
    falling = list(accumulate(reversed(found), min))  # what holds for all rounds holds for the first of them
    return list(zip(counts, reversed(falling), strict=True))


def _spread(rounds: int) -> list[int]:
    return sorted({max(1, round(rounds * step / _POINTS)) for step in range(1, _POINTS + 1)})


def _over_rounds(plan: PrivacyPlan) -> dict[str, Any]:
    result: dict[str, Any] = {
        "rounds": _spread(plan.rounds),
        "constant_noise_assumed": bool(plan.mechanism.data_dependence),
        "item": None,
        "subject": None,
    }
    for unit in (PrivacyUnit.ITEM, PrivacyUnit.SUBJECT):
        with suppress(PrivacyError):
            result[unit.value] = [_finite(epsilon) for _, epsilon in epsilon_over_rounds(plan, unit)]
    return result


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
