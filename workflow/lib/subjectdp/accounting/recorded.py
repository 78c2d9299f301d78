"""Privacy losses as a manifest records them: as JSON, and as dp-accounting events for other accountants."""

from __future__ import annotations

from typing import Any

from subjectdp.accounting.events import MixtureSteps, PrivacyLoss, dp_event
from subjectdp.accounting.shifts import Shift
from subjectdp.plan.plan import NoiseDistribution

_MOST_ATOMS = 64  # that are written out
_GAUSSIAN = "mixture of Gaussians"
_SKELLAM = "mixture of shifted Skellam noises, each diverging at most as the Gaussian at every integer order"


def recorded(loss: PrivacyLoss, noise: NoiseDistribution) -> list[dict[str, Any]]:
    """The loss in full where it is small, else without its atoms; JSON-able."""
    kept = _atoms(loss) <= _MOST_ATOMS
    law = _SKELLAM if noise is NoiseDistribution.SKELLAM else _GAUSSIAN
    return [
        {
            "mechanism": law if type(part.shift) is Shift else f"{law}, {type(part.shift).__name__.lower()}",
            "noise_multiplier": part.noise_multiplier,
            "steps": part.steps,
            "sensitivities": list(part.shift.sensitivities)
            if kept
            else f"{len(part.shift.sensitivities)} atoms",
            "probabilities": list(part.shift.probabilities) if kept else None,
        }
        for part in loss
    ]


def recorded_loss(record: Any) -> PrivacyLoss | None:
    """The loss of a manifest's ``event`` with Gaussian noise; None if it is not whole, or not the only one."""
    if not isinstance(record, list) or len(record) != 1:
        return None
    if any(part["probabilities"] is None or part["mechanism"] != _GAUSSIAN for part in record[0]):
        return None
    return tuple(
        MixtureSteps(
            part["noise_multiplier"],
            Shift(tuple(part["sensitivities"]), tuple(part["probabilities"])),
            part["steps"],
        )
        for part in record[0]
    )


def recorded_event(loss: PrivacyLoss, noise: NoiseDistribution) -> str | None:
    """The loss as the text of a dp-accounting event, for add/remove adjacency; its classes are in ``dp_event``.

    None for noise that is not Gaussian, and for a loss with many atoms or on coins (``accounting.shifts``).
    """
    small = noise is NoiseDistribution.GAUSSIAN and _atoms(loss) <= _MOST_ATOMS
    small = small and all(type(part.shift) is Shift for part in loss)
    return repr(dp_event(loss)) if small else None


def _atoms(loss: PrivacyLoss) -> int:
    return sum(len(part.shift.sensitivities) for part in loss)
