"""From a run's configuration and folders to its inputs, and from these to the federation that trains."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from subjectdp.accounting.plan_run import plan_run
from subjectdp.algorithms.registry import algorithm
from subjectdp.config.run import RunConfig, load_run
from subjectdp.data.partition import Partition, load_partition
from subjectdp.data.store import PreparedData, load_prepared
from subjectdp.engine.clipping import ClippingEngine, cross_entropy, squared_error
from subjectdp.engine.flat import FlatParameters
from subjectdp.engine.probe import check_model, items_in_a_pass, saved_values, tried_positions
from subjectdp.errors import DataError, ModelError, PrivacyError
from subjectdp.models.build import build_model
from subjectdp.models.catalogue import model_parameters
from subjectdp.models.fixed import fixed_features
from subjectdp.plan.plan import NoiseSource, PrivacyPlan
from subjectdp.training.device_data import DeviceDataset, FeatureCache, FixedFeatures
from subjectdp.training.federation import Federation, noise_name


@dataclass(frozen=True)
class RunInputs:
    """What a run is made from, read and checked."""

    run: RunConfig
    plan: PrivacyPlan
    prepared: PreparedData
    partition: Partition
    secret: int | None = field(default=None, repr=False)  # of a run with ``privacy.noise_source: secure``


def read_inputs(
    config: Mapping[str, Any], prepared_folder: Path | str, partition_folder: Path | str, cache_dir: Path | None = None
) -> RunInputs:
    """Reads a run's data, verifying their hashes, and makes its plan; SubjectDPError where they do not fit."""
    run = load_run(config)
    prepared, partition = load_prepared(prepared_folder, verify=True), load_partition(partition_folder)
    if partition.data_hashes != prepared.meta["sha256"]:
        raise DataError(
            f"The partition was made from other data than {prepared.folder} holds: make the partition again."
        )
    return RunInputs(run, plan_run(run, partition, cache_dir), prepared, partition)


def make_federation(inputs: RunInputs, device: torch.device, cache_dir: Path | str | None = None) -> Federation:
    """Builds model, engine and items on the device, and tries the model on one item and on a few.

    ``cache_dir`` keeps a model's fixed features for other runs. Raises ModelError for a model that does not fit the
    data or mixes items, ConfigError or PrivacyError for an optimiser or noise that does not fit the plan, or secure
    noise without a secret.
    """
    run, plan, partition, prepared = inputs.run, inputs.plan, inputs.partition, inputs.prepared
    secure = plan.settings.noise_source is NoiseSource.SECURE
    if secure != (inputs.secret is not None):
        raise PrivacyError("Secure noise requires a run secret, and reproducible noise takes none.")
    name = str(run.model.name)
    shape, parameters = prepared.shape, run.model.parameters
    model = build_model(name, prepared.outputs, prepared.kind, run.seed, parameters, shape).to(device)
    data = _items_on_device(inputs, model, device, cache_dir)
    items = partition.train_items if len(partition.train_items) else partition.test_items
    item, _ = data.batch(items[:1])
    _check_shapes(model, name, item, prepared.outputs)
    at_once = run.performance.physical_batch_size or items_in_a_pass(saved_values(model, item), device.type)
    engine = ClippingEngine(FlatParameters(model), at_once, cross_entropy if prepared.classes else squared_error)
    check_model(model, engine.item_loss, *data.batch(items[tried_positions(len(items))]))
    return Federation(
        rule=algorithm(run.algorithm.name, run.algorithm.variant).round_rule(plan),
        plan=plan,
        partition=partition,
        data=data,
        engine=engine,
        seed=run.seed if inputs.secret is None else inputs.secret,
        noise_name=noise_name(plan, run.run_id, partition, name, run.performance),
        optimiser=run.training.optimizer,
        averaged_rounds=run.training.averaged_rounds,
    )


def _items_on_device(
    inputs: RunInputs, model: torch.nn.Module, device: torch.device, cache_dir: Path | str | None
) -> DeviceDataset:
    run, partition, prepared = inputs.run, inputs.partition, inputs.prepared
    if (compute := fixed_features(model)) is None:
        return DeviceDataset(prepared, device)
    kept = None
    if cache_dir is not None and device.type == "cpu":
        resolved = {"name": run.model.name, **model_parameters(str(run.model.name), run.model.parameters)}
        kept = FeatureCache(cache_dir, prepared.meta["sha256"], resolved)
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
