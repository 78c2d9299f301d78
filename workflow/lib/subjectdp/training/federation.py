"""A simulated federation: what stays the same over the rounds of a run, how it is built from configuration and folders,
and its optimisers on the flat model vector.

Optimisers are post-processing of what a silo has noised, but not of a sum over silos.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.accounting.calibration import kept_folder
from subjectdp.accounting.make_plan import plan_run
from subjectdp.algorithms.base import RoundRule
from subjectdp.algorithms.registry import algorithm
from subjectdp.config.fingerprint import fingerprint, training_stages
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.sections import OptimizerConfig, PerformanceConfig
from subjectdp.data.partition import Partition, load_partition
from subjectdp.data.store import PreparedData, load_prepared
from subjectdp.engine.clipping import ClippingEngine, cross_entropy, squared_error
from subjectdp.engine.flat import FlatParameters
from subjectdp.engine.probe import check_model, find_layout, items_in_a_pass, saved_values, tried_positions
from subjectdp.errors import ConfigError, DataError, ModelError, PrivacyError, expected
from subjectdp.models.build import build_model
from subjectdp.models.catalogue import model_parameters
from subjectdp.models.fixed import fixed_features
from subjectdp.noise.skellam import Grid
from subjectdp.noise.subject_weights import budget_weights, clip_norms
from subjectdp.plan.plan import NoiseDistribution, NoiseSource, PrivacyPlan, TrustModel
from subjectdp.training.device_data import DeviceDataset, FeatureCache, FixedFeatures


class Optimiser:
    """Gradient descent, with momentum, or Adam. The bits are torch.optim's, which loads a compiler (2 s)."""

    def __init__(self, settings: OptimizerConfig) -> None:
        self._settings = settings
        self.state: dict[str, Tensor] = {}  # what it remembers of earlier steps, by torch's names

    def step(self, vector: Tensor, gradient: Tensor) -> None:
        """One step along ``gradient``; the parameters ``vector``, of the same shape, change in place."""
        rate, decay = self._settings.learning_rate, self._settings.momentum
        if self._settings.name == "adam":
            self._adam(vector, gradient, rate, decay)
            return
        if self._settings.name == "momentum":
            old = self.state.get("momentum_buffer")
            gradient = gradient.clone() if old is None else old.mul_(decay).add_(gradient)
            self.state["momentum_buffer"] = gradient
        vector.add_(gradient, alpha=-rate)

    def _adam(self, vector: Tensor, gradient: Tensor, rate: float, decay: float) -> None:
        names = ("exp_avg", "exp_avg_sq")
        mean, square = (self.state.setdefault(name, torch.zeros_like(vector)) for name in names)
        steps = int(self.state.get("step", 0)) + 1
        self.state["step"] = torch.tensor(float(steps))
        mean.lerp_(gradient, 1 - decay)
        square.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
        spread = (square.sqrt() / (1 - 0.999**steps) ** 0.5).add_(1e-8)
        vector.addcdiv_(mean, spread, value=-rate / (1 - decay**steps))


@dataclass(frozen=True)
class Federation:
    """The parts of a run that no round changes: any process with the same federation can train any silo.

    The engine's parameters are working memory. Raises ConfigError or PrivacyError for an optimiser that does not fit
    integer noise, or is not linear where the plan counts on it.
    """

    rule: RoundRule
    plan: PrivacyPlan
    partition: Partition  # the items of each silo and their subjects
    data: DeviceDataset
    engine: ClippingEngine  # its model is the initial one until the first round
    seed: int = field(repr=False)  # root of every draw: the run's seed, or its secret (``privacy.noise_source``)
    noise_name: str  # tells the noise of runs apart
    optimiser: OptimizerConfig  # of a silo's local steps, and of a server that descends
    averaged_rounds: float | None = None  # last part of the rounds whose mean model is reported; None: the last model

    def __post_init__(self) -> None:
        mechanism, name = self.plan.mechanism, self.optimiser.name
        summed = mechanism.trust is TrustModel.SECURE_AGGREGATION and not mechanism.noised_after_steps
        if summed and self.plan.settings.linear_updates and name == "adam":
            allowed = "sgd or momentum: the plan says that the silos' updates are linear in their noisy gradients"
            raise expected("training.optimizer.name", name, allowed, PrivacyError)
        if self.plan.settings.noise_distribution is NoiseDistribution.SKELLAM:
            _ = self.grid  # refused now, not in the first round

    @property
    def device(self) -> torch.device:
        """Where models and items are."""
        return self.engine.flat.vector.device

    @cached_property
    def grid(self) -> Grid:
        """The grid of Skellam noise for the engine's parameters, of steps C over 2^bits.

        Raises ConfigError for an optimiser whose updates are no multiples of the grid, PrivacyError for gradients that
        are not clipped, or noise too wide for the sampler.
        """
        plan, optimiser = self.plan, self.optimiser
        if optimiser.name != "sgd":
            allowed = "sgd with Skellam noise (updates must be sums of noisy integers)"
            raise expected("training.optimizer.name", optimiser.name, allowed, ConfigError)
        if plan.clip_norm is None:
            raise PrivacyError("Expected clipped gradients with Skellam noise, the plan clips nothing.")
        grid = Grid.of_bits(plan.settings.gradient_bits, plan.clip_norm, self.engine.flat.size)
        for silo in plan.silos:
            grid.variance(silo.noise_multiplier)  # refused now, not in the first round
        return grid

    @property
    def unit(self) -> float:
        """How far one integer of the grid moves a parameter."""
        return self.optimiser.learning_rate * self.grid.step / self.plan.silos[0].divisor

    def subject_clip_norms(self, silo: int, subjects: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """C_a of subjects at a silo that holds them; parts of a budget, where the plan has one."""
        silos, owners, norms = self._clip_norms
        start, end = np.searchsorted(silos, [silo, silo + 1])
        found: NDArray[np.float32] = norms[start + np.searchsorted(owners[start:end], subjects)]
        return found

    @cached_property
    def _clip_norms(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """Silo, subject and C_a of each pair with items: most silos hold few of all people."""
        plan = self.plan
        silos, owners, items = self.partition.groups()
        norms = np.full(len(items), plan.settings.clip_norm, np.float32)
        if not plan.mechanism.shared_budget:
            return silos, owners, norms
        rule = plan.settings.subject.weights, plan.mechanism.trust, plan.silos_per_subject
        order = np.argsort(owners, kind="stable")
        held = np.bincount(owners)[owners[order]]
        for count in np.unique(held).tolist():  # people at as many silos
            own = order[held == count].reshape(-1, count).T
            norms[own] = clip_norms(budget_weights(items[own], *rule), plan.settings.clip_norm)
        return silos, owners, norms


def noise_name(
    plan: PrivacyPlan,
    run_id: str,
    partition: Partition,
    model: str | None = None,
    performance: PerformanceConfig | None = None,
) -> str:
    """Part of every key of noise: SHA-256 of run id, plan, partition (with the data's hashes), code and rounding.

    Runs of one seed share partition and sampling. If they shared noise too (under two noise multipliers, with and
    without a subject, or before and after a change of the code), the difference of two models would be free of it.
    Physical batches, threads and torch's version change how sums are rounded, and so what such a difference shows. Each
    device draws from a generator of its own. ``model``: None for one that is not in the catalogue.
    """
    speed = PerformanceConfig() if performance is None else performance
    code = fingerprint(*training_stages(plan.mechanism.algorithm, model))
    rounding = [speed.physical_batch_size, speed.threads, torch.__version__]
    content = [run_id, plan.to_dict(), partition.facts, partition.data_hashes, code, rounding]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True)
class RunInputs:
    """What a run is made from, read and checked."""

    run: RunConfig
    plan: PrivacyPlan
    prepared: PreparedData
    partition: Partition
    secret: int | None = field(default=None, repr=False)  # of a run with ``privacy.noise_source: secure``


def read_inputs(config: Mapping[str, Any], prepared_folder: Path | str, partition_folder: Path | str) -> RunInputs:
    """Reads a run's data, verifying their hashes, and makes its plan; SubjectDPError where they do not fit."""
    run = load_run(config)
    prepared, partition = load_prepared(prepared_folder, verify=True), load_partition(partition_folder)
    if partition.data_hashes != prepared.meta["sha256"]:
        raise DataError(
            f"The partition was made from other data than {prepared.folder} holds: make the partition again."
        )
    return RunInputs(run, plan_run(run, partition), prepared, partition)


def make_federation(inputs: RunInputs, device: torch.device) -> Federation:
    """Builds model, engine and items on the device, and tries the model on one item and on a few.

    A model's fixed features are kept as calibrations are. Raises ModelError for a model that does not fit the data or
    mixes items, ConfigError or PrivacyError for an optimiser or noise that does not fit the plan, or secure noise
    without a secret.
    """
    run, plan, partition, prepared = inputs.run, inputs.plan, inputs.partition, inputs.prepared
    secure = plan.settings.noise_source is NoiseSource.SECURE
    if secure != (inputs.secret is not None):
        raise PrivacyError("Secure noise requires a run secret, and reproducible noise takes none.")
    name, parameters = str(run.model.name), run.model.parameters
    model = build_model(name, prepared.outputs, prepared.kind, run.seed, parameters, prepared.shape).to(device)
    data = _items_on_device(inputs, model, device)
    items = partition.train_items if len(partition.train_items) else partition.test_items
    item, _ = data.batch(items[:1])
    _check_shapes(model, name, item, prepared.outputs)
    at_once = run.performance.physical_batch_size or items_in_a_pass(saved_values(model, item), device.type)
    tried = items[tried_positions(len(items))]
    layout = find_layout(model, dict(model.named_parameters()), data.batch(np.resize(tried, max(3, len(tried))))[0])
    losses = cross_entropy if prepared.classes else squared_error
    check_model(model, losses, *data.batch(tried), layout)
    return Federation(
        rule=algorithm(run.algorithm.name, run.algorithm.variant).round_rule(plan),
        plan=plan,
        partition=partition,
        data=data,
        engine=ClippingEngine(FlatParameters(model), at_once, losses, layout),
        seed=run.seed if inputs.secret is None else inputs.secret,
        noise_name=noise_name(plan, run.run_id, partition, name, run.performance),
        optimiser=run.training.optimizer,
        averaged_rounds=run.training.averaged_rounds,
    )


def _items_on_device(inputs: RunInputs, model: torch.nn.Module, device: torch.device) -> DeviceDataset:
    run, partition, prepared = inputs.run, inputs.partition, inputs.prepared
    if (compute := fixed_features(model)) is None:
        return DeviceDataset(prepared, device)
    kept = None
    if (folder := kept_folder()) is not None and device.type == "cpu":
        resolved = {"name": run.model.name, **model_parameters(str(run.model.name), run.model.parameters)}
        kept = FeatureCache(folder, prepared.meta["sha256"], resolved)
    used = np.concatenate([partition.train_items, partition.validation_items, partition.test_items])
    return DeviceDataset(prepared, device, FixedFeatures(compute, used, kept))


def _check_shapes(model: torch.nn.Module, name: str, item: Tensor, classes: int) -> None:
    try:
        with torch.no_grad():
            shape = tuple(model(item).shape)
    except (RuntimeError, IndexError, ValueError) as error:
        raise ModelError(f"Expected model.name {name!r} to take items of shape {tuple(item.shape)}: {error}") from None
    if shape != (1, classes):
        raise ModelError(f"Expected model.name {name!r} to give logits of shape (1, {classes}), got {shape}.")
