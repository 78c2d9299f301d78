"""A silo: answers the server's requests with releases that the plan noised, and with nothing else.

Order of a round: the request is checked against plan, file and ledger; the round is written into the ledger; the silo
trains with ``train_silo``, as the simulation does; the release is kept; it is sent. Killed before it was kept, nothing
has left the silo, and the same request may be answered anew. Later, the same request gets the same bits. Any other
request for that round is refused. What is refused and why stands in the silo's own log: the server is not told, since
the reason may depend on people.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subjectdp.accounting.privacy_report import report_text
from subjectdp.accounting.statements import privacy_statements
from subjectdp.config.messages import validated
from subjectdp.errors import DataError, PrivacyError, SubjectDPError, expected
from subjectdp.federation.guard import Budget, RunRecord, check_budget, check_items, check_plan, check_turn
from subjectdp.federation.proposal import PLAN, ROUND, Proposal, digest, pack, unpack
from subjectdp.federation.site import Site, own_items, read_site_data
from subjectdp.plan.plan import NoiseSource
from subjectdp.training.build import RunInputs, make_federation
from subjectdp.training.federation import Federation
from subjectdp.training.manifest import choose_device
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import train_silo

SECRET_BITS = 256


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
            raise PrivacyError("The data have changed since the first round of this run: nothing more is released.")
        if record.rounds.get(round_) != request or round_ != max(record.rounds):
            check_turn(record.plan, self.site.silo, round_, list(record.rounds))
        elif (kept := self.budget.kept_release(record, round_)) is not None:
            self.report(f"round {round_} was asked for again: the same bits, no more budget")
            return kept
        federation = accepted.federation
        _check_model(model, federation)
        if federation.plan.settings.noise_source is NoiseSource.SECURE:
            # new draws of the operating system for every round, in no file
            federation = replace(federation, seed=secrets.randbits(SECRET_BITS))
        record = replace(record, rounds={**record.rounds, round_: request})
        self.budget.write(record, accepted.for_readers)  # from here on the round counts as released
        release = train_silo(federation, model, round_, self.site.silo, StepLog())
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
        site, run = self.site, proposal.run_with(self.site.data, self.site.performance)
        plan = proposal.plan(run)
        check_plan(site, plan)
        record = RunRecord(proposal.name, proposal.digest, plan, self.data.sha256, run.seed)
        others = [other for key, other in self.budget.records().items() if key != record.digest]
        for other in others:
            if other.name == record.name:
                raise PrivacyError(f"{record.name} was begun with another plan ({other.digest[:12]}): it was changed.")
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


def _check_model(model: Tensor, federation: Federation) -> None:
    wanted = federation.engine.flat.vector
    if model.dtype is not wanted.dtype or model.shape != wanted.shape:
        got = f"{model.dtype} {tuple(model.shape)}"
        raise expected("model of the request", got, f"{wanted.dtype} {tuple(wanted.shape)}", DataError)
