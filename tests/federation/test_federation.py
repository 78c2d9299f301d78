"""A federation in one process: the simulation's bits, and a silo that lets nobody exceed its people's budget."""

import json
import math
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.commands import refused, run_json, said
from federation.world import ALGORITHMS, Here, World, make_world, proposed
from subjectdp.errors import ConfigError, DataError, PrivacyError, StorageError, WorkerError
from subjectdp.federation.proposal import PLAN, ROUND, pack, unpack
from subjectdp.federation.server import lead
from subjectdp.federation.silo import Budget, RunRecord
from subjectdp.federation.site import load_site
from subjectdp.figures.catalogue import build_figure
from subjectdp.plan.plan import PrivacyUnit
from subjectdp.results.collect import FigureInputs, collect_scenario
from subjectdp.training.records import SECRET

pytestmark = pytest.mark.slow  # each trains a federation


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_federation_gives_the_bits_of_the_simulation(name: str, tmp_path: Path) -> None:
    world = make_world(tmp_path, name)
    silos = world.silos()
    assert world.same_as_simulation(world.lead(silos))
    for silo in silos.values():
        (record,) = silo.silo.budget.records().values()
        assert sorted(record.rounds) == [1, 2, 3] and record.kept == 3


def test_silos_throw_their_own_coins_for_people(tmp_path: Path) -> None:
    """SubjectSampling: not the simulation's bits, since a silo throws no coin for people that it does not know."""
    changes = {"privacy": {"noise_source": "secure"}, "subject": {"sampling_probability": 0.5}}
    world = make_world(tmp_path, "subject_sampling", training={"sampling_fraction": None}, **changes)
    silos = world.silos()
    folder = world.lead(silos)
    assert (folder / "model.safetensors").is_file() and all(silo.said("round 3 answered") for silo in silos.values())


def test_secure_noise_is_made_anew_and_its_size_is_the_plans(tmp_path: Path) -> None:
    world = make_world(tmp_path, "subject_release", privacy={"noise_source": "secure"}, training={"rounds": 1})
    one, other = (world.silo(folder=str(tmp_path / place)).release(world.request()) for place in "ab")
    assert one is not None and other is not None
    difference = (one - other).double().std() / 2**0.5
    assert float(difference) == pytest.approx(world.inputs.plan.silos[0].noise_multiplier, rel=0.1)


def test_no_round_is_repeated_added_or_answered_twice_in_another_way(world: World) -> None:
    silo, first = world.silo(), world.request()
    reply = silo.answer(first)
    assert silo.answer(first) == reply and silo.said("the same bits, no more budget")
    silo = world.silo()  # killed and started again
    assert silo.said("1 of 3 rounds") and silo.answer(first) == reply
    assert silo.refuses(world.request(model=world.model + 1), "no round is repeated")
    assert silo.release(world.request(3)) is not None
    for round_, reason in ((2, "later than 3"), (1, "later than 3"), (4, "1 to 3, the rounds"), (0, "1 to 3")):
        assert silo.refuses(world.request(round_), reason)
    assert silo.rounds == [[1, 3]]


def test_killed_between_ledger_and_release_the_same_request_is_answered_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    silo = world.silo()
    monkeypatch.setattr(silo.silo.budget, "keep_release", killed)
    with pytest.raises(KeyboardInterrupt):
        silo.answer(world.request())
    again = world.silo()
    assert again.release(world.request(model=world.model + 1)) is None
    assert again.release(world.request()) is not None
    for kept in Path(again.site.folder).glob("*.release"):
        kept.unlink()
    assert again.refuses(world.request(), "is gone")


def test_what_is_kept_before_a_kill_and_sent_after_is_not_new(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    silo, write = world.silo(), Budget.write

    def killed(budget: Budget, record: RunRecord, more: Any) -> None:
        if record.kept:
            raise KeyboardInterrupt
        write(budget, record, more)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Budget, "write", killed)
        silo.answer(world.request())
    assert silo.release(world.request()) is not None
    for kept in Path(silo.site.folder).glob("*.release"):
        kept.unlink()
    assert silo.refuses(world.request(), "is gone"), "a second release of the round, with other noise"


SPOILED: dict[str, tuple[dict[str, Any], str]] = {
    "a larger q": ({"run": {"training": {"sampling_fraction": 0.5}}}, "more than the 8.5"),
    "more rounds": ({"run": {"training": {"rounds": 30}}}, "more than the 8.5"),
    "less noise": ({"noise_multipliers": [0.1, 0.1, 0.1]}, "more than the 8.5"),
    "no noise": ({"noise_multipliers": [0.0, 0.0, 0.0]}, "epsilon inf"),
    "no algorithm with noise": ({"run": {"algorithm": {"name": "fed_avg"}}}, "enough for epsilon 8.5"),
    "noise of the seed": ({"run": {"privacy": {"noise_source": "secure"}}}, "reproducible, as this silo's file"),
    "a name that is a path": ({"name": "../../a"}, "proposal.name"),
    "as published": ({"run": {"privacy": {"mode": "as_published"}}}, "sound"),
    "fewer silos a person": ({"run": {"partition": {"silos_per_subject": 1}}}, "at least 2"),
    "fixed batches": (
        {"run": {"training": {"sampling": "fixed_batch_size", "sampling_fraction": None, "batch_size": 9}}},
        "need exact counts",
    ),
    "a trusted server": (
        {"run": {"algorithm": {"name": "central_sub_dp"}, "training": {"local_steps": 1}}},
        "no silo gives its sums away",
    ),
    "another seed, as if it were another run": ({"run": {"seed": 1}}, "was begun with another plan"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_server_that_changes_the_plan_is_refused(what: str, world: World) -> None:
    changes, reason = SPOILED[what]
    silo = world.silo()
    begun = what.startswith("another seed")
    if begun:
        assert silo.release(world.request()) is not None
    assert silo.refuses(world.request(**changes), reason), silo.lines
    assert len(silo.rounds) == begun


UNFIT: dict[str, tuple[str, dict[str, Any], str]] = {
    "joint noise": ("joint_noise", {"joint": {"own_noise_only": False}, "training": {"local_steps": 1}}, "own_noise"),
    "shared noise": ("subject_release", {"subject": {"trust": "secure_aggregation"}}, "joint.own_noise_only: true"),
    "a trusted server": ("subject_release", {"subject": {"trust": "central"}}, "no silo gives its sums away"),
    "weights by what others hold": ("subject_release", {"subject": {"weights": "uniform"}}, "no silo knows"),
    "a common coin": ("subject_release", {"subject": {"sampling_probability": 0.5}}, "throw no common coin"),
    "silos that are drawn": ("local_item_dp", {"training": {"silos_per_round": 2, "silo_choice": "random"}}, "in_turn"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_noise_that_silos_share_needs_a_server_that_sees_their_sum_alone(what: str, tmp_path: Path) -> None:
    """And other plans whose ε would not hold between machines."""
    name, changes, reason = UNFIT[what]
    silo = (world := make_world(tmp_path, name, **changes)).silo()
    assert silo.refuses(world.request(ask=PLAN), reason), silo.lines


def test_silos_in_turn_are_asked_in_their_turn_alone(tmp_path: Path) -> None:
    world = make_world(tmp_path, training={"silos_per_round": 2, "rounds": 4})
    silos = world.silos()
    assert world.same_as_simulation(world.lead(silos))
    assert [silo.rounds for silo in silos.values()] == [[[1, 2, 4]], [[1, 3, 4]], [[2, 3]]]
    assert world.silo(folder=str(tmp_path / "fresh")).refuses(world.request(3), "this silo's turn")


def test_a_second_run_on_the_same_people_counts_on_top(world: World) -> None:
    world.lead()
    second = world.file.model_copy(update={"run": {**world.file.run, "seed": 1}})
    silos = world.silos()
    with pytest.raises(PrivacyError, match="refused the plan"):
        lead(second, Here(silos))
    assert silos[10].said("2 runs on the same people together would give epsilon")
    lead(second, Here(world.silos(epsilon=20.0)))  # the site's owner allows both


def test_people_at_more_silos_than_an_earlier_run_counted_on_are_not_undercounted(tmp_path: Path) -> None:
    world = make_world(tmp_path, "capped_item_dp")
    assert world.silo().release(world.request()) is not None
    another = world.request(name="another", ask=PLAN, run={"partition": {"silos_per_subject": 3}})
    silo = world.silo(epsilon=None, plan=None, silos_per_subject=3)
    assert silo.refuses(another, f"silos_per_subject to be as it was when {world.proposal.name} counted on it")
    assert unpack(world.silo(epsilon=None, plan=None).answer(another))[0] == {"silo": 0}


def test_the_agreed_plan_is_the_only_one(world: World) -> None:
    request = world.request(ask=PLAN)
    assert world.silo(plan="0" * 64).refuses(request, "is not the one that this silo's file names")
    assert unpack(world.silo(plan=world.proposal.digest).answer(request)) == ({"silo": 0}, None)


def test_no_server_tells_each_silo_that_the_others_noise_more(tmp_path: Path) -> None:
    """Plans of epsilon 8.1 each, one for each silo, would give a person at two silos 12.3."""
    world = make_world(tmp_path, "capped_item_dp")
    noise = 0.75 * world.proposal.noise_multipliers[0]
    request = world.request(noise_multipliers=[noise, 1e4, 1e4])
    assert world.silo(plan=None).refuses(request, "may tell each another plan")
    for own in ({"epsilon": None}, {"unit": PrivacyUnit.ITEM, "epsilon": 99.0}, {"silos_per_subject": 1}):
        assert world.silo(plan=None, folder=str(tmp_path / next(iter(own))), **own).release(request) is not None


def test_the_cap_is_enforced_and_said_at_the_silo_alone(tmp_path: Path) -> None:
    world = make_world(tmp_path, "capped_item_dp", partition={"max_items_per_subject": 4})
    silos = world.silos()
    world.lead(silos)
    for silo in silos.values():
        assert silo.said("cap of 4 items a person: ") and silo.said("items of 6 people are left out")


def test_a_damaged_ledger_and_changed_data_stop_everything(world: World) -> None:
    silo = world.silo()
    silo.answer(world.request())
    changed = world.silo()
    changed.silo.data = replace(changed.silo.data, sha256="0" * 64)
    assert changed.refuses(world.request(2), "data have changed")
    (ledger,) = Path(silo.site.folder).glob("*.json")
    ledger.write_text(ledger.read_text().replace('"kept": 1', '"kept": 0'))
    assert silo.refuses(world.request(2), "is damaged")
    with pytest.raises(PrivacyError, match="damaged"):
        world.silo()


def test_an_older_copy_beside_the_ledger_brings_no_round_back(world: World) -> None:
    silo = world.silo()
    silo.answer(world.request())
    (ledger,) = Path(silo.site.folder).glob("*.json")
    shutil.copy(ledger, ledger.with_suffix(".old.json"))  # which was read in its place: round 2 was released twice
    assert silo.refuses(world.request(2), "keep copies elsewhere") and not silo.said("answered")


@pytest.mark.parametrize("content", [b"", b"x" * 40, pack({"ask": "all"}), pack({"proposal": {"name": "a"}})])
def test_hostile_bytes_are_refused_and_end_no_silo(content: bytes, world: World) -> None:
    silo = world.silo()
    assert silo.refuses(content, "refused: ")
    assert silo.refuses(world.request(model=world.model[:-1]), "model of the request")
    assert not silo.rounds, "nothing was released"


def test_a_round_without_an_answer_is_given_up_and_goes_on_with_the_next_start(world: World) -> None:
    silos = world.silos()

    def tired(_: Any, found: dict[int, bytes]) -> dict[int, bytes]:
        if silos[11].said("round 2 answered"):
            found.pop(11, None)  # the reply was lost
            time.sleep(0.1)
        return found

    with pytest.raises(WorkerError, match="Round 2 was given up: no answer of silo 1"):
        lead(world.file.model_copy(update={"wait_minutes": 0.01}), Here(silos, tired))
    folder = world.lead(silos)
    assert silos[11].said("round 2 was asked for again") and world.same_as_simulation(folder)
    other = world.file.model_copy(update={"run": {**world.file.run, "performance": {"physical_batch_size": 7}}})
    with pytest.raises(StorageError, match="holds the finished run, .* no round twice"):  # the model was deleted
        lead(other, Here(silos))
    assert (folder / "model.safetensors").is_file() and (folder / "manifest.json").is_file()


def test_no_secret_of_the_server_is_needed_to_go_on(tmp_path: Path) -> None:
    """Its checkpoints were deleted where the file had lost its mode or owner."""
    world = make_world(tmp_path, privacy={"noise_source": "secure"})
    with pytest.raises(WorkerError, match="Round 1 was given up"):
        lead(world.file.model_copy(update={"wait_minutes": 0.001}), Here({}))
    assert (tmp_path / "results" / "runs").is_dir() and not list(tmp_path.rglob(SECRET))


def test_the_release_of_another_silo_is_not_taken_for_a_silos_own(world: World) -> None:
    def swapped(_: Any, found: dict[int, bytes]) -> dict[int, bytes]:
        of_rounds = {node: reply for node, reply in found.items() if "round" in unpack(reply)[0]}
        return found | dict(zip(of_rounds, reversed(of_rounds.values()), strict=True))

    with pytest.raises(DataError, match="something else than its release"):
        lead(world.file, Here(world.silos(), swapped))


@pytest.mark.parametrize(
    ("ask", "change", "told"),
    [
        (ROUND, lambda facts, found: (facts, found * math.nan), "Silo 0 answered .* numbers that are not finite"),
        (ROUND, lambda facts, found: (facts, found.half()), "something else than its release"),
        (ROUND, lambda facts, found: (facts, found.long()), "something else than its release"),
        (PLAN, lambda facts, _: ({**facts, "silo": "first"}, None), "number of a silo to be a whole number"),
    ],
)
def test_an_answer_of_another_kind_is_refused_by_name(ask: str, change: Any, told: str, world: World) -> None:
    def odd(requests: Any, found: dict[int, bytes]) -> dict[int, bytes]:
        if 10 in requests and unpack(requests[10])[0]["ask"] == ask:
            found[10] = pack(*change(*unpack(found[10])))
        return found

    with pytest.raises(DataError, match=told):
        lead(world.file, Here(world.silos(), odd))


def test_only_releases_and_silo_numbers_leave_a_silo(world: World) -> None:
    said: list[tuple[dict[str, Any], object]] = []

    def listening(_: Any, found: dict[int, bytes]) -> dict[int, bytes]:
        said.extend(unpack(reply) for reply in found.values())
        return found

    folder = lead(world.file, Here(world.silos(), listening))
    assert {key for facts, _ in said for key in facts} == {"silo", "round"}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["partition"]["silo_items"] == [50, 50, 50] and manifest["partition"]["public_constants"]


def test_commands_take_a_federations_run_and_a_silos_ledger(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    silos = world.silos()
    run = (world.lead(silos).name, "--results", world.folder / "results")
    (ledger,) = Path(silos[10].site.folder).glob("*.json")
    assert "What this run gives" in said(capsys, "show", *run)
    for named in (run, (ledger,)):
        assert run_json(capsys, "ledger", *named)[0]["together"] == pytest.approx(8.0, abs=0.1)
        page = said(capsys, "statement", *named)
        assert "each single record" in page and "NOT FOR RELEASE" in page and "noise_source: secure" in page


def test_figures_take_a_federations_run(world: World, tmp_path: Path) -> None:
    """All but those of mini-batches, which the silos keep."""
    folder = world.lead()
    runs = collect_scenario([folder], tmp_path)
    assert runs["subject_guarantee"].tolist() == ["yes"] and runs["train_items"].isna().all()
    inputs = FigureInputs(*(tmp_path / f"{name}.parquet" for name in ("runs", "rounds", "steps")))
    for name in ("figure1_v3", "privacy", "accuracy_privacy", "epsilon_over_rounds"):
        assert build_figure(name, inputs).runs == (folder.name,)
    with pytest.raises(DataError, match="silos of a federation keep theirs"):
        build_figure("figure1", inputs)


def test_items_of_another_kind_are_refused(world: World, tmp_path: Path) -> None:
    table = tmp_path / "leaf-0" / "patients.csv"
    table.write_text("a,b,sick\n1,2,yes\n2,1,no\n")
    site = load_site(world.sites[0])
    data = site.data.model_validate({"source": "table", "path": str(table), "label": "sick"})
    silo = world.silo(data=data)
    assert silo.refuses(world.request(ask=PLAN), "refused: Expected"), silo.lines


@pytest.mark.parametrize(("section", "value"), [("partition", {"distribution": "power"}), ("data", {"subjects": 4})])
def test_what_a_simulation_alone_reads_is_refused(section: str, value: dict[str, Any], tmp_path: Path) -> None:
    world = make_world(tmp_path, **{section: value})
    with pytest.raises(ConfigError, match=f"run.{section}.*left out in a federation"):
        proposed(world.file)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("silos: [{items: 0, subjects: 1}]", r"silos\[0\].items to be a whole number at least 1, got 0"),
        ("silos: [{items: 1, subjects: 1, name: a}, {items: 1, subjects: 1}]", r"Unknown key 'silos\[0\].name'.$"),
        ("silos: []", "a list of 1 or more"),
        ("run: {data: x}", "run.data to be a mapping"),
        ("run: {data: {path: 5}}", "run.data.path to be text"),
        ("run: {performance: x}", "run.performance to be a mapping"),
    ],
)
def test_a_servers_file_is_checked(line: str, message: str, world: World) -> None:
    content = yaml.safe_load(world.server.read_text())
    world.server.write_text(yaml.safe_dump({**content, **yaml.safe_load(line)}))
    with pytest.raises(ConfigError, match=message):
        proposed(world.file)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("epsilon: -1", "epsilon"),
        ("noise: none", "noise"),
        ("silos: 3", "silos"),
        ("data: {source: embedded}", "table"),
        ("data: {source: leaf_json, path: a, subjects: 2}", "data.subjects"),
    ],
)
def test_a_silos_file_is_checked(line: str, message: str, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    changed = {**yaml.safe_load(world.sites[0].read_text()), **yaml.safe_load(line)}
    world.sites[0].write_text(yaml.safe_dump(changed))
    assert message in refused(capsys, "silo", world.sites[0])
