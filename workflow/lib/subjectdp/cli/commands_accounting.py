"""``subjectdp account``, ``calibrate``, ``caps`` and ``table1``: the commands that the accounting package brings."""

from subjectdp.cli.account_parsers import add_parsers

__all__ = ["add_parsers"]
