"""The gate lets right steps through and stops wrong ones; every method is held against the float64 loop."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from benchmarks import gate, steps
from benchmarks.gate import MARGIN, differentiable_items
from benchmarks.methods import METHODS, Case, EngineStep, Problem, Target, make_problem, ours

pytestmark = pytest.mark.slow

PEER = "opacus_ghost"


def replace_peer(monkeypatch: pytest.MonkeyPatch, build: Callable[[Problem], object]) -> None:
    monkeypatch.setitem(METHODS, PEER, replace(METHODS[PEER], build=build))


@pytest.fixture(scope="module")
def tested(cases: dict[str, Case]) -> Callable[[str], tuple[Problem, dict[Target, gate.Reference]]]:
    """Gate problem and references of a small case, made once."""
    made: dict[str, tuple[Problem, dict[Target, gate.Reference]]] = {}

    def of(name: str) -> tuple[Problem, dict[Target, gate.Reference]]:
        if name not in made:
            problem = gate.gate_problem(make_problem(cases[name]))
            made[name] = problem, gate.references(problem, set(Target))
        return made[name]

    return of


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("case", ["cnn", "lstm", "head"])
def test_methods_compute_what_they_say(tested, case, name):
    method = METHODS[name]
    problem, references = tested(case)
    errors = gate.check(method.build(problem), references[method.target])
    assert gate.passes(errors, gate.TOLERANCE if ours(name) else gate.PEER_TOLERANCE)
    assert ("norms" not in errors) == (method.target is Target.PLAIN)


class Wrong(EngineStep):
    """The engine's step with one thing wrong."""

    def __init__(self, problem: Problem, how: str) -> None:
        super().__init__(problem, Target.ITEM)
        self.how = how

    def _sum(self) -> Tensor:
        problem = self.problem
        clip_norm = problem.clip_norm * (1.001 if self.how == "clip norm" else 1.0)
        clip_norm = float("inf") if self.how == "no clipping" else clip_norm
        part = slice(1, None) if self.how == "an item lost" else slice(None)
        weights = torch.ones(problem.case.batch)[part]
        if self.how == "one weight":
            weights[2] = 0.999
        total, norms = self.engine.clipped_sum(problem.inputs[part], problem.labels[part], clip_norm, weights)
        self.last_norms = norms * 1.0001 if self.how == "norms" else norms
        if self.how == "noise":
            total += 1e-3 * torch.randn_like(total)
        if self.how == "not finite":
            total[0] = float("nan")
        return total

    def parameters(self) -> dict[str, Tensor]:
        found = super().parameters()
        return {f"model.{name}": value for name, value in found.items()} if self.how == "names" else found


WRONG = ["clip norm", "no clipping", "an item lost", "one weight", "norms", "noise", "not finite", "names"]


@pytest.mark.parametrize("how", WRONG)
def test_wrong_steps_fail_and_are_not_timed(tested, cases, monkeypatch, how):
    problem, references = tested("cnn")
    assert not gate.passes(gate.check(Wrong(problem, how), references[Target.ITEM]), gate.PEER_TOLERANCE)
    replace_peer(monkeypatch, lambda problem: Wrong(problem, how))
    # the same through the task: nothing of a method that fails is timed
    outcome = steps.time_steps(cases["cnn"], [PEER], 1)[PEER]
    assert (outcome.status, outcome.wall) == ("FAIL", [])
    assert "error of the sum" in outcome.note


def test_the_right_twin_of_the_wrong_steps_passes(tested):
    problem, references = tested("cnn")
    assert gate.passes(gate.check(Wrong(problem, "nothing"), references[Target.ITEM]), gate.TOLERANCE)


def test_a_peer_that_raises_is_skipped_and_our_own_is_not_excused(cases, monkeypatch):
    def broken(problem: Problem) -> None:
        raise RuntimeError("no such kernel\nsecond line")

    replace_peer(monkeypatch, broken)
    own = METHODS["subjectdp_item"]
    monkeypatch.setitem(METHODS, "subjectdp_item", replace(own, build=broken))
    outcome = steps.time_steps(cases["cnn"], [PEER], 1)[PEER]
    assert (outcome.status, outcome.note) == ("skipped", "RuntimeError: no such kernel")
    with pytest.raises(RuntimeError, match="no such kernel"):
        steps.time_steps(cases["cnn"], ["subjectdp_item"], 1)


def test_methods_that_would_fill_the_memory_are_skipped(cases, monkeypatch):
    monkeypatch.setattr(steps, "_memory", lambda: 1e6)
    outcomes = steps.time_steps(cases["cnn"], ["sgd", "opacus_hooks"], 2)
    assert outcomes["opacus_hooks"].status == "skipped" and "GB" in outcomes["opacus_hooks"].note
    assert outcomes["sgd"].status == "ok" and len(outcomes["sgd"].cpu) == 2


PLAIN = [[3.0, -1.0, 2.0, -4.0], [1.0, -3.0, 5.0, -1.0], [2.0, 1.0, -2.0, 1.5], [4.0, -2.0, 1.0, 6.0]]


class Functional(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return torch.max_pool2d(torch.relu(inputs), 2)


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("model", [nn.Sequential(nn.ReLU(), nn.MaxPool2d(2)), Functional()])
def test_only_items_away_from_relu_zeros_and_pooling_ties_are_kept(model, scale):
    near, far = MARGIN / 10, MARGIN * 100
    changes: list[dict[tuple[int, int], float]] = [
        {},
        {(0, 1): near},  # a ReLU's input almost 0
        {(0, 1): far},
        {(2, 0): 4.0 + near},  # two of a window almost the same
        {(2, 0): 4.0 + far},
        {(0, 2): -1.0, (1, 2): -2.0},  # a window of zeros behind the ReLU
    ]
    images = torch.tensor(PLAIN, dtype=torch.float64).repeat(len(changes), 1, 1, 1)
    for image, values in zip(images, changes, strict=True):
        for (row, column), value in values.items():
            image[0, row, column] = value
    assert differentiable_items(model, scale * images).tolist() == [0, 2, 4, 5]


def test_the_gate_steps_on_differentiable_items_only(cases, monkeypatch):
    problem = make_problem(cases["cnn"])
    monkeypatch.setattr("benchmarks.gate.differentiable_items", lambda model, inputs: torch.tensor([1, 4]))
    tested = gate.gate_problem(problem)
    assert torch.equal(tested.inputs, problem.inputs[[1, 4, 1, 4, 1, 4]])
    assert torch.equal(tested.labels, problem.labels[[1, 4, 1, 4, 1, 4]])
    assert tested.noise_multiplier == 0.0 and torch.equal(tested.owners, problem.owners)
