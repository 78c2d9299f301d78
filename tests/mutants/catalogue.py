"""All planted bugs.

The flaws are those that privacy libraries and research code have shipped, and the slips that are easy to make here.
Each is an exact replacement of one text in one file of the library, and each names the tests that must notice it.
"""

from __future__ import annotations

from mutants.accounting_bugs import ACCOUNTING, DATA, TAILS
from mutants.api_bugs import API
from mutants.subject_bugs import SUBJECTS
from mutants.training_bugs import NOISE_AND_CLIPPING, SAMPLING

MUTANTS = (*SAMPLING, *NOISE_AND_CLIPPING, *SUBJECTS, *ACCOUNTING, *TAILS, *DATA, *API)

QUICK = (  # one of each kind, each killed in about a second: what runs with every change
    "batches of fixed size pose as Poisson batches",
    "all silos draw the same noise",
    "an empty mini-batch is skipped without noise",
    "the noise stands after the division",
    "sensitivity C instead of 2C where mini-batches are clipped",
    "R/√s rounds in sound mode",
    "validation items are trained on",
)
