"""What a loop may change of a module or a criterion while a batch is at hand."""

import dis
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache, partial
from logging import Logger
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn

from subjectdp.errors import PrivacyError

_PLAIN = {bool, int, float, str, type(None)}
LARGE = 1000  # entries of a container or an array: a longer one is told by its identity
_OF_TORCH = frozenset(vars(nn.Module()))
_CONTAINERS = (list, tuple, set, dict)
_LOOKED_INTO = (nn.Module, FunctionType, MethodType, partial, *_CONTAINERS)


class Watched:
    """What a loop may change of a module or a criterion: numbers, words, arrays and tensors.

    Attributes, parameters and buffers, what containers and objects hold, and what functions read: closures and globals.
    """

    def __init__(self, owner: Any) -> None:
        self.owner, self._found = owner, dict[str, Any]()
        self._alive = dict[int, Any]()  # kept: identities are of what is there
        self._add("", owner)

    def check(self, expected_: str, remedy: str) -> "Watched":
        """What is there now. Raises PrivacyError that names what has been changed, if anything has."""
        now = Watched(self.owner)
        if changed := now.changed(self):
            raise PrivacyError(f"Expected {expected_}, {min(changed)!r} was changed since: {remedy}")
        return now

    def changed(self, before: "Watched", apart: Collection[int] = ()) -> set[str]:
        """The names of what is another than before; ``apart``: identities of tensors that are not looked at."""
        now, then = self._found, before._found
        names = {name for name in now | then if now.get(name, ...) != then.get(name, ...)}
        return {name for name in names if not (type(own := now.get(name)) is tuple and own[0] in apart)}

    def _add(self, name: str, value: Any, inside: bool = False) -> None:
        if type(value) in _PLAIN:
            self._found[name] = value
            return
        known = id(value) in self._alive
        self._alive[id(value)] = value
        if isinstance(value, Tensor):
            self._found[name] = id(value), None if value.is_inference() else value._version
        elif isinstance(value, np.ndarray):
            self._found[name] = id(value), value.tobytes() if value.size <= LARGE else None
        elif isinstance(value, _CONTAINERS) and len(value) > LARGE:
            self._found[name] = id(value), len(value)
        elif not known and (parts := _parts(value, inside)) is not None:
            inside = inside or not isinstance(value, _LOOKED_INTO)
            for key, each in parts:
                self._add(".".join(filter(None, (name, str(key)))), each, inside)


class Changes:
    """How often each thing was changed: a schedule's numbers change in each step, and a list that logs grows."""

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def see(self, names: Iterable[str]) -> bool:
        """Whether this is any one's first change, its second, fourth, eighth and so on. Entries count as one thing."""
        changed = {name.rpartition(".")[0] if name.rpartition(".")[2].isdigit() else name for name in names}
        self._counts.update(changed)
        return any(self._counts[name].bit_count() == 1 for name in changed)


def _parts(value: Any, inside: bool) -> Iterable[tuple[Any, Any]] | None:
    """What a value holds, of a function what it reads; None where it is not looked into, as an object in another."""
    if isinstance(value, nn.Module):
        return [pair for name, each in value.named_modules() for pair in _of_module(name, each)]
    if isinstance(value, FunctionType):
        if str(value.__module__).startswith("torch"):
            return None
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        held = [(name, cell.cell_contents) for name, cell in cells if cell != CellType()]
        return [*held, *((name, value.__globals__.get(name)) for name in _globals_read(value.__code__))]
    if isinstance(value, MethodType):
        return [("", value.__self__), (value.__name__, value.__func__)]
    if isinstance(value, partial):
        return [("", value.func), *enumerate(value.args), *value.keywords.items()]
    if isinstance(value, list | tuple | set):
        return enumerate(value)
    if isinstance(value, ModuleType | Logger) or type(value).__module__.startswith("subjectdp."):
        return None  # a logger keeps what it was asked, a private step is at work
    own = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if not isinstance(own, dict) or (inside and own is not value):
        return None
    return own.items()


def _of_module(name: str, module: nn.Module) -> Iterator[tuple[str, Any]]:
    # not the lists of weights that torch makes anew, nor where a trainer is in its loop
    hidden = object if isinstance(module, nn.RNNBase) else str | None
    own = {key: each for key, each in vars(module).items() if key[0] != "_" or not isinstance(each, hidden)}
    own |= {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
    for key, each in {**own, "forward": getattr(type(module), "forward", None)}.items():
        if key not in _OF_TORCH:
            yield f"{name}.{key}" if name else key, each


@lru_cache(maxsize=1024)
def _globals_read(code: CodeType) -> list[str]:
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in _globals_read(each)]
    return inner + [each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
