"""The scorecard on made-up runs, sampling, Table 1, the papers' settings: intervals, ε, verdicts and order of rows."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from figures.fake_runs import Fake, collected, grid
from subjectdp.accounting.gaussian import gdp_epsilon
from subjectdp.errors import DataError
from subjectdp.report.paper_accounting import AUDITED, is_accounted, paper_facts, write_paper_accounting
from subjectdp.report.scorecard import COLUMNS, Tables, measure_rounds, scorecard
from subjectdp.report.targets import Measured, Target, Verdict, judge, read_targets, verdict_counts

pytestmark = pytest.mark.slow

FILE = Path(__file__).resolve().parents[2] / "config" / "targets.csv"
TARGETS = {target.id: target for target in read_targets(FILE)}
ALL = ["fed_avg", "local_item_dp", "user_ldp", "local_group_dp", "higrad_avg_dp:v1", "higrad_avg_dp:v3"]
PAPER = (("data", (("source", "upstream"), ("subjects", 3500))),)


def evidence(root: Path, fakes: Sequence[Fake], **more: pd.DataFrame) -> Tables:
    inputs = collected(root, fakes)
    return {"runs": inputs.read_runs(), "rounds": inputs.read_rounds(), "table1": table1(), **more}


def table1() -> pd.DataFrame:
    row = {"local_steps": 10, "parties": 5, "sigma_total": 2.0169, "epsilon": 1.1875, "epsilon_printed": 1.19}
    return pd.DataFrame([{**row, "epsilon_sound": 3.53, "epsilon_lower": 1.50}])


def only(**tables: pd.DataFrame) -> Tables:
    """Tables without runs."""
    return {"runs": pd.DataFrame(), "rounds": pd.DataFrame(), "table1": table1(), **tables}


def card(found: Tables, *ids: str) -> pd.DataFrame:
    return scorecard([TARGETS[name] for name in ids], found).set_index("target")


def at_paper_scale(algorithms: Sequence[str], **more: object) -> list[Fake]:
    """Runs at the papers' FEMNIST setting: LEAF's model, 3,500 subjects, one local epoch, 100 rounds."""
    return grid(algorithms, ["femnist"], [0, 1, 2], rounds=100, synthetic=False, subjects=3500, changes=PAPER, **more)


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    skewed = at_paper_scale(["local_group_dp", "higrad_avg_dp:v1"], alpha=16.0)
    return evidence(tmp_path_factory.mktemp("paper"), [*at_paper_scale(ALL), *skewed])


def test_numbers_at_the_papers_setting_are_means_with_intervals(paper: Tables) -> None:
    row = card(paper, "v1-femnist-local-item").iloc[0]
    runs = paper["runs"][paper["runs"]["label"] == "LocalItemDP"]["final_test_accuracy"] * 100
    half = 4.302652729911275 * np.std(runs, ddof=1) / math.sqrt(3)  # t(0.975, 2) from a printed table
    assert row["ours"] == pytest.approx(runs.mean(), rel=1e-5)
    assert row["high"] - row["ours"] == pytest.approx(half, rel=1e-3)
    assert row["seeds"] == 3
    inside, outside = row["low"] >= 75.96 and row["high"] <= 79.96, row["high"] < 75.96 or row["low"] > 79.96
    assert row["verdict"] == ("reproduced" if inside else "differs" if outside else "not at this scale")
    assert "3,500 subjects" in row["scale"] and "100 rounds of 1 local epoch" in row["scale"]


def test_differences_are_in_per_cent_of_the_other_and_paired_by_seed(paper: Tables) -> None:
    row = card(paper, "v1-femnist-item-cost").iloc[0]
    by_seed = paper["runs"].set_index(["label", "seed"])["final_test_accuracy"]
    ratios = [100 * (by_seed["LocalItemDP", seed] / by_seed["FedAvg", seed] - 1) for seed in range(3)]
    assert row["ours"] == pytest.approx(np.mean(ratios), rel=1e-5)
    assert row["unit"] == "% of the other"


def test_an_order_is_decided_by_the_closest_competitor(paper: Tables) -> None:
    table = card(paper, "v1-femnist-fed-avg-best", "v3-femnist-group-first", "v1-femnist-user-loss")
    by_label = paper["runs"].groupby("label")["final_test_accuracy"].mean() * 100
    best = table.loc["v1-femnist-fed-avg-best"]
    assert best["ours"] == pytest.approx(by_label["FedAvg"] - by_label["LocalItemDP"], abs=1e-3)
    assert best["verdict"] == "reproduced"
    assert table["unit"].tolist() == ["points ahead", "points ahead", "nats ahead"]
    assert table.loc["v1-femnist-user-loss", "verdict"] == "reproduced"


def test_the_epsilon_of_a_row_are_those_of_its_runs(paper: Tables) -> None:
    table = card(paper, "v1-femnist-higrad", "v1-femnist-local-item", "v1-alpha-16-group")
    assert table["epsilon_as_published"].tolist() == [4.0, 4.0, 4.0]
    assert table.loc["v1-femnist-higrad", "epsilon_sound"] == pytest.approx(144.6)
    assert table.loc["v1-femnist-local-item", "epsilon_sound"] == pytest.approx(3.99), "claimed for an item"
    assert table.loc["v1-femnist-local-item", "epsilon_sound_subject"] == pytest.approx(231.0)
    assert math.isnan(table.loc["v1-alpha-16-group", "epsilon_sound"]), "none can be stated"
    assert table["subject_guarantee"].tolist() == ["conditional", "conditional", "no"], "no cap is enforced"


def test_subjects_that_few_silos_may_hold_are_not_the_papers(tmp_path: Path) -> None:
    few = (("partition", {"silos_per_subject": 1}),)
    found = evidence(tmp_path, grid(ALL, ["femnist"], [0, 1], rounds=12, synthetic=False, changes=few))
    assert card(found, "v1-femnist-fed-avg-best")["verdict"].tolist() == ["not run"]


@pytest.mark.parametrize("own", [("partition", {"max_items_per_subject": 8}), ("training", {"evaluation_items": 500})])
def test_caps_and_a_part_of_the_test_items_are_not_the_papers(own: tuple[str, Any], tmp_path: Path) -> None:
    fakes = at_paper_scale(["local_item_dp"])
    changed = [replace(fake, changes=(*PAPER, own)) for fake in fakes]
    found = [
        card(evidence(tmp_path / name, runs), "v1-femnist-local-item") for name, runs in (("a", fakes), ("b", changed))
    ]
    assert [each["reason"].iloc[0] == "not the paper's setting" for each in found] == [False, True]


def test_small_real_data_decide_orders_and_nothing_else(tmp_path: Path) -> None:
    found = evidence(tmp_path, grid(ALL, ["femnist"], [0, 1, 2], rounds=12, synthetic=False))
    table = card(found, "v1-femnist-local-item", "v1-femnist-item-cost", "v1-femnist-fed-avg-best", "v3-femnist-items")
    assert table["verdict"].tolist() == ["not at this scale", "not at this scale", "reproduced", "not at this scale"]
    assert table.loc["v3-femnist-items", "ours"] == 50.0


def test_generated_data_decide_nothing(tmp_path: Path) -> None:
    found = evidence(tmp_path, grid(ALL, ["femnist", "shakespeare"], [0, 1], rounds=12))
    table = scorecard(list(TARGETS.values()), found)
    trained = table[table["seeds"] > 0]
    assert len(trained) > 20
    assert set(trained["verdict"]) == {"not at this scale"} and set(trained["reason"]) == {"generated data"}


def test_more_local_steps_are_compared_at_equal_rounds(tmp_path: Path) -> None:
    fakes = [Fake("joint_noise", seed=s, rounds=5, local_steps=k, synthetic=False) for s in (0, 1, 2) for k in (1, 10)]
    other = [Fake("joint_noise", seed=s, rounds=9, local_steps=1, synthetic=False) for s in (0, 1, 2)]
    table = card(evidence(tmp_path / "a", [*fakes, *other]), "joint-femnist-local-steps")
    assert table["verdict"].tolist() == ["reproduced"]
    assert all(f"5 rounds of {steps}" in table["scale"].iloc[0] for steps in ("10 local steps", "1 local step"))
    alone = [Fake("joint_noise", rounds=5, local_steps=10, synthetic=False)]
    assert card(evidence(tmp_path / "b", alone), "joint-femnist-local-steps")["verdict"].tolist() == ["not run"]


def test_accuracy_at_equal_rounds_reads_the_others_curve(paper: Tables) -> None:
    row = card(paper, "v1-femnist-higrad-competitive").iloc[0]
    runs = paper["runs"].query("alpha == 1").set_index(["label", "seed"])
    rounds = paper["rounds"].set_index(["run_id", "round"])["test_accuracy"]
    ours = [runs.loc[("HiGradAvgDP (v1)", seed), "final_test_accuracy"] for seed in range(3)]
    others = [rounds[runs.loc[("LocalItemDP", seed), "run_id"], 25] for seed in range(3)]
    assert row["ours"] == pytest.approx(np.mean(100 * (np.divide(ours, others) - 1)), rel=1e-5)


def test_sampling_and_table_1_are_judged_without_runs() -> None:
    generator = np.random.default_rng(0)
    rows = pd.DataFrame({"setting": "femnist", "silo": 0, "step": range(4000), "items": 512})
    rows["subjects"] = generator.normal(476, 5, 4000).round()
    rows["largest_group"] = generator.choice([2, 3, 4], 4000, p=[0.2, 0.7, 0.1])
    found = only(statistics=rows)
    table = card(found, "v1-femnist-subjects-per-batch", "v1-femnist-group-size", "v1-small-group-size")
    assert table["verdict"].tolist() == ["reproduced", "reproduced", "not run"]
    half = 1.96 * rows["subjects"].std() / math.sqrt(4000)
    assert table.iloc[0]["high"] - table.iloc[0]["low"] == pytest.approx(2 * half, rel=0.01)
    assert table.loc["v1-femnist-group-size", "note"] == "in 69.2 % of the mini-batches"
    joint = card(found, "joint-table1-10-5-sigma", "joint-table1-10-5-epsilon", "joint-table1-50-5-sigma")
    assert joint["verdict"].tolist() == ["reproduced", "reproduced", "not run"]
    assert joint.loc["joint-table1-10-5-epsilon", "epsilon_sound"] == 3.53
    off = only(statistics=rows.assign(subjects=rows["subjects"] + 20))
    assert card(off, "v1-femnist-subjects-per-batch")["verdict"].tolist() == ["differs"]


def test_what_is_not_run_comes_last_and_every_verdict_is_counted(paper: Tables) -> None:
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


def test_a_joint_claim_is_refuted_by_the_counterexample_alone() -> None:
    for lower, verdict in ((1.5, "refuted"), (0.5, "not provable")):
        found = only(table1=table1().assign(parties=10, epsilon_lower=lower))
        assert card(found, "joint-claim-10")["verdict"].tolist() == [verdict]


LOSSES = {"last": True, "synthetic": True, "dataset": "femnist", "subjects": 6, "items": 90, "steps": 30}


def test_a_bound_is_judged_by_the_population_loss() -> None:
    common = {**LOSSES, "algorithm": "user_ldp", "bound_printed": 1e5, "excess_at_start": 4.0, "loss": 1.0}
    rows = [{**common, "quantity": "population", "excess": 0.5 + 0.1 * n, "bound": 2.0, "seed": n} for n in range(3)]
    table = pd.DataFrame(rows + [{**row, "quantity": "empirical", "bound": 0.0} for row in rows])
    found = card(only(utility=table), "v3-bound-user-ldp", "v3-bound-local-group-dp")
    assert found["verdict"].tolist() == ["reproduced", "not run"] and found["ours"].iloc[0] == pytest.approx(-1.4)
    higrad = only(utility=table.assign(algorithm="higrad_avg_dp:v3"))
    lemma = card(higrad, "v3-training-loss-higrad").iloc[0]
    assert (lemma["verdict"], lemma["ours"]) == ("refuted", pytest.approx(0.6)), "Lemma 4.10 is on the training loss"
    loose = only(utility=table.assign(excess_at_start=2.0))
    assert card(loose, "v3-bound-user-ldp")["verdict"].tolist() == ["cannot fail"]


def test_stability_and_the_order_of_bounds() -> None:
    rows = [
        {**LOSSES, "excess_at_start": 4.0, "excess": 0.5, "algorithm": name, "seed": seed, "quantity": quantity}
        | {"loss": 1.0 + 0.01 * seed + (gap if quantity == "population" else 0.0), "bound_printed": printed + seed}
        | {"bound": 3.5 if quantity == "population" else 3.0}
        for name, printed, gap in (("local_group_dp", 5.0, 0.2), ("user_ldp", 9.0, 0.7), ("higrad_avg_dp:v3", 8.0, 0.7))
        for quantity in ("population", "empirical")
        for seed in range(3)
    ]
    table = pd.DataFrame(rows)
    found = card(only(utility=table), "v3-stability-local-group-dp", "v3-order-of-bounds", "v3-order-of-bounds-higrad")
    assert found["verdict"].tolist() == ["reproduced"] * 3
    assert found["ours"].tolist() == pytest.approx([0.2 - 0.5, 4.0, 3.0])
    wide = only(utility=table.assign(loss=table["loss"] + (table["quantity"] == "population")))
    assert card(wide, "v3-stability-local-group-dp")["verdict"].tolist() == ["refuted"]


def test_accounting_at_the_papers_settings(tmp_path: Path) -> None:
    """Rounds by hand; UserLDP's noise is Gaussian without sampling, whose μ at (4, 1e-5) is a printed value."""
    ids = ["v1-femnist-rounds", "v3-shakespeare-rounds", "v0-local-rounds", "v1-claim-user", "v3-claim-user"]
    ids += ["v3-claim-user-local", *(f"v3-shakespeare-noise-amplified{k}" for k in ("", "-expected"))]
    chosen = [TARGETS[name] for name in ids]
    table = write_paper_accounting(chosen, tmp_path / "accounting.parquet").set_index("target")
    wanted = [25.0, 50.0, 100.0, 0.858, gdp_epsilon(2 * math.sqrt(100 * 50) / 182.672, 1e-5), 2.18]  # by hand
    assert table.loc[[*ids[:3], *ids[4:6], ids[-1]], "value"].tolist() == pytest.approx(wanted, abs=5e-3)
    claim = table.loc["v1-claim-user"]
    assert claim["epsilon_published"] == pytest.approx(4.0, rel=1e-3), "calibration stops within that"
    any_two = gdp_epsilon(2 * math.sqrt(100 * 50) / 81.89, 1e-5)  # 2C in all steps, under Opacus' noise
    assert claim["value"] == claim["epsilon_sound"] == pytest.approx(any_two, abs=0.01)
    assert claim["epsilon_lower"] == pytest.approx(any_two, abs=0.01)
    assert "with that by PLD: ε 9.085" in claim["note"], "which asks for less noise"
    verdicts = card(only(accounting=table.reset_index()), *ids)["verdict"]
    assert verdicts[ids].tolist() == ["reproduced"] * 3 + ["refuted", *["reproduced"] * 2, "differs", "reproduced"]


# Rounds of one local step for equal accuracy

EQUAL = next(target for target in TARGETS.values() if target.metric == "rounds_to_equal_accuracy")
MARKS = (10, 20, 40, 80, 160)


@pytest.fixture(scope="module")
def by_rounds(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    places = [(seed, rounds, steps) for seed in (0, 1) for rounds in MARKS for steps in (1, None)]
    fakes = [Fake("joint_noise", "cifar10", seed=s, rounds=r, local_steps=k) for s, r, k in places]
    return evidence(tmp_path_factory.mktemp("marks"), fakes)["runs"]


def measured(runs: pd.DataFrame, accuracy: Callable[[bool, int, int], float]) -> Measured | None:
    """With a best accuracy of (is an epoch, rounds, seed) in round 1, and a worse one in the last round."""
    rows = []
    for run in runs.itertuples():
        best = accuracy(run.local_steps == 0, int(run.rounds), int(run.seed))
        rows += [{"run_id": run.run_id, "round": n, "test_accuracy": a} for n, a in ((1, best), (2, best - 0.1))]
    return measure_rounds(EQUAL, runs, pd.DataFrame(rows))


def test_ten_times_the_rounds_are_one_order(by_rounds: pd.DataFrame) -> None:
    """Accuracy a log10 R + b for one step, and the same at ten times the rounds for an epoch."""
    found = measured(by_rounds, lambda epoch, R, seed: 0.1 * math.log10(R * (10 if epoch else 1)))
    assert found is not None and found.mean == pytest.approx(1.0) and found.seeds == 2
    assert judge(EQUAL, found)[0] is Verdict.NOT_AT_THIS_SCALE  # generated data


def test_rounds_of_runs_at_another_epsilon_are_not_the_claims(by_rounds: pd.DataFrame) -> None:
    looser = by_rounds.assign(run_id=by_rounds["run_id"] + "x", epsilon=8.0)
    runs = pd.concat([by_rounds.assign(epsilon=1.0), looser])
    places = {run.run_id: (run.local_steps == 0, int(run.rounds)) for run in runs.itertuples()}
    lucky = {run: 0.0 if epoch or run[-1] != "x" else 0.9 for run, (epoch, _) in places.items()}
    best = {run: lucky[run] + 0.1 * math.log10(R * (10 if epoch else 1)) for run, (epoch, R) in places.items()}
    found = measure_rounds(EQUAL, runs, pd.DataFrame({"run_id": best.keys(), "test_accuracy": best.values()}))
    assert found is not None and found.mean == pytest.approx(1.0)


def test_marks_that_one_step_does_not_reach_are_left_out(by_rounds: pd.DataFrame) -> None:
    """Only the epoch's first mark is within one step's reach here, twice its rounds in seed 0, four times in 1."""

    def accuracy(epoch: bool, rounds: int, seed: int) -> float:
        if epoch:
            return (0.3 if seed == 0 else 0.4) if rounds == 10 else 0.9
        return 0.1 + 0.1 * (1 + MARKS.index(rounds))

    found = measured(by_rounds, accuracy)
    assert found is not None and found.mean == pytest.approx((math.log10(2) + math.log10(4)) / 2)


# Accounting at the papers' own settings


def test_the_papers_federation_is_theirs() -> None:
    facts = paper_facts(TARGETS["v1-claim-user"].setting)
    assert sum(facts.items) == 3500 * 145 and len(facts.items) == 16
    assert not facts.cap_enforced and facts.silos_per_subject == 16
    assert all(145 / 16 < largest < 30 for largest in facts.largest_subject)


def test_what_accounting_cannot_answer_is_refused(tmp_path: Path) -> None:
    joint = TARGETS["joint-table1-1-1-epsilon"]
    assert not is_accounted(joint)
    with pytest.raises(DataError, match="accounting"):
        write_paper_accounting([joint], tmp_path / "a.parquet")


def test_the_bounds_of_the_audit_are_those_of_its_page() -> None:
    page = (FILE.parents[1] / "docs" / "findings.md").read_text(encoding="utf-8")
    for name, bound in AUDITED.items():
        assert bound > 4
        label = {"local_group_dp": "LocalGroupDP", "higrad_avg_dp:v3": "HiGradAvgDP v3"}[name]
        assert re.search(rf"^\| {label}, as published.* \| \*\*{bound}\*\* \|$", page, re.MULTILINE), name
