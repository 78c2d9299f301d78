"""A silo: answers the server's requests with releases that the plan noised, and with nothing else.

Order of a round: the request is checked against plan, file and ledger; the round is written into the ledger; the silo
trains with ``train_silo``, as the simulation does; the release is kept; it is sent. Killed before it was kept, nothing
has left the silo, and the same request may be answered anew. Later, the same request gets the same bits, and any other
for that round is refused. Why stands in the silo's own log: the reason may depend on people.

Whatever the server says, a plan is refused that the silo's own file, data or ledger do not allow. The ledger has a file
for each run, written durably before the first number of a round leaves the silo, under a temporary name, synced and
renamed. A damaged file stops all. ``subjectdp ledger`` and ``subjectdp statement`` read the files.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subjectdp.accounting.ledger import LedgerEntry, composed_epsilon
from subjectdp.accounting.make_plan import plan_from_dict
from subjectdp.accounting.privacy_report import report_text
from subjectdp.accounting.sound import noise_is_summed
from subjectdp.accounting.statements import privacy_statements
from subjectdp.config.messages import validated
from subjectdp.errors import DataError, PrivacyError, StorageError, SubjectDPError, expected
from subjectdp.federation.proposal import PLAN, ROUND, Proposal, digest, pack, unpack
from subjectdp.federation.site import Site, own_items, read_site_data
from subjectdp.io.atomic import read_sealed, sealed, write_bytes, write_json
from subjectdp.plan.plan import (
    AccountingMode,
    BudgetWeights,
    NoiseDistribution,
    NoiseRule,
    NoiseSource,
    PrivacyPlan,
    PrivacyUnit,
    SamplingMethod,
    SiloChoice,
    TrustModel,
)
from subjectdp.sampling import silos_of_round
from subjectdp.training.federation import Federation, RunInputs, make_federation
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import check_noise, train_silo
from subjectdp.training.run import choose_device


@dataclass(frozen=True)
class Accepted:
    """A plan that this process has checked, and what its rounds need."""

    federation: Federation  # its plan and partition hold this silo's own items
    record: RunRecord  # as it would stand in the ledger before the first round
    for_readers: dict[str, Any]  # of the ledger's file


class Silo:
    """One silo at work. ``report`` takes a line for people of the silo, never for the server."""

    def __init__(self, site: Site, report: Callable[[str], None]) -> None:
        self.site, self.report = site, report
        self.budget = Budget(Path(site.folder))
        self.data = read_site_data(site)
        self._accepted: dict[str, Accepted] = {}
        for record in self.budget.records().values():
            rounds = f"{len(record.rounds)} of {record.plan.rounds} rounds"
            self.report(f"ledger: {record.name} {record.digest[:12]}, {rounds}")

    def answer(self, content: bytes) -> bytes:
        """The reply to a request: this silo's number, a release, or that it refuses."""
        started = time.perf_counter()
        try:
            facts, model = unpack(content)
            proposal = validated(Proposal, facts.get("proposal"), "proposal")
            if facts.get("ask") == PLAN:
                self._accept(proposal)
                return pack({"silo": self.site.silo})
            if facts.get("ask") != ROUND or model is None or type(facts.get("round")) is not int:
                allowed = "a plan, or a round with its number and the model"
                raise expected("request", facts.get("ask"), allowed, DataError)
            reply = self._round(self._accept(proposal), facts["round"], model, digest(content))
        except SubjectDPError as problem:
            self.report(f"refused: {problem}")
        except Exception as problem:  # a request that no check foresaw ends no silo
            self.report(f"refused: {type(problem).__name__}: {problem}")
        else:
            self.report(f"round {facts['round']} answered in {time.perf_counter() - started:.2f} s")
            return reply
        return pack({"silo": self.site.silo, "refused": True})

    def _round(self, accepted: Accepted, round_: int, model: Tensor, request: str) -> bytes:
        record = self.budget.records().get(accepted.record.digest, accepted.record)
        if record.data != self.data.sha256:
            raise PrivacyError(
                "The data have changed since this run began, or data: of this file has: nothing is released."
            )
        if record.rounds.get(round_) != request or round_ != max(record.rounds):
            check_turn(record.plan, self.site.silo, round_, list(record.rounds))
        elif (kept := self.budget.kept_release(record, round_)) is not None:
            if record.kept != round_:  # killed before the ledger said so: from here on it leaves the silo
                self.budget.write(replace(record, kept=round_), accepted.for_readers)
            self.report(f"round {round_} was asked for again: the same bits, no more budget")
            return kept
        federation = accepted.federation
        _check_model(model, federation)
        if federation.plan.settings.noise_source is NoiseSource.SECURE:
            # new draws of the operating system for every round, in no file
            federation = replace(federation, seed=secrets.randbits(256))
        record = replace(record, rounds={**record.rounds, round_: request})
        self.budget.write(record, accepted.for_readers)  # from here on the round counts as released
        steps = StepLog()
        release = train_silo(federation, model, round_, self.site.silo, steps)
        check_noise(federation.plan, steps.take())
        reply = pack({"silo": self.site.silo, "round": round_}, release)
        self.budget.keep_release(record, round_, reply)
        self.budget.write(replace(record, kept=round_), accepted.for_readers)
        return reply

    def _accept(self, proposal: Proposal) -> Accepted:
        wanted = proposal.digest
        if self.site.plan not in (None, wanted):
            raise PrivacyError(f"The plan {wanted} is not the one that this silo's file names, {self.site.plan}.")
        if wanted not in self._accepted:
            self._accepted = {wanted: self._checked(proposal)}  # the last one alone
        return self._accepted[wanted]

    def _checked(self, proposal: Proposal) -> Accepted:
        site, speed = self.site, self.site.performance
        # item by item: weights of a server that aims at float32 may let one item change how others are rounded
        speed = speed.model_copy(update={"physical_batch_size": speed.physical_batch_size or 1})
        run = proposal.run_with(site.data, speed)
        plan = proposal.plan(run)
        for problem in (*_of_the_plan(plan), *_of_the_site(site, plan)):
            raise problem
        record = RunRecord(proposal.name, proposal.digest, plan, self.data.sha256, run.seed)
        others = [other for key, other in self.budget.records().items() if key != record.digest]
        _check_others(site, record.name, others)
        epsilon = check_budget(site, [each.entry for each in (*others, record)])
        own = own_items(site, self.data, proposal, run)
        check_items(plan, site.silo, len(own.partition.train_items))
        silos = list(plan.silos)
        silos[site.silo] = replace(silos[site.silo], items=len(own.partition.train_items))
        secure = plan.settings.noise_source is NoiseSource.SECURE
        inputs = RunInputs(run, replace(plan, silos=tuple(silos)), own.prepared, own.partition, 0 if secure else None)
        torch.set_num_threads(site.performance.threads)
        federation = make_federation(inputs, choose_device(site.performance.device))
        limit = "no limit" if site.epsilon is None else f"epsilon {epsilon:.4g} of {site.epsilon:g}"
        accepted = f"accepted {record.name}, plan {record.digest}: {limit} for one {site.unit}"
        for line in filter(None, (own.cut, accepted)):
            self.report(line)
        privacy = privacy_statements(plan, over_rounds=False)  # what people read in the ledger
        readers = {"privacy": {**privacy, "card": report_text(plan, privacy).splitlines()}}
        return Accepted(replace(federation, noise_name=record.digest), record, readers)


def _check_others(site: Site, name: str, others: Sequence[RunRecord]) -> None:
    for other in others:
        if other.name == name:
            raise PrivacyError(f"{name} was begun with another plan ({other.digest[:12]}): it was changed.")
        if site.unit is PrivacyUnit.SUBJECT and other.plan.silos_per_subject < site.silos_per_subject:
            raise _refused("silos_per_subject", site.silos_per_subject, f"as it was when {other.name} counted on it")


def _check_model(model: Tensor, federation: Federation) -> None:
    wanted = federation.engine.flat.vector
    if model.dtype is not wanted.dtype or model.shape != wanted.shape:
        got = f"{model.dtype} {tuple(model.shape)}"
        raise expected("model of the request", got, f"{wanted.dtype} {tuple(wanted.shape)}", DataError)


def _of_the_plan(plan: PrivacyPlan) -> Iterator[SubjectDPError]:
    """Why a plan's stated ε would not hold here."""
    settings, mechanism = plan.settings, plan.mechanism
    several, shared = plan.silos_per_subject > 1, mechanism.shared_budget
    if settings.mode is not AccountingMode.SOUND and mechanism.noise_rule is not NoiseRule.NONE:
        yield _refused("privacy.mode", settings.mode, "sound")
    if mechanism.trust is TrustModel.CENTRAL:
        yield _refused("trust of the plan", mechanism.trust, "local: no silo gives its sums away without noise")
    if mechanism.trust is TrustModel.SECURE_AGGREGATION and noise_is_summed(plan):
        reason = "the server would see each silo's part with its share of the noise alone (joint.own_noise_only: true)"
        yield _refused("noise of the plan", "shared by the silos", f"each silo's own: {reason}")
    if settings.sampling is SamplingMethod.FIXED_BATCH_SIZE:
        yield _refused("training.sampling", settings.sampling, "poisson: batches of fixed size need exact counts")
    if settings.silos_per_round not in (None, len(plan.silos)) and settings.silo_choice is SiloChoice.RANDOM:
        yield _refused("training.silo_choice", settings.silo_choice, "in_turn: else the server would choose")
    if shared and several and settings.subject.weights is not BudgetWeights.FIXED:
        reason = "no silo knows what a person has elsewhere"
        yield _refused("subject.weights", settings.subject.weights, f"fixed: {reason}")
    if shared and several and any(silo.sampling_probability < 1 for silo in plan.silos):
        q = plan.silos[0].sampling_probability
        yield _refused("subject.sampling_probability", q, "1: silos throw no common coin for a person at several")
    if settings.predicted_subjects is not None:
        yield _refused("privacy.predicted_subjects", settings.predicted_subjects, "null")


def _of_the_site(site: Site, plan: PrivacyPlan) -> Iterator[SubjectDPError]:
    if site.silo >= len(plan.silos):
        yield _refused("silo of this file", site.silo, f"0 to {len(plan.silos) - 1} in the plan's federation")
    if plan.silos_per_subject < site.silos_per_subject:
        allowed = f"at least {site.silos_per_subject}, the silos at which a person may be"
        yield _refused("partition.silos_per_subject", plan.silos_per_subject, allowed)
    noised = plan.mechanism.noise_rule is not NoiseRule.NONE
    if noised and plan.settings.noise_source != site.noise:
        yield _refused("privacy.noise_source", plan.settings.noise_source, f"{site.noise}, as this silo's file says")
    alone = site.unit is PrivacyUnit.ITEM or site.silos_per_subject == 1 or plan.mechanism.shared_budget
    if site.epsilon is not None and site.plan is None and not alone:
        reason = "a person at several has what all of them give away, and a server may tell each another plan"
        yield _refused("plan of this silo's file", None, f"the digest that all silos agreed on: {reason}")
    if site.epsilon is not None and not noised:
        yield _refused("noise of the plan", "none", f"enough for epsilon {site.epsilon:g}")


def check_items(plan: PrivacyPlan, silo: int, items: int) -> None:
    """Raises PrivacyError for a silo without items, or with more than the ring of integer noise was made for."""
    if items == 0:
        raise _refused("items of this silo", 0, "at least 1")
    most = plan.silos[silo].items
    if plan.settings.noise_distribution is NoiseDistribution.SKELLAM and items > most:
        raise _refused("items of this silo", items, f"at most {most} with integer noise, whose ring is made for them")


def check_budget(site: Site, entries: Sequence[LedgerEntry]) -> float:
    """ε of all runs together (``entries``, the new one last) at the site's δ; PrivacyError above the site's limit."""
    if site.epsilon is None:
        return math.inf
    epsilon = composed_epsilon(entries, site.unit, site.unit is PrivacyUnit.SUBJECT, site.delta)
    if not epsilon <= site.epsilon:
        runs = "this plan" if len(entries) == 1 else f"{len(entries)} runs on the same people together"
        stated = f"epsilon {epsilon:.4g} at delta {site.delta:g} for one {site.unit}"
        raise PrivacyError(f"{runs} would give {stated}, more than the {site.epsilon:g} that this silo's file allows.")
    return epsilon


def check_turn(plan: PrivacyPlan, silo: int, round_: int, done: Sequence[int]) -> None:
    """Raises PrivacyError for a round that the plan does not have, that is not this silo's turn, or that is past."""
    if not 1 <= round_ <= plan.rounds:
        raise _refused("round", round_, f"1 to {plan.rounds}, the rounds of the plan")
    if silo not in silos_of_round(len(plan.silos), plan.settings, 0, round_):
        raise _refused("round", round_, "one in which it is this silo's turn")
    if done and round_ <= max(done):
        raise _refused("round", round_, f"later than {max(done)}, the last one released here: no round is repeated")


def _refused(key: str, value: object, allowed: str) -> SubjectDPError:
    return expected(key, value, allowed, PrivacyError)


@dataclass(frozen=True)
class RunRecord:
    """One run in the ledger: its plan, and the rounds of it that may have left the silo, with what was asked."""

    name: str
    digest: str  # of the proposal
    plan: PrivacyPlan
    data: str  # SiteData.sha256
    seed: int
    rounds: Mapping[int, str] = field(default_factory=dict)  # round -> digest of the request
    kept: int = 0  # the newest round whose release was made and kept

    @property
    def file(self) -> str:
        """Its name in the folder: of two files for one run nobody knows which has all rounds."""
        return f"{self.name}-{self.digest}.json"

    @property
    def entry(self) -> LedgerEntry:
        """What composes with other runs."""
        shared = self.plan.settings.noise_source is NoiseSource.REPRODUCIBLE
        return LedgerEntry(self.name, self.plan, f"seed {self.seed}" if shared else self.digest, self.digest)


@dataclass
class Budget:
    """The ledger in a folder that one process holds."""

    folder: Path

    def records(self) -> dict[str, RunRecord]:
        """All runs by digest; PrivacyError where a file is damaged: what it says is then not known."""
        return {record.digest: record for record in map(_read, sorted(self.folder.glob("*.json")))}

    def write(self, record: RunRecord, more: Mapping[str, Any]) -> None:
        """Keeps a run's record; ``more`` is for its readers. Raises StorageError."""
        content = {
            "run_id": record.name,
            "digest": record.digest,
            "plan": record.plan.to_dict(),
            "data": record.data,
            "seed": record.seed,
            "rounds": {str(round_): request for round_, request in record.rounds.items()},
            "kept": record.kept,
            **more,
        }
        try:
            write_json(self.folder / record.file, sealed(content))
        except OSError as error:
            raise StorageError(f"{self.folder} cannot be written: {error.strerror}.") from None

    def keep_release(self, record: RunRecord, round_: int, content: bytes) -> None:
        """Keeps what is about to be released in a round, in place of the round before."""
        kept = self._release(record, round_)
        write_bytes(kept, content)
        for other in self.folder.glob(f"{record.digest}-*.release"):
            if other != kept:
                other.unlink(missing_ok=True)

    def kept_release(self, record: RunRecord, round_: int) -> bytes | None:
        """What the newest round, ``round_``, released; None where nothing of it left; PrivacyError if it is gone."""
        kept = self._release(record, round_)
        if kept.is_file():
            return kept.read_bytes()
        if record.kept == round_:
            raise PrivacyError(f"Round {round_} was released and {kept} is gone: it is not made anew.")
        return None

    def _release(self, record: RunRecord, round_: int) -> Path:
        return self.folder / f"{record.digest}-{round_:07d}.release"


def _read(path: Path) -> RunRecord:
    try:
        content = read_sealed(path)
        rounds = {int(round_): str(request) for round_, request in content["rounds"].items()}
        name, digest, data = (str(content[key]) for key in ("run_id", "digest", "data"))
        plan = plan_from_dict(content["plan"])
        record = RunRecord(name, digest, plan, data, int(content["seed"]), rounds, int(content["kept"]))
        if path.name != record.file:
            raise ValueError(f"its name is not {record.file}: keep copies elsewhere")
        return record
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise PrivacyError(f"The ledger file {path} is damaged ({problem}): nothing is released.") from None
