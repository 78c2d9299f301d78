"""What server and silos say to each other: messages, and the proposal of a run.

A message is public facts as JSON, and one vector, in the bytes of a safetensors file: nothing in it is run. A proposal
is the settings of a run and public constants; a silo makes the privacy plan from it itself. Sizes are agreed, not
counted: a silo with fewer or more items draws each with the plan's probability all the same.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from subjectdp.accounting.make_plan import draft_plan, with_noise_multipliers
from subjectdp.config.resolve import mechanism_of, plan_settings
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.sections import DataConfig, PerformanceConfig, Section
from subjectdp.data.content import Content
from subjectdp.data.partition import Partition
from subjectdp.errors import DataError, expected
from subjectdp.plan.plan import Count, NonNegative, PrivacyPlan

_FACTS, _VECTOR = "facts", "vector"
PLAN, ROUND = "plan", "round"  # kinds of a request: whether a silo takes part in a plan, and one round of it


def pack(facts: Mapping[str, Any], vector: Tensor | None = None) -> bytes:
    """The bytes of a message."""
    tensors = {} if vector is None else {_VECTOR: vector.detach().cpu().contiguous()}
    return bytes(save(tensors, {_FACTS: json.dumps(facts, sort_keys=True, allow_nan=False)}))


def unpack(content: bytes) -> tuple[dict[str, Any], Tensor | None]:
    """Facts and vector of a message; DataError for anything else."""
    try:
        tensors = load(content)
        facts = json.loads(json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"][_FACTS])
    except (SafetensorError, ValueError, KeyError, TypeError) as problem:
        raise DataError(f"Expected a message of a federation, got {problem!r}.") from None
    if not isinstance(facts, dict):
        raise DataError(f"Expected a message with facts, got {type(facts).__name__}.")
    return facts, tensors.get(_VECTOR)


def digest(content: bytes) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(content).hexdigest()


_NO_ITEMS = np.empty(0, np.int32)
_KEPT = {"data", "performance"}  # the server's own


class SiloSize(Section):
    """Public constants of one silo: about how much it will bring."""

    items: Count
    """Items, about; with training.batch_size they fix the sampling probability, and the steps of an epoch."""
    subjects: Count
    """People, about; some divisors are made from it."""


class Items(Section):
    """What an item is, at every silo the same."""

    dataset: str
    kind: str
    classes: int
    window: int
    vocabulary: str
    shape: tuple[int, ...]
    features: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    ranges: dict[str, tuple[float, float]] = {}

    @classmethod
    def of(cls, content: Content, data: DataConfig) -> Self:
        """The kind of a data set's items, read as ``data`` says."""
        shape = tuple(int(size) for size in content.features.shape[1:])
        facts = {key: getattr(content, key) for key in ("dataset", "kind", "classes", "window", "vocabulary")}
        names = {key: content.notes.get(key, ()) for key in ("features", "class_names")}
        return cls.model_validate({**facts, **names, "shape": shape, "ranges": data.ranges})


class Proposal(Section):
    """All that silos are told beside the model; its digest names the run in every ledger."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]  # a part of a file's name
    run: dict[str, Any]
    items: Items
    silos: Annotated[tuple[SiloSize, ...], Field(min_length=1, max_length=32_767)]
    subjects: Count
    noise_multipliers: tuple[NonNegative, ...]

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if len(self.noise_multipliers) != len(self.silos):
            raise expected("noise_multipliers", len(self.noise_multipliers), f"{len(self.silos)} numbers")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of everything in it."""
        return digest(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode())

    def run_with(self, data: DataConfig, performance: PerformanceConfig) -> RunConfig:
        """The run at a silo with these data. Raises ConfigError for settings that no run may have."""
        own = {"data": data.model_dump(mode="json"), "performance": performance.model_dump(mode="json")}
        return load_run({**self.run, **own}, "proposal.run")

    def plan(self, run: RunConfig) -> PrivacyPlan:
        """The plan that ``run`` and the public constants give, with the proposed noise. Raises as ``draft_plan``."""
        facts = public_partition(run, self.silos, self.subjects).federation_facts()
        return with_noise_multipliers(draft_plan(mechanism_of(run), facts, plan_settings(run)), self.noise_multipliers)


def propose(run: RunConfig, items: Items, partition: Partition, plan: PrivacyPlan) -> Proposal:
    """The proposal of the server's run and plan; where its own data lie stays with it."""
    facts = partition.facts
    sizes = zip(facts["silo_items"], facts["silo_subjects"], strict=True)
    return Proposal(
        name=run.run_id,
        run=run.model_dump(mode="json", exclude=_KEPT),
        items=items,
        silos=tuple(SiloSize(items=n, subjects=m) for n, m in sizes),
        subjects=partition.subjects,
        noise_multipliers=tuple(silo.noise_multiplier for silo in plan.silos),
    )


def public_partition(
    run: RunConfig, silos: tuple[SiloSize, ...], subjects: int, test_items: np.ndarray[Any, Any] = _NO_ITEMS
) -> Partition:
    """A partition of public constants, without train items; ``test_items`` are the server's own sample's.
    Raises ConfigError for another number of silos than ``partition.silos``."""
    if len(silos) != run.partition.silos:
        raise expected("partition.silos", run.partition.silos, f"{len(silos)}, the silos of the federation")
    cap = run.partition.max_items_per_subject
    facts = {
        "seed": run.seed,
        "partition": run.partition.model_dump(mode="json"),
        "counts": {"subjects": subjects},
        "silo_items": [silo.items for silo in silos],
        "silo_subjects": [silo.subjects for silo in silos],
        "silo_largest_subject": [cap or 0] * len(silos),  # 0: not known
        "silos_per_subject_limit": run.partition.silos_per_subject,
        "public_constants": True,
    }
    return Partition(_NO_ITEMS, _NO_ITEMS, np.zeros(len(silos) + 1, np.int64), _NO_ITEMS, test_items, facts)
