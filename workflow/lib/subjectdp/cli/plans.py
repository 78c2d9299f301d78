"""The privacy plans that the options of :mod:`subjectdp.cli.plan_options` choose."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from subjectdp.accounting.make_plan import draft_plan, with_plan_noise
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


def chosen_plans(options: argparse.Namespace) -> Iterator[tuple[str | None, PrivacyPlan]]:
    """The run id (None for a plan given by options) and the plan of each run that the options choose."""
    if options.run_id is not None:
        yield options.run_id, _recorded_plan(Path(options.results), options.run_id)
    elif options.config is not None:
        yield from _configured_plans(options.config, Path(options.results))
    else:
        yield None, plan_from_options(options)


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


def plan_from_options(options: argparse.Namespace) -> PrivacyPlan:
    """A plan of equal silos from the command line's q, k, T, R and σ.

    Raises ConfigError for a missing option, PrivacyError in sound mode for what cannot be accounted for.
    """
    if options.algorithm is not None and options.steps_per_round is None:
        one_step = algorithm(options.algorithm.partition(":")[0]).one_step_per_round
        options.steps_per_round = 1 if one_step else None
    for name in ("algorithm", "rounds", "steps_per_round", "sampling_probability"):
        if getattr(options, name) is None:
            raise ConfigError(f"Expected --{name.replace('_', '-')} to be given (or --run, or --config).")
    q = options.sampling_probability
    if not 0 < q <= 1:
        raise expected("--sampling-probability", q, "in (0, 1]")
    chosen = _mechanism(options)
    _needs(chosen, options)
    facts = _facts(options)
    plan = draft_plan(chosen, facts, _settings(options, facts, chosen))
    plan = replace(plan, silos=tuple(replace(silo, sampling_probability=q) for silo in plan.silos))
    return with_plan_noise(plan, facts)


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


def _needs(chosen: Mechanism, options: argparse.Namespace) -> None:
    """ConfigError if an option is missing that this mechanism needs."""
    cap = options.max_items_per_subject
    if cap is not None and cap < 1:
        raise expected("--max-items-per-subject", cap, "at least 1")
    subject = chosen.claimed_unit is PrivacyUnit.SUBJECT or options.unit == "subject"
    if subject and cap is None and not chosen.samples_subjects:
        raise ConfigError("Expected --max-items-per-subject to be given for the subject as the privacy unit.")
    central = chosen.trust is TrustModel.CENTRAL and chosen.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH
    if options.items is None and (options.sampling == "fixed_batch_size" or central):
        raise ConfigError("Expected --items to be given: the batch size matters here.")


def _facts(options: argparse.Namespace) -> FederationFacts:
    silos, cap = options.silos, options.max_items_per_subject or 1
    if silos < 1:
        raise expected("--silos", silos, "at least 1")
    items = _NOMINAL_ITEMS if options.items is None else options.items
    subjects = options.subjects or max(1, -(-options.items // cap) if options.items else 1)
    held = silos if options.silos_per_subject is None else options.silos_per_subject
    total = max(1, subjects * silos // held)
    return FederationFacts((items,) * silos, (subjects,) * silos, (cap,) * silos, True, cap, held, total)


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
        local_steps=options.steps_per_round,
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
