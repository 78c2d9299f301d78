"""The fast engine and the obvious one, a loop over items, train the same model."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algorithms.tiny import tiny_plan, tiny_run
from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.models.build import build_model
from subjectdp.plan.plan import AccountingMode

CASES = [
    (name, variant, mode) for name in ALGORITHMS for variant in algorithm(name).variants for mode in AccountingMode
]


class SlowEngine(ClippingEngine):
    """One item after another through plain autograd; each gradient, or each group's, is formed and clipped."""

    def gradient_sum(self, inputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        total = torch.zeros_like(self.flat.vector)
        for i in range(len(labels)):
            total += self._gradient(inputs[i : i + 1], labels[i : i + 1]) * (1.0 if weights is None else weights[i])
        return total

    def clipped_sum(
        self,
        inputs: Tensor,
        labels: Tensor,
        clip_norm: float | Tensor,
        weights: Tensor | None = None,
        groups: Tensor | None = None,
        factor: None = None,
    ) -> tuple[Tensor, Tensor]:
        numbers = torch.arange(len(labels)) if groups is None else groups
        count = int(numbers.max()) + 1 if len(labels) else 0
        bounds = torch.as_tensor(clip_norm).expand(count)
        weighted = torch.ones(len(labels)) if weights is None else weights
        total, norms = torch.zeros_like(self.flat.vector), torch.zeros(count)
        for number in range(count):
            # a group's weights count before it is clipped, an item's after
            members = (numbers == number).nonzero().flatten().tolist()
            parts = [self._gradient(inputs[i : i + 1], labels[i : i + 1]) for i in members]
            before = [1.0 if groups is None else float(weighted[i]) for i in members]
            gradient = torch.stack([g * w for g, w in zip(parts, before, strict=True)]).sum(0)
            norms[number] = gradient.norm()
            after = float(weighted[number]) if groups is None else 1.0
            total += gradient * min(1.0, float(bounds[number]) / float(norms[number])) * after
        return total, norms

    def _gradient(self, item: Tensor, label: Tensor) -> Tensor:
        result = torch.zeros_like(self.flat.vector)
        parameters = dict(self.flat.model.named_parameters())
        for parameter in parameters.values():
            parameter.requires_grad_(True)
        gradients = torch.autograd.grad(F.cross_entropy(self.flat.model(item), label), list(parameters.values()))
        for view, gradient in zip(self.flat.views(result).values(), gradients, strict=True):
            view.copy_(gradient)
        for parameter in parameters.values():
            parameter.requires_grad_(False)
        return result


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant", "mode"), CASES)
def test_fast_and_slow_steps_of_every_algorithm_agree(name: str, variant: str | None, mode: AccountingMode) -> None:
    """Two rounds of local steps with noise, whose draws are the same."""
    plan = tiny_plan(name, variant, mode, steps=3, noise=0.5)
    models = []
    for slow in (False, True):
        run = tiny_run(plan)
        if slow:
            run.federation.engine.__class__ = SlowEngine
        for round_ in (1, 2):
            run.run_round(round_)
        models.append(run.theta.double())
    assert float((models[0] - models[1]).norm() / models[1].norm()) < 1e-6


@pytest.mark.parametrize(("name", "kind"), [("leaf_cnn", "image"), ("leaf_lstm", "text")])
def test_fast_and_slow_steps_of_the_papers_models_agree(name: str, kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = {"hidden": 32} if kind == "image" else {"hidden": 24, "dense": 16}
    inputs = (
        torch.rand(6, 1, 28, 28, generator=generator)
        if kind == "image"
        else torch.randint(0, 62, (6, 30), generator=generator)
    )
    labels = torch.randint(0, 62, (6,), generator=generator)
    trained = []
    for engine_type in (ClippingEngine, SlowEngine):
        model: nn.Module = build_model(name, 62, kind, 3, sizes)
        engine = engine_type(FlatParameters(model))
        for _ in range(4):
            engine.flat.vector.sub_(engine.clipped_sum(inputs, labels, 0.7)[0], alpha=0.05)
        trained.append(engine.flat.vector.double())
    assert float((trained[0] - trained[1]).norm() / trained[1].norm()) < 1e-6
