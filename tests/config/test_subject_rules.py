"""Keys of sampled subjects and predicted noise: ranges, and the combinations that are refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from subjectdp.config import load_run
from subjectdp.errors import ConfigError

RELEASE = {"algorithm": "subject_release", "privacy": {"mode": "sound"}}
SAMPLING = {"algorithm": "subject_sampling", "privacy": {"mode": "sound"}}

CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({"algorithm": "subject_release"}, ["privacy.mode", "sound when algorithm.name is subject_release"]),
    ({"algorithm": "subject_sampling"}, ["privacy.mode", "no paper of this project publishes it"]),
    ({"algorithm": "capped_item_dp"}, ["privacy.mode", "sound when algorithm.name is capped_item_dp"]),
    (
        {"algorithm": "capped_item_dp", "privacy": {"mode": "sound"}},
        ["partition.max_items_per_subject", "an enforced cap"],
    ),
    ({**RELEASE, "subject": {"sampling_probability": 0}}, ["subject.sampling_probability", "greater than 0"]),
    ({**RELEASE, "subject": {"sampling_probability": 1.5}}, ["subject.sampling_probability", "at most 1"]),
    ({**RELEASE, "subject": {"sampling_probability": True}}, ["subject.sampling_probability", "True"]),
    ({**RELEASE, "subject": {"items": 0}}, ["subject.items", "at least 1"]),
    ({**RELEASE, "subject": {"trust": "server"}}, ["subject.trust", "'server'", "central"]),
    ({**RELEASE, "subject": {"weights": "best"}}, ["subject.weights", "'best'", "proportional"]),
    ({**RELEASE, "training": {"sampling": "fixed_batch_size"}}, ["training.sampling", "a coin for each"]),
    ({**SAMPLING, "training": {"sampling": "fixed_batch_size"}}, ["training.sampling", "a coin for each"]),
    (
        {**RELEASE, "training": {"local_steps": 2}},
        ["training.local_steps", "1 or null when algorithm.name is subject_release"],
    ),
    (
        {"algorithm": "higrad_avg_dp", "privacy": {"predicted_subjects": 9}},
        ["privacy.predicted_subjects", "null unless privacy.mode is sound"],
    ),
    (
        {**RELEASE, "privacy": {"mode": "sound", "predicted_subjects": 9, "noise_multiplier": 1}},
        ["privacy.predicted_subjects", "null where privacy.noise_multiplier is given"],
    ),
    (
        {**RELEASE, "privacy": {"mode": "sound", "predicted_subjects": 0}},
        ["predicted_subjects", "at least 1"],
    ),
]


@pytest.mark.parametrize(("content", "fragments"), CASES, ids=[" ".join(f) for _, f in CASES])
def test_refused(content: dict[str, Any], fragments: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_run(content)
    assert "\n" not in str(caught.value)
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        RELEASE,
        {**RELEASE, "algorithm": "uldp_fl", "training": {"local_steps": 5}},
        {**SAMPLING, "subject": {"sampling_probability": 0.1, "items": 3}, "training": {"local_steps": 4}},
        {**RELEASE, "privacy": {"mode": "sound", "predicted_subjects": 3500}},
    ],
)
def test_accepted(content: dict[str, Any]) -> None:
    run = load_run(content)
    assert run.privacy.mode == "sound"
    assert run.partition.max_items_per_subject is None  # whole subjects need no cap
