"""Cost of one item in a model: operations, memory, scale of the weights. Counted by torch once, then kept."""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from subjectdp.accounting.cache import cached
from subjectdp.config.fingerprint import fingerprint
from subjectdp.forecast.cost_model import ModelCost

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.config.sections import ModelConfig

_ahead: list[BaseProcess] = []


def model_cost(model: ModelConfig, dataset: str, folder: str | None = None) -> ModelCost:
    """The cost of one item in a resolved model; kept in ``folder``, since torch takes two seconds to load."""
    return _kept_cost(str(model.name), json.dumps(model.parameters, sort_keys=True), dataset, folder)


@lru_cache(maxsize=64)
def _kept_cost(name: str, parameters: str, dataset: str, folder: str | None) -> ModelCost:
    while _ahead:
        _ahead.pop().join()
    code = fingerprint(__name__, f"model:{name}")  # torch's version is in it
    inputs = {"model": name, "parameters": parameters, "dataset": dataset, "code": code}
    return ModelCost(**cached("model_cost", inputs, folder, lambda: _counted(name, parameters, dataset)))


def _counted(name: str, parameters: str, dataset: str) -> dict[str, Any]:
    from subjectdp.forecast.count_operations import counted_cost  # torch: here, since a cost is mostly kept

    return asdict(counted_cost(name, parameters, dataset))


def count_ahead(runs: Iterable[RunConfig], folder: str) -> None:
    """Has the costs of the runs' models counted in another process, while this one loads other libraries.

    The first :func:`model_cost` waits for it. Nothing happens where torch is loaded already: a forked process would
    wait for its threads for ever.
    """
    if sys.platform != "linux" or "torch" in sys.modules:
        return
    fingerprint(__name__)  # keeps the graph of imports, which both would read
    models = [(run.model, run.data.dataset) for run in runs]
    process = multiprocessing.get_context("fork").Process(target=_count, args=(models, folder), daemon=True)
    process.start()
    _ahead.append(process)


def _count(models: Iterable[tuple[ModelConfig, str]], folder: str) -> None:
    with suppress(Exception, KeyboardInterrupt):  # the parent meets the error again
        for model, dataset in models:
            model_cost(model, dataset, folder)
