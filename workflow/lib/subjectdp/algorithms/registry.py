"""The algorithms by name: adding one is a file and a line here."""

from __future__ import annotations

from subjectdp.algorithms import (
    central_sub_dp,
    fed_avg,
    higrad_avg_dp,
    joint_noise,
    local_group_dp,
    local_item_dp,
    user_ldp,
)
from subjectdp.algorithms.base import Algorithm
from subjectdp.errors import unknown
from subjectdp.mechanisms.plan import AccountingMode, Mechanism

ALGORITHMS: dict[str, Algorithm] = {
    "fed_avg": fed_avg.ALGORITHM,
    "local_item_dp": local_item_dp.ALGORITHM,
    "user_ldp": user_ldp.ALGORITHM,
    "local_group_dp": local_group_dp.ALGORITHM,
    "higrad_avg_dp": higrad_avg_dp.ALGORITHM,
    "central_sub_dp": central_sub_dp.ALGORITHM,
    "joint_noise": joint_noise.ALGORITHM,
}


def algorithm(name: str, variant: str | None = None) -> Algorithm:
    """The algorithm of that name.

    Raises:
        ConfigError: unknown name or variant.
    """
    if name not in ALGORITHMS:
        raise unknown("algorithm.name", name, ALGORITHMS)
    found = ALGORITHMS[name]
    if variant is not None and variant not in found.variants:
        raise unknown(f"algorithm.variant of {name}", variant, [str(v) for v in found.variants if v is not None])
    return found


def mechanism(name: str, variant: str | None, mode: AccountingMode) -> Mechanism:
    """The privacy facts of an algorithm's variant in a mode."""
    return algorithm(name, variant).mechanism(variant, mode)


def label(name: str, variant: str | None) -> str:
    """The name in figures; variants are told apart where there are several."""
    found = algorithm(name, variant)
    return f"{found.label} ({variant or found.variants[0]})" if len(found.variants) > 1 else found.label
