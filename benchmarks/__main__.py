"""``python -m benchmarks``: the same as ``subjectdp bench``."""

import sys

from subjectdp.cli.main import main

sys.exit(main(["bench", *sys.argv[1:]]))
