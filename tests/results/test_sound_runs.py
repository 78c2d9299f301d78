"""Runs in sound mode: the ε that their noise was calibrated to, and the algorithms' declared claims."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from figures.fake_runs import Fake, collected
from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.errors import DataError
from subjectdp.results.select import are_private, claimed_units, sound_runs

NAMES = ["fed_avg", "local_item_dp", "subject_release"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    fakes = [Fake(name, mode="sound", rounds=4) for name in NAMES]
    fakes += [Fake(name, mode="sound", rounds=4, predicted=500) for name in NAMES[1:]]
    return collected(tmp_path_factory.mktemp("runs"), fakes).read_runs()


def test_stated_epsilon_is_of_the_unit_that_the_noise_was_made_for(runs: pd.DataFrame) -> None:
    chosen, notes = sound_runs(runs, vary=("noise_subjects",))
    assert notes == []
    own = chosen[chosen["predicted_subjects"].isna()].set_index("name")["epsilon_stated"]
    assert own["LocalItemDP"] == 1.1 and own["SubjectRelease"] == 4.0  # as the fake runs' statements say
    assert math.isnan(own["FedAvg"])
    predicted = chosen[chosen["predicted_subjects"].notna()].set_index("name")["epsilon_stated"]
    assert predicted.to_dict() == {"LocalItemDP": 4.0, "SubjectRelease": 4.0}


def test_runs_with_noise_for_one_number_of_subjects_are_kept(runs: pd.DataFrame) -> None:
    chosen, notes = sound_runs(runs, vary=())
    assert notes == ["Only runs with the noise of 500 subjects shown"]
    assert chosen["name"].tolist().count("FedAvg") == 1 and len(chosen) == 3


def test_runs_as_published_alone_are_refused(runs: pd.DataFrame) -> None:
    with pytest.raises(DataError, match=r"privacy\.mode"):
        sound_runs(runs.assign(mode="as_published"), vary=())


def test_claims_are_those_that_the_algorithms_declare() -> None:
    table = pd.DataFrame({"algorithm": list(ALGORITHMS), "variant": None, "mode": "sound"})
    units = claimed_units(table).set_axis(table["algorithm"])
    told = {"fed_avg": "", "local_item_dp": "item", "joint_noise": "item", "user_ldp": "subject"}
    assert units[list(told)].to_dict() == told
    assert (
        table.loc[~are_private(table), "algorithm"].tolist()
        == ["fed_avg"]
        == units.index[units == ""].tolist()
    )
