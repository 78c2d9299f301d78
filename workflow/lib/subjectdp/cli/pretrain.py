"""``subjectdp pretrain``: trains the public features of ``handwriting_head`` or ``english_head`` again."""

from __future__ import annotations

import argparse
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from subjectdp.errors import expected
from subjectdp.io.atomic import sha256_of


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "pretrain",
        help="train the public features again: handwriting or English",
        description="Generates an embedded data set with a seed of its own, trains the network of handwriting_head on "
        "it and writes the weights with their provenance. The package holds the results of the default settings, "
        "without and with --typefaces; their sha256 are in subjectdp.models.handwriting. About 20 minutes on one "
        "core, an hour with typefaces.",
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="where the weights go (safetensors)")
    parser.add_argument(
        "--writers", type=int, help="synthetic writers (default: those of the package's weights)"
    )
    parser.add_argument("--epochs", type=int, help="passes over their characters (default: likewise)")
    parser.add_argument(
        "--typefaces",
        metavar="FOLDER",
        type=Path,
        help="draw with handwritten typefaces too: node_modules, filled by npm ci --prefix workflow/envs/typefaces",
    )
    parser.add_argument(
        "--text",
        metavar="FILE",
        type=Path,
        help="train the features of english_head instead, on this public text",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Trains the features and prints the file's hash."""
    from subjectdp.cli import pretraining, pretraining_text  # here, to keep --help light

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    target = Path(options.output)
    given = {name: getattr(options, name) for name in ("writers", "epochs", "typefaces")}
    given = {name: value for name, value in given.items() if value is not None}
    if options.text is not None:
        if given:
            raise expected(f"--{next(iter(given))}", next(iter(given.values())), "left out beside --text")
        pretraining_text.pretrain_text(pretraining_text.TextSettings(), options.text, target)
    else:
        folder = given.pop("typefaces", None)
        usual = pretraining.Settings() if folder is None else pretraining.OF_TYPEFACES
        pretraining.pretrain(replace(usual, **given), target, folder)
    print(f"{options.output}: sha256 {sha256_of(options.output)}")
