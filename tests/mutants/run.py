"""``python -m mutants.run --only TEXT``: for the helpers of this week; now ``pytest tests/mutants -m "" -k TEXT``."""

import sys

import pytest

words = ["-k", sys.argv[2].replace(" ", "-")] if sys.argv[2:] else []
sys.exit(pytest.main(["tests/mutants", "-m", "", "-q", *words]))
