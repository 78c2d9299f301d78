"""The scorecard on made-up runs, on sampling, on Table 1: the right runs, intervals, ε, verdicts and order of rows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from figures.fake_runs import Fake, grid, write_runs
from subjectdp.results.collect import collect_scenario
from subjectdp.scorecard.paper_accounting import write_paper_accounting
from subjectdp.scorecard.scorecard import COLUMNS, Evidence, measure_rounds, scorecard
from subjectdp.scorecard.targets import Target, read_targets
from subjectdp.scorecard.verdicts import Verdict, judge, verdict_counts

FILE = Path(__file__).resolve().parents[2] / "config" / "targets.csv"
TARGETS = {target.id: target for target in read_targets(FILE)}
ALL = ["fed_avg", "local_item_dp", "user_ldp", "local_group_dp", "higrad_avg_dp:v1", "higrad_avg_dp:v3"]
PAPER = (("data", (("source", "upstream"), ("subjects", 3500))),)


def evidence(root: Path, fakes: Sequence[Fake], **more: pd.DataFrame) -> Evidence:
    collect_scenario(write_runs(root / "runs", fakes), root)
    frames = {name: pd.read_parquet(root / f"{name}.parquet") for name in ("runs", "rounds")}
    return Evidence(frames["runs"], frames["rounds"], table1(), **more)


def table1() -> pd.DataFrame:
    row = {"local_steps": 10, "parties": 5, "sigma_total": 2.0169, "epsilon": 1.1875, "epsilon_printed": 1.19}
    return pd.DataFrame([{**row, "epsilon_sound": 3.53, "epsilon_lower": 1.50}])


def card(found: Evidence, *ids: str) -> pd.DataFrame:
    return scorecard([TARGETS[name] for name in ids], found).set_index("target")


def at_paper_scale(algorithms: Sequence[str], **more: object) -> list[Fake]:
    """Runs at the papers' FEMNIST setting: LEAF's model, 3,500 subjects, one local epoch, 100 rounds."""
    return grid(algorithms, ["femnist"], [0, 1, 2], rounds=100, synthetic=False, subjects=3500, changes=PAPER, **more)


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    skewed = at_paper_scale(["local_group_dp", "higrad_avg_dp:v1"], alpha=16.0)
    return evidence(tmp_path_factory.mktemp("paper"), [*at_paper_scale(ALL), *skewed])


@pytest.mark.slow
def test_numbers_at_the_papers_setting_are_means_with_intervals(paper: Evidence) -> None:
    row = card(paper, "v1-femnist-local-item").iloc[0]
    runs = paper.runs[paper.runs["label"] == "LocalItemDP"]["final_test_accuracy"] * 100
    half = 4.302652729911275 * np.std(runs, ddof=1) / math.sqrt(3)  # t(0.975, 2) from a printed table
    assert row["ours"] == pytest.approx(runs.mean(), rel=1e-5)
    assert row["high"] - row["ours"] == pytest.approx(half, rel=1e-3)
    assert row["seeds"] == 3
    inside, outside = row["low"] >= 75.96 and row["high"] <= 79.96, row["high"] < 75.96 or row["low"] > 79.96
    assert row["verdict"] == ("reproduced" if inside else "differs" if outside else "not at this scale")
    assert "3,500 subjects" in row["scale"] and "100 rounds of 1 local epoch" in row["scale"]


def test_differences_are_in_per_cent_of_the_other_and_paired_by_seed(paper: Evidence) -> None:
    row = card(paper, "v1-femnist-item-cost").iloc[0]
    by_seed = paper.runs.set_index(["label", "seed"])["final_test_accuracy"]
    ratios = [100 * (by_seed["LocalItemDP", seed] / by_seed["FedAvg", seed] - 1) for seed in range(3)]
    assert row["ours"] == pytest.approx(np.mean(ratios), rel=1e-5)
    assert row["unit"] == "% of the other"


def test_an_order_is_decided_by_the_closest_competitor(paper: Evidence) -> None:
    table = card(paper, "v1-femnist-fed-avg-best", "v3-femnist-group-first", "v1-femnist-user-loss")
    by_label = paper.runs.groupby("label")["final_test_accuracy"].mean() * 100
    assert table.loc["v1-femnist-fed-avg-best", "ours"] == pytest.approx(
        by_label["FedAvg"] - by_label["LocalItemDP"], abs=1e-3
    )
    assert table.loc["v1-femnist-fed-avg-best", "verdict"] == "reproduced"
    assert table["unit"].tolist() == ["points ahead", "points ahead", "nats ahead"]
    assert table.loc["v1-femnist-user-loss", "verdict"] == "reproduced"


def test_the_epsilon_of_a_row_are_those_of_its_runs(paper: Evidence) -> None:
    table = card(paper, "v1-femnist-higrad", "v1-femnist-local-item", "v1-alpha-16-group")
    assert table["epsilon_as_published"].tolist() == [4.0, 4.0, 4.0]
    assert table.loc["v1-femnist-higrad", "epsilon_sound"] == pytest.approx(144.6)
    assert table.loc["v1-femnist-local-item", "epsilon_sound"] == pytest.approx(3.99), "claimed for an item"
    assert table.loc["v1-femnist-local-item", "epsilon_sound_subject"] == pytest.approx(231.0)
    assert math.isnan(table.loc["v1-alpha-16-group", "epsilon_sound"]), "none can be stated"


def test_small_real_data_decide_orders_and_nothing_else(tmp_path: Path) -> None:
    found = evidence(tmp_path, grid(ALL, ["femnist"], [0, 1, 2], rounds=12, synthetic=False))
    table = card(found, "v1-femnist-local-item", "v1-femnist-item-cost", "v1-femnist-fed-avg-best", "v3-femnist-items")
    assert table["verdict"].tolist() == ["not at this scale", "not at this scale", "reproduced", "not at this scale"]
    assert table.loc["v3-femnist-items", "ours"] == 50.0


@pytest.mark.slow
def test_generated_data_decide_nothing(tmp_path: Path) -> None:
    found = evidence(tmp_path, grid(ALL, ["femnist", "shakespeare"], [0, 1, 2], rounds=12))
    table = scorecard(list(TARGETS.values()), found)
    trained = table[table["seeds"] > 0]
    assert len(trained) > 20
    assert set(trained["verdict"]) == {"not at this scale"} and set(trained["reason"]) == {"generated data"}


def test_more_local_steps_are_compared_at_equal_rounds(tmp_path: Path) -> None:
    fakes = [Fake("joint_noise", seed=s, rounds=5, local_steps=k, synthetic=False) for s in (0, 1, 2) for k in (1, 10)]
    other = [Fake("joint_noise", seed=s, rounds=9, local_steps=1, synthetic=False) for s in (0, 1, 2)]
    table = card(evidence(tmp_path / "a", [*fakes, *other]), "joint-femnist-local-steps")
    assert table["verdict"].tolist() == ["reproduced"]
    assert (
        "5 rounds of 10 local steps" in table["scale"].iloc[0] and "5 rounds of 1 local step" in table["scale"].iloc[0]
    )
    alone = [Fake("joint_noise", rounds=5, local_steps=10, synthetic=False)]
    assert card(evidence(tmp_path / "b", alone), "joint-femnist-local-steps")["verdict"].tolist() == ["not run"]


def test_accuracy_at_equal_rounds_reads_the_others_curve(paper: Evidence) -> None:
    row = card(paper, "v1-femnist-higrad-competitive").iloc[0]
    runs = paper.runs.set_index(["label", "seed"])
    rounds = paper.rounds.set_index(["run_id", "round"])["test_accuracy"]
    ratios = []
    for seed in range(3):
        own = runs.loc[("HiGradAvgDP (v1)", seed)]
        own = own[own["alpha"] == 1.0].iloc[0] if isinstance(own, pd.DataFrame) else own
        other = rounds[runs.loc[("LocalItemDP", seed), "run_id"], 25]
        ratios.append(100 * (own["final_test_accuracy"] / other - 1))
    assert row["ours"] == pytest.approx(np.mean(ratios), rel=1e-5)


def test_sampling_and_table_1_are_judged_without_runs(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "setting": "femnist",
            "silo": 0,
            "step": range(4000),
            "items": 512,
            "subjects": generator.normal(476, 5, 4000).round(),
            "largest_group": generator.choice([2, 3, 4], 4000, p=[0.2, 0.7, 0.1]),
        }
    )
    found = evidence(tmp_path, [Fake("fed_avg")], statistics=rows)
    table = card(found, "v1-femnist-subjects-per-batch", "v1-femnist-group-size", "v1-small-group-size")
    assert table["verdict"].tolist() == ["reproduced", "reproduced", "not run"]
    half = 1.96 * rows["subjects"].std() / math.sqrt(4000)
    first = table.iloc[0]
    assert first["high"] - first["low"] == pytest.approx(2 * half, rel=0.01)
    assert table.loc["v1-femnist-group-size", "note"] == "in 69.2 % of the mini-batches"
    joint = card(found, "joint-table1-10-5-sigma", "joint-table1-10-5-epsilon", "joint-table1-50-5-sigma")
    assert joint["verdict"].tolist() == ["reproduced", "reproduced", "not run"]
    assert joint.loc["joint-table1-10-5-epsilon", "epsilon_sound"] == 3.53
    off = rows.assign(subjects=rows["subjects"] + 20)
    worse = card(Evidence(found.runs, found.rounds, table1(), statistics=off), "v1-femnist-subjects-per-batch")
    assert worse["verdict"].tolist() == ["differs"]


@pytest.mark.slow
def test_what_is_not_run_comes_last_and_every_verdict_is_counted(paper: Evidence) -> None:
    table = scorecard(list(TARGETS.values()), paper)
    assert list(table.columns) == list(COLUMNS)
    assert sorted(table["target"]) == sorted(TARGETS)
    missing = (table["verdict"] == "not run").to_numpy()
    assert not missing[: (~missing).sum()].any() and missing[(~missing).sum() :].all()
    counts = verdict_counts(table)
    assert list(counts.index) == [verdict.value for verdict in Verdict]
    assert list(counts.columns) == ["accounting", "sampling", "bounds", "training"]
    assert counts.to_numpy().sum() == sum(not target.not_counted for target in TARGETS.values())


def test_no_two_counted_targets_state_the_same() -> None:
    """And a target that is not counted repeats its original in all but paper, place and words."""

    def stated(target: Target) -> Target:
        return replace(target, id="x", paper="v1", place="x", statement="x", not_counted="")

    counted = [repr(stated(target)) for target in TARGETS.values() if not target.not_counted]
    assert len(counted) == len(set(counted))
    for target in TARGETS.values():
        if target.not_counted not in ("", "circular"):
            assert repr(stated(target)) == repr(stated(TARGETS[target.not_counted]))


def test_a_joint_claim_is_refuted_by_the_counterexample_alone(tmp_path: Path) -> None:
    found = evidence(tmp_path, [Fake("fed_avg")])
    rows = found.table1.assign(parties=10)
    for lower, verdict in ((1.5, "refuted"), (0.5, "not provable")):
        each = Evidence(found.runs, found.rounds, rows.assign(epsilon_lower=lower))
        assert card(each, "joint-claim-10")["verdict"].tolist() == [verdict]


def test_a_bound_is_judged_by_the_population_loss(tmp_path: Path) -> None:
    common = {"algorithm": "user_ldp", "last": True, "synthetic": True, "dataset": "femnist", "subjects": 6}
    common |= {"items": 90, "steps": 30, "bound_printed": 1e5, "excess_at_start": 4.0, "loss": 1.0}
    rows = [
        {**common, "quantity": "population", "excess": 0.5 + 0.1 * seed, "bound": 2.0, "seed": seed}
        for seed in range(3)
    ]
    rows += [{**row, "quantity": "empirical", "bound": 0.0} for row in rows]
    found = evidence(tmp_path, [Fake("fed_avg")], utility=pd.DataFrame(rows))
    row = card(found, "v3-bound-user-ldp").iloc[0]
    assert (row["verdict"], row["ours"]) == ("reproduced", pytest.approx(-1.4))
    assert card(found, "v3-bound-local-group-dp")["verdict"].tolist() == ["not run"]
    higrad = pd.DataFrame([{**row, "algorithm": "higrad_avg_dp:v3"} for row in rows])
    lemma = card(Evidence(found.runs, found.rounds, table1(), utility=higrad), "v3-training-loss-higrad").iloc[0]
    assert (lemma["verdict"], lemma["ours"]) == ("refuted", pytest.approx(0.6)), "Lemma 4.10 is on the training loss"
    loose = Evidence(found.runs, found.rounds, table1(), utility=pd.DataFrame(rows).assign(excess_at_start=2.0))
    assert card(loose, "v3-bound-user-ldp")["verdict"].tolist() == ["cannot fail"]


def test_stability_and_the_order_of_bounds(tmp_path: Path) -> None:
    common = {"last": True, "synthetic": True, "dataset": "femnist", "subjects": 6, "excess_at_start": 4.0}
    common |= {"items": 90, "steps": 30, "excess": 0.5}
    rows = [
        {**common, "algorithm": name, "seed": seed, "quantity": quantity, "bound_printed": printed + seed}
        | {"loss": 1.0 + 0.01 * seed + (gap if quantity == "population" else 0.0)}
        | {"bound": 3.5 if quantity == "population" else 3.0}
        for name, printed, gap in (("local_group_dp", 5.0, 0.2), ("user_ldp", 9.0, 0.7))
        for quantity in ("population", "empirical")
        for seed in range(3)
    ]
    found = evidence(tmp_path, [Fake("fed_avg")], utility=pd.DataFrame(rows))
    table = card(found, "v3-stability-local-group-dp", "v3-order-of-bounds")
    assert table["verdict"].tolist() == ["reproduced", "reproduced"]
    assert table["ours"].tolist() == [pytest.approx(0.2 - 0.5), pytest.approx(4.0)]
    wide = [{**row, "loss": row["loss"] + (row["quantity"] == "population")} for row in rows]
    worse = Evidence(found.runs, found.rounds, table1(), utility=pd.DataFrame(wide))
    assert card(worse, "v3-stability-local-group-dp")["verdict"].tolist() == ["refuted"]


@pytest.mark.slow
def test_accounting_at_the_papers_settings(tmp_path: Path) -> None:
    """Rounds by hand; UserLDP's noise is Gaussian without sampling, whose μ at (4, 1e-5) is a printed value."""
    ids = (
        "v1-femnist-rounds",
        "v3-shakespeare-rounds",
        "v0-local-rounds",
        "v1-claim-user",
        "v3-claim-user",
        "v3-shakespeare-noise-amplified",
    )
    chosen = [TARGETS[name] for name in ids]
    table = write_paper_accounting(chosen, tmp_path / "accounting.parquet").set_index("target")
    assert table["value"].tolist()[:3] == [25.0, 50.0, 100.0]
    assert table.loc["v3-claim-user", "value"] == pytest.approx(0.858, abs=5e-3), "σ of Theorem 3.11"
    claim = table.loc["v1-claim-user"]
    assert claim["epsilon_published"] == pytest.approx(4.0, rel=1e-3), "calibration stops within that"
    assert claim["epsilon_sound"] > 4.0 and claim["value"] == claim["epsilon_sound"]
    found = Evidence(pd.DataFrame(), pd.DataFrame(), table1(), accounting=table.reset_index())
    verdicts = card(found, *ids)["verdict"]
    assert verdicts.to_dict() == dict(zip(ids, ["reproduced"] * 3 + ["refuted", "reproduced", "differs"], strict=True))


# --- rounds of one local step for equal accuracy ----------------------------------------------------------------

EQUAL = next(target for target in TARGETS.values() if target.metric == "rounds_to_equal_accuracy")
MARKS = (10, 20, 40, 80, 160)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, pd.DataFrame]:
    root = tmp_path_factory.mktemp("marks")
    fakes = [
        Fake("joint_noise", dataset="cifar10", seed=seed, rounds=rounds, local_steps=steps)
        for seed in (0, 1)
        for rounds in MARKS
        for steps in (1, None)
    ]
    collect_scenario(write_runs(root / "runs", fakes), root)
    return pd.read_parquet(root / "runs.parquet"), pd.read_parquet(root / "rounds.parquet")


def with_accuracies(
    tables: tuple[pd.DataFrame, pd.DataFrame], accuracy: Callable[[bool, int, int], float]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The runs with a best accuracy of (is an epoch, rounds, seed), and a worse last round."""
    runs, _ = tables
    rows = []
    for run in runs.itertuples():
        best = accuracy(run.local_steps == 0, int(run.rounds), int(run.seed))
        rows += [{"run_id": run.run_id, "round": 1, "test_accuracy": best}]
        rows += [{"run_id": run.run_id, "round": 2, "test_accuracy": best - 0.1}]
    return runs, pd.DataFrame(rows)


def test_ten_times_the_rounds_are_one_order(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """Accuracy a log10 R + b for one step, and the same at ten times the rounds for an epoch."""
    runs, rounds = with_accuracies(tables, lambda epoch, R, seed: 0.1 * math.log10(R * (10 if epoch else 1)))
    found = measure_rounds(EQUAL, runs, rounds)
    assert found is not None and found.mean == pytest.approx(1.0) and found.seeds == 2
    assert judge(EQUAL, found)[0] is Verdict.NOT_AT_THIS_SCALE  # generated data


def test_marks_that_one_step_does_not_reach_are_left_out(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """Only the epoch's first mark is within one step's reach here, twice its rounds in seed 0, four times in 1."""

    def accuracy(epoch: bool, rounds: int, seed: int) -> float:
        if epoch:
            return (0.3 if seed == 0 else 0.4) if rounds == 10 else 0.9
        return 0.1 + 0.1 * (1 + MARKS.index(rounds))

    found = measure_rounds(EQUAL, *with_accuracies(tables, accuracy))
    assert found is not None and found.mean == pytest.approx((math.log10(2) + math.log10(4)) / 2)
