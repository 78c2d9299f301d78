"""Rules between keys of a run: checked before anything is computed, all reported at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.config.run_ids import SAMPLING_SUBJECTS
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import ConfigError, SubjectDPError, expected, unknown
from subjectdp.models.catalogue import model_names
from subjectdp.plan.plan import PrivacyUnit

if TYPE_CHECKING:
    from subjectdp.config.models import RunConfig

MODELS_OF_DATASET = {name: tuple(model_names(facts.kind)) for name, facts in DATASETS.items()}
"""Models that fit each data set; the first is the default."""

VARIANTS_OF_ALGORITHM: dict[str, tuple[str, ...]] = {
    name: known
    for name in ALGORITHMS
    if (known := tuple(v for v in algorithm(name).variants if v is not None))
}
"""Variants of the algorithms that have any; the first is the default."""

SUBJECT_LEVEL = frozenset(
    name
    for name in ALGORITHMS
    if any(m.claimed_unit is PrivacyUnit.SUBJECT for m in algorithm(name).mechanisms)
)
"""Algorithms whose paper claims privacy of a subject (or more)."""

BEYOND_PAPERS = frozenset(
    name for name in ALGORITHMS if all(m.beyond_papers for m in algorithm(name).mechanisms)
)
"""Algorithms of no paper of this project, for which only sound mode exists."""

CAPPED = frozenset(
    name for name in SUBJECT_LEVEL if not all(m.samples_subjects for m in algorithm(name).mechanisms)
)
"""Algorithms whose sound accounting counts a subject's items, and so needs a cap on them."""

HORIZONTAL = frozenset(
    name for name in ALGORITHMS if any(m.horizontal_composition for m in algorithm(name).mechanisms)
)
"""Algorithms that the papers' horizontal rules apply to."""

Rule = Callable[["RunConfig"], Iterator[SubjectDPError]]


def check_run(run: RunConfig) -> None:
    """Raises one ConfigError, a line for each rule that ``run`` breaks."""
    problems = [str(problem) for rule in _RULES for problem in rule(run)]
    if problems:
        raise ConfigError("\n".join(problems))


def _variant(run: RunConfig) -> Iterator[SubjectDPError]:
    name, variant = run.algorithm.name, run.algorithm.variant
    if variant is None:
        return
    known = VARIANTS_OF_ALGORITHM.get(name, ())
    if not known:
        yield expected("algorithm.variant", variant, f"null ({name} has no variants)")
    elif variant not in known:
        yield unknown(f"algorithm.variant of {name}", variant, known)


def _model_fits(run: RunConfig) -> Iterator[SubjectDPError]:
    fitting = MODELS_OF_DATASET[run.data.dataset]
    if run.model.name is not None and run.model.name not in fitting:
        allowed = f"{' or '.join(fitting)} when data.dataset is {run.data.dataset}"
        yield expected("model.name", run.model.name, allowed)


def _source(run: RunConfig) -> Iterator[SubjectDPError]:
    data = run.data
    sources = DATASETS[data.dataset].sources
    if data.source not in sources:
        yield expected(
            "data.source", data.source, f"{' or '.join(sources)} when data.dataset is {data.dataset}"
        )
    if data.source == "leaf_json" and data.path is None:
        yield expected("data.path", None, "the folder or zip of LEAF's JSON when data.source is leaf_json")
    if data.source == "embedded" and data.path is not None:
        yield expected("data.path", data.path, "null when data.source is embedded (did you mean leaf_json?)")
    if data.source == "leaf_json" and data.duplicate_first_image_bug:
        yield expected("data.duplicate_first_image_bug", True, "false when data.source is leaf_json")


def _subjects(run: RunConfig) -> Iterator[SubjectDPError]:
    data = run.data
    if data.source == "embedded" and data.subjects is not None and data.subjects > data.embedded.subjects:
        allowed = f"at most data.embedded.subjects ({data.embedded.subjects})"
        yield expected("data.subjects", data.subjects, allowed)


def _silos(run: RunConfig) -> Iterator[SubjectDPError]:
    silos = run.partition.silos
    allowed = f"at most partition.silos ({silos})"
    if run.training.silos_per_round is not None and run.training.silos_per_round > silos:
        yield expected("training.silos_per_round", run.training.silos_per_round, allowed)
    if run.partition.silos_per_subject is not None and run.partition.silos_per_subject > silos:
        yield expected("partition.silos_per_subject", run.partition.silos_per_subject, allowed)


def _alpha(run: RunConfig) -> Iterator[SubjectDPError]:
    if run.partition.distribution == "uniform" and run.partition.alpha != 1.0:
        allowed = "1 when partition.distribution is uniform (set it to power)"
        yield expected("partition.alpha", run.partition.alpha, allowed)


def _rounds(run: RunConfig) -> Iterator[SubjectDPError]:
    if run.algorithm.name not in HORIZONTAL or run.privacy.horizontal != "rounds_over_sqrt_s":
        return
    limits = (run.partition.silos, run.partition.silos_per_subject, run.training.silos_per_round)
    involved = min(limit for limit in limits if limit is not None)
    least = math.isqrt(involved - 1) + 1
    if run.training.rounds < least:
        allowed = f"at least {least} (rounds_over_sqrt_s executes floor(R/sqrt({involved})) rounds)"
        yield expected("training.rounds", run.training.rounds, allowed)


def _sound_cap(run: RunConfig) -> Iterator[SubjectDPError]:
    if run.privacy.mode != "sound" or run.algorithm.name not in CAPPED:
        return
    cap, bound = run.partition.max_items_per_subject, run.privacy.max_items_per_subject
    if cap is None:
        allowed = f"an enforced cap when privacy.mode is sound and algorithm.name is {run.algorithm.name}"
        yield expected("partition.max_items_per_subject", None, allowed)
    elif bound is not None and bound < cap:
        allowed = f"at least partition.max_items_per_subject ({cap}) when privacy.mode is sound"
        yield expected("privacy.max_items_per_subject", bound, allowed)


def _one_local_step(run: RunConfig) -> Iterator[SubjectDPError]:
    steps = run.training.local_steps
    each_step = not run.joint.own_noise_only and run.joint.clipping == "item"
    joint = run.algorithm.name == "joint_noise" and each_step
    if joint and run.privacy.mode == "sound" and steps != 1:
        allowed = (
            "1 when algorithm.name is joint_noise and privacy.mode is sound (or set joint.clipping: update, or "
            "joint.own_noise_only)"
        )
        yield expected("training.local_steps", steps, allowed)
    if run.algorithm.name == "central_sub_dp" and steps not in (None, 1):
        allowed = "1 or null when algorithm.name is central_sub_dp (one mini-batch a silo and round)"
        yield expected("training.local_steps", steps, allowed)


def _joint_optimizer(run: RunConfig) -> Iterator[SubjectDPError]:
    joint, name = run.joint, run.training.optimizer.name
    summed = run.algorithm.name == "joint_noise" and not joint.own_noise_only and joint.clipping == "item"
    if summed and run.privacy.mode == "sound" and name == "adam":
        allowed = (
            "sgd or momentum when algorithm.name is joint_noise and privacy.mode is sound (Adam's steps do not add up "
            "to a sum of noisy gradients; or set joint.clipping: update, or joint.own_noise_only)"
        )
        yield expected("training.optimizer.name", name, allowed)


def _joint_silos(run: RunConfig) -> Iterator[SubjectDPError]:
    if run.algorithm.name != "joint_noise":
        return
    silos = run.partition.silos
    for key in ("clip_norm_factors", "learning_rate_factors", "noise_factors"):
        factors = getattr(run.joint, key)
        if factors and len(factors) != silos:
            yield expected(f"joint.{key}", list(factors), f"one number for each of the {silos} silos")
    taking_part = run.training.silos_per_round or silos
    if run.joint.colluding_silos >= taking_part:
        allowed = f"fewer than the {taking_part} silos of a round"
        yield expected("joint.colluding_silos", run.joint.colluding_silos, allowed)


def _joint_updates(run: RunConfig) -> Iterator[SubjectDPError]:
    if run.algorithm.name != "joint_noise" or run.joint.clipping != "update":
        return
    if run.privacy.mode != "sound":
        allowed = "sound when joint.clipping is update (no paper of this project publishes it)"
        yield expected("privacy.mode", run.privacy.mode, allowed)
    if run.joint.noise != "gaussian":
        yield expected("joint.noise", run.joint.noise, "gaussian when joint.clipping is update")


def _joint_integers(run: RunConfig) -> Iterator[SubjectDPError]:
    if run.algorithm.name != "joint_noise" or run.joint.noise != "skellam":
        return
    if run.privacy.accountant != "rdp":
        allowed = "rdp when joint.noise is skellam (its bounds are Rényi divergences)"
        yield expected("privacy.accountant", run.privacy.accountant, allowed)
    optimizer = run.training.optimizer
    if optimizer.name != "sgd" or optimizer.weight_decay != 0.0:
        allowed = "sgd without weight decay when joint.noise is skellam (updates are sums of noisy integers)"
        yield expected("training.optimizer", optimizer.name, allowed)


def _sound_only(run: RunConfig) -> Iterator[SubjectDPError]:
    name, sound = run.algorithm.name, run.privacy.mode == "sound"
    if name in BEYOND_PAPERS and not sound:
        allowed = f"sound when algorithm.name is {name} (no paper of this project publishes it)"
        yield expected("privacy.mode", run.privacy.mode, allowed)
    predicted = run.privacy.predicted_subjects
    if predicted is None or name == "fed_avg":
        return
    if not sound:
        yield expected("privacy.predicted_subjects", predicted, "null unless privacy.mode is sound")
    if run.privacy.noise_multiplier is not None:
        allowed = "null where privacy.noise_multiplier is given"
        yield expected("privacy.predicted_subjects", predicted, allowed)


def _sampled_subjects(run: RunConfig) -> Iterator[SubjectDPError]:
    name, subject, training = run.algorithm.name, run.subject, run.training
    if name not in SAMPLING_SUBJECTS:
        return
    if training.sampling != "poisson":
        allowed = f"poisson when algorithm.name is {name} (a coin for each subject)"
        yield expected("training.sampling", training.sampling, allowed)
    if name == "subject_sampling":
        return
    if subject.contribution == "gradient" and training.local_steps not in (None, 1):
        allowed = "1 or null when subject.contribution is gradient (update takes local steps)"
        yield expected("training.local_steps", training.local_steps, allowed)
    if subject.every > training.rounds:
        yield expected("subject.every", subject.every, f"at most training.rounds ({training.rounds})")
    band = subject.noise_band
    if band is not None and band > training.rounds:
        yield expected("subject.noise_band", band, f"at most training.rounds ({training.rounds})")
    if band != 1 and subject.sampling_probability < 1:
        allowed = "1 when subject.noise_band is not 1 (subject.every takes its place)"
        yield expected("subject.sampling_probability", subject.sampling_probability, allowed)


def _augmentation(run: RunConfig) -> Iterator[SubjectDPError]:
    name, dataset = run.training.augmentation.name, run.data.dataset
    if name == "none":
        return
    if DATASETS[dataset].kind != "image":
        allowed = f"none when data.dataset is {dataset} (a warp is of an image)"
        yield expected("training.augmentation.name", name, allowed)
    execution = run.performance.execution
    if execution in ("padded", "stacked"):
        allowed = f"auto or exact when training.augmentation.name is {name}"
        yield expected("performance.execution", execution, allowed)


_RULES: tuple[Rule, ...] = (
    _variant,
    _model_fits,
    _source,
    _subjects,
    _silos,
    _alpha,
    _rounds,
    _sound_cap,
    _one_local_step,
    _joint_optimizer,
    _joint_silos,
    _joint_updates,
    _joint_integers,
    _sound_only,
    _sampled_subjects,
    _augmentation,
)
