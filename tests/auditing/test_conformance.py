"""Every registered algorithm does what its plans say, and planted flaws do not pass.

Nothing here lists algorithms: an algorithm's file and its line in the registry are enough to be checked.
"""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from subjectdp.algorithms.base import DP_SGD, Algorithm, LocalStep, RoundRule, SiloTask, Step, declare
from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.auditing import conformance
from subjectdp.auditing.conformance import RARE, check, check_sampling, plans
from subjectdp.cli.main import main
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import AccountingMode, BudgetWeights, Clipping, DivisorRule, PrivacyPlan
from subjectdp.training import silo_step

pytestmark = pytest.mark.slow
Captured = pytest.CaptureFixture[str]

CASES = [pytest.param(name, plan, id=title) for name in ALGORITHMS for title, plan in plans(algorithm(name))]
RARE_CASES = [
    pytest.param(name, plan, id=title)
    for name in ALGORITHMS
    for title, plan in plans(algorithm(name), RARE)
    if plan.settings.subject.weights is BudgetWeights.UNIFORM  # other weights draw nobody else
]


@pytest.mark.parametrize(("name", "plan"), CASES)
def test_an_algorithm_does_what_its_plan_says(name: str, plan: PrivacyPlan) -> None:
    assert [each.text for each in check(algorithm(name), plan) if not each.passed] == []


@pytest.mark.parametrize(("name", "plan"), RARE_CASES)
def test_items_and_subjects_are_sampled_as_the_plan_says(name: str, plan: PrivacyPlan) -> None:
    found = check_sampling(algorithm(name), plan)
    assert found.passed, found.text


def with_step(name: str, local_step: Step) -> Algorithm:
    """The algorithm with another local step in all of its rounds."""
    found = algorithm(name)
    return replace(found, rounds=tuple(replace(rule, local_step=local_step) for rule in found.rounds))


def failed(found: Algorithm) -> Iterator[str]:
    """What the checks of the sound plans find, one after another."""
    sound = [plan for _, plan in plans(found) if plan.settings.mode is AccountingMode.SOUND]
    return (each.text for plan in sound for each in check(found, plan) if not each.passed)


def noisy(step: LocalStep, total: Tensor, share: float = 1.0) -> Tensor:
    batch = step.sample_batch()
    return step.add_noise(total, share * step.noise_multiplier(batch)) / step.divisor(batch)


def forgets_to_clip(step: LocalStep) -> Tensor:
    return noisy(step, step.gradient_sum(step.sample_batch()))


def adds_the_sum_twice(step: LocalStep) -> Tensor:
    batch = step.sample_batch()
    return noisy(step, step.clipped_sum(batch) + step.clip(step.gradient_sum(batch)))


def clips_items(step: LocalStep, share: float = 1.0) -> Tensor:
    return noisy(step, step.clipped_sum(step.sample_batch()), share)


def own_divisor(step: LocalStep) -> Tensor:
    batch = step.sample_batch()
    return step.add_noise(step.clipped_sum(batch), step.noise_multiplier(batch)) / max(1, batch.items)


def no_noise_for_nobody(step: LocalStep) -> Tensor:
    """An empty mini-batch shows that nobody is in it."""
    batch = step.sample_batch()
    return noisy(step, step.clipped_sum(batch), float(batch.items > 0))


def the_same_noise(step: LocalStep) -> Tensor:
    batch = step.sample_batch()
    total = step.clipped_sum(batch)
    drawn = torch.randn(total.shape, generator=torch.Generator().manual_seed(0))
    std = step.noise_multiplier(batch) * conformance.CLIP
    return (total + std * drawn) / step.divisor(batch)


def another_law(step: LocalStep) -> Tensor:
    """Uniform noise of the right variance."""
    batch = step.sample_batch()
    normal = step.add_noise(torch.zeros_like(total := step.clipped_sum(batch)), 1.0) / conformance.CLIP
    width = 12**0.5 * step.noise_multiplier(batch) * conformance.CLIP
    return (total + width * (torch.special.ndtr(normal) - 0.5)) / step.divisor(batch)


def says_the_labels(step: LocalStep) -> Tensor:
    """What comes after the noise is seen as it is."""
    return clips_items(step) + step.sample_batch().inputs.sum() * 1e-3


def every_other_step() -> Step:
    shares = itertools.cycle([1.0, 0.0])
    return lambda step: clips_items(step, next(shares))


def counts_a_label(step: LocalStep) -> Tensor:
    return clips_items(step) + 1e-2 * (step.sample_batch().labels == 0).sum()


def weighs_classes(step: LocalStep) -> Tensor:
    """Items of a rare class count for more, as in n/(K n_c)."""
    batch = step.sample_batch()
    counts = torch.bincount(batch.labels, minlength=2)
    weights = batch.items / (counts > 0).sum() / counts[batch.labels]
    return noisy(step, step.clipped_sum(batch, weights))


def weighs_by_the_largest_group(step: LocalStep) -> Tensor:
    batch = step.sample_batch()
    return noisy(step, step.clipped_sum(batch, torch.ones(batch.items) / max(1, batch.largest_group)))


def a_thousandth_by_the_labels(step: LocalStep) -> Tensor:
    return clips_items(step) * (1 + 1e-3 * (step.sample_batch().labels == 0).any())


def leaves_the_last_weights_bare(step: LocalStep) -> Tensor:
    total = step.clipped_sum(step.sample_batch())
    return torch.cat([noisy(step, total.clone())[:-10], total[-10:] / step.divisor(step.sample_batch())])


def draws_by_itself(step: LocalStep) -> Tensor:
    total = step.clipped_sum(step.sample_batch())
    std = step.noise_multiplier(step.sample_batch()) * conformance.CLIP
    return (total + std * torch.randn(total.shape)) / step.divisor(step.sample_batch())


def whole_multiplier(step: LocalStep) -> Tensor:
    """Right at the σ of 2 that is tried, no noise at a σ below 1."""
    batch = step.sample_batch()
    return step.add_noise(step.clipped_sum(batch), int(step.noise_multiplier(batch))) / step.divisor(batch)


def less_for_many_alike(step: LocalStep) -> Tensor:
    total = step.clipped_sum(step.sample_batch())
    return noisy(step, total, 0.25 if total.norm() > 6 * conformance.CLIP else 1.0)


def says_nothing_of_anybody(step: LocalStep) -> Tensor:
    return noisy(step, step.clipped_sum(step.sample_batch(), factor=lambda norm: 0 * norm))


@pytest.mark.parametrize(
    ("name", "local_step", "said"),
    [
        ("local_item_dp", forgets_to_clip, "an item: moved the un-noised sum by 1e+06 C, the plan allows 1 C"),
        ("local_item_dp", adds_the_sum_twice, "noise: σ of the sum is 0.999"),
        ("subject_sampling", clips_items, "a subject's items at one silo: moved the un-noised sum by 3 C"),
        ("higrad_avg_dp", clips_items, "a subject's items at one silo: moved the un-noised sum by 3 C"),
        ("capped_item_dp", lambda step: clips_items(step, 0.9), "noise: σ of the sum is 1.79"),
        ("local_group_dp", lambda step: clips_items(step, 0.0), "noise: σ of the sum is 0.000, the plan says 2.000"),
        ("local_item_dp", every_other_step(), "noise: σ of the sum is 1.41"),
        ("local_item_dp", counts_a_label, "noise: σ of the sum is"),
        ("local_item_dp", weighs_classes, "an item: moved the un-noised sum by 33 C, the plan allows 1 C"),
        ("local_item_dp", weighs_by_the_largest_group, "an item: moved the un-noised sum by 5.833 C"),
        ("local_item_dp", a_thousandth_by_the_labels, "divisor: not public, other data change the noise"),
        ("local_item_dp", leaves_the_last_weights_bare, "noise: 10 of 4000 coordinates have none"),
        ("local_item_dp", draws_by_itself, "the same round gives something else later"),
        ("local_item_dp", says_nothing_of_anybody, "an item: moved the un-noised sum by 0 C"),
        ("local_item_dp", whole_multiplier, "noise: not 0.2 times as much"),
        ("local_item_dp", less_for_many_alike, "divisor: not public"),
        ("local_item_dp", own_divisor, "divisor: not public"),
        ("local_item_dp", no_noise_for_nobody, "noise: a step on an empty mini-batch has none"),
        ("local_item_dp", the_same_noise, "noise: Gaussian"),
        ("local_item_dp", another_law, "noise: Gaussian (p = "),
        ("local_item_dp", says_the_labels, "an item: moved"),
    ],
)
def test_a_planted_flaw_fails(name: str, local_step: Any, said: str) -> None:
    assert any(text.startswith(said) for text in failed(with_step(name, local_step)))


def test_silos_of_unequal_size_may_release_their_updates() -> None:
    updates = replace(DP_SGD, clipping=Clipping.PER_UPDATE)
    rule = RoundRule(
        lambda step: step.gradient_sum(step.sample_batch()) / step.divisor(step.sample_batch()),
        silo_task=SiloTask.NOISY_UPDATE,
        of_updates=True,
    )
    own = declare("mine", "Mine", replace(DP_SGD, reference="a paper"), rounds=(rule,), of_updates=updates, reads=())
    assert list(failed(replace(own, mechanisms=()))) == []


def with_server(name: str, aggregate: Any) -> Algorithm:
    """The algorithm with another part of the server in all of its rounds."""
    found = algorithm(name)
    return replace(found, rounds=tuple(replace(rule, aggregate=aggregate) for rule in found.rounds))


def test_a_server_whose_noise_is_too_small_fails() -> None:
    def aggregate(server: Any, sums: Any) -> None:
        total = sum(sums)
        server.descend((server.add_noise(total.clone()) + total) / 2 / server.divisor)

    found = failed(with_server("central_sub_dp", aggregate))
    assert any(text.startswith("noise: σ of the sum is 1.0") for text in found)


def test_a_server_that_leaves_the_model_as_it_was_fails() -> None:
    found = with_server("local_item_dp", lambda server, models: list(models))
    assert list(failed(found)) == ["the server leaves the model as it was"]


def test_a_server_whose_noise_depends_on_the_model_fails() -> None:
    def aggregate(server: Any, sums: Any) -> None:
        total = sum(sums)
        server.descend((server.add_noise(total) if not server.model.any() else total) / server.divisor)

    assert "noise: 4000 of 4000 coordinates have none" in failed(with_server("central_sub_dp", aggregate))


def halves(add_noise: Any, total: Tensor) -> Tensor:
    return torch.cat([add_noise(half.clone()) for half in total.chunk(2)])


@pytest.mark.parametrize(
    "found",
    [
        with_step("local_item_dp", lambda step: halves(lambda x: step.add_noise(x, 1.0), noisy(step, torch.zeros(8)))),
        with_server("central_sub_dp", lambda server, sums: server.descend(halves(server.add_noise, sum(sums)))),
    ],
    ids=["silo", "server"],
)
def test_one_noise_is_not_added_twice(found: Algorithm) -> None:
    """The key is the step's: both would have the same noise, and their difference none."""
    with pytest.raises(PrivacyError, match="Expected add_noise to be called once in a step"):
        list(failed(found))


def test_a_step_has_what_its_protocol_names() -> None:
    """What else there is (the round's number, a silo's whole data) is not varied here."""
    late = with_step("local_item_dp", lambda step: clips_items(step, float(step.round < 3)))
    with pytest.raises(AttributeError, match="Unknown member of IntegerStep 'round'"):
        list(failed(late))


def test_rounds_and_modes_that_no_plan_has_are_told() -> None:
    found = algorithm("local_item_dp")
    facts = [replace(each, divisor_rule=DivisorRule.REALISED_SUBJECTS) for each in found.mechanisms]
    more = (*found.rounds, replace(found.rounds[0], server_noise=True))
    told = [each.text for _, each in conformance.checks(replace(found, mechanisms=tuple(facts), rounds=more))]
    assert "no plan executes the round with server_noise=True, of_updates=False" in told
    assert any(text.startswith("no plan, nothing is checked: local_item_dp cannot run in sound mode") for text in told)


def test_a_sampler_that_takes_too_many_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = silo_step.sample_items

    def more(items: int, schedule: Any, *rest: Any) -> Any:
        return drawn(items, replace(schedule, sampling_probability=1.3 * schedule.sampling_probability), *rest)

    monkeypatch.setattr(silo_step, "sample_items", more)
    _, plan = next(iter(plans(algorithm("local_item_dp"), RARE)))
    assert not check_sampling(algorithm("local_item_dp"), plan).passed


def test_the_command_prints_what_failed_and_returns_one(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert main(["check-algorithm", "fed_avg"]) == 0
    assert "no privacy is stated" in capsys.readouterr().out
    broken = with_step("local_item_dp", forgets_to_clip)
    monkeypatch.setattr("subjectdp.cli.audit.algorithm", lambda name: broken)
    assert main(["check-algorithm", "local_item_dp"]) == 1
    printed = capsys.readouterr().out
    assert "FAILED  an item: moved the un-noised sum by 1e+06 C, the plan allows 1 C" in printed


SOUND_FILE = """from dataclasses import replace
from subjectdp.algorithms.base import DP_SGD, RoundRule, declare

def local_step(step):
    batch = step.sample_batch()
    return step.add_noise(step.clipped_sum(batch), step.noise_multiplier(batch)) / step.divisor(batch)

DP_SGD = replace(DP_SGD, reference="a paper")
ALGORITHM = declare("mine", "Mine", DP_SGD, rounds=(RoundRule(local_step),), reads=())
"""


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("DP_SGD, rounds", "DP_SGDD, rounds", "mine.py, line 9: NameError: name 'DP_SGDD'"),
        ("batch = ", "batch == ", "mine.py, line 5: NameError: name 'batch' is not defined"),
        (
            "clipped_sum",
            "cliped_sum",
            "mine.py, line 6: AttributeError: Unknown member of IntegerStep 'cliped_sum'. Did you mean",
        ),
        ("def local", "def local local", "mine.py, line 4: SyntaxError: expected '('"),
        ("ALGORITHM", "ALGORITM", "mine.py: AttributeError: module 'mine' has no attribute 'ALGORITHM'"),
        ("reads=()", "reads=('subject.item',)", "Unknown key that mine reads: 'subject.item'. Did you mean"),
        ("reads=()", "reads=('subject.items',)", "without subject.items, which its facts have no use for"),
        ("reads=()", "reads=('joint')", "Expected reads of mine to be a tuple, with a comma behind its only member"),
        ("step),), reads", "step)), reads", "line 9: ConfigError: Expected rounds of mine to be a tuple"),
        ("step),), reads", "step), RoundRule(print)), reads", "line 9: ConfigError: Expected rounds of mine to be one"),
        (
            "DP_SGD, rounds",
            "DP_SGD, DP_SGD, rounds",
            "Expected variants of mine to be named differently, got [None, None]",
        ),
        ("DP_SGD, rounds", "replace(DP_SGD, trust='locl'), rounds", "Expected trust to be 'local', "),
        (
            "DP_SGD, rounds",
            "replace(DP_SGD, noise_rule='none'), rounds",
            "Expected noise_rule of mine to be none where",
        ),
        (
            "DP_SGD, rounds",
            "DP_SGD, replace(DP_SGD, variant='b', samples_subjects=True), rounds",
            "Expected facts of mine",
        ),
    ],
)
def test_a_mistake_in_an_own_file_is_told_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, right: str, wrong: str, said: str
) -> None:
    (tmp_path / "mine.py").write_text(SOUND_FILE.replace(right, wrong))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(ALGORITHMS, "mine", "mine")
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    algorithm.cache_clear()
    assert main(["check-algorithm", "mine"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    algorithm.cache_clear()
    sys.modules.pop("mine", None)
