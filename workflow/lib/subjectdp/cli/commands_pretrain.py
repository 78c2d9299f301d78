"""``subjectdp pretrain``: the public features of ``handwriting_head``, made anew."""

from __future__ import annotations

import argparse
from typing import Any


def add_parsers(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "pretrain",
        help="train the public handwriting features on synthetic characters",
        description="Generates an embedded data set with a seed of its own, trains the network of handwriting_head on "
        "it and writes the weights with how they were made. The package holds the result of the default settings; its "
        "sha256 stands in subjectdp.models.handwriting. About a quarter of an hour on one core.",
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="where the weights go (safetensors)")
    parser.add_argument(
        "--writers", type=int, help="synthetic writers (default: those of the package's weights)"
    )
    parser.add_argument("--epochs", type=int, help="passes over their characters (default: likewise)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    import logging
    from pathlib import Path

    import torch

    from subjectdp.cli.pretrain import Settings, pretrain
    from subjectdp.io.atomic import sha256_of

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)  # sums in one order, whatever the machine
    given = {name: getattr(options, name) for name in ("writers", "epochs")}
    pretrain(
        Settings(**{name: value for name, value in given.items() if value is not None}), Path(options.output)
    )
    print(f"{options.output}: sha256 {sha256_of(options.output)}")
