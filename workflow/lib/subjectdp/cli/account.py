"""What ``subjectdp account`` and ``subjectdp calibrate`` do; imported only when one of them runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from subjectdp.accounting import make_plan as planning
from subjectdp.accounting import published
from subjectdp.accounting.plan_from_manifest import plan_from_dict
from subjectdp.accounting.privacy_report import report_text
from subjectdp.accounting.statements import privacy_statements, published_statement, sound_statement
from subjectdp.algorithms.registry import algorithm, mechanism
from subjectdp.cli.run_folders import find_run, read_manifest
from subjectdp.errors import ConfigError, DataError, PrivacyError, expected
from subjectdp.plan.plan import (
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

_NOMINAL_ITEMS = 1_000_000_000  # silo size where only a sampling probability is given


def account(options: argparse.Namespace) -> None:
    """Prints ε: of a plan given by options, of a finished run, or of every run of a configuration."""
    if options.run_id is None and options.config is None and options.noise_multiplier is None:
        raise ConfigError(
            "Expected --noise-multiplier (or --run, or --config); `subjectdp calibrate` finds one."
        )
    records = [_account_record(name, plan, options) for name, plan in _plans(options)]
    _print(records, options, _account_text)


def calibrate(options: argparse.Namespace) -> None:
    """Prints the noise multiplier of a plan given by options, or of every run of a configuration."""
    records = [_calibration_record(name, plan, options) for name, plan in _plans(options)]
    _print(records, options, _calibration_text)


def _print(records: list[dict[str, Any]], options: argparse.Namespace, text: Any) -> None:
    single = options.config is None
    if options.json:
        print(json.dumps(records[0] if single else records, indent=2, allow_nan=False))
        return
    print("\n".join(text(record) for record in records))


def _plans(options: argparse.Namespace) -> Iterator[tuple[str | None, PrivacyPlan]]:
    if options.run_id is not None:
        yield options.run_id, _recorded_plan(Path(options.results), options.run_id)
    elif options.config is not None:
        yield from _configured_plans(options.config, Path(options.results))
    else:
        yield None, plan_from_options(options)


def _recorded_plan(results: Path, run_id: str) -> PrivacyPlan:
    folder = find_run(results, run_id)
    manifest = read_manifest(folder)
    try:
        return plan_from_dict(manifest["plan"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"Expected {folder / 'manifest.json'} to hold a plan: {error}.") from error


def _configured_plans(files: list[str], results: Path) -> Iterator[tuple[str, PrivacyPlan]]:
    """Plans of a scenario's runs; their partitions must have been made."""
    from subjectdp.accounting.plan_run import plan_run
    from subjectdp.config import expand_runs, load_scenario, partition_id, run_id
    from subjectdp.data.partition import load_partition

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
    plan = planning.draft_plan(chosen, facts, _settings(options, facts, chosen))
    plan = replace(plan, silos=tuple(replace(silo, sampling_probability=q) for silo in plan.silos))
    return planning.with_plan_noise(plan, facts)


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
    """Options that only some plans need."""
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
        accountant=options.accountant,
        own_noise_only=options.own_noise_only,
        colluding_silos=options.colluding_silos,
        subject=SubjectSettings(
            options.sampling_probability if subjects else 1.0,
            every=options.every,
            noise_band=options.noise_band,
        ),
    )


def _unit(plan: PrivacyPlan, options: argparse.Namespace) -> PrivacyUnit:
    if options.unit is not None:
        return PrivacyUnit(options.unit)
    return plan.mechanism.claimed_unit or PrivacyUnit.ITEM


def _account_record(name: str | None, plan: PrivacyPlan, options: argparse.Namespace) -> dict[str, Any]:
    """ε of the chosen unit on top, every statement below."""
    unit = _unit(plan, options)
    statements = privacy_statements(plan, over_rounds=False)
    if plan.settings.mode is AccountingMode.SOUND:
        chosen = sound_statement(plan, unit, every_silo=True)
    elif options.unit is not None and options.unit != plan.mechanism.claimed_unit:
        raise PrivacyError(
            f"{plan.mechanism.algorithm} claims nothing for a unit of {unit}: use --mode sound."
        )
    else:
        chosen = statements["as_published"]
    return {
        **_heading(name, plan, unit),
        "epsilon": chosen["epsilon"],
        "delta": plan.settings.delta,
        "guarantee": chosen["guarantee"],
        "noise_multiplier": plan.silos[0].noise_multiplier,
        "statement": chosen,
        "privacy": statements,
        "card": report_text(plan, statements),
    }


def _account_text(record: dict[str, Any]) -> str:
    epsilon = "none" if record["epsilon"] is None else f"{record['epsilon']:.4f}"
    heading = f"epsilon {epsilon} at delta {record['delta']:g}, {record['unit']} level, {record['mode']}"
    return f"{heading}\n\n{record['card']}"


def _heading(name: str | None, plan: PrivacyPlan, unit: PrivacyUnit) -> dict[str, Any]:
    return {
        "run": name,
        "algorithm": plan.mechanism.algorithm,
        "variant": plan.mechanism.variant,
        "mode": str(plan.settings.mode),
        "unit": str(unit),
        "rounds": plan.rounds,
        "steps_per_round": plan.silos[0].steps_per_round,
        "silos": len(plan.silos),
    }


def _calibration_record(name: str | None, plan: PrivacyPlan, options: argparse.Namespace) -> dict[str, Any]:
    """σ of every silo (and σ_Z by group size), with the ε that it reaches."""
    unit = plan.mechanism.claimed_unit
    if unit is None:
        raise PrivacyError(f"{plan.mechanism.algorithm} adds no noise: there is nothing to calibrate.")
    sound = plan.settings.mode is AccountingMode.SOUND
    reached = sound_statement(plan, unit, every_silo=True) if sound else published_statement(plan)
    noise = [silo.noise_multiplier for silo in plan.silos]
    return {
        **_heading(name, plan, unit),
        "noise_multiplier": noise[0],
        "noise_multipliers": noise,
        "group_noise_multipliers": _group_noise(plan, options.group_sizes),
        "epsilon": reached["epsilon"],
        "target_epsilon": plan.settings.epsilon,
        "delta": plan.settings.delta,
        "guarantee": reached["guarantee"],
    }


def _group_noise(plan: PrivacyPlan, sizes: int | None) -> list[float] | None:
    """σ_Z of the first silo: as planned, or for every group size up to ``sizes``."""
    if plan.mechanism.noise_rule is not NoiseRule.GROUP_SIZE_IN_BATCH:
        if sizes is not None:
            allowed = (
                "left out: only local_group_dp and central_sub_dp, as published, have noise by group size"
            )
            raise expected("--group-sizes", sizes, allowed)
        return None
    if sizes is None:
        return list(plan.group_noise_multipliers[0])
    if sizes < 1:
        raise expected("--group-sizes", sizes, "at least 1")
    loss = published.published_loss(plan.mechanism, published.facts_of(plan), plan.settings, plan.silos[0])
    return list(published.group_noise(loss, plan.settings, sizes))


def _calibration_text(record: dict[str, Any]) -> str:
    low, high = min(record["noise_multipliers"]), max(record["noise_multipliers"])
    noise = f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
    lines = [f"noise multiplier {noise} ({record['algorithm']}, {record['unit']} level, {record['mode']})"]
    if record["group_noise_multipliers"]:
        lines += [
            f"  Z = {size:3d}  {value:.6g}" for size, value in enumerate(record["group_noise_multipliers"], 1)
        ]
    epsilon = "none" if record["epsilon"] is None else f"{record['epsilon']:.4f}"
    lines.append(f"epsilon {epsilon} at delta {record['delta']:g} (target {record['target_epsilon']:g})")
    return "\n".join(lines)
