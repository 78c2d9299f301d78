"""Which orders can give the best Rényi bound: an accountant's time goes into orders that cannot.

Hand-written because dp-accounting and Opacus compute all orders and then take the smallest ε. A Rényi divergence never
falls with its order, so that one order bounds the ε of all above it from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

_SLACK = 1e-9  # for rounding


def contenders(
    divergence: Callable[[float], float], orders: Iterable[float], log_delta: float
) -> tuple[float, ...]:
    """The orders, ascending, whose ε at δ is the smallest of all (to rounding); seldom more than one.

    Bounds come from whole orders alone, where accountants sum a finite series of positive terms. At other orders an
    accountant may stop early or give a number that is too large.

    Args:
        divergence: of all steps together, at an order above 1; infinite where an accountant has none.
        orders: above 1, any number of them.
        log_delta: log δ.
    """
    best = math.inf
    found: dict[float, float] = {}
    certain: dict[float, float] = {}
    for order in sorted(orders, key=lambda order: (order != round(order), order)):
        below = max((value for whole, value in certain.items() if whole < order), default=0.0)
        offset = _offset(order, log_delta)
        if below + offset > best + _SLACK * (1 + abs(best)):
            continue
        value = divergence(order)
        if order == round(order) and math.isfinite(value):
            certain[order] = value
        found[order] = value + offset
        best = min(best, found[order])
    return tuple(sorted(order for order, bound in found.items() if bound <= best + _SLACK * (1 + abs(best))))


def _offset(order: float, log_delta: float) -> float:
    """What the conversion adds to the divergence (Canonne, Kamath, Steinke, arXiv 2004.00010, proposition 12)."""
    return math.log1p(-1 / order) - (log_delta + math.log(order)) / (order - 1)
