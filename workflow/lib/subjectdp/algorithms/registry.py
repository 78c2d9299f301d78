"""The algorithms by name: adding one is a file and a line here.

Modules are named, not imported: editing one algorithm's file changes the code fingerprint of its own runs only.
"""

from functools import cache
from importlib import import_module

from subjectdp.algorithms.base import Algorithm
from subjectdp.errors import expected, mistake, unknown
from subjectdp.plan.plan import AccountingMode, Mechanism

ALGORITHMS: dict[str, str] = {
    "fed_avg": "subjectdp.algorithms.fed_avg",
    "local_item_dp": "subjectdp.algorithms.local_item_dp",
    "user_ldp": "subjectdp.algorithms.user_ldp",
    "local_group_dp": "subjectdp.algorithms.local_group_dp",
    "higrad_avg_dp": "subjectdp.algorithms.higrad_avg_dp",
    "central_sub_dp": "subjectdp.algorithms.central_sub_dp",
    "joint_noise": "subjectdp.algorithms.joint_noise",
    "subject_release": "subjectdp.algorithms.subject_release",
    "subject_sampling": "subjectdp.algorithms.subject_sampling",
    "uldp_fl": "subjectdp.algorithms.uldp_fl",
    "capped_item_dp": "subjectdp.algorithms.capped_item_dp",
}


@cache
def algorithm(name: str, variant: str | None = None) -> Algorithm:
    """The algorithm of that name; ConfigError for an unknown name or variant, or a mistake in its file."""
    if name not in ALGORITHMS:
        raise unknown("algorithm.name", name, ALGORITHMS)
    try:
        found: Algorithm = import_module(ALGORITHMS[name]).ALGORITHM
    except Exception as problem:
        raise mistake(ALGORITHMS[name], problem) from problem
    if (declared := getattr(found, "name", found)) != name:
        raise expected(f"the name that {ALGORITHMS[name]} declares", declared, f"{name}, as in the registry")
    if variant is not None and variant not in found.variants:
        raise unknown(f"algorithm.variant of {name}", variant, [str(v) for v in found.variants if v is not None])
    return found


def mechanism(name: str, variant: str | None, mode: AccountingMode) -> Mechanism:
    """The privacy facts of an algorithm's variant in a mode."""
    return algorithm(name, variant).mechanism(variant, mode)


def is_private(name: str) -> bool:
    """Whether the algorithm of that name claims any privacy."""
    return algorithm(name).is_private


def check_labels() -> None:
    """Raises ConfigError where two algorithms have one label: figures and tables would show them as one."""
    named: dict[str, str] = {}
    for name in ALGORITHMS:
        first = named.setdefault(algorithm(name).label, name)
        if first != name:
            raise expected(f"label of {name}", algorithm(name).label, f"its own ({first} has it)")


def label(name: str, variant: str | None) -> str:
    """The name in figures; variants are told apart where there are several."""
    found = algorithm(name, variant)
    shown = variant or found.variants[0]
    return found.label if shown is None or len(found.variants) == 1 else f"{found.label} ({shown})"
