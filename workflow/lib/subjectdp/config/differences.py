"""The settings by which runs of one data set and algorithm differ, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subjectdp.config.run import RunConfig
from subjectdp.io.printing import flattened

_APART = ("data.dataset", "algorithm.name", "algorithm.variant")


def settings_apart(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Run id -> the settings in which runs of its data set and algorithm differ, as ``name=value`` with commas.

    Defaults are left out; so are the seed, which the id shows, and ``performance``. ``configs`` are
    run configurations as manifests hold them, of this version or an older one.
    """
    flat = {run_id: _flat(config) for run_id, config in configs.items()}
    usual = _flat(RunConfig().model_dump(mode="json"))
    values: dict[tuple[Any, ...], set[str]] = {}
    for found in flat.values():
        for key, value in found.items():
            values.setdefault((*_family(found), key), set()).add(repr(value))

    def text(found: dict[str, Any]) -> str:
        told = [
            f"{key.rpartition('.')[2]}={_shown(value)}"
            for key, value in found.items()
            if len(values[(*_family(found), key)]) > 1 and value != usual.get(key)
        ]
        return ", ".join(told)

    return {run_id: text(found) for run_id, found in flat.items()}


def _family(flat: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(flat.get(key) for key in _APART)


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by dotted key."""
    return dict(flattened({key: config[key] for key in config if key not in ("seed", "performance")}))


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
