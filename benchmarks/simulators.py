"""A whole round of two simulators of federated learning beside this project's round of as many steps, by wall time.

Flower's clients work in a process of Ray, pfl-research's in this one; both take Opacus' private steps. Start-up is not
timed: a round lasts from the end of the one before. Neither package is a dependency; benchmarks/simulators.txt says how
to install them.
"""

from __future__ import annotations

import logging
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks import rounds
from benchmarks.rounds import RATE, SILOS, OpacusSilo, federation_of, opacus_silos, opacus_steps
from benchmarks.steps import peers_may_fail
from benchmarks.timing import Outcome
from subjectdp.training.federation import Federation
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import GlobalModel, run_round

ROUNDS, WARM_UP = 10, 2  # of a block
_OFF = dict.fromkeys(("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"), "0")
_ONE_AT_A_TIME = {
    "init_args": {"num_cpus": 1, "log_to_driver": False},
    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
}


def time_simulators(batch: int, blocks: int) -> dict[str, Outcome]:
    """Median seconds of a round in each block; in a block each method runs its rounds one after another."""
    outcomes = {name: _installed(*packages) for name, (_, packages) in SIMULATORS.items()}
    order, shuffler = list(SIMULATORS), random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        federation = _federation(Path(folder), batch)
        for _ in range(blocks):
            shuffler.shuffle(order)
            for name in [name for name in order if outcomes[name].status == "ok"]:
                with peers_may_fail(name, outcomes[name]):
                    ends = SIMULATORS[name][0](federation, batch)
                    outcomes[name].wall.append(statistics.median(np.diff(ends)[-ROUNDS:].tolist()))
    for outcome in outcomes.values():
        outcome.wall = outcome.wall if outcome.status == "ok" else []
    return outcomes


def _installed(*packages: str) -> Outcome:
    missing = [package for package in packages if find_spec(package) is None]
    note = f"{' and '.join(missing)} not installed: see benchmarks/simulators.txt"
    return Outcome("skipped", note) if missing else Outcome()


def _federation(folder: Path, batch: int) -> Federation:
    return federation_of(folder, rounds.LIGHT_MODEL, batch, rounds.LIGHT_STEPS, rounds.LIGHT_ITEMS)


def _subjectdp(federation: Federation, batch: int) -> list[float]:
    """Round 1 of LocalItemDP, again and again; the times at which rounds end."""
    trained, ends = GlobalModel(federation), [time.perf_counter()]
    for _ in range(WARM_UP + ROUNDS):
        run_round(federation, trained, 1, StepLog())
        ends.append(time.perf_counter())
    return ends


def _flower(federation: Federation, batch: int) -> list[float]:
    """Flower's FedAvg in its own simulation; one process of Ray trains one client after another."""
    os.environ.update(_OFF)  # read when the packages are imported
    from flwr.app import ArrayRecord, ConfigRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    client, server, ends = ClientApp(), ServerApp(), list[float]()

    def serve(grid: Any, context: Any) -> None:
        # without min_train_nodes a first round before all nodes are there would have fewer clients
        strategy = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=SILOS, min_available_nodes=SILOS, train_metrics_aggr_fn=_all_clients
        )
        strategy.start(
            grid,
            ArrayRecord([federation.engine.flat.vector.numpy().copy()]),
            num_rounds=WARM_UP + ROUNDS,
            train_config=ConfigRecord({"batch": batch, "steps": rounds.LIGHT_STEPS}),
            evaluate_fn=lambda number, arrays: ends.append(time.perf_counter()),
        )

    client.train()(_flower_client)
    server.main()(serve)
    run_simulation(server, client, SILOS, backend_config=_ONE_AT_A_TIME)
    return ends


def _all_clients(replies: list[Any], _: str) -> Any:
    """A client that failed ends the simulation, since its round would be shorter."""
    from flwr.app import MetricRecord

    if len(replies) < SILOS:
        raise RuntimeError(f"{len(replies)} of {SILOS} clients answered")
    return MetricRecord({})


def _flower_client(message: Any, context: Any) -> Any:
    """A silo's private steps from the global model."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    config = message.content["config"]
    silo = _kept_silos(config["batch"])[context.node_config["partition-id"]]
    (start,) = message.content["arrays"].to_numpy_ndarrays()
    weights = opacus_steps(silo, torch.from_numpy(start.copy()), config["steps"])
    metrics = MetricRecord({"num-examples": 1})
    return Message(
        RecordDict({"arrays": ArrayRecord([weights.flatten().numpy()]), "metrics": metrics}), reply_to=message
    )


@cache
def _kept_silos(batch: int) -> list[OpacusSilo]:
    """Data, modules and optimisers of all silos; a process of Ray builds them in its first round."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        return list(opacus_silos(_federation(Path(folder), batch), batch, "ghost"))


def _pfl(federation: Federation, batch: int) -> list[float]:
    """pfl-research's federated averaging with Opacus' private steps at each silo."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics

    silos, ends = list(opacus_silos(federation, batch, "ghost")), list[float]()

    def train_one_user(before: Any, model: Any, user: Any, context: Any) -> tuple[Any, Any]:
        (weight,) = model.pytorch_model.parameters()
        weight.data.copy_(opacus_steps(silos[int(user.user_id)], weight.detach(), rounds.LIGHT_STEPS))
        return model.get_model_difference(before), Metrics()

    def after(metrics: Any, model: Any, *, central_iteration: int) -> tuple[bool, Any]:
        ends.append(time.perf_counter())
        return False, Metrics()

    clock = SimpleNamespace(
        on_train_begin=lambda model: Metrics(), after_central_iteration=after, on_train_end=lambda model: None
    )
    users = [PyTorchTensorDataset(rounds.silo_items(federation, silo), user_id=str(silo)) for silo in range(SILOS)]
    dataset = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(range(SILOS))))
    algorithm, every = FederatedAveraging(), WARM_UP + ROUNDS
    algorithm.train_one_user = train_one_user
    algorithm.run(
        NNAlgorithmParams(every, evaluation_frequency=every, train_cohort_size=SILOS, val_cohort_size=0),
        SimulatedBackend(dataset, dataset, []),
        _pfl_model(federation),
        NNTrainHyperParams(
            local_batch_size=batch, local_num_epochs=None, local_num_steps=rounds.LIGHT_STEPS, local_learning_rate=RATE
        ),
        NNEvalHyperParams(local_batch_size=None),
        [clock],
        send_metrics_to_platform=False,
    )
    return ends


def _pfl_model(federation: Federation) -> Any:
    from pfl.internal.ops import pytorch_ops
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel

    # pfl takes a worker process for one of a data loader, which has no such object
    pytorch_ops.distributed = pytorch_ops.distributed or pytorch_ops.PyTorchDistributedContext()
    module: Any = rounds.own_module(federation)
    module.loss = lambda inputs, labels: F.cross_entropy(module(inputs), labels)
    module.metrics = lambda inputs, labels: {"items": Weighted(len(labels), 1)}  # pfl wants one in its first round
    return PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))


SIMULATORS: dict[str, tuple[Callable[[Federation, int], list[float]], tuple[str, ...]]] = {
    "subjectdp_round": (_subjectdp, ()),
    "flower_opacus": (_flower, ("flwr", "ray")),
    "pfl_opacus": (_pfl, ("pfl",)),
}
"""Method of the workload ``simulators`` -> its rounds, which give the times of their ends, and the packages they need;
the first is the base."""
