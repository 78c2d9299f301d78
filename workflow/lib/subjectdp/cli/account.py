"""``subjectdp account``: the privacy loss of plans, and the noise for an ε."""

import argparse
from dataclasses import asdict
from typing import Any

from subjectdp.accounting.privacy_report import noise_size, report_text
from subjectdp.accounting.sound import noise_of_the_sum
from subjectdp.accounting.statements import privacy_statements, sound_statement
from subjectdp.api.accounting import Cap, caps, mechanism, person_silos, person_table, worst_person
from subjectdp.api.counts import read_counts
from subjectdp.cli.plans import add_plan_options, chosen_plans, schedule_of, settle
from subjectdp.errors import ConfigError, PrivacyError, expected
from subjectdp.io.printing import print_json, print_table
from subjectdp.plan.plan import AccountingMode, PrivacyPlan, PrivacyUnit


def account_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_plan_options(parser)
    help_ = "noise std over clip norm, of each silo's sum; of the sum over silos under secure aggregation"
    parser.add_argument("--noise-multiplier", type=float, help=help_)
    help_ = "also write one page for an ethics board, by its suffix .md, .html or .pdf (one plan)"
    parser.add_argument("--statement", metavar="FILE", help=help_)
    help_ = "ε of a person by items a silo and number of silos, as a table"
    parser.add_argument("--by-person", action="store_true", help=help_)
    help_ = "with --counts: what caps cost, such as 1,2,4, as a table"
    parser.add_argument("--caps", metavar="LIST", nargs="?", const="", help=help_)
    parser.add_argument("--figure", metavar="FILE", help="with --caps: draw the table")


def account(options: argparse.Namespace) -> None:
    """Prints epsilon for a plan given by options, for the runs of a configuration, or for a run. A plan without
    --noise-multiplier has the smallest noise found that keeps --epsilon.
    """
    settle(options)
    if options.caps is not None:
        _print_caps(options)
        return
    plans = list(chosen_plans(options))
    records = [_record(name, plan, options) for name, plan in plans]
    if options.statement is not None:
        _write_statement(plans, records, options.statement)
    if options.json:
        if options.by_person:
            people = (_by_person(plan, options) for _, plan in plans)
            records = [{**record, "by_person": table} for record, table in zip(records, people, strict=True)]
        print_json(records[0] if options.config is None else records)
    else:
        print("\n".join(map(_text, records)))
        if options.by_person:
            for _, plan in plans:
                _print_people(plan, options)


def _by_person(plan: PrivacyPlan, options: argparse.Namespace) -> dict[str, Any]:
    """ε by items at each silo and number of silos, and the person for whom it is largest, where people are public."""
    worst = None if options.counts is None else worst_person(plan, read_counts(options.counts))
    return {
        "silos": person_silos(plan),
        "epsilon": [{"items": items, "epsilon": found} for items, found in person_table(plan)],
        "largest": None if worst is None else dict(zip(("subject", "items", "epsilon"), worst, strict=True)),
    }


def _print_people(plan: PrivacyPlan, options: argparse.Namespace) -> None:
    found = _by_person(plan, options)
    print(f"\nε of a person at delta {plan.settings.delta:g}, by items at each silo and number of silos")
    heads = ("items a silo", *(f"{silos} silo{'s' * (silos > 1)}" for silos in found["silos"]))
    print_table(heads, [(row["items"], *(f"{each:.4g}" for each in row["epsilon"])) for row in found["epsilon"]])
    if found["largest"] is not None:
        name, held, epsilon = found["largest"].values()
        places = ", ".join(f"{items} at {silo}" for silo, items in held.items())
        print(f"Largest for {name} ({places}): ε {epsilon:.4g}. The counts are taken as public.")


def _print_caps(options: argparse.Namespace) -> None:
    """The caps' costs, as a table and a figure."""
    if options.counts is None or options.algorithm is None or options.rounds is None:
        raise ConfigError("Expected --algorithm, --rounds and --counts to be given with --caps.")
    try:
        tried = [int(each) for each in options.caps.split(",")] if options.caps else None
    except ValueError:
        raise expected("--caps", options.caps, "whole numbers with commas") from None
    algorithm = mechanism(options.algorithm, options.trust)
    rows = caps(algorithm, options.counts, schedule_of(options), options.epsilon, options.delta, tried)
    if options.figure is not None:
        from subjectdp.figures.runs_and_data import draw_caps  # here: matplotlib, for this option alone

        draw_caps(rows, options.figure)
    if options.json:
        print_json([asdict(row) for row in rows])
        return
    print(f"ε {options.epsilon:g} of a person over all silos, at delta {options.delta:g}")
    heads = ("cap", "items kept", "items lost (%)", "people touched (%)", "noise multiplier", "noise / 1,000 items")
    print_table(heads, map(_cap_row, rows))
    best = min(rows, key=lambda row: row.noise_per_item)
    print(f"Least noise for an item kept: cap {best.cap}. Where the counts are private, choose it by public numbers.")


def _cap_row(row: Cap) -> tuple[Any, ...]:
    shares = (f"{100 * share:.1f}" for share in (row.items_lost, row.people_touched))
    return row.cap, f"{row.items_kept:,}", *shares, f"{row.noise_multiplier:.4g}", f"{1000 * row.noise_per_item:.4g}"


def _write_statement(plans: list[tuple[str | None, PrivacyPlan]], records: list[dict[str, Any]], output: str) -> None:
    from subjectdp.cli.ledger import write_page  # here: it needs the workflow's packages

    if len(plans) != 1:
        raise expected("plans of --statement", len(plans), "one: name a run with --run")
    name, plan = plans[0]
    write_page(plan, records[0]["privacy"], "a plan" if name is None else f"run {name}", output)


def _record(name: str | None, plan: PrivacyPlan, options: argparse.Namespace) -> dict[str, Any]:
    """ε of the chosen unit and the noise first, then all statements."""
    statements = privacy_statements(plan, over_rounds=False)
    unit, chosen = _chosen(plan, statements, options.unit)
    given = plan.settings.noise_multiplier is not None
    return {
        "run": name,
        "algorithm": plan.mechanism.algorithm,
        "variant": plan.mechanism.variant,
        "mode": str(plan.settings.mode),
        "unit": str(unit),
        "rounds": plan.rounds,
        "steps_per_round": plan.silos[0].steps_per_round,
        "silos": len(plan.silos),
        "warning": plan.delta_warning,
        "epsilon": chosen["epsilon"],
        "target_epsilon": None if given or chosen["epsilon"] is None else plan.settings.epsilon,
        "delta": plan.settings.delta,
        "guarantee": chosen["guarantee"],
        "noise_multiplier": noise_of_the_sum(plan),
        "noise_multipliers": [silo.noise_multiplier for silo in plan.silos],
        "group_noise_multipliers": list(plan.group_noise_multipliers[0]) if plan.group_noise_multipliers else None,
        "noise": noise_size(plan),
        "statement": chosen,
        "privacy": statements,
        "card": report_text(plan, statements),
        "plan": plan.to_dict(),
    }


def _chosen(plan: PrivacyPlan, statements: dict[str, Any], wanted: str | None) -> tuple[PrivacyUnit, dict[str, Any]]:
    """The unit that is wanted, else the one that the algorithm claims, else the item; and its statement."""
    claimed = plan.mechanism.claimed_unit
    unit = PrivacyUnit(wanted) if wanted is not None else claimed or PrivacyUnit.ITEM
    if plan.settings.mode is AccountingMode.SOUND:
        return unit, sound_statement(plan, unit, every_silo=True)
    if wanted is not None and unit != claimed:
        raise PrivacyError(f"{plan.mechanism.algorithm} claims nothing for a unit of {unit}: use --mode sound.")
    return unit, statements["as_published"]


def _text(record: dict[str, Any]) -> str:
    epsilon = "none" if record["epsilon"] is None else f"{record['epsilon']:.4f}"
    target = "" if record["target_epsilon"] is None else f" (target {record['target_epsilon']:g})"
    conditional = ", conditional" if record["guarantee"] == "conditional" else ""
    level = f"{record['unit']} level, {record['mode']}{conditional}"
    lines = [
        f"epsilon {epsilon}{target} at delta {record['delta']:g}, {level}",
        f"noise multiplier {record['noise']}",
        *(f"  Z = {size:3d}  {value:.6g}" for size, value in enumerate(record["group_noise_multipliers"] or (), 1)),
        *([] if record["warning"] is None else [f"WARNING: {record['warning']}"]),
    ]
    return "\n".join([*lines, "", record["card"]])
