"""Padded mini-batches and silos in step against mini-batches as drawn, silo by silo."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from algorithms import tiny
from engine import oracle
from subjectdp.engine.clipping import _norms
from subjectdp.engine.flat import FlatParameters
from subjectdp.engine.groups import Grouping
from subjectdp.engine.layers.stacked import StackedLSTMCaptured
from subjectdp.engine.stacked_engine import StackedEngine, stackable
from subjectdp.errors import ConfigError, ModelError
from subjectdp.models.build import build_model
from subjectdp.plan.plan import AccountingMode, PrivacyPlan, SamplingMethod
from subjectdp.training.execution import set_execution
from subjectdp.training.federation import Federation
from subjectdp.training.items.device_data import ResidentData
from subjectdp.training.steps.gradients import ExactGradients
from subjectdp.training.steps.graphs import GraphedCall
from subjectdp.training.steps.padded import PaddedGradients, capacity_of
from subjectdp.training.steps.silo_step import SiloStep

EVERY = [
    ("fed_avg", None),
    ("local_item_dp", None),
    ("user_ldp", None),
    ("local_group_dp", None),
    ("higrad_avg_dp", "v1"),
    ("higrad_avg_dp", "v3"),
    ("central_sub_dp", None),
    ("joint_noise", None),
]


class Data(tiny.TinyData):
    """Data that can be addressed on the device."""

    def at(self, where: Tensor) -> tuple[Tensor, Tensor]:
        return self.inputs[where], self.labels[where]


def uneven(name: str, variant: str | None, noise: float = 1.0) -> PrivacyPlan:
    """A plan whose silos take 3, 2 and 4 steps and clip and learn differently."""
    plan = tiny.tiny_plan(name, variant, AccountingMode.AS_PUBLISHED, noise=noise)
    if plan.mechanism.one_step_per_round:
        return plan
    terms = [(3, 1.0, 1.0), (2, 0.5, 1.0), (4, 1.0, 2.0)]
    silos = tuple(
        replace(silo, steps_per_round=steps, clip_norm_factor=clip, learning_rate_factor=rate)
        for silo, (steps, clip, rate) in zip(plan.silos, terms, strict=True)
    )
    return replace(plan, silos=silos)


def federation(plan: PrivacyPlan, execution: Any, processes: int = 1, **changes: Any) -> Federation:
    made = tiny.tiny_federation(plan)
    data = tiny.tiny_data()
    made.data = Data(changes.get("inputs", data.inputs), data.labels)  # type: ignore[assignment]
    set_execution(made, execution, processes)
    return made


def after_two_rounds(made: Federation) -> tuple[Tensor, Any]:
    for round_ in (1, 2):
        made.run_round(round_)
    return made.theta, np.array(made.recorder.step_rows)


@pytest.mark.parametrize("execution", ["padded", "stacked"])
@pytest.mark.parametrize(("name", "variant"), EVERY)
def test_every_execution_trains_the_same_model(name: str, variant: str | None, execution: str) -> None:
    plan = uneven(name, variant)
    model, rows = after_two_rounds(federation(plan, "exact"))
    other, others = after_two_rounds(federation(plan, execution))
    assert float((model - other).abs().max()) < 1e-6
    np.testing.assert_array_equal(rows, others)
    assert rows[:, 3].max() > 4, "some mini-batch overflows its four places"
    assert not torch.equal(model, federation(plan, "exact").theta)


def test_groups_of_stacked_silos_make_no_difference() -> None:
    plan = uneven("local_item_dp", None)
    model, rows = after_two_rounds(federation(plan, "stacked"))
    made = federation(plan, "stacked", processes=2)
    assert made.stack is not None and made.stack.silos == 2, "two silos and one, in turn"
    other, others = after_two_rounds(made)
    assert float((model - other).abs().max()) < 1e-6
    np.testing.assert_array_equal(rows, others)


@pytest.mark.parametrize("execution", ["padded", "stacked"])
@pytest.mark.parametrize("name", ["local_item_dp", "user_ldp", "central_sub_dp"])
def test_an_item_without_a_finite_gradient_contributes_as_little(name: str, execution: str) -> None:
    """The fast way notices it after the silo's steps and does them again the slow way: equal to the bit."""
    inputs = tiny.tiny_data().inputs
    inputs[::9] = float("inf")
    plan = uneven(name, None)
    made = federation(plan, execution, inputs=inputs)
    drawn = [SiloStep(made, round_, 0, 0).sample_batch().addresses for round_ in (1, 2)]
    assert any((addresses % 9 == 0).any() for addresses in drawn), "some mini-batch holds such an item"
    model, rows = after_two_rounds(made)
    exact, exact_rows = after_two_rounds(federation(plan, "exact", inputs=inputs))
    assert bool(model.isfinite().all())
    assert float((model - exact).abs().max()) < 1e-6
    np.testing.assert_array_equal(rows, exact_rows)
    assert made.gradients.trustworthy(), "the doubt is forgotten"


class NoWaiting(TorchDispatchMode):
    """Raises where the host would have to wait for a device: a value or a shape that depends on values."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masks = name == "index" and any(t is not None and t.dtype == torch.bool for t in args[1])
        if name in self.WAITS or masks:
            raise AssertionError(f"the host would wait for {name}")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("name", "variant"), EVERY)
def test_no_local_step_waits_for_the_device(name: str, variant: str | None) -> None:
    plan = uneven(name, variant)
    made = federation(plan, "padded")
    for step in range(3):
        with NoWaiting():
            made.algorithm.local_step(SiloStep(made, 1, 0, step))
    assert len(made.log.take()) == 3
    with pytest.raises(AssertionError, match="would wait"), NoWaiting():
        made.gradients.trustworthy()


def test_stacked_silos_do_not_wait_either() -> None:
    made = federation(uneven("higrad_avg_dp", "v1"), "stacked")
    assert made.stack is not None
    made.stack._trustworthy = lambda: True  # type: ignore[method-assign]
    with NoWaiting():
        assert made.stack.train(1, (0, 1, 2), made.algorithm.local_step) is not None


@pytest.mark.parametrize("batch", [64, 512])
def test_places_overflow_seldom(batch: int) -> None:
    plan = tiny.tiny_plan("local_item_dp", None, AccountingMode.SOUND)
    silos = tuple(replace(s, items=25000, sampling_probability=batch / 25000) for s in plan.silos)
    places = capacity_of(replace(plan, silos=silos), 10**6)
    assert places % 8 == 0 and places <= 1.25 * batch
    assert 0.01 < binom.sf(places, 25000, batch / 25000) < 0.025
    halved = capacity_of(replace(plan, silos=silos), places - 16)
    assert places / 2 - 8 < halved <= places / 2 + 8, "two passes of half the size"
    fixed = replace(plan.settings, sampling=SamplingMethod.FIXED_BATCH_SIZE, batch_size=48)
    assert capacity_of(replace(plan, settings=fixed), 512) == 48


def text_engine(silos: int, items: int) -> tuple[FlatParameters, StackedEngine]:
    model = build_model("small_lstm", 12, "text", 0, {"embedding": 4, "hidden": 6, "dense": 5})
    flat = FlatParameters(model)
    return flat, StackedEngine(flat, silos, silos * items)


def test_stacked_lstms_against_a_float64_loop() -> None:
    silos, items = 3, 4
    flat, engine = text_engine(silos, items)
    generator = torch.Generator().manual_seed(1)
    engine.flat.vector.copy_(flat.vector + 0.3 * torch.randn(silos, flat.size, generator=generator))
    inputs = torch.randint(0, 12, (silos * items, 7), generator=generator)
    labels = torch.randint(0, 12, (silos * items,), generator=generator)
    weights = torch.rand(silos * items, generator=generator)
    clip_norms = torch.tensor([0.4, 0.8, float("inf")]).repeat_interleave(items)
    totals, norms = engine.clipped_sum(inputs, labels, clip_norms, weights)
    for silo in range(silos):
        part = slice(silo * items, (silo + 1) * items)
        flat.load(engine.flat.vector[silo])
        rows = oracle.per_item_gradients(flat.model, inputs[part], labels[part])
        wanted = oracle.clipped_sum(rows, float(clip_norms[part.start]), weights[part].tolist())
        assert float((totals[silo].double() - wanted).norm() / wanted.norm()) < 1e-5
        assert norms[part].tolist() == pytest.approx([oracle.norm(row) for row in rows], rel=1e-5)


def test_stacked_gradients_that_almost_cancel_are_not_taken_for_short_ones() -> None:
    """Gate gradients that take each other back over time: what is left is lost among the rounding of its parts."""
    generator = torch.Generator().manual_seed(3)
    steps, hidden, width = 20, 64, 32
    for _ in range(20):
        gates = 100.0 * torch.randn(4 * hidden, generator=generator)
        delta = torch.stack([gates * (-1.0) ** t for t in range(steps)])
        delta[-1] *= 1 + 1e-5
        inputs = 10.0 * torch.randn(width, generator=generator).expand(steps, width)
        left = delta.double().T @ inputs.double()
        true = float((left.square().sum() + 2 * delta.double().sum(0).square().sum()).sqrt())
        layer = (inputs[None, :, None], torch.zeros(1, steps, 1, hidden))
        captured = StackedLSTMCaptured([layer], [delta[None, :, None]], True)
        _, bounds = _norms([captured.squared_norms(Grouping.of_items(1))])
        assert true > 0.1
        assert float(bounds[0]) >= true


@pytest.mark.parametrize("execution", ["padded", "stacked"])
def test_a_recurrent_model_on_resident_text(execution: str) -> None:
    window, generator = 9, np.random.default_rng(2)
    stream = generator.integers(0, 12, sum(tiny.ITEMS) + window + 1).astype(np.uint8)
    text = SimpleNamespace(kind="text", window=window, features=stream, labels=np.zeros(0, np.uint8))
    model = build_model("small_lstm", 12, "text", 0, {"embedding": 4, "hidden": 6, "dense": 5})
    results = []
    for name in ("exact", execution):
        made = tiny.tiny_federation(uneven("higrad_avg_dp", "v1"), model=model)
        made.data = ResidentData(text, torch.device("cpu"))  # type: ignore[arg-type]
        set_execution(made, name, 1)  # type: ignore[arg-type]
        results.append(after_two_rounds(made))
    (exact, rows), (other, others) = results
    assert float((exact - other).abs().max()) < 1e-6
    np.testing.assert_array_equal(rows, others)


def test_what_cannot_be_stacked_is_refused() -> None:
    model = build_model("small_cnn", 5, "image", 0, {"width": 4})
    assert not stackable(model)
    with pytest.raises(ModelError, match="linear, embedding and LSTM"):
        StackedEngine(FlatParameters(model), 2, 8)
    made = federation(uneven("local_item_dp", None), "exact")
    made.engine.flat.model = model
    with pytest.raises(ConfigError, match="performance.execution"):
        set_execution(made, "stacked", 1)


def test_the_default_on_the_cpu_is_exact() -> None:
    made = federation(uneven("local_item_dp", None), "auto")
    assert isinstance(made.gradients, ExactGradients) and made.stack is None
    assert isinstance(federation(made.plan, "padded").gradients, PaddedGradients)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA device")
def test_a_graph_replays_what_it_captured() -> None:
    device = torch.device("cuda:0")
    numbers = torch.ones(4, device=device)
    doubled = GraphedCall(lambda: (numbers * 2,), device)
    (first,) = doubled()
    numbers.fill_(3.0)
    (second,) = doubled()
    assert first.tolist() == [2.0] * 4 and second.tolist() == [6.0] * 4
