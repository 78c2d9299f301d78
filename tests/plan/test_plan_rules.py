"""The plan's rules: a run's configuration and a plan made by hand are refused with the same sentence."""

from typing import Any

import pytest

from accounting import plans
from subjectdp.accounting.make_plan import make_plan
from subjectdp.config.run import load_run
from subjectdp.errors import ConfigError, PrivacyError, SubjectDPError
from subjectdp.plan import rules
from subjectdp.plan.plan import Mechanism, NoiseDistribution, SamplingMethod, SubjectSettings

SUBJECTS = SamplingMethod.POISSON_SUBJECTS
SOUND = {"mode": plans.SOUND}
RELEASE = {"algorithm": "subject_release", "privacy": {"mode": "sound"}}

# (mechanism, settings, the same as a configuration, kind of error, part of the sentence)
CASES: list[tuple[Mechanism, dict[str, Any], dict[str, Any], type[SubjectDPError], str]] = [
    (plans.LOCAL_ITEM, {"silos_per_round": 17}, {"training": {"silos_per_round": 17}}, ConfigError, "at most part"),
    (plans.JOINT, {"colluding_silos": 16}, {"joint": {"colluding_silos": 16}}, ConfigError, "fewer than the 16 silos"),
    (plans.CAPPED, {}, {}, PrivacyError, "sound when algorithm.name is capped_item_dp"),
    (plans.USER_LDP, {"predicted_subjects": 9}, {"privacy": {"predicted_subjects": 9}}, PrivacyError, "null unless"),
    (
        plans.sound(plans.RELEASE),
        {**SOUND, "sampling": plans.FIXED},
        {**RELEASE, "training": {"sampling": "fixed_batch_size"}},
        PrivacyError,
        "a coin for each subject",
    ),
    (plans.sound(plans.JOINT), {**SOUND, "local_steps": 2},
     {"privacy": {"mode": "sound"}, "training": {"local_steps": 2}}, PrivacyError, "one local step"),
    (
        plans.sound(plans.JOINT),
        {**SOUND, "local_steps": 1, "linear_updates": False},
        {"privacy": {"mode": "sound"}, "training": {"local_steps": 1, "optimizer": {"name": "adam"}}},
        PrivacyError,
        "Adam's steps do not add up",
    ),
    (plans.JOINT, {"noise_distribution": NoiseDistribution.SKELLAM}, {"joint": {"noise": "skellam"}}, PrivacyError,
     "rdp when joint.noise is skellam"),
]  # fmt: skip


@pytest.mark.parametrize(("mechanism", "changes", "config", "error", "part"), CASES, ids=[c[-1] for c in CASES])
def test_a_run_and_a_plan_are_refused_alike(
    mechanism: Mechanism, changes: dict[str, Any], config: dict[str, Any], error: type[SubjectDPError], part: str
) -> None:
    with pytest.raises(error) as plan:
        make_plan(mechanism, plans.facts(), plans.settings(**changes))
    with pytest.raises(ConfigError) as run:
        load_run({"algorithm": mechanism.algorithm, "partition": {"max_items_per_subject": 8}, **config})
    assert part in str(plan.value)
    assert str(run.value) == str(plan.value)


def test_every_number_out_of_range_has_a_line() -> None:
    with pytest.raises(ConfigError) as caught:
        rules.check_ranges(plans.settings(epsilon=-1.0, rounds=0, subject=SubjectSettings(items=True)))
    lines = str(caught.value).split("\n")
    assert [line.split()[1] for line in lines] == ["epsilon", "rounds", "subject.items"]
    assert lines[0] == "Expected epsilon to be greater than 0, got -1.0."
