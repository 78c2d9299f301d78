"""``subjectdp account``: the privacy loss of plans, and the noise for an ε."""

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from subjectdp.accounting.events import fixed_batch_size
from subjectdp.accounting.make_plan import draft_plan, with_plan_noise, with_sampling
from subjectdp.accounting.privacy_report import noise_size, report_text
from subjectdp.accounting.sound import noise_of_the_sum
from subjectdp.accounting.statements import ItemFacts, privacy_statements, sound_statement
from subjectdp.algorithms import registry
from subjectdp.api.accounting import Cap, caps, mechanism, person_silos, person_table, scheduled_settings, worst_person
from subjectdp.api.counts import read_counts, read_sizes
from subjectdp.api.schedule import Schedule
from subjectdp.cli.parser import add_json, check_output, values_of
from subjectdp.errors import ConfigError, PrivacyError, SubjectDPError, expected
from subjectdp.io.printing import print_json, print_table
from subjectdp.places import STATEMENT_SUFFIXES
from subjectdp.plan.plan import (
    MOST_SILOS,
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

Chosen = tuple[str | None, PrivacyPlan, bool]
"""A run's id (None for a plan given by options), its plan, and whether its data have no subject ids."""


def account(options: argparse.Namespace) -> None:
    """Prints epsilon for a plan given by options, for the runs of a configuration, or for a run. A plan without
    --noise-multiplier has the smallest noise found that keeps --epsilon.
    """
    settle(options)
    try:
        _answer(options)
    except SubjectDPError as problem:
        if options.run_id is not None or options.config is not None:
            raise
        raise type(problem)(_with_options(str(problem))) from problem


def _answer(options: argparse.Namespace) -> None:
    if options.caps is not None:
        _print_caps(options)
        return
    plans = list(chosen_plans(options))
    if options.statement is not None and len(plans) != 1:
        raise expected("plans of --statement", len(plans), "one: name a run with --run")
    records = [_record(name, plan, options, alone) for name, plan, alone in plans]
    if options.statement is not None:
        from subjectdp.cli.ledger import write_page  # here: it needs the workflow's packages

        name, plan, _ = plans[0]
        write_page(plan, records[0]["privacy"], "a plan" if name is None else f"run {name}", options.statement)
    if options.json:
        if options.by_person:
            people = (_by_person(plan, options) for _, plan, _ in plans)
            records = [{**record, "by_person": table} for record, table in zip(records, people, strict=True)]
        print_json(records[0] if options.config is None else records)
    else:
        print("\n".join(map(_text, records)))
        if options.by_person:
            for _, plan, _ in plans:
                _print_people(plan, options)


_KEY = re.compile(
    r"(?<=^Expected )\w+(?= to be )|\b(?:algorithm|partition|training|privacy|joint)\.\w+"
    r"|(?<![\w./'-])[a-z]+(?:_[a-z]+)+(?![\w/']|\.\w)",
    re.MULTILINE,
)
_WRITTEN_AS = {"name": "algorithm", "local_steps": "steps_per_round", "local_epochs": "epochs"}


def _with_options(message: str) -> str:
    """The message with options in place of the keys of a configuration, or the arguments of a function."""

    def option(key: re.Match[str]) -> str:
        name = key[0].rpartition(".")[2]
        written = _written(_WRITTEN_AS.get(name, name))
        return written if written.removeprefix("--") in _OPTIONS else key[0]

    return _KEY.sub(option, message).replace("--clipping: ", "--clipping ")


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


def _record(name: str | None, plan: PrivacyPlan, options: argparse.Namespace, alone: bool) -> dict[str, Any]:
    """ε of the chosen unit and the noise first, then all statements."""
    statements = privacy_statements(plan, over_rounds=False, items=ItemFacts(own_subjects=True) if alone else None)
    unit, chosen = _chosen(plan, statements, options.unit, name)
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


def _chosen(
    plan: PrivacyPlan, statements: dict[str, Any], wanted: str | None, run: str | None
) -> tuple[PrivacyUnit, dict[str, Any]]:
    """The unit that is wanted, else the one that the algorithm claims, else the item; and its statement."""
    claimed = plan.mechanism.claimed_unit
    unit = PrivacyUnit(wanted) if wanted is not None else claimed or PrivacyUnit.ITEM
    if plan.settings.mode is AccountingMode.SOUND:
        return unit, sound_statement(plan, unit, every_silo=True)
    if wanted is not None and unit != claimed:
        remedy = "use --mode sound" if run is None else "leave --unit out, which prints what is provable for each unit"
        raise PrivacyError(f"{plan.mechanism.title} as published claims nothing for a unit of {unit}: {remedy}.")
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


_MOST_ITEMS = 100_000  # of a subject at a silo: beyond, a group's ε is in the billions, after minutes
_NOMINAL_ITEMS = 1_000_000_000  # items of a silo when only a sampling probability is given


def chosen_plans(options: argparse.Namespace) -> Iterator[Chosen]:
    if options.run_id is None and options.config is None:
        yield None, plan_from_options(options), False
        return
    from subjectdp.cli import ledger  # here: runs need the workflow's packages, the other options the core's

    if options.config is None:
        record, plan = ledger.recorded(Path(options.results), options.run_id)
        yield options.run_id, plan, bool((record.get("partition") or {}).get("own_subjects"))
    else:
        yield from ledger.configured_plans(options.config, Path(options.results))


def plan_from_options(options: argparse.Namespace) -> PrivacyPlan:
    """A plan from the command line's q (or B), T, R and σ or ε: of the silos of ``--counts``, or of equal silos.

    Raises ConfigError that names all missing options, PrivacyError in sound mode for what cannot be accounted for.
    """
    chosen = None if options.algorithm is None else _mechanism(options)
    missing = ", ".join(_missing(chosen, options))
    if chosen is None or missing:
        raise ConfigError(f"Expected {missing} to be given (or --run, or --config).")
    _check_ranges(options)
    schedule_of(options).check_steps(chosen)
    facts = _equal_silos(options) if listed_silos(options) is None else _counted(options)
    plan = draft_plan(chosen, facts, _settings(options, facts, chosen))
    q = options.sampling_probability
    if q is not None and options.sampling != SamplingMethod.FIXED_BATCH_SIZE:
        plan = with_sampling(plan, q)  # where batches are fixed, q is the whole number B over the items
    known = listed_silos(options) is not None or options.subjects is not None
    return replace(with_plan_noise(plan, facts), total_subjects=facts.total_subjects if known else None)


def _missing(chosen: Mechanism | None, options: argparse.Namespace) -> Iterator[str]:
    """The options that the plan needs and that are not given, as they are written."""
    names, listed = ["algorithm", "rounds"], listed_silos(options) is not None
    draws = chosen is not None and chosen.samples_subjects
    if options.sampling_probability is None and (options.batch_size is None or draws):
        names.append("batch_size" if listed and not draws else "sampling_probability")
    if not listed and options.epochs == 1 and not (chosen is not None and chosen.one_step_per_round):
        names.append("steps_per_round")
    if chosen is not None:
        subject = PrivacyUnit.SUBJECT in (chosen.claimed_unit, options.unit) or options.by_person
        if _needs_cap(chosen, options) if listed else subject and not chosen.samples_subjects:
            names.append("max_items_per_subject")
        central = chosen.trust is TrustModel.CENTRAL and chosen.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH
        if not listed and (central or options.sampling == SamplingMethod.FIXED_BATCH_SIZE):
            names.append("items")
    return (_written(name) for name in names if getattr(options, name) is None)


def _needs_cap(chosen: Mechanism, options: argparse.Namespace) -> bool:
    """Whether a cap must be given that is enforced: the counts' own maximum is private."""
    capped = options.counts is None and read_sizes(options.silo_sizes).caps is not None
    return chosen.counts_items and chosen.mode is AccountingMode.SOUND and not capped


def _written(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _counted(options: argparse.Namespace) -> FederationFacts:
    """The facts of the counts' silos, their subjects' items capped where a cap is given."""
    given = [name for name in ("silos", "items", "subjects") if getattr(options, name) is not None]
    if given:
        names = ", ".join(map(_written, given))
        raise ConfigError(f"Expected {names} to be left out with --counts or --silo-sizes, which says it.")
    if options.counts is not None and options.silo_sizes is not None:
        raise ConfigError("Expected one of --counts and --silo-sizes.")
    sizes = options.silo_sizes is not None
    return schedule_of(options).facts(read_sizes(options.silo_sizes) if sizes else read_counts(options.counts))


def listed_silos(options: argparse.Namespace) -> str | None:
    """The file with the silos' counts or sizes; None for equal silos."""
    found: str | None = options.silo_sizes if options.counts is None else options.counts
    return found


def schedule_of(options: argparse.Namespace) -> Schedule:
    same = ["rounds", "epochs", "batch_size", "sampling_probability", "sampling"]
    same += ["max_items_per_subject", "silos_per_subject"]
    return Schedule(steps=options.steps_per_round, **{name: getattr(options, name) for name in same})


def _check_ranges(options: argparse.Namespace) -> None:
    q, batch, listed = options.sampling_probability, options.batch_size, listed_silos(options) is not None
    fixed = batch is None and options.sampling == SamplingMethod.FIXED_BATCH_SIZE
    counts = ("epochs", "silos", "max_items_per_subject", "items", "subjects", "silos_per_subject", "batch_size")
    of_counts = "given with --counts or --silo-sizes only (else --sampling-probability)"
    both = options.epochs > 1 and options.steps_per_round is not None
    rules = [
        ("epochs", both, "left out where --steps-per-round is given"),
        ("batch_size", batch is not None and not listed, of_counts),
        ("batch_size", batch is not None and q is not None, "left out where --sampling-probability is given"),
        *((name, (value := getattr(options, name)) is not None and value < 1, "at least 1") for name in counts),
        ("silos", (options.silos or 0) > MOST_SILOS, f"at most {MOST_SILOS}"),
        ("max_items_per_subject", (options.max_items_per_subject or 0) > _MOST_ITEMS, f"at most {_MOST_ITEMS}"),
        ("sampling_probability", q is not None and not 0 < q <= 1, "in (0, 1]"),
        ("sampling_probability", fixed and listed, "left out with fixed batches: give --batch-size"),
    ]
    for name, broken, allowed in rules:
        if broken:
            raise expected(_written(name), getattr(options, name), allowed)
    if fixed:
        fixed_batch_size(q, options.items)


def _mechanism(options: argparse.Namespace) -> Mechanism:
    name, _, variant = options.algorithm.partition(":")
    found = registry.mechanism(name, variant or None, AccountingMode(options.mode))
    if options.clipping == "update":
        of_updates = registry.algorithm(name, variant or None).of_updates
        if of_updates is None:
            raise expected("--clipping", "update", f"item with algorithm {name}")
        found = of_updates
    if options.trust is not None:
        found = replace(found, trust=TrustModel(options.trust))
    if options.unit is None or options.noise_multiplier is not None or options.mode != AccountingMode.SOUND:
        return found
    return replace(found, claimed_unit=PrivacyUnit(options.unit))  # whose ε the noise is made for


def _equal_silos(options: argparse.Namespace) -> FederationFacts:
    silos, cap = 1 if options.silos is None else options.silos, options.max_items_per_subject
    items = _NOMINAL_ITEMS if options.items is None else options.items
    subjects = options.subjects or (1 if options.items is None else max(1, -(-items // (cap or 1))))
    held = silos if options.silos_per_subject is None else options.silos_per_subject
    total = max(1, subjects * silos // held)
    largest = (0 if cap is None else cap,) * silos  # 0: not known
    return FederationFacts((items,) * silos, (subjects,) * silos, largest, cap is not None, cap, held, total)


def _settings(options: argparse.Namespace, facts: FederationFacts, chosen: Mechanism) -> PlanSettings:
    batch = options.batch_size
    if batch is not None and batch > min(facts.items):
        raise expected("--batch-size", batch, f"at most {min(facts.items)}, the items of the smallest silo")
    same = ("epsilon", "delta", "noise_multiplier", "own_noise_only", "colluding_silos")
    return replace(
        scheduled_settings(chosen, facts, schedule_of(options)),
        mode=AccountingMode(options.mode),
        horizontal=Horizontal(options.horizontal),
        accountant=Accountant(options.accountant),
        **{name: getattr(options, name) for name in same},
    )


def _one_of(values: Sequence[str], default: str | None = None) -> dict[str, Any]:
    return {"choices": values, "default": default}


_SAMPLING = [method for method in values_of(SamplingMethod) if method != SamplingMethod.POISSON_SUBJECTS]
_DEFAULT = "(default: %(default)s)"
_WHOLE, _NUMBER, _FILE = {"type": int}, {"type": float}, {"metavar": "FILE"}
_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "results": ({"default": "results"}, f"results folder of --config and --run {_DEFAULT}"),
    "algorithm": ({}, "algorithm, for instance higrad_avg_dp or higrad_avg_dp:v3"),
    "mode": (_one_of(values_of(AccountingMode), "sound"), f"accounting {_DEFAULT}"),
    "unit": (_one_of(values_of(PrivacyUnit)), "privacy unit (default: what the algorithm claims)"),
    "trust": (_one_of(values_of(TrustModel)), "trust model (default: the algorithm's)"),
    "horizontal": (
        _one_of(values_of(Horizontal), "rounds_over_sqrt_s"),
        f"with --mode as_published: rule over silos {_DEFAULT}",
    ),
    "sampling": (_one_of(_SAMPLING, "poisson"), f"sampler {_DEFAULT}"),
    "accountant": (_one_of(values_of(Accountant), "pld"), f"accountant {_DEFAULT}"),
    "counts": (_FILE, "CSV file with the columns subject, silo, items: your federation, in place of equal silos"),
    "silo-sizes": (
        _FILE,
        "CSV file with the columns silo, items, and perhaps people and cap: silos by size, without a list of people",
    ),
    "epochs": ({"type": int, "default": 1}, "local epochs of a round, in place of --steps-per-round"),
    "batch-size": (_WHOLE, "with --counts or --silo-sizes: B; each silo samples with q = B / its items"),
    "silos": (_WHOLE, "number of silos (default: 1)"),
    "silos-per-subject": (
        _WHOLE,
        "most silos that hold one subject (default: all; with --counts the largest number seen: conditional)",
    ),
    "rounds": (_WHOLE, "rounds R, before the horizontal rule of as_published mode"),
    "steps-per-round": (_WHOLE, "local steps T of a silo in a round (with --counts: one epoch unless given)"),
    "sampling-probability": (_NUMBER, "q = B / items of a silo, or of a subject"),
    "max-items-per-subject": (_WHOLE, "cap k on a subject's items at a silo"),
    "items": (_WHOLE, "items of a silo (needed for fixed batches)"),
    "subjects": (_WHOLE, "subjects of a silo"),
    "epsilon": ({"type": float, "default": 4.0}, f"target epsilon of the unit, without --noise-multiplier {_DEFAULT}"),
    "delta": ({"type": float, "default": 1e-5}, f"delta {_DEFAULT}"),
    "own-noise-only": ({"action": "store_true"}, "secure aggregation: count each silo's own noise only"),
    "clipping": (
        _one_of(("item", "update"), "item"),
        f"joint noise: clip items' gradients, or each silo's whole update once {_DEFAULT}",
    ),
    "colluding-silos": (
        {"type": int, "default": 0},
        "secure aggregation: silos that reveal their noise (joint noise, subject_release, uldp_fl)",
    ),
    "noise-multiplier": (
        _NUMBER,
        "noise std over clip norm, of each silo's sum; of the sum over silos under secure aggregation",
    ),
    "statement": (_FILE, "also write one page for an ethics board, by its suffix .md, .html or .pdf (one plan)"),
    "by-person": ({"action": "store_true"}, "ε of a person by items a silo and number of silos, as a table"),
    "figure": (_FILE, "with --caps: draw the table"),
}


def account_options(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--config", metavar="FILE", nargs="+", help="scenario files whose runs to account for")
    source.add_argument("--run", dest="run_id", metavar="RUN_ID", help="a finished run")
    for name, (kind, text) in _OPTIONS.items():
        left_out = {} if kind.get("action") else {"default": None}  # settle tells what was given, and fills the rest in
        words = text.replace(_DEFAULT, f"(default: {kind.get('default')})")
        parser.add_argument(f"--{name}", help=words, **(kind | left_out))
    help_ = "with --counts: what caps cost, such as 1,2,4, as a table"
    parser.add_argument("--caps", metavar="LIST", nargs="?", const="", help=help_)
    add_json(parser)


_READ_BY_CAPS = {
    *("algorithm", "trust", "counts", "rounds", "steps_per_round", "epochs", "sampling", "batch_size"),
    *("sampling_probability", "silos_per_subject", "epsilon", "delta", "figure"),
}
_READ_BY_RUNS = {"unit", "statement", "by_person", "results"}
_KEYS = ("privacy.horizontal", "joint.colluding_silos", "joint.own_noise_only")  # that only some algorithms read
_OF_PRIVACY = ("epsilon", "delta", "noise_multiplier", "accountant", "by_person")


def settle(options: argparse.Namespace) -> None:
    """Gives options that were left out their defaults. Raises ConfigError for one that the others leave unread."""
    defaults = {name.replace("-", "_"): kind.get("default") for name, (kind, _) in _OPTIONS.items()}
    given = {key for key in defaults if getattr(options, key) is not None}
    given = {key for key in given if getattr(options, key) is not False}  # a flag that is not set
    if options.caps is not None:
        unread = dict.fromkeys(given - _READ_BY_CAPS, "--caps")
    elif options.run_id is not None or options.config is not None:
        unread = dict.fromkeys(given - _READ_BY_RUNS, "--run and --config, whose runs say it")
    else:
        unread = {"figure": "all but --caps, whose table it draws", "results": "all but --run and --config"}
        unread |= {"epsilon": "--noise-multiplier"} if "noise_multiplier" in given else {}
        unread |= _unread_by(options.algorithm) if options.algorithm else {}
        unread |= {} if options.mode == AccountingMode.AS_PUBLISHED else {"horizontal": "--mode sound"}
    for key in sorted(given & set(unread)):
        raise expected(_written(key), getattr(options, key), f"left out with {unread[key]}")
    for key, default in defaults.items():
        if getattr(options, key) is None:
            setattr(options, key, default)
    for key, known in (("figure", (".png", ".pdf", ".svg")), ("statement", STATEMENT_SUFFIXES)):
        check_output(_written(key), getattr(options, key), known)


def _unread_by(name: str) -> dict[str, str]:
    """The options that an algorithm does not read, and beside what."""
    chosen, beside = registry.algorithm(name.partition(":")[0]), f"--algorithm {name}"
    unread = {} if chosen.is_private else dict.fromkeys(_OF_PRIVACY, beside)
    return unread | {key.rpartition(".")[2]: beside for key in _KEYS if not chosen.reads_key(key)}
