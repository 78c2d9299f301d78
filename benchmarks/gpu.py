"""``python -m benchmarks.gpu``: private steps on a GPU beside plain SGD and Opacus, and the noise alone.

A time is that of twenty steps in a row, after which the device is waited for. ``--device cpu`` tries the script.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import quantiles

import pandas as pd
import torch

from benchmarks.methods import BASE, Case, EngineStep, GhostStep, HooksStep, PlainStep, Problem, Target, make_problem
from benchmarks.public_api import TRAINED, stepping
from benchmarks.steps import peers_may_fail
from benchmarks.timing import Outcome, interleave, ratio
from subjectdp.noise.gaussian import add_gaussian, add_secure_gaussian
from subjectdp.training.run import synchronise

_IN_A_ROW = 20
_PUBLIC = {"public_encoder": 256, "public_lora": 64}  # items of a mini-batch
_KEY = bytes(range(32))

Steps = dict[str, Callable[[], object]]


def main(arguments: list[str] | None = None) -> int:
    """Times every workload and writes ``gpu.csv``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=512, help="of the CNN (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds (default: %(default)s)")
    parser.add_argument("--output", default="results/bench", help="folder (default: %(default)s)")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    print(torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU", "torch", torch.__version__)
    rows = []
    for workload, steps in workloads(device, options.batch):
        rows += list(timed(workload, steps, device, options.rounds))
        print(pd.DataFrame(rows[-len(steps) :]).round(3).to_string(index=False), flush=True)
    Path(options.output).mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(Path(options.output) / "gpu.csv", index=False)
    return 0


def workloads(device: torch.device, batch: int) -> Iterator[tuple[str, Steps]]:
    """Each workload with its ways to take a step."""
    problem = make_problem(Case("cnn", "leaf_cnn", batch, batch))
    yield f"LEAF's CNN, B = {batch}", dict(_cnn(_moved(problem, device)))
    for name, items in _PUBLIC.items():
        trained = replace(TRAINED[name], batch=items)
        ways = (BASE, "subjectdp_public", *(f"opacus_{mode}" for mode in trained.opacus))
        yield f"{name}, B = {items}", dict(_built({way: partial(stepping, way, trained, str(device)) for way in ways}))
    total = torch.zeros(6_600_000, device=device)
    yield (
        "noise, 6.6 million numbers",
        {
            "reproducible": lambda: add_gaussian(total, 1.0, _KEY),
            "secure": lambda: add_secure_gaussian(total, 1.0, _KEY),
        },
    )


def _moved(problem: Problem, device: torch.device) -> Problem:
    tensors = {name: getattr(problem, name).to(device) for name in ("inputs", "labels", "owners")}
    return replace(problem, initial=problem.initial.to(device), **tensors)


def _cnn(problem: Problem) -> Iterator[tuple[str, Callable[[], object]]]:
    makers: dict[str, Callable[[], Callable[[], object]]] = {
        BASE: lambda: PlainStep(problem).step,
        "subjectdp_item": lambda: EngineStep(problem, Target.ITEM).step,
        "subjectdp_secure": lambda: EngineStep(problem, Target.ITEM, add_secure_gaussian).step,
        "opacus_ghost": lambda: GhostStep(problem).step,
        "opacus_hooks": lambda: HooksStep(problem).step,
    }
    return _built(makers)


def _built(makers: dict[str, Callable[[], Callable[[], object]]]) -> Iterator[tuple[str, Callable[[], object]]]:
    for name, make in makers.items():
        outcome = Outcome()
        with peers_may_fail(name, outcome), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            step = make()
            step()
            yield name, step
        if outcome.status != "ok":
            print(f"{name}: {outcome.note}")


def timed(workload: str, steps: Steps, device: torch.device, rounds: int) -> Iterator[dict[str, object]]:
    """Milliseconds of a step with quartiles, and the ratio to the first way, taken within a round."""
    found = interleave({name: partial(_row, step, device) for name, step in steps.items()}, rounds)
    base = next(iter(steps))
    for name, outcome in found.items():
        low, median, high = (1e3 * seconds / _IN_A_ROW for seconds in quantiles(outcome.wall, n=4))
        yield {
            **{"workload": workload, "method": name, "ms": median, "ms_low": low, "ms_high": high},
            **dict(zip(("ratio", "ratio_low", "ratio_high"), ratio(outcome.wall, found[base].wall), strict=True)),
        }


def _row(step: Callable[[], object], device: torch.device) -> None:
    for _ in range(_IN_A_ROW):
        step()
    synchronise(device)


if __name__ == "__main__":
    raise SystemExit(main())
