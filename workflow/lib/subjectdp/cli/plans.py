"""The privacy plans that the options of :mod:`subjectdp.cli.plan_options` choose."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from subjectdp.accounting.events import fixed_batch_size
from subjectdp.accounting.make_plan import draft_plan, with_plan_noise, with_sampling
from subjectdp.accounting.plan_from_manifest import plan_from_dict
from subjectdp.accounting.plan_run import plan_run
from subjectdp.algorithms.registry import algorithm, mechanism
from subjectdp.cli.run_folders import find_run, read_manifest
from subjectdp.config import expand_runs, load_scenario, partition_id, run_id
from subjectdp.data.partition import load_partition
from subjectdp.errors import ConfigError, DataError, expected
from subjectdp.plan.plan import (
    Accountant,
    AccountingMode,
    FederationFacts,
    Horizontal,
    Mechanism,
    NoiseRule,
    PlanSettings,
    PrivacyPlan,
    PrivacyUnit,
    SamplingMethod,
    TrustModel,
)
from subjectdp.plan.subject_settings import SubjectSettings

_NOMINAL_ITEMS = 1_000_000_000  # items of a silo when only a sampling probability is given


def chosen_plans(options: argparse.Namespace, *needed: str) -> Iterator[tuple[str | None, PrivacyPlan]]:
    """The run id (None for a plan given by options) and the plan of each run that the options choose.

    ``needed``: see :func:`plan_from_options`.
    """
    if options.run_id is not None:
        yield options.run_id, _recorded_plan(Path(options.results), options.run_id)
    elif options.config is not None:
        yield from _configured_plans(options.config, Path(options.results))
    else:
        yield None, plan_from_options(options, needed)


def claimed_unit(plan: PrivacyPlan, options: argparse.Namespace) -> PrivacyUnit:
    """The unit that ``--unit`` names, else the one that the algorithm claims, else the item."""
    if options.unit is not None:
        return PrivacyUnit(options.unit)
    return plan.mechanism.claimed_unit or PrivacyUnit.ITEM


def _recorded_plan(results: Path, run_id: str) -> PrivacyPlan:
    folder = find_run(results, run_id)
    manifest = read_manifest(folder)
    try:
        return plan_from_dict(manifest["plan"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"Expected {folder / 'manifest.json'} to hold a plan: {error}.") from error


def _configured_plans(files: list[str], results: Path) -> Iterator[tuple[str, PrivacyPlan]]:
    """Plans of a scenario's runs; their partitions must have been made."""
    for run in expand_runs(load_scenario(files)):
        folder = results / "partitions" / partition_id(run)
        if not folder.is_dir():
            raise DataError(f"Run {run_id(run)} needs its partition: make {folder} first.")
        yield run_id(run), plan_run(run, load_partition(folder), results / "cache" / "calibration")


def plan_from_options(options: argparse.Namespace, needed: tuple[str, ...] = ()) -> PrivacyPlan:
    """A plan of equal silos from the command line's q, k, T, R and σ.

    ``needed``: further options without which the command can do nothing.

    Raises ConfigError that names all missing options, PrivacyError in sound mode for what cannot be accounted for.
    """
    chosen = None if options.algorithm is None else _mechanism(options)
    missing = ", ".join(_missing(chosen, options, needed))
    if chosen is None or missing:
        raise ConfigError(f"Expected {missing} to be given (or --run, or --config).")
    _check_ranges(options)
    facts = _facts(options)
    plan = draft_plan(chosen, facts, _settings(options, facts, chosen))
    if options.sampling != SamplingMethod.FIXED_BATCH_SIZE:  # whose q is the whole number B over the items
        plan = with_sampling(plan, options.sampling_probability)
    return with_plan_noise(plan, facts)


def _missing(chosen: Mechanism | None, options: argparse.Namespace, needed: tuple[str, ...]) -> Iterator[str]:
    """The options that the plan needs and that are not given, as they are written."""
    names = ["algorithm", "rounds", "sampling_probability", *needed]
    if chosen is None or not chosen.one_step_per_round:
        names.append("steps_per_round")
    if chosen is not None:
        if _bounds_subjects(chosen, options):
            names.append("max_items_per_subject")
        central = chosen.trust is TrustModel.CENTRAL and chosen.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH
        if options.sampling == SamplingMethod.FIXED_BATCH_SIZE or central:
            names.append("items")
    return (f"--{name.replace('_', '-')}" for name in names if getattr(options, name) is None)


def _bounds_subjects(chosen: Mechanism, options: argparse.Namespace) -> bool:
    subject = chosen.claimed_unit is PrivacyUnit.SUBJECT or options.unit == PrivacyUnit.SUBJECT
    return subject and not chosen.samples_subjects


def _check_ranges(options: argparse.Namespace) -> None:
    for name in ("silos", "max_items_per_subject", "items", "subjects", "silos_per_subject"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise expected(f"--{name.replace('_', '-')}", value, "at least 1")
    q = options.sampling_probability
    if not 0 < q <= 1:
        raise expected("--sampling-probability", q, "in (0, 1]")
    if options.sampling == SamplingMethod.FIXED_BATCH_SIZE:
        fixed_batch_size(q, options.items)


def _mechanism(options: argparse.Namespace) -> Mechanism:
    name, _, short = options.algorithm.partition(":")
    variant = options.variant or short or None
    found = mechanism(name, variant, AccountingMode(options.mode))
    if options.clipping == "update":
        of_updates = algorithm(name, variant).of_updates
        if of_updates is None:
            raise expected("--clipping", "update", f"item with algorithm {name}")
        found = of_updates
    return found if options.trust is None else replace(found, trust=TrustModel(options.trust))


def _facts(options: argparse.Namespace) -> FederationFacts:
    silos, cap = options.silos, options.max_items_per_subject
    items = _NOMINAL_ITEMS if options.items is None else options.items
    subjects = options.subjects or (1 if options.items is None else max(1, -(-items // (cap or 1))))
    held = silos if options.silos_per_subject is None else options.silos_per_subject
    total = max(1, subjects * silos // held)
    largest = (0 if cap is None else cap,) * silos  # 0: not known
    return FederationFacts((items,) * silos, (subjects,) * silos, largest, cap is not None, cap, held, total)


def _settings(options: argparse.Namespace, facts: FederationFacts, chosen: Mechanism) -> PlanSettings:
    subjects = chosen.samples_subjects
    return PlanSettings(
        mode=AccountingMode(options.mode),
        horizontal=Horizontal(options.horizontal),
        sampling=SamplingMethod.POISSON_SUBJECTS if subjects else SamplingMethod(options.sampling),
        epsilon=options.epsilon,
        delta=options.delta,
        clip_norm=1.0,
        rounds=options.rounds,
        local_steps=1 if chosen.one_step_per_round else options.steps_per_round,
        batch_size=max(1, round(options.sampling_probability * facts.items[0])),
        noise_multiplier=options.noise_multiplier,
        accountant=Accountant(options.accountant),
        own_noise_only=options.own_noise_only,
        colluding_silos=options.colluding_silos,
        subject=SubjectSettings(
            options.sampling_probability if subjects else 1.0,
            every=options.every,
            noise_band=options.noise_band,
        ),
    )
