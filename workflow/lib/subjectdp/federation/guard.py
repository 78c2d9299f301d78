"""What a silo refuses, whatever the server says, and its durable ledger of what was released about its people.

A plan is refused that the silo's own file, its own data or its ledger do not allow. The ledger has a file for each run,
written before the first number of a round leaves the silo, under a temporary name, synced and renamed: a process that
is killed at any moment finds the rounds that it may have released. The newest release is kept, so that a server that
did not receive it gets the same bits again, which tell nothing new. A damaged file stops all. ``subjectdp ledger`` and
``subjectdp statement`` read the files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subjectdp.accounting.ledger import LedgerEntry, composed_epsilon
from subjectdp.accounting.plan_run import plan_from_dict
from subjectdp.accounting.sound import noise_is_summed
from subjectdp.errors import PrivacyError, StorageError, SubjectDPError, expected
from subjectdp.federation.site import Site
from subjectdp.io.atomic import is_intact, sealed, write_bytes, write_json
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
from subjectdp.sampling.batches import silos_of_round


def check_plan(site: Site, plan: PrivacyPlan) -> None:
    """Raises PrivacyError for a plan whose stated ε would not hold here, or that the silo's file does not allow."""
    for problem in (*_of_the_plan(plan), *_of_the_site(site, plan)):
        raise problem


def _of_the_plan(plan: PrivacyPlan) -> Iterator[SubjectDPError]:
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
    some = settings.silos_per_round not in (None, len(plan.silos))
    if some and settings.silo_choice is SiloChoice.RANDOM:
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
    """ε of all runs together at the site's δ, for its unit; raises PrivacyError where it exceeds the site's limit.

    ``entries`` are the runs of the ledger and, last, the one that is asked for; each counts in full.
    """
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
    data: str  # sha256 of the silo's file
    seed: int
    rounds: Mapping[int, str] = field(default_factory=dict)  # round -> digest of the request
    kept: int = 0  # the newest round whose release was made and kept

    @property
    def entry(self) -> LedgerEntry:
        """What composes with other runs."""
        shared = self.plan.settings.noise_source is NoiseSource.REPRODUCIBLE
        return LedgerEntry(self.name, self.plan, f"seed {self.seed}" if shared else self.digest, self.digest)


class Budget:
    """The ledger in a folder that one process holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

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
            write_json(self.folder / f"{record.name}-{record.digest}.json", sealed(content))
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
        content = json.loads(path.read_text(encoding="utf-8"))
        if not is_intact(content):
            raise ValueError("its seal does not fit")
        rounds = {int(round_): str(request) for round_, request in content["rounds"].items()}
        name, digest, data = (str(content[key]) for key in ("run_id", "digest", "data"))
        plan = plan_from_dict(content["plan"])
        return RunRecord(name, digest, plan, data, int(content["seed"]), rounds, int(content["kept"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise PrivacyError(f"The ledger file {path} is damaged ({problem}): nothing is released.") from None
