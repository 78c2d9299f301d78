"""No key that alters a guarantee is dropped: it changes the run id, or another value than the default is refused."""

from __future__ import annotations

from typing import Any

import pytest

from config.test_run_ids import JOINT_VALUES, OTHER_VALUES, SUBJECT_VALUES
from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.config import RunConfig, load_run
from subjectdp.config.messages import section_of, walk_fields
from subjectdp.config.scenario import normalised, set_dotted
from subjectdp.errors import ConfigError

SECTIONS = ("partition", "privacy", "joint", "subject", "training")
VALUES: dict[str, Any] = {
    **{key: value for key, value in OTHER_VALUES.items() if key.partition(".")[0] in SECTIONS},
    **{f"joint.{key}": value for key, value in JOINT_VALUES.items()},
    **{f"subject.{key}": value for key, value in SUBJECT_VALUES.items()},
    "joint.clipping": "update",
    "joint.fused_steps": [1, 2],
    "privacy.predicted_subjects": 3500,
    "training.local_steps": 3,
    "training.silo_choice": "random",
}
OF_ANOTHER_CHOICE = {  # read where another key chooses them; none of them alters a guarantee where it does not
    "joint.bits",
    "training.optimizer.momentum",
    "training.silo_choice",
}
WITHOUT_EFFECT = {  # decision 0022: common sections may set them for many algorithms
    ("local_item_dp", "privacy.horizontal"),
    ("subject_release", "training.batch_size"),
    ("subject_sampling", "training.batch_size"),
    ("uldp_fl", "training.batch_size"),
}


def base(name: str) -> dict[str, Any]:
    """A run in sound mode, in which every algorithm may run."""
    run: dict[str, Any] = {
        "algorithm": name,
        "partition": {"silos": 16, "distribution": "power", "max_items_per_subject": 9},
        "privacy": {"mode": "sound"},
        "training": {"local_steps": 1},
    }
    return dict(normalised(run))


def test_every_key_has_a_value_here() -> None:
    leaves = {key for key, field in walk_fields(RunConfig) if section_of(field) is None}
    assert {key for key in leaves if key.partition(".")[0] in SECTIONS} == set(VALUES)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("key", VALUES)
def test_a_key_changes_the_id_or_is_refused(name: str, key: str) -> None:
    value = "as_published" if key == "privacy.mode" else VALUES[key]
    plain = load_run(base(name)).run_id
    try:
        changed = load_run(set_dotted(base(name), key, value)).run_id
    except ConfigError as refused:
        lines = [line for line in str(refused).splitlines() if line.startswith(f"Expected {key} ")]
        number = str(value).strip("[]()") if isinstance(value, list) else str(value)
        assert any(number in line for line in lines) or key in str(refused)
        return
    idle = key in OF_ANOTHER_CHOICE or (name, key) in WITHOUT_EFFECT
    idle |= name == "fed_avg" and key.startswith("privacy.")  # it claims no privacy
    assert (changed != plain) != idle


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("local_item_dp", "joint.colluding_silos", 1),
        ("subject_sampling", "joint.own_noise_only", True),
        ("subject_sampling", "subject.weights", "fixed"),
        ("fed_avg", "joint.noise", "skellam"),
        ("capped_item_dp", "subject.trust", "secure_aggregation"),
        ("subject_release", "joint.fused_steps", [2] * 16),
    ],
)
def test_a_key_that_is_not_read_is_refused(name: str, key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        load_run(set_dotted(base(name), key, value))
    text = str(refused.value)
    assert f"Expected {key} to be" in text and f"when algorithm.name is {name} (not read)" in text


@pytest.mark.parametrize("trust", ["local", "central"])
@pytest.mark.parametrize(("key", "value"), [("colluding_silos", 1), ("own_noise_only", True)])
def test_who_tells_its_noise_matters_under_secure_aggregation_alone(trust: str, key: str, value: Any) -> None:
    run = set_dotted(base("subject_release"), "subject.trust", trust)
    with pytest.raises(ConfigError, match=f"Expected joint.{key} to be .* under {trust} trust"):
        load_run(set_dotted(run, f"joint.{key}", value))


def test_a_batch_size_beside_a_fraction_is_refused() -> None:
    run = base("joint_noise") | {"training": {"local_steps": 1, "batch_size": 64, "sampling_fraction": 0.05}}
    with pytest.raises(ConfigError, match="training.batch_size.*512, its default.*sampling_fraction"):
        load_run(run)
    del run["training"]["batch_size"]
    assert load_run(run).training.sampling_fraction == 0.05
