"""Rounds of simulators: what is said without their packages, how blocks are measured, what a client trains."""

from __future__ import annotations

import pytest
import torch

from benchmarks import goals, light_round, simulators, suite
from benchmarks.round_loop import SILOS, federation_of
from benchmarks.simulators import Simulator, Work, time_simulators
from benchmarks.tables import Table, print_table
from benchmarks.thresholds import Verdict
from benchmarks.timing import Outcome

PEERS = ["flower_opacus", "pfl", "pfl_opacus"]


@pytest.fixture
def small(monkeypatch):
    """Two steps of a round on few items."""
    monkeypatch.setattr(light_round, "STEPS", 2)
    monkeypatch.setattr(light_round, "ITEMS", 20)


def judged(table: Table) -> dict[str, dict]:
    found = goals.judge([g for g in goals.read_goals("full") if g["workload"] == "simulators"], [table])
    return {goal["goal"].rpartition(" than ")[2]: goal for goal in found}


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_without_the_packages_the_peers_are_skipped_and_their_goals_not_judged(monkeypatch, capsys):
    monkeypatch.setattr(simulators, "find_spec", lambda package: None)
    outcomes = time_simulators(32, 3)
    assert [name for name, outcome in outcomes.items() if outcome.status == "skipped"] == PEERS
    ours = outcomes["subjectdp_round"]
    assert (ours.status, len(ours.wall), ours.cpu) == ("ok", 3, [])
    table = Table("simulators", 512, "subjectdp_round", outcomes, by_wall=True)
    print_table(table)
    printed = capsys.readouterr().out
    assert "skipped: flwr and ray not installed: see benchmarks/simulators.txt" in printed
    assert "skipped: pfl not installed" in printed
    assert {goal["verdict"] for goal in judged(table).values()} == {Verdict.NOT_RUN}


@pytest.mark.usefixtures("small")
def test_a_block_is_its_rounds_median_and_a_peer_that_fails_has_no_times(monkeypatch):
    blocks: list[str] = []

    def fails_once_timed(work: Work) -> dict[str, list[float]]:
        blocks.append("fails")
        if blocks.count("fails") == 2:
            raise RuntimeError("2 of 4 clients answered")
        return {"fails": [1.0]}

    def rounds(work: Work) -> dict[str, list[float]]:
        blocks.append("base")
        return {"base": [3.0, 1.0, 2.0], "base_part": [0.5]}

    monkeypatch.setattr(simulators, "federation_of", lambda *_: None)
    monkeypatch.setattr(simulators, "SIMULATORS", {"base": Simulator(rounds), "fails": Simulator(fails_once_timed)})
    outcomes = time_simulators(32, 4)
    assert outcomes["base"].wall == [2.0] * 4 and outcomes["base_part"].wall == [0.5] * 4
    assert (outcomes["fails"].status, outcomes["fails"].wall) == ("skipped", [])
    assert outcomes["fails"].note == "RuntimeError: 2 of 4 clients answered"
    assert blocks.count("fails") == 2


def test_ratios_are_of_wall_times_and_goals_read_them(monkeypatch):
    outcomes = {"subjectdp_round": Outcome(wall=[1.0] * 5), "flower_opacus": Outcome(wall=[9.0, 8, 7, 6, 10])}
    outcomes["pfl_opacus"] = Outcome(wall=[1.1] * 5)
    monkeypatch.setattr(suite, "in_worker", lambda malloc, threads, task, batch, blocks: outcomes)
    (table,) = suite.measure(suite.Options(("simulators",), rounds=9))
    assert (table.batch, table.clock, table.base) == (512, "wall", "subjectdp_round")
    found = judged(table)
    flower = found["Flower with Opacus"]
    assert (flower["reached"], flower["low"], flower["high"]) == (8.0, 7.0, 9.0)
    assert flower["verdict"] is Verdict.MET and found["pfl-research with Opacus"]["verdict"] is Verdict.MISSED


@pytest.mark.parametrize(("rounds", "blocks"), [(2, 2), (9, 5)])
def test_rounds_are_blocks_of_which_there_are_few(monkeypatch, rounds, blocks):
    asked = []
    monkeypatch.setattr(suite, "in_worker", lambda *arguments: asked.append(arguments) or {})
    list(suite.measure(suite.Options(("simulators",), rounds=rounds)))
    assert asked == [("tuned", 1, time_simulators, 512, blocks)]


def test_the_warm_up_is_not_timed(monkeypatch):
    ends = [0.0, 100.0, 150.0, *[150.0 + number for number in range(1, simulators.ROUNDS + 1)]]
    assert simulators._timed(ends) == [1.0] * simulators.ROUNDS


@pytest.mark.slow
def test_a_silos_opacus_steps_start_at_the_global_model_and_move_it(tmp_path):
    federation = federation_of(tmp_path, light_round.MODEL, 32, 2, 20)
    silos = list(light_round.opacus_silos(federation, 32, "ghost"))
    start = torch.randn_like(federation.engine.flat.vector)
    assert len(silos) == SILOS
    assert torch.equal(light_round.opacus_steps(silos[0], start, 0).flatten(), start)
    trained = light_round.opacus_steps(silos[0], start, 2).flatten()
    assert 0 < float((trained - start).norm()) < 0.1 * float(start.norm())
    assert not torch.equal(federation.engine.flat.vector, start), "the project's own weights are left alone"


@pytest.mark.long
@pytest.mark.usefixtures("small")
def test_the_peers_themselves_where_they_are_installed(monkeypatch):
    pytest.importorskip("flwr")
    pytest.importorskip("pfl")
    monkeypatch.setattr(simulators, "ROUNDS", 2)
    outcomes = time_simulators(32, 1)
    assert {outcome.status for outcome in outcomes.values()} == {"ok"}, outcomes
    assert outcomes["flower_opacus_clients"].wall[0] < outcomes["flower_opacus"].wall[0]
