"""Three silos with LEAF folders of embedded FEMNIST, a server's file, and the simulation of the same federation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import load_file

from subjectdp.config.scenario import merge
from subjectdp.config.sections import DataConfig
from subjectdp.data.partition import Partition
from subjectdp.data.prepare import generate, read_source
from subjectdp.data.store import PreparedData
from subjectdp.engine.flat import FlatParameters
from subjectdp.federation.proposal import ROUND, Proposal, pack, propose, unpack
from subjectdp.federation.server import FederationFile, lead, read_federation, server_inputs
from subjectdp.federation.silo import Silo
from subjectdp.federation.site import Site, load_site, own_items, read_site_data
from subjectdp.models.build import build_model
from subjectdp.training.federation import RunInputs, make_federation
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import GlobalModel, run_round

SILOS, WRITERS, ITEMS = 3, 9, 20
EMBEDDED = {"source": "embedded", "embedded": {"subjects": WRITERS, "items_per_subject": ITEMS, "seed": 5}}

OWN_NOISE = {"own_noise_only": True}
ALGORITHMS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("fed_avg", "local_item_dp", "capped_item_dp", "local_group_dp", "user_ldp"), {}),
    "higrad_avg_dp": {"model": {"name": "small_cnn", "parameters": {"width": 4}}},
    "subject_release": {"subject": {"weights": "fixed"}, "training": {"local_steps": 1, "sampling_fraction": None}},
    "uldp_fl": {"subject": {"weights": "fixed"}, "joint": OWN_NOISE, "training": {"sampling_fraction": None}},
    "joint_noise": {"joint": OWN_NOISE},
    "joint_noise skellam": {"joint": {**OWN_NOISE, "noise": "skellam"}, "privacy": {"accountant": "rdp"}},
    "joint_noise update": {"joint": {**OWN_NOISE, "clipping": "update"}},
}


def run_sections(name: str = "local_item_dp", **changes: Any) -> dict[str, Any]:
    """A run of the federation; ``changes`` go into its sections."""
    base: dict[str, Any] = {
        "algorithm": name.partition(" ")[0],
        "seed": 0,
        "data": EMBEDDED,
        "partition": {"silos": SILOS, "max_items_per_subject": 8, "silos_per_subject": 2},
        "privacy": {"mode": "sound", "epsilon": 8.0, "delta": 1e-3, "noise_source": "reproducible"},
        "training": {"rounds": 3, "local_steps": 2, "sampling_fraction": 0.25, "optimizer": {"learning_rate": 0.1}},
        "model": {"name": "logistic"},
        "performance": {"device": "cpu"},
    }
    for key, value in [*ALGORITHMS.get(name, {}).items(), *changes.items()]:
        base[key] = {**base.get(key, {}), **value} if isinstance(value, dict) else value
    if name == "fed_avg":
        base.pop("privacy")
    return base


@cache
def leaf_texts() -> list[str]:
    """LEAF's JSON of each silo: writer i's images lie half at silo i, half at silo i + 1."""
    with TemporaryDirectory() as name:
        generate("femnist", Path(name), WRITERS, ITEMS, seed=3)
        content = read_source(DataConfig.model_validate(EMBEDDED), Path(name))
    users: list[dict[str, Any]] = [{} for _ in range(SILOS)]
    people = zip(content.subject_ids, content.first_items.tolist(), content.items.tolist(), strict=True)
    for number, (subject, first, count) in enumerate(people):
        middle = first + count // 2
        for silo, part in ((number, slice(first, middle)), (number + 1, slice(middle, first + count))):
            images = content.features[part].reshape(-1, 28 * 28) / 255
            users[silo % SILOS][subject] = {"x": images.tolist(), "y": content.labels[part].tolist()}
    counts = [[len(user["y"]) for user in held.values()] for held in users]
    files = zip(users, counts, strict=True)
    return [json.dumps({"users": list(held), "num_samples": n, "user_data": held}) for held, n in files]


@dataclass
class World:
    """Files of a federation on one disk."""

    folder: Path
    server: Path
    sites: list[Path]

    @property
    def file(self) -> FederationFile:
        return read_federation(self.server)

    @cached_property
    def proposed(self) -> tuple[RunInputs, Proposal]:
        return proposed(self.file)

    @property
    def inputs(self) -> RunInputs:
        return self.proposed[0]

    @property
    def proposal(self) -> Proposal:
        return self.proposed[1]

    @cached_property
    def model(self) -> torch.Tensor:
        """The initial model."""
        run, data = self.inputs.run, self.inputs.prepared
        model = build_model(str(run.model.name), data.outputs, data.kind, run.seed, run.model.parameters, data.shape)
        return FlatParameters(model).vector

    def request(self, round_: int = 1, model: torch.Tensor | None = None, ask: str = ROUND, **changes: Any) -> bytes:
        """What the server asks of a silo, with ``changes`` of the proposal."""
        sent = merge(self.proposal.model_dump(mode="json"), changes)
        return pack({"ask": ask, "proposal": sent, "round": round_}, self.model if model is None else model)

    def silos(self, **changes: Any) -> dict[int, TalkingSilo]:
        """The silos in this process, by a made-up number of a machine."""
        return {10 + n: self.silo(n, **changes) for n in range(len(self.sites))}

    def silo(self, number: int = 0, **changes: Any) -> TalkingSilo:
        """A silo, started in this process; it names the plan where its people's limit rests on other silos."""
        site = load_site(self.sites[number])
        agreed = {"plan": self.proposal.digest} if site.unit == "subject" else {}
        return TalkingSilo(site.model_copy(update={**agreed, **changes}))

    def lead(self, silos: Mapping[int, Any] | None = None) -> Path:
        """Leads the federation in this process; returns the run's folder."""
        return lead(self.file, Here(self.silos() if silos is None else silos))

    def same_as_simulation(self, folder: Path) -> bool:
        """Whether a run's final model is the simulation's, bit by bit."""
        found, expected = load_file(folder / "model.safetensors"), simulated(self)
        return found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in expected)


class TalkingSilo:
    """A silo and the lines that it reported."""

    def __init__(self, site: Site) -> None:
        self.site, self.lines = site, list[str]()
        Path(site.folder).mkdir(parents=True, exist_ok=True)
        self.silo = Silo(site, self.lines.append)
        self.answer = self.silo.answer

    def said(self, part: str) -> bool:
        return any(part in line for line in self.lines)

    def release(self, request: bytes) -> torch.Tensor | None:
        """What it gives away; None: it refused."""
        facts, found = unpack(self.answer(request))
        assert facts.get("refused", False) == (found is None)
        return found

    def refuses(self, request: bytes, reason: str) -> bool:
        """Whether it refuses for this reason."""
        self.lines.clear()
        return self.release(request) is None and self.said(reason)

    @property
    def rounds(self) -> list[list[int]]:
        """The rounds in its ledger, of each run."""
        return [sorted(record.rounds) for record in self.silo.budget.records().values()]


@dataclass
class Here:
    """A link to silos in this process; ``after`` changes the replies to the requests."""

    silos: Mapping[int, Any]
    after: Callable[[Mapping[int, bytes], dict[int, bytes]], dict[int, bytes]] = lambda _, replies: replies

    def nodes(self) -> Iterable[int]:
        return list(self.silos)

    def ask(self, requests: Mapping[int, bytes], seconds: float) -> dict[int, bytes]:
        return self.after(requests, {node: self.silos[node].answer(content) for node, content in requests.items()})


def make_world(folder: Path, name: str = "local_item_dp", **changes: Any) -> World:
    """The silos have the people of ``leaf_texts``; the server has other, made-up ones."""
    run = run_sections(name, **changes)
    sites = []
    for silo, text in enumerate(leaf_texts()):
        (folder / f"leaf-{silo}" / "all_data").mkdir(parents=True, exist_ok=True)
        (folder / f"leaf-{silo}" / "all_data" / "all_data_0.json").write_text(text)
        site = {
            "silo": silo,
            "folder": f"silo-{silo}",
            "data": {"source": "leaf_json", "path": f"leaf-{silo}"},
            "max_items_per_subject": 8,
            "silos_per_subject": 2,
            "unit": "item" if name in ("local_item_dp", "joint_noise", "joint_noise skellam") else "subject",
            "epsilon": None if name in ("fed_avg", "joint_noise update") else 8.5,
            "delta": 1e-3,
            "noise": run.get("privacy", {}).get("noise_source", "secure"),
        }
        sites.append(folder / f"site-{silo}.yaml")
        sites[-1].write_text(yaml.safe_dump(site))
    sizes = [{"items": 50, "subjects": 6}] * SILOS
    server = {"run": run, "silos": sizes, "subjects": WRITERS, "wait_minutes": 0.05, "ask_again_seconds": 1}
    (folder / "federation.yaml").write_text(yaml.safe_dump(server))
    return World(folder, folder / "federation.yaml", sites)


def proposed(file: FederationFile) -> tuple[RunInputs, Proposal]:
    inputs, items = server_inputs(file)
    return inputs, propose(inputs.run, items, inputs.partition, inputs.plan)


CPU = torch.device("cpu")


def simulated(world: World) -> dict[str, torch.Tensor]:
    """The final model of the pipeline's simulation on all silos' capped items, in one process."""
    inputs = world.inputs
    owns = [own_items(site, read_site_data(site), world.proposal, inputs.run) for site in map(load_site, world.sites)]
    names = sorted({name for own in owns for name in own.prepared.subject_ids})
    starts = np.cumsum([0, *(len(own.prepared.features) for own in owns)])
    items = [own.partition.train_items + np.int32(start) for own, start in zip(owns, starts, strict=False)]
    places = [np.array([names.index(name) for name in own.prepared.subject_ids], np.int32) for own in owns]
    owners = [place[own.partition.train_subjects] for place, own in zip(places, owns, strict=True)]
    offsets = np.cumsum([0, *map(len, items)]).astype(np.int64)
    nothing = np.empty(0, np.int32)
    facts = {"counts": {"subjects": len(names)}}
    partition = Partition(np.concatenate(items), np.concatenate(owners), offsets, nothing, nothing, facts)
    first: PreparedData = owns[0].prepared
    prepared = replace(
        first,
        features=np.concatenate([own.prepared.features for own in owns]),
        labels=np.concatenate([own.prepared.labels for own in owns]),
    )
    sizes = zip(inputs.plan.silos, map(len, items), strict=True)
    plan = replace(inputs.plan, silos=tuple(replace(silo, items=count) for silo, count in sizes))
    alone = inputs.run.performance.model_copy(update={"physical_batch_size": 1})  # as silos train
    run = inputs.run.model_copy(update={"performance": alone})
    federation = make_federation(RunInputs(run, plan, prepared, partition, inputs.secret), CPU)
    federation = replace(federation, noise_name=world.proposal.digest)
    model = GlobalModel(federation)
    for round_ in range(1, plan.rounds + 1):
        run_round(federation, model, round_, StepLog())
    return federation.engine.flat.views(model.reported)
