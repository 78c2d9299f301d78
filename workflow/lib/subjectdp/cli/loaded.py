"""The process that the jobs of ``subjectdp run`` are forks of: ``python -m subjectdp.cli.loaded SOCKET``.

It loads what short jobs spend their time on, and does once what each of them would do again.
"""

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)

# isort: split
import importlib
import sys

import numpy as np
import torch

from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.config.fingerprint import fingerprint
from subjectdp.engine.linear_models import errors_and_norms
from subjectdp.io.loaded_jobs import serve
from subjectdp.noise.gaussian import add_gaussian

_LOADED = (
    *("snakemake.script", "scipy.stats", "scipy.signal", "dp_accounting.pld.accountant", "pyarrow.dataset", "seaborn"),
    *("subjectdp.training.run", "subjectdp.figures.catalogue", "subjectdp.report.results_page"),
    *("subjectdp.results.collect", "subjectdp.utility.excess_loss", "subjectdp.report.paper_accounting"),
)


def prepare() -> None:
    """Loads libraries and compiled functions, and reads the code that results are stamped with."""
    for module in _LOADED:
        importlib.import_module(module)
    fingerprint(*(f"train:{name}" for name in ALGORITHMS))
    add_gaussian(torch.zeros(8), 1.0, bytes(32))
    one, numbers = np.ones(1, np.float32), np.zeros((2, 1), np.float32)
    errors_and_norms(numbers, np.zeros(1, np.int64), one, True, one.copy())


if __name__ == "__main__":
    prepare()
    serve(sys.argv[1])
