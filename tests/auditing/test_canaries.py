"""Canaries go through the real data path: crafted gradients, fair membership, public sampling, real items untouched."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from auditing.generated_setup import generated_setup
from subjectdp.algorithms.registry import mechanism
from subjectdp.auditing import cases
from subjectdp.auditing.suite import TrainingSize, audit_one_run
from subjectdp.auditing.training_audit import Canaries, CanaryData, CanaryModel, plan_with_canaries, prepared_setup
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.plan.plan import AccountingMode, PrivacyUnit
from training import small_world

COUNT, CLIP = 7, 0.6


def engine_and_data() -> tuple[ClippingEngine, CanaryData, int]:
    setup = generated_setup(1, subjects=5)
    data = CanaryData(setup.data, setup.size)
    model = CanaryModel(setup.model(), data.shape, COUNT, 4 * CLIP)
    return ClippingEngine(FlatParameters(model)), data, setup.size


@pytest.mark.slow
def test_a_canarys_clipped_gradient_is_a_unit_vector() -> None:
    engine, data, size = engine_and_data()
    where = slice(engine.flat.size - COUNT, engine.flat.size)
    for drift in (0.0, 3.0):
        engine.flat.vector[where] = drift
        total, norms = engine.clipped_sum(*data.batch(np.array([size + 2, size + 2, size + 6])), CLIP)
        expected = torch.zeros(engine.flat.size)
        expected[where.start + 2], expected[where.start + 6] = -2 * CLIP, -CLIP
        torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(norms, torch.full((3,), 4 * CLIP))


def test_real_items_are_as_without_canaries() -> None:
    engine, data, size = engine_and_data()
    setup = generated_setup(1, subjects=5)
    plain = ClippingEngine(FlatParameters(setup.model()))
    addresses = np.array([3, 0, 17])
    alone, _ = plain.clipped_sum(*setup.data.batch(addresses), CLIP)
    mixed, _ = engine.clipped_sum(*data.batch(np.array([3, size + 1, 0, 17])), CLIP)
    assert list(engine.flat.shapes)[-1] == "canaries.weight"
    torch.testing.assert_close(mixed[: plain.flat.size], alone)
    inputs, labels = data.batch(np.zeros(0, np.int64))
    assert inputs.shape == (0, 21) and len(labels) == 0


def test_members_are_fair_and_keyed() -> None:
    canaries = Canaries(20_000, 8, (0,), 0, "a")
    members = canaries.members()
    assert abs(members.mean() - 0.5) < 0.015
    assert (members == canaries.members()).all()
    assert abs((members == replace(canaries, name="b").members()).mean() - 0.5) < 0.015
    assert abs((members == replace(canaries, seed=1).members()).mean() - 0.5) < 0.015


def test_insertion_adds_exactly_the_members_items() -> None:
    setup = generated_setup(2, silos=3, subjects=4)
    canaries = Canaries(10, 8, (0, 2), 0, "insert")
    partition = canaries.inserted(setup.partition, setup.size)
    chosen = np.flatnonzero(canaries.members())
    for silo in range(3):
        items, subjects = partition.silo(silo)
        own, owners = setup.partition.silo(silo)
        assert (items[: len(own)] == own).all() and (subjects[: len(own)] == owners).all()
        more = np.repeat(chosen, 8) if silo != 1 else np.zeros(0, int)
        assert list(items[len(own) :]) == list(setup.size + more)
        assert list(subjects[len(own) :]) == list(4 + more)


def test_the_plan_does_not_depend_on_who_takes_part() -> None:
    setup = generated_setup(2, subjects=40)
    canaries = Canaries(30, 8, (0,), 0, "plan")
    declared = mechanism("higrad_avg_dp", "v3", AccountingMode.SOUND)
    settings = cases.plan_settings(AccountingMode.SOUND, 5, 2, 20)
    few, many = (plan_with_canaries(declared, setup, canaries, settings, n) for n in (3, 25))
    assert many.silos[0].items - few.silos[0].items == 22 * 8
    assert replace(few.silos[0], items=0) == replace(many.silos[0], items=0)
    assert few.silos[0].sampling_probability == 20 / (40 * 8 + 30 * 8)


@pytest.mark.slow
def test_a_prepared_data_set_is_a_stage(tmp_path: Path) -> None:
    """The pipeline's own files, three silos, a convolutional network."""
    run = small_world.config()
    prepared, partition = small_world.build(tmp_path, run)
    setup = prepared_setup(run, prepared, partition)
    assert setup.partition.silos == 3 and not setup.synthetic
    size = TrainingSize(60, 30, 9, 2, 0.1)
    audited = mechanism("higrad_avg_dp", "v1", AccountingMode.AS_PUBLISHED)
    finding = audit_one_run(audited, PrivacyUnit.SUBJECT, setup, size, 0)
    assert finding.setting == "3 silos, 5 rounds of 2 steps"
    assert finding.details["correct"] >= 27, "30 steps at each of 3 silos tell nearly everybody"
    assert 0 < finding.lower_bound < finding.true_epsilon
