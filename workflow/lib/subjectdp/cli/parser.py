"""The parser of all commands: one clear line for a wrong command line, instead of the usage."""

import argparse
import re
import shutil
from collections.abc import Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, NoReturn

from subjectdp.errors import ConfigError, expected, unknown

_KINDS = {"int": "a whole number", "float": "a number"}
_VALUE = re.compile(r"argument (.+): invalid (?:_?\w*?_)?(\w+) value: '(.*)'$", re.DOTALL)
_CHOICE = re.compile(r"argument (.+): invalid choice: '(.*)' \(choose from (.*)\)$", re.DOTALL)
_SURPLUS = re.compile(r"unrecognized arguments: (.*)$", re.DOTALL)
_MISSING = re.compile(r"the following arguments are required: (.*)$")
_FLAG = re.compile(r"argument (.+): (expected .*)$", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """A parser, of commands as well, that accepts no abbreviated options: a new option would break them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self.register("action", None, _Once)  # of options that keep a value

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError that says what is wrong, and where help is."""
        raise ConfigError(f"{self._in_words(message)} See {self.prog} --help.")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse, but a command refuses its own surplus arguments, since it knows what they may have meant."""
        found, surplus = super().parse_known_args(args, namespace)
        if surplus:
            self.error(f"unrecognized arguments: {' '.join(surplus)}")
        return found, surplus

    def _in_words(self, message: str) -> str:
        if found := _VALUE.match(message):
            return str(expected(_name(found[1]), found[3], _KINDS.get(found[2], f"a {found[2]}")))
        if found := _CHOICE.match(message):
            return str(unknown(_name(found[1]), found[2], [choice.strip("' ") for choice in found[3].split(",")]))
        if found := _MISSING.match(message):
            return f"Expected {found[1]} to be given."
        if found := _FLAG.match(message):
            return f"Expected {_name(found[1])} to have a value: {found[2]}."
        if found := _SURPLUS.match(message):
            return self._surplus(found[1])
        return f"{message[:1].upper()}{message[1:]}."

    def _surplus(self, words: str) -> str:
        """Arguments that nothing takes; an option among them may be misspelt."""
        first = words.split()[0].partition("=")[0]
        near = get_close_matches(first, self._option_string_actions, n=1) if first.startswith("-") else []
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"Unknown {'option' if first.startswith('-') else 'argument'} {words}.{hint}"


class _Once(argparse._StoreAction):
    """Keeps a value; refuses a second one, of which argparse would drop the first."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        seen = vars(namespace).setdefault("_seen", set())
        if option_string and self.dest in seen:
            raise ConfigError(f"Expected {option_string} to be given once.")
        seen.add(self.dest)
        super().__call__(parser, namespace, values, option_string)


def _name(argument: str) -> str:
    """The long form of an option; a positional argument as it is."""
    return argument.split("/")[-1]


def add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", default="results", help="results folder (default: %(default)s)")


def add_json(parser: argparse.ArgumentParser, text: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=text)


def check_output(option: str, name: str | None, suffixes: Sequence[str]) -> None:
    """ConfigError, before any work, for a file to write that has another ending, or lies in a folder not there."""
    if name is not None and not name.endswith(tuple(suffixes)):
        raise expected(option, name, f"a name that ends in {', '.join(suffixes)}")
    if name is not None and not Path(name).absolute().parent.is_dir():
        raise expected(option, name, "a file in a folder that is there")


def values_of(enum: type[StrEnum]) -> list[str]:
    return [str(member) for member in enum]


class Line:
    """One line that is written again on a terminal; elsewhere only the last one is written."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._terminal = stream, stream.isatty()

    def show(self, text: str, end: str = "") -> None:
        """Shows ``text`` in place of the last one."""
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[2K{text[:width]}{end}")
            self._stream.flush()

    def end(self, text: str) -> None:
        """Shows ``text`` for good; nothing is left of an empty one."""
        if self._terminal:
            self.show(text, "\n" if text else "")
        elif text:
            print(text, file=self._stream, flush=True)
