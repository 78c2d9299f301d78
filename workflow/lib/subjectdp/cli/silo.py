"""``subjectdp silo``: a silo of a real federation, which guards its own people's budget."""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from subjectdp.federation.service import serve
from subjectdp.federation.silo import Silo
from subjectdp.federation.site import load_site


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "silo",
        description="Holds this silo's data, model and ledger, and answers the server's requests through a socket, "
        "each within the limit that the file names. Runs until it is stopped. docs/running.md has the file.",
    )
    parser.add_argument("site", metavar="SITE", help="the silo's YAML file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Serves until the process is stopped."""
    os.umask(0o077)  # the log says how many people were cut: user and group of the socket differ
    site = load_site(options.site)
    serve(Path(site.folder), lambda report: Silo(site, report).answer, _print)


def _print(line: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)
