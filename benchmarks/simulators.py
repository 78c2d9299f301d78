"""A whole round of two simulators of federated learning beside this project's round of as many steps, by wall time.

Flower's clients work in a process of Ray, pfl-research's in this one. Start-up is not timed: a round lasts from the end
of the one before. Neither package is a dependency; benchmarks/simulators.txt says how to install them.
"""

from __future__ import annotations

import logging
import os
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks import light_round
from benchmarks.light_round import MODEL, OpacusSilo, opacus_silos, opacus_steps, own_module, silo_items
from benchmarks.round_loop import NOISE_MULTIPLIER, RATE, SILOS, federation_of
from benchmarks.steps import peers_may_fail
from benchmarks.timing import Outcome
from subjectdp.training.federation import Federation
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import GlobalModel, run_round

ROUNDS, WARM_UP = 10, 2  # of a block
_INSTALL = "not installed: see benchmarks/simulators.txt"
_OFF = dict.fromkeys(("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"), "0")
_ONE_AT_A_TIME = {
    "init_args": {"num_cpus": 1, "log_to_driver": False},
    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
}

Seconds = dict[str, list[float]]
"""Wall seconds of each timed round, of the whole round and of a part of it."""


@dataclass(frozen=True)
class Work:
    """A federation, and the sizes from which another process builds the same one."""

    federation: Federation
    batch: int
    steps: int
    items: int


@dataclass(frozen=True)
class Simulator:
    """What runs a block of rounds, and the packages that it needs."""

    run: Callable[[Work], Seconds]
    packages: tuple[str, ...] = ()


def time_simulators(batch: int, blocks: int) -> dict[str, Outcome]:
    """Median seconds of a round in each block; in a block each method runs its rounds one after another."""
    steps, items = light_round.STEPS, light_round.ITEMS
    outcomes = {name: _installed(simulator) for name, simulator in SIMULATORS.items()}
    order, shuffler = list(SIMULATORS), random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(federation_of(Path(folder), MODEL, batch, steps, items), batch, steps, items)
        for _ in range(blocks):
            shuffler.shuffle(order)
            for name in [name for name in order if outcomes[name].status == "ok"]:
                with peers_may_fail(name, outcomes[name]):
                    for part, seconds in SIMULATORS[name].run(work).items():
                        outcomes.setdefault(part, Outcome()).wall.append(statistics.median(seconds))
    for outcome in outcomes.values():
        outcome.wall = outcome.wall if outcome.status == "ok" else []
        outcome.note = outcome.note or f"{SILOS} silos, {steps} steps each; medians of {ROUNDS} rounds"
    return outcomes


def _installed(simulator: Simulator) -> Outcome:
    missing = [package for package in simulator.packages if find_spec(package) is None]
    return Outcome("skipped", f"{' and '.join(missing)} {_INSTALL}") if missing else Outcome()


def _timed(ends: list[float]) -> list[float]:
    """Seconds from each round's end to the next one's, without the rounds of the warm-up."""
    seconds: list[float] = np.diff(ends)[-ROUNDS:].tolist()
    return seconds


def _subjectdp(work: Work) -> Seconds:
    """Round 1 of LocalItemDP, again and again."""
    trained, ends = GlobalModel(work.federation), [time.perf_counter()]
    for _ in range(WARM_UP + ROUNDS):
        run_round(work.federation, trained, 1, StepLog())
        ends.append(time.perf_counter())
    return {"subjectdp_round": _timed(ends)}


def _flower(work: Work) -> Seconds:
    """Flower's FedAvg in its own simulation; one process of Ray trains one client after another."""
    os.environ.update(_OFF)  # read when the packages are imported
    from flwr.app import ArrayRecord, ConfigRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    client, server, ends = ClientApp(), ServerApp(), list[float]()
    rounds: dict[int, Any] = {}

    def serve(grid: Any, context: Any) -> None:
        # without min_train_nodes a first round before all nodes are there would have fewer clients
        strategy = FedAvg(
            fraction_evaluate=0.0,
            min_train_nodes=SILOS,
            min_available_nodes=SILOS,
            train_metrics_aggr_fn=_all_clients,
        )
        start = ArrayRecord([work.federation.engine.flat.vector.numpy().copy()])
        sizes = ConfigRecord({"batch": work.batch, "steps": work.steps, "items": work.items})
        rounds.update(
            strategy.start(
                grid,
                start,
                num_rounds=WARM_UP + ROUNDS,
                train_config=sizes,
                evaluate_fn=lambda number, arrays: ends.append(time.perf_counter()),
            ).train_metrics_clientapp
        )

    client.train()(_flower_client)
    server.main()(serve)
    run_simulation(server, client, SILOS, backend_config=_ONE_AT_A_TIME)
    inside = [float(rounds[1 + number]["seconds"]) for number in range(WARM_UP + ROUNDS)]
    return {"flower_opacus": _timed(ends), "flower_opacus_clients": inside[-ROUNDS:]}


def _all_clients(replies: list[Any], _: str) -> Any:
    """The clients' seconds in sum; a client that failed ends the simulation, since its round would be shorter."""
    from flwr.app import MetricRecord

    if len(replies) < SILOS:
        raise RuntimeError(f"{len(replies)} of {SILOS} clients answered")
    return MetricRecord({"seconds": sum(reply["metrics"]["seconds"] for reply in replies)})


def _flower_client(message: Any, context: Any) -> Any:
    """A silo's private steps from the global model."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    began, config = time.perf_counter(), message.content["config"]
    silos = _kept_silos(config["batch"], config["steps"], config["items"])
    (start,) = message.content["arrays"].to_numpy_ndarrays()
    silo = silos[context.node_config["partition-id"]]
    weights = opacus_steps(silo, torch.from_numpy(start.copy()), config["steps"])
    metrics = MetricRecord({"num-examples": 1, "seconds": time.perf_counter() - began})
    answer = {"arrays": ArrayRecord([weights.flatten().numpy()]), "metrics": metrics}
    return Message(RecordDict(answer), reply_to=message)


@cache
def _kept_silos(batch: int, steps: int, items: int) -> list[OpacusSilo]:
    """Data, modules and optimisers of all silos; a process of Ray builds them in its first round."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        return list(opacus_silos(federation_of(Path(folder), MODEL, batch, steps, items), batch, "ghost"))


def _pfl(work: Work) -> Seconds:
    """pfl-research's federated averaging with central noise; local steps are plain SGD, with no clipping by item."""
    from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism

    clip_norm = work.federation.plan.clip_norm or 1.0
    mechanism = CentrallyAppliedPrivacyMechanism(GaussianMechanism(clip_norm, NOISE_MULTIPLIER))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that pfl copies a tensor in a way that PyTorch advises against
        return {"pfl": _pfl_rounds(work, [mechanism], None)}


def _pfl_opacus(work: Work) -> Seconds:
    """pfl-research's rounds with Opacus' private steps at each silo, which need no central noise."""
    from pfl.metrics import Metrics

    silos = list(opacus_silos(work.federation, work.batch, "ghost"))

    def train_one_user(before: Any, model: Any, user: Any, context: Any) -> tuple[Any, Any]:
        (weight,) = model.pytorch_model.parameters()
        weight.data.copy_(opacus_steps(silos[int(user.user_id)], weight.detach(), work.steps))
        return model.get_model_difference(before), Metrics()

    return {"pfl_opacus": _pfl_rounds(work, [], train_one_user)}


def _pfl_rounds(work: Work, processors: list[Any], train_one_user: Callable[..., Any] | None) -> list[float]:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams

    model, users = _pfl_model(work.federation), _pfl_users(work)
    dataset = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(range(SILOS))))
    algorithm, ends = FederatedAveraging(), list[float]()
    algorithm.train_one_user = train_one_user or algorithm.train_one_user
    every = WARM_UP + ROUNDS
    algorithm.run(
        NNAlgorithmParams(every, evaluation_frequency=every, train_cohort_size=SILOS, val_cohort_size=0),
        SimulatedBackend(dataset, dataset, processors),
        model,
        NNTrainHyperParams(
            local_batch_size=work.batch,
            local_num_epochs=None,
            local_num_steps=work.steps,
            local_learning_rate=RATE,
        ),
        NNEvalHyperParams(local_batch_size=None),
        [_pfl_clock(ends)],
        send_metrics_to_platform=False,
    )
    return _timed(ends)


def _pfl_users(work: Work) -> list[Any]:
    """Each silo's mini-batches, cut beforehand: pfl takes one pass through its data and draws no Poisson samples."""
    from pfl.data.pytorch import PyTorchTensorDataset

    def drawn(silo: int) -> list[torch.Tensor]:
        items = silo_items(work.federation, silo)
        chosen = torch.randint(len(items[1]), (work.steps * work.batch,))
        return [tensor[chosen] for tensor in items]

    return [PyTorchTensorDataset(tuple(drawn(silo)), user_id=str(silo)) for silo in range(SILOS)]


def _pfl_model(federation: Federation) -> Any:
    from pfl.internal.ops import pytorch_ops
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel

    # pfl takes a worker process for one of a data loader, which has no such object
    pytorch_ops.distributed = pytorch_ops.distributed or pytorch_ops.PyTorchDistributedContext()
    module: Any = own_module(federation)
    module.loss = lambda inputs, labels: F.cross_entropy(module(inputs), labels)
    module.metrics = lambda inputs, labels: {"items": Weighted(len(labels), 1)}  # pfl wants one in its first round
    return PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))


def _pfl_clock(ends: list[float]) -> Any:
    """A callback of pfl that keeps the time at which each round ends."""
    from pfl.metrics import Metrics

    def after(metrics: Any, model: Any, *, central_iteration: int) -> tuple[bool, Any]:
        ends.append(time.perf_counter())
        return False, Metrics()

    return SimpleNamespace(
        on_train_begin=lambda model: Metrics(), after_central_iteration=after, on_train_end=lambda model: None
    )


SIMULATORS = {
    "subjectdp_round": Simulator(_subjectdp),
    "flower_opacus": Simulator(_flower, ("flwr", "ray")),
    "pfl": Simulator(_pfl, ("pfl",)),
    "pfl_opacus": Simulator(_pfl_opacus, ("pfl",)),
}
"""Method of the workload ``simulators`` -> its rounds; the first is the base."""
