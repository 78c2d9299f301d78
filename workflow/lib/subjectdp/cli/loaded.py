"""The process that the jobs of ``subjectdp run`` are forks of: ``python -m subjectdp.cli.loaded SOCKET``.

It loads what short jobs spend their time on, and does once what each of them would do again.
"""

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)

# isort: split
import sys

import dp_accounting.pld.accountant
import numpy as np
import pyarrow.dataset
import scipy.signal
import scipy.stats
import seaborn
import snakemake.script  # noqa: F401
import torch

import subjectdp.figures.catalogue
import subjectdp.report.results_page
import subjectdp.results.collect
import subjectdp.scorecard.paper_accounting
import subjectdp.training.run
import subjectdp.utility.excess_loss  # noqa: F401
from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.config.fingerprint import fingerprint
from subjectdp.engine.logit_gradients import errors_and_norms
from subjectdp.io.loaded_jobs import serve
from subjectdp.noise.gaussian import add_gaussian


def prepare() -> None:
    """Reads the code that results are stamped with, and loads compiled functions."""
    fingerprint(*(f"train:{name}" for name in ALGORITHMS))
    add_gaussian(torch.zeros(8), 1.0, bytes(32))
    one, numbers = np.ones(1, np.float32), np.zeros((2, 1), np.float32)
    errors_and_norms(numbers, np.zeros(1, np.int64), one, True, one.copy())


if __name__ == "__main__":
    prepare()
    serve(sys.argv[1])
