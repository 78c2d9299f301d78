"""What caps on a person's items cost: the figure of ``subjectdp account --caps``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from subjectdp.api.questions import Cap
from subjectdp.figures.style import figure_style


def draw_caps(rows: Sequence[Cap], path: str | Path) -> None:
    """Draws noise and losses over the cap into ``path``, in the format that its ending says."""
    caps = [row.cap for row in rows]
    with figure_style():
        figure, (noise, lost) = plt.subplots(1, 2, figsize=(7.0, 2.6), layout="constrained")
        noise.plot(caps, [1000 * row.noise_per_item for row in rows], "o-")
        noise.set(xlabel="cap on a person's items at a silo", ylabel="noise for 1,000 items kept")
        lost.plot(caps, [100 * row.items_lost for row in rows], "o-", label="items lost")
        lost.plot(caps, [100 * row.people_touched for row in rows], "s--", label="people touched")
        lost.set(xlabel="cap on a person's items at a silo", ylabel="%", ylim=(0, None))
        lost.legend()
        for axes in (noise, lost):
            axes.set_xscale("log", base=2)
            axes.set_xticks(caps, [str(cap) for cap in caps])
        figure.savefig(path)
        plt.close(figure)
