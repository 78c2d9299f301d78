"""``python -m subjectdp``: the same as the console command ``subjectdp``."""

import sys

from subjectdp.cli.main import main

sys.exit(main())
