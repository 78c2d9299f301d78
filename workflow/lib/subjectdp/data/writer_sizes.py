"""How many images real FEMNIST writers have, and federations of the papers' size with sizes like theirs.

The counts are those of the 180 writers of a public LEAF output (27,696 images, as ``subjectdp inspect`` lists them):
numbers only, in ascending order, no image and no name.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from subjectdp.data.splits import Integers

# fmt: off
IMAGES_OF_WRITERS = (
    5, 5, 8, 8, 21, 27, 32, 42, 51, 69, 70, 70, 77, 92, 95, 98, 103, 103, 106, 108, 110, 120, 121, 122,
    126, 126, 129, 129, 131, 133, 136, 137, 137, 138, 140, 140, 142, 142, 143, 143, 147, 148, 148, 149,
    150, 151, 151, 151, 152, 152, 153, 153, 153, 154, 154, 154, 154, 155, 155, 155, 156, 156, 157, 158,
    159, 159, 160, 160, 161, 161, 162, 162, 162, 162, 162, 163, 163, 164, 164, 165, 165, 165, 166, 166,
    166, 166, 166, 167, 167, 167, 168, 168, 168, 168, 168, 169, 169, 169, 170, 170, 170, 170, 170, 171,
    171, 171, 171, 171, 171, 172, 172, 172, 172, 172, 173, 173, 173, 173, 173, 173, 173, 173, 173, 174,
    174, 174, 174, 174, 174, 174, 175, 175, 175, 175, 175, 175, 175, 176, 176, 177, 177, 177, 177, 177,
    177, 177, 178, 178, 178, 178, 178, 178, 178, 178, 179, 179, 179, 179, 179, 180, 180, 180, 181, 181,
    181, 181, 181, 182, 182, 182, 182, 182, 183, 183, 183, 183, 183, 183, 183, 316,
)
# fmt: on


class SubjectSizes(StrEnum):
    """How the items of FEMNIST's subjects are distributed; the mean is the papers' in each case."""

    REAL_WRITERS = "real_writers"  # the 180 counts, resampled evenly: nearest to real data, verdicts use it
    EQUAL = "equal"  # every subject has the mean
    LEAF_SPREAD = "leaf_spread"  # lognormal with the deviation that LEAF publishes for all 3,550 writers


def resampled_writers(subjects: int, mean: float) -> Integers:
    """Items of each subject, int64 (subjects,): the quantiles of the real counts, scaled to ``mean``, at least 1."""
    counts = np.asarray(IMAGES_OF_WRITERS, dtype=np.float64)
    places = ((np.arange(subjects) + 0.5) / subjects * len(counts)).astype(np.int64)
    chosen = counts[places]
    scaled: Integers = np.maximum(1, np.rint(chosen * mean / chosen.mean())).astype(np.int64)
    return scaled
