"""What tests need and the project does not change, loaded once on one thread: forks must not inherit others."""

import dp_accounting.pld.privacy_loss_distribution  # noqa: F401
import hypothesis
import opacus  # noqa: F401
import pandas  # noqa: F401
import pytest  # noqa: F401
import scipy.stats  # noqa: F401
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("mutants", deadline=None, database=None, derandomize=True)
