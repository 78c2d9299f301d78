"""``SubjectPrivacyEngine`` against loops over items in float64, and every misuse of the loop."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import subjectdp
from accounting.reference import by_dp_accounting, items_of_a_subject
from accounting.reference import sampled_gaussian_event as sampled
from api.loops import Loop, Remembers
from engine import oracle
from subjectdp.errors import ConfigError, DataError, ModelError, PrivacyError
from subjectdp.sampling import StepKey

ITEMS = 40
SUBJECTS = [f"p{(i * i) % 7 if i % 3 else 7}" for i in range(ITEMS)]
C = 0.3


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def data(items: int = ITEMS) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(items, 6, generator=generator), torch.randint(0, 3, (items,), generator=generator))


def world(batch_size: int = 8, seed: int | None = 3, **settings: Any) -> Loop:
    """A private training on the small data."""
    chosen = {"noise_multiplier": 1.0, "clip_norm": C, "max_items_per_subject": 50} | settings
    loader = DataLoader(data(), batch_size)
    return Loop(network(), seed, data_loader=loader, subjects=SUBJECTS, settings=chosen)


def expected_sum(model: nn.Module, positions: list[int], clip: str) -> Tensor:
    """The clipped sum over items, or over subjects of their means, by definition."""
    inputs, targets = data().tensors
    rows = oracle.per_item_gradients(model, inputs[positions], targets[positions])
    if clip == "subject" and positions:
        people = [SUBJECTS[i] for i in positions]
        rows = oracle.group_means(rows, [sorted(set(people)).index(person) for person in people])
    return oracle.clipped_sum(rows, C)


def positions_of(inputs: Tensor) -> list[int]:
    return [int(torch.nonzero((data().tensors[0] == row).all(1))[0]) for row in inputs]


MODES = [("item", "items", 8), ("subject", "items", 8), ("subject", "subjects", 2)]


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize(("clip", "sample", "batch_size"), MODES)
def test_each_step_is_that_of_the_float64_loop(clip: str, sample: str, batch_size: int) -> None:
    """Several steps, some in several parts (a batch of 2 takes 4 items a pass), some empty."""
    loop = world(batch_size, clip=clip, sample=sample)
    divisor, parts, sizes = loop.engine.plan.silos[0].divisor, [], []
    while loop.engine.steps < 12:
        for inputs, targets in loop.loader:
            before, draw = loop.vector().double(), loop.private._step._draw
            drawn = [] if draw.weights == [0.0] else positions_of(inputs)
            parts.append(len(draw.parts))
            sizes.append(len(drawn))
            loop.loss(loop.private(inputs), targets).backward()
            expected = expected_sum(loop.module, drawn, clip) / divisor
            loop.optimizer.step()
            assert torch.allclose(before - loop.vector().double(), expected, atol=2e-6)
    assert loop.engine.steps == len(parts), "one batch a step"
    assert max(parts) > 1 if sample == "subjects" else min(parts) == 1
    assert len(set(sizes)) > 1


def spread(factor: float = 1.0, seed: int | None = 9) -> float:
    """Variance of the noise of one step on 9,003 parameters over what σ C / divisor says."""
    zeros = TensorDataset(torch.zeros(20, 3000), torch.zeros(20, dtype=torch.int64))
    settings = {"noise_multiplier": 1.7 * factor, "clip_norm": C}
    loop = Loop(nn.Linear(3000, 3), seed, data_loader=DataLoader(zeros, 5), subjects=range(20), settings=settings)
    before = loop.module.weight.detach().clone()
    loop.train(1)
    # inputs are 0, and so are the weights' gradients
    noise = (before - loop.module.weight.detach()) * 5 / (1.7 * C)
    return float(noise.square().mean())


@pytest.mark.slow
def test_noise_has_the_variance_that_is_accounted_and_a_wrong_one_is_seen() -> None:
    bounds = stats.chi2.ppf([1e-6, 1 - 1e-6], 9000) / 9000
    assert bounds[0] < spread() < bounds[1]
    assert bounds[0] < spread(seed=None) < bounds[1]
    assert not bounds[0] < spread(0.93) < bounds[1]


def test_items_are_drawn_by_coins() -> None:
    loop = world(batch_size=8, clip="item")
    sampler = loop.loader._sampler
    steps = 600
    hits, pairs, sizes = np.zeros(ITEMS), 0, []
    for step in range(steps):
        draw = sampler.draw(step)
        drawn = draw.positions if draw.weights is None else []
        assert len(set(drawn)) == len(drawn)
        hits[drawn] += 1
        pairs += 0 in drawn and 1 in drawn
        sizes.append(len(drawn))
    assert np.all(np.abs(hits / steps - 0.2) < 5 * np.sqrt(0.16 / steps))
    assert abs(pairs / steps - 0.04) < 5 * np.sqrt(0.04 / steps)
    assert np.var(sizes) == pytest.approx(ITEMS * 0.16, rel=0.35)


def test_subjects_are_drawn_whole() -> None:
    loop = world(clip="subject", sample="subjects", max_items_per_subject=None, subjects_per_step=2)
    people = np.array(SUBJECTS)
    hits = dict.fromkeys(SUBJECTS, 0)
    assert loop.engine.plan.silos[0].sampling_probability == 2 / len(hits)
    for step in range(400):
        draw = loop.loader._sampler.draw(step)
        drawn = [] if draw.weights == [0.0] else draw.positions
        for person in set(people[drawn]):
            assert set(np.flatnonzero(people == person)) <= set(drawn)
            hits[person] += 1
    q = 2 / len(hits)
    assert all(abs(count / 400 - q) < 5 * np.sqrt(q * (1 - q) / 400) for count in hits.values())


def test_the_surplus_of_a_subject_is_left_out() -> None:
    loop = world(batch_size=8, clip="item", max_items_per_subject=2)
    kept = loop.loader._sampler.positions
    counts = {person: sum(SUBJECTS[p] == person for p in kept) for person in set(SUBJECTS)}
    assert counts == {person: min(2, SUBJECTS.count(person)) for person in set(SUBJECTS)}
    assert loop.engine.plan.silos[0].items == len(kept) == len(set(kept))


@pytest.mark.slow
def test_epsilon_is_that_of_the_equivalent_mechanism() -> None:
    """After 3 steps with σ = 4 and q = 0.2; with a cap of 2 there are 15 items at most."""
    cap, sigma = 2, 4.0
    item = world(4, clip="item", noise_multiplier=sigma, max_items_per_subject=cap)
    items = item.engine.plan.silos[0].items
    q = 4 / items
    grouped = world(4, clip="subject", noise_multiplier=sigma, max_items_per_subject=cap)
    whole = world(4, clip="subject", sample="subjects", noise_multiplier=sigma)
    for loop, unit, event in [
        (item, "item", sampled(q, sigma)),
        (item, "subject", items_of_a_subject(q, cap, sigma)),
        (grouped, "subject", sampled(1 - (1 - q) ** cap, sigma)),
        (whole, "subject", sampled(4 / len(set(SUBJECTS)), sigma)),
    ]:
        assert loop.engine.get_epsilon(unit=unit) == 0.0 or loop.engine.steps == 3
        for steps in (max(1, loop.engine.steps), 3):
            loop.train(steps)
            assert loop.engine.get_epsilon(1e-5, unit) == pytest.approx(by_dp_accounting((event, steps)), rel=1e-2)
    for loop, rate in ((grouped, q), (whole, 4 / len(set(SUBJECTS)))):  # an item may turn its subject around: 2C
        most = by_dp_accounting((sampled(rate, sigma / 2), 3))
        assert by_dp_accounting((sampled(rate, sigma), 3)) < loop.engine.get_epsilon(1e-5, "item") < most
    report = item.engine.report()
    assert report.item.epsilon == pytest.approx(item.engine.get_epsilon(unit="item"))
    assert any("cap" in line for line in report.subject.assumptions)


def test_noise_for_a_target_and_no_step_more() -> None:
    settings = {"noise_multiplier": None, "epsilon": 2.0, "steps": 3, "max_items_per_subject": 3}
    loop = world(4, clip="subject", **settings)
    loop.train(3)
    assert 1.99 < loop.engine.get_epsilon() <= 2.0
    before = loop.vector()
    with pytest.raises(PrivacyError, match="at most 3 steps"):
        loop.train(4)
    assert torch.equal(loop.vector(), before) and loop.engine.steps == 3


def test_an_empty_mini_batch_is_a_step_with_noise_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved_at(step: int) -> float:
        loop = world(1, clip="item", seed=0)
        loop.train(step)
        before = loop.vector()
        loop.train(step + 1)
        return float((before - loop.vector()).norm())

    sampler = world(1, clip="item", seed=0).loader._sampler
    empty = next(step for step in range(30) if not len(sampler._chosen(StepKey(0, step + 1, 0, 0))))
    assert moved_at(empty) > 0.1 * C
    monkeypatch.setattr("subjectdp.api.engine.add_gaussian", lambda total, std, key: total)
    assert moved_at(empty) == 0.0 < moved_at(empty + 1) + moved_at(empty + 2)


def test_a_saved_training_goes_on_with_the_same_numbers() -> None:
    whole, first, second = world(clip="item"), world(clip="item"), world(clip="item")
    whole.train(6)
    first.train(4)
    second.module.load_state_dict(first.module.state_dict())
    second.engine.load_state_dict(copy.deepcopy(first.engine.state_dict()))
    second.train(6)
    assert torch.equal(whole.vector(), second.vector())
    assert second.engine.get_epsilon(unit="item") == whole.engine.get_epsilon(unit="item")
    with pytest.raises(PrivacyError, match="same data, sampling, clipping and noise"):
        world(clip="item", noise_multiplier=2.0).engine.load_state_dict(first.engine.state_dict())


def test_without_a_seed_no_two_trainings_share_their_noise() -> None:
    left, right = world(40, seed=None, clip="item"), world(40, seed=None, clip="item")
    left.train(1)
    right.train(1)
    assert not torch.allclose(left.vector(), right.vector())
    assert any("nobody knows the secret" in line for line in left.engine.report().item.assumptions)
    with pytest.raises(PrivacyError, match="same data"):
        world(40, clip="item").engine.load_state_dict(left.engine.state_dict())


def test_modules_that_cannot_be_trained() -> None:
    bare = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    for module, optimizer, message in (
        (Remembers(buffer=True), None, "'seen' keeps values.*for spectral_norm take orthogonal"),
        (nn.Linear(6, 3).double(), None, "float32"),
        (nn.Tanh(), bare, "with parameters"),
    ):
        with pytest.raises(ModelError, match=message):
            Loop(module, optimizer=optimizer)
    criterion = nn.AdaptiveLogSoftmaxWithLoss(3, 3, [1])
    with pytest.raises(ModelError, match="criterion without parameters to train"):
        Loop(nn.Linear(6, 3), criterion=criterion)


class Stream(IterableDataset[Any]):
    """No items by position."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


WORDS: Any = [{"text": torch.zeros(6)}] * ITEMS  # no tensors


@pytest.mark.parametrize(
    ("settings", "loader", "message", "error"),
    [
        ({"clip": "person"}, None, "Unknown clip", ConfigError),
        ({"clip": "item", "sample": "subjects"}, None, "nothing bounds a subject", ConfigError),
        ({"epsilon": 1.0}, None, "got 'both'", ConfigError),
        ({"noise_multiplier": None}, None, "got 'neither'", ConfigError),
        ({"noise_multiplier": None, "epsilon": 1.0}, None, "steps", ConfigError),
        ({"noise_multiplier": 1e-6}, None, "at least 1e-05", ConfigError),
        ({"clip_norm": 0.0}, None, "clip_norm", ConfigError),
        ({"fix": "no"}, None, "fix to be True or False, got 'no'", ConfigError),
        ({"max_items_per_subject": None}, None, "max_items_per_subject.*cap", ConfigError),
        ({"max_items_per_subject": 0}, None, "a whole number from 1 on", ConfigError),
        ({"max_items_per_subject": 1}, DataLoader(data(), 20), "at most the 5 items", ConfigError),
        ({}, DataLoader(data(), batch_size=None), "batch_size of the data loader", ConfigError),
        ({}, DataLoader(Stream(), 4), "one with a length", DataError),
        ({}, DataLoader(WORDS, 4), "tensors, .inputs, targets.", DataError),
    ],
)
def test_settings_and_data_that_do_not_fit(settings: dict[str, Any], loader: Any, message: str, error: Any) -> None:
    chosen = {"clip": "subject", "noise_multiplier": 1.0, "max_items_per_subject": 5} | settings
    loader = DataLoader(data(), 8) if loader is None else loader
    with pytest.raises(error, match=message):
        Loop(network(), data_loader=loader, subjects=SUBJECTS, settings=chosen)


def test_other_refusals() -> None:
    loop = world(clip="item")
    with pytest.raises(ConfigError, match="at least one step"):
        loop.engine.report()
    with pytest.raises(ConfigError, match="Unknown unit 'silo'"):
        loop.engine.get_epsilon(unit="silo")
    with pytest.raises(ConfigError, match="delta"):
        loop.engine.get_epsilon(delta=1.0)
    with pytest.raises(ConfigError, match="make_private to be called first"):
        subjectdp.SubjectPrivacyEngine().state_dict()
    model = network()
    items: Any = {"data_loader": DataLoader(data(), 8), "subjects": SUBJECTS}
    with pytest.raises(ConfigError, match="one for each of the 40 items"):
        Loop(model, data_loader=DataLoader(data(), 8), subjects=SUBJECTS[:-1])
    with pytest.raises(ConfigError, match="exactly those of the module"):
        Loop(model, optimizer=torch.optim.SGD(model[0].parameters()), **items)
    with pytest.raises(ModelError, match="do not broadcast over items"):
        Loop(model, criterion=lambda outputs, wanted: outputs[:, 0] - wanted.unsqueeze(1), **items)
    given = {"module": model, "optimizer": torch.optim.SGD(model.parameters()), "criterion": nn.CrossEntropyLoss()}
    with pytest.raises(ConfigError, match="a new SubjectPrivacyEngine"):
        loop.engine.make_private(**given, **items, settings=subjectdp.PrivacySettings("item", noise_multiplier=1.0))
    with pytest.raises(ConfigError, match="clip_norm"):
        subjectdp.clip_sum(model, *data().tensors, 0.0)
