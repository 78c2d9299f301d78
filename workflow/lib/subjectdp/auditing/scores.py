"""The attacker's score of a release: the log-likelihood ratio of the plan's dominating pair, from a table.

The score only has to be good, not right: whatever it is, the bound on ε that its success proves holds.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from subjectdp.accounting.events import MixtureSteps
from subjectdp.accounting.sound import unit_losses
from subjectdp.errors import PrivacyError
from subjectdp.mechanisms.plan import Clipping, PrivacyPlan, PrivacyUnit

_CELLS = 1 << 14
_SIGMAS = 9.0


class LikelihoodRatio:
    """log Σ_j p_j N(y; s_j, σ²) / N(y; 0, σ²) for releases y in units of C on the sum, as a step function.

    ``offset`` is what the mechanism releases, without noise, in the absence of the canary.
    """

    def __init__(self, step: MixtureSteps, offset: float = 0.0) -> None:
        sigma = step.noise_multiplier
        if not sigma > 0:
            raise PrivacyError("Expected a mechanism with noise for a likelihood ratio, got none.")
        self._low = offset - _SIGMAS * sigma
        width = step.shift.sensitivities[-1] + 2 * _SIGMAS * sigma
        self._cells_a_unit = _CELLS / width
        y = (np.arange(_CELLS) + 0.5) / self._cells_a_unit - _SIGMAS * sigma
        shifts = np.asarray(step.shift.sensitivities)
        logs = np.log(step.shift.probabilities) + (y[:, None] * shifts - shifts**2 / 2) / sigma**2
        self.table = torch.from_numpy(np.logaddexp.reduce(logs, axis=1).astype(np.float32))

    def __call__(self, release: Tensor) -> Tensor:
        """Scores of releases (n,)."""
        cells = ((release - self._low) * self._cells_a_unit).clamp_(0, _CELLS - 1).to(torch.int32)
        return self.table[cells]


def score_of(plan: PrivacyPlan) -> LikelihoodRatio:
    """The score for the claimed unit of a plan, a unit being at all silos that may hold it.

    Raises PrivacyError where the silos' steps differ: the score is one for all of them.
    """
    loss = unit_losses(plan, plan.mechanism.claimed_unit or PrivacyUnit.ITEM, every_silo=True)[0]
    if len(loss) != 1:
        raise PrivacyError(f"Expected silos with equal schedules for an audit, got {len(loss)} kinds of step.")
    return LikelihoodRatio(loss[0], -1.0 if plan.mechanism.clipping is Clipping.PER_BATCH else 0.0)
