"""Trains the public features of ``handwriting_head`` or ``english_head`` again: ``python -m benchmarks.pretrain``.

The package holds the results of the default settings, without and with ``--typefaces``, and of ``--text``; their
SHA-256 are in :mod:`subjectdp.models.handwriting` and :mod:`subjectdp.models.english`. About 20 minutes on one core,
an hour with typefaces.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from benchmarks import pretraining, pretraining_text
from subjectdp.io.atomic import sha256_of


def main(arguments: list[str] | None = None) -> None:
    """Trains the features and prints the file's hash."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pretrain", description=__doc__)
    parser.add_argument("--output", required=True, type=Path, help="where the weights go (safetensors)")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--typefaces", type=Path, help="node_modules of npm ci --prefix workflow/envs/typefaces")
    either.add_argument("--text", type=Path, help="train the features of english_head instead, on this public text")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if given.text is not None:
        pretraining_text.pretrain_text(pretraining_text.TextSettings(), given.text, given.output)
    else:
        usual = pretraining.Settings() if given.typefaces is None else pretraining.OF_TYPEFACES
        pretraining.pretrain(usual, given.output, given.typefaces)
    print(f"{given.output}: sha256 {sha256_of(given.output)}")


if __name__ == "__main__":
    main()
