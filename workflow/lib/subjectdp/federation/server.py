"""The server of a federation: proposes a plan, asks the silos round by round, writes what a run of the pipeline writes.

It runs the loop of ``training.run``. A round needs all of its silos: one that does not answer is asked again, and gives
the same bits if it had answered before; the server gives up after ``wait_minutes``, and goes on with the next start. It
sees the silos' releases and public constants, and needs no trust.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from subjectdp.accounting.calibration import kept_in
from subjectdp.accounting.make_plan import plan_run
from subjectdp.config.messages import validated
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.sections import Section
from subjectdp.data.content import addresses
from subjectdp.data.prepare import fetch_sources, prepare_dataset
from subjectdp.data.store import PreparedData, load_prepared
from subjectdp.errors import DataError, PrivacyError, WorkerError, expected
from subjectdp.federation.proposal import (
    PLAN,
    ROUND,
    Items,
    Proposal,
    SiloSize,
    pack,
    propose,
    public_partition,
    unpack,
)
from subjectdp.io.yaml_files import read_yaml
from subjectdp.places import Places
from subjectdp.plan.plan import Count, NoiseDistribution, NoiseSource, Positive
from subjectdp.training.federation import RunInputs
from subjectdp.training.run import train_inputs

log = logging.getLogger(__name__)


class FederationFile(Section):
    """The server's file."""

    run: dict[str, Any]
    """A run as in a scenario. ``data`` is a public or made-up sample: it says what an item is, and tests the model."""
    silos: Annotated[tuple[SiloSize, ...], Field(min_length=1)]
    """Public constants of each silo."""
    subjects: Count
    """People of all silos together, about: a public constant."""
    results: str = "results"
    """Where results go, as those of the pipeline."""
    wait_minutes: Positive = 30.0
    """How long a round waits for all of its silos."""
    ask_again_seconds: Positive = 120.0
    """How long a silo may take before it is asked again, which costs it nothing."""


class Link(Protocol):
    """How the server reaches the machines of the silos."""

    def nodes(self) -> Iterable[int]:
        """The machines that are there now."""

    def ask(self, requests: Mapping[int, bytes], seconds: float) -> Mapping[int, bytes]:
        """Sends each machine its request; the replies that came within ``seconds``."""


def read_federation(path: Path | str) -> FederationFile:
    """The server's file; ``run.data.path`` and ``results`` are relative to it. Raises ConfigError."""
    found = validated(FederationFile, read_yaml(path))
    beside = Path(path).absolute().parent
    run = dict(found.run)
    if isinstance(data := run.get("data"), dict) and isinstance(sample := data.get("path"), str):
        run["data"] = {**data, "path": str(beside / Path(sample).expanduser())}
    if isinstance(own := run.get("performance") or {}, dict):
        if minutes := own.get("checkpoint_minutes", 0):
            raise expected("run.performance.checkpoint_minutes", minutes, "left out: a federation keeps every round")
        run["performance"] = {**own, "checkpoint_minutes": 0}
    if (beside / found.results).is_file():
        raise expected("results", found.results, "a folder, or the name of a new one")
    return found.model_copy(update={"run": run, "results": str(beside / found.results)})


def lead(file: FederationFile, link: Link, report: Callable[[str], None] = log.info) -> Path:
    """Runs a federation to its end; returns the folder of the run, with model, manifest and privacy report.

    Raises SubjectDPError for what does not fit and for a silo that refuses; WorkerError for silos that did not answer
    in time: the next start goes on after the last whole round.
    """
    started = time.perf_counter()
    inputs, items = server_inputs(file)
    proposal = propose(inputs.run, items, inputs.partition, inputs.plan)
    report(f"plan {proposal.digest}: {proposal.name}, {inputs.plan.rounds} rounds, {len(proposal.silos)} silos")
    folder = Path(file.results) / "runs" / inputs.run.run_id
    train_inputs(inputs, folder, report, started, Silos(file, link, proposal, report).ask)
    return folder


def server_inputs(file: FederationFile) -> tuple[RunInputs, Items]:
    """What the server trains with, from its sample and public constants, and what an item is."""
    run = load_run(file.run, "run")
    _refuse_unread(run)
    prepared = _sample(run, Path(file.results))
    tested = addresses(prepared.first_items, prepared.items).astype(np.int32)
    partition = public_partition(run, file.silos, file.subjects, tested)
    with kept_in(Places(file.results).calibration_cache_dir()):
        plan = plan_run(run, partition)
    secure = plan.settings.noise_source is NoiseSource.SECURE
    secret = secrets.randbits(256) if secure else None  # draws nothing here: silos noise
    return RunInputs(run, plan, prepared, partition, secret), Items.of(prepared, run.data)


def _refuse_unread(run: RunConfig) -> None:
    unread = {
        "run.partition.distribution": (run.partition.distribution, "uniform"),
        "run.data.silo": (run.data.silo, None),
        "run.data.subjects": (run.data.subjects, None),
        "run.privacy.predicted_subjects": (run.privacy.predicted_subjects, None),
    }
    for key, (value, usual) in unread.items():
        if value != usual:
            raise expected(key, value, "left out in a federation: people and items are where they are")


def _sample(run: RunConfig, results: Path) -> PreparedData:
    source, folder = (results / kind / run.data_key for kind in ("sources", "prepared"))
    fetch_sources(run.data, source)
    prepare_dataset(run.data, source, folder)
    prepared = load_prepared(folder)
    return replace(prepared, meta={**prepared.meta, "copies": 1})  # which says nothing of the silos' items


@dataclass
class Silos:
    """The silos, as the server sees them: machines that answer."""

    file: FederationFile
    link: Link
    proposal: Proposal
    report: Callable[[str], None]
    homes: dict[int, int] = field(default_factory=dict)  # silo -> machine

    def ask(self, model: Tensor, round_: int, silos: Sequence[int]) -> list[Tensor]:
        """The releases of a round, in the order of ``silos``; asks until all are there. Raises as :func:`lead`."""
        facts = {"ask": ROUND, "proposal": self.proposal.model_dump(mode="json"), "round": round_}
        request, found = pack(facts, model), dict[int, Tensor]()
        end = time.monotonic() + 60.0 * self.file.wait_minutes
        while missing := [silo for silo in silos if silo not in found]:
            if time.monotonic() > end:
                names = ", ".join(map(str, missing))
                raise WorkerError(f"Round {round_} was given up: no answer of silo {names}. Start again to go on.")
            self._find(missing)
            asked = {self.homes[silo]: request for silo in missing if silo in self.homes}
            replies = self.link.ask(asked, min(self.file.ask_again_seconds, max(1.0, end - time.monotonic())))
            for silo in missing:
                if (reply := replies.get(self.homes.get(silo, -1))) is None:
                    self.homes.pop(silo, None)  # it may come back as another machine
                else:
                    found[silo] = self._release(reply, model, silo, round_)
            time.sleep(0.0 if any(silo in found for silo in missing) else 0.5)  # for a silo that fails at once
        return [found[silo] for silo in silos]

    def _release(self, reply: bytes, model: Tensor, silo: int, round_: int) -> Tensor:
        facts, release = unpack(reply)
        if facts.get("refused"):
            raise PrivacyError(f"Silo {silo} refused round {round_}: its own log says why.")
        integers = self.proposal.run["joint"]["noise"] == NoiseDistribution.SKELLAM
        wanted = (silo, round_, torch.int64 if integers else model.dtype, model.shape)
        if release is None or (facts.get("silo"), facts.get("round"), release.dtype, release.shape) != wanted:
            raise DataError(f"Silo {silo} answered round {round_} with something else than its release.")
        if not release.isfinite().all():
            raise DataError(f"Silo {silo} answered round {round_} with numbers that are not finite.")
        return release

    def _find(self, wanted: Sequence[int]) -> None:
        """Asks machines that are not known which silo they are, while a wanted silo has no machine."""
        if all(silo in self.homes for silo in wanted):
            return
        strangers = [node for node in self.link.nodes() if node not in self.homes.values()]
        request = pack({"ask": PLAN, "proposal": self.proposal.model_dump(mode="json")})
        for node, reply in self.link.ask(dict.fromkeys(strangers, request), self.file.ask_again_seconds).items():
            facts, _ = unpack(reply)
            if type(silo := facts.get("silo")) is not int:
                raise expected("number of a silo", silo, "a whole number, as in its file", DataError)
            if facts.get("refused"):
                raise PrivacyError(f"Silo {silo} refused the plan: its own log says why.")
            if silo in self.homes:
                raise DataError(f"Two machines say that they are silo {silo}: give each its own number.")
            if silo in range(len(self.proposal.silos)):
                self.homes[silo] = node
                self.report(f"silo {silo} takes part")
        if not strangers:
            time.sleep(0.5)
