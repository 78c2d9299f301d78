"""A run that was stopped ends as if it had not been: model, mini-batches, metrics, ε; what no run may go on from."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from subjectdp.errors import StorageError
from subjectdp.io.job_log import Stopped, StopRequest
from subjectdp.training import records
from subjectdp.training import run as run_module
from subjectdp.training.records import Checkpoints
from subjectdp.training.run import CHECKPOINTS
from training import small_world
from training.small_world import outcome, resumed_after

ROUNDS, STEPS = 5, 6  # local steps: two at each of three silos
STATEMENTS = run_module._privacy
UNDISTURBED: dict[str, dict[str, Any]] = {}  # by what changes the settings
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_statements")]


class World:
    """A data set and partition of all tests, and a test's own runs on it."""

    def __init__(self, shared: Path, name: str) -> None:
        self.shared, self.folder = shared, shared / name
        self.lines: list[str] = []

    def train(
        self, name: str, report: Callable[[str], None] = lambda line: None, every: bool = True, **changes: Any
    ) -> Path:
        self.lines = []

        def both(line: str) -> None:
            self.lines.append(line)
            report(line)

        return small_world.train(self.shared, f"{self.folder.name}/{name}", settings(every, **changes), both)

    def undisturbed(self, **changes: Any) -> dict[str, Any]:
        """What a run that nothing stops ends with, the same for every test."""
        if (key := repr(changes)) not in UNDISTURBED:
            folder = self.train("undisturbed", every=False, **changes)
            assert resumed_after(folder) == []
            UNDISTURBED[key] = outcome(folder)
        return UNDISTURBED[key]

    def killed(self, name: str, round_: int, **changes: Any) -> None:
        small_world.killed(round_, lambda report: self.train(name, report, **changes))


def settings(every: bool, **changes: Any) -> dict[str, Any]:
    training = {"rounds": ROUNDS, "batch_size": 8, "local_steps": 2, **changes.pop("training", {})}
    performance = {"device": "cpu", "checkpoint_minutes": 0 if every else 1e6}
    performance |= changes.pop("performance", {})
    return small_world.config(training=training, performance=performance, **changes)


@pytest.fixture(autouse=True)
def one_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with secure noise are comparable here: they get the same secret."""
    monkeypatch.setattr(records.secrets, "token_bytes", lambda size: bytes(range(1, size + 1)))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


@pytest.fixture
def world(shared: Path) -> World:
    return World(shared, f"test{len(list(shared.iterdir()))}")


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "adam in the centre": {
        "algorithm": "central_sub_dp",
        "training": {"local_steps": 1, "optimizer": {"name": "adam", "learning_rate": 0.01}},
    },
    "momentum in the centre, sparse evaluation": {
        "algorithm": "central_sub_dp",
        "training": {"local_steps": 1, "evaluate_every": 2, "optimizer": {"name": "momentum"}},
        "privacy": {"mode": "sound"},
    },
    "an average over rounds": {"training": {"averaged_rounds": 0.5}},
    "secure noise": {"privacy": {"noise_source": "secure"}},
    "subjects of a trusted server": {
        "algorithm": "subject_release",
        "partition": {"max_items_per_subject": None},
        "privacy": {"mode": "sound"},
        "subject": {"trust": "central", "weights": "proportional"},
        "training": {"local_steps": None, "optimizer": {"name": "momentum"}},
    },
    "updates of subjects": {
        "algorithm": "uldp_fl",
        "partition": {"max_items_per_subject": None},
        "privacy": {"mode": "sound"},
        "training": {"local_steps": 2, "optimizer": {"name": "momentum"}},
    },
    "integer noise": {
        "algorithm": "joint_noise",
        "joint": {"noise": "skellam"},
        "privacy": {"accountant": "rdp"},
        "training": {"local_steps": 1},
    },
}


@pytest.mark.long
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_a_run_killed_twice_ends_bit_identical(world: World, changes: dict[str, Any]) -> None:
    world.killed("killed", 2, **changes)
    world.killed("killed", 4, **changes)
    folder = world.train("killed", **changes)
    assert outcome(folder) == world.undisturbed(**changes)
    rounds = json.loads((folder / "manifest.json").read_text())["rounds_executed"]
    assert rounds == ROUNDS
    # sparse evaluation: the report that kills comes with the second and fourth round all the same
    assert resumed_after(folder) == [1, 3]
    assert not (folder / "checkpoints").exists() and not (folder / ".lock").exists()


@pytest.mark.long
def test_a_run_killed_once_states_the_same_epsilon_and_another_seed_ends_otherwise(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_privacy", STATEMENTS)
    undisturbed = outcome(world.train("undisturbed", every=False))
    world.killed("killed", 3)
    folder = world.train("killed")
    privacy = json.loads((folder / "manifest.json").read_text())["privacy"]
    assert privacy["sound"]["item"]["epsilon"] > 0 and outcome(folder) == undisturbed
    other = outcome(world.train("other", seed=1))
    assert all(other[part] != undisturbed[part] for part in other)


def test_a_signal_between_rounds_makes_a_last_checkpoint(world: World) -> None:
    with pytest.raises(Stopped, match="checkpoint after round 3 written; start again to go on") as stopped:
        world.train("stopped", small_world.at_round(3, lambda: os.kill(os.getpid(), signal.SIGINT)), every=False)
    assert stopped.value.exit_status == 128 + signal.SIGINT
    assert not (world.folder / "stopped/manifest.json").exists()
    folder = world.train("stopped", every=False)
    assert resumed_after(folder) == [3] and outcome(folder) == world.undisturbed()


def signal_at_check(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """SIGTERM comes when the training asks for the ``number``-th time whether one has come; returns the questions."""
    asked: list[int] = []
    check = StopRequest.check

    def ask(self: StopRequest) -> None:
        asked.append(len(asked) + 1)
        if len(asked) == number:
            os.kill(os.getpid(), signal.SIGTERM)
        check(self)

    monkeypatch.setattr(StopRequest, "check", ask)
    return asked


def test_a_signal_in_a_round_waits_for_the_local_step_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        asked = signal_at_check(patch, 0)
        undisturbed = world.train("undisturbed", every=False)
        each_round, rest = divmod(len(asked), ROUNDS)
        assert rest == 0 and each_round > STEPS, "it asks after every local step and every round"
    with monkeypatch.context() as patch:
        asked = signal_at_check(patch, 2 * each_round + 2)
        with pytest.raises(Stopped, match="checkpoint after round 2 written"):
            world.train("stopped", every=False)
        assert len(asked) == 2 * each_round + 2, "the signal is obeyed at once"
    folder = world.train("stopped", every=False)
    assert resumed_after(folder) == [2] and outcome(folder) == outcome(undisturbed)


def test_a_signal_in_the_first_round_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    signal_at_check(monkeypatch, 1)
    with pytest.raises(Stopped, match="nothing to keep"):
        world.train("stopped")
    assert not (world.folder / "stopped/checkpoints").exists()


def test_a_signal_while_the_results_are_written_loses_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write = run_module.Recorder.write

    def interrupted(recorder: run_module.Recorder, folder: Path) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        write(recorder, folder)

    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as changed:
        changed.setattr(run_module.Recorder, "write", interrupted)
        stopped = world.train("stopped", every=False)
    assert signal.getsignal(signal.SIGTERM) == before, "as it was, also after a signal"
    assert outcome(stopped) == world.undisturbed()


def last_two(world: World) -> tuple[Path, Path]:
    files = sorted((world.folder / "run/checkpoints").glob("*.safetensors"))
    assert [file.name for file in files] == ["round-0000002.safetensors", "round-0000003.safetensors"]
    described = (world.folder / "run/checkpoints").glob("*.json")
    assert sorted(file.stem for file in described) == [file.stem for file in files]
    return files[0], files[1]


def change(file: Path, edit: Callable[[bytes], bytes]) -> None:
    file.write_bytes(edit(file.read_bytes()))


def flip_a_bit(file: Path) -> None:
    change(file, lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])


def description(edit: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda file: change(file.with_suffix(".json"), edit)


def wrong_metric(text: bytes) -> bytes:
    record = json.loads(text)
    next(cell for cell in record["rounds"][0] if cell[0] == "test_accuracy")[1] += 0.25
    return json.dumps(record).encode()


DAMAGE = {
    "truncated": (lambda file: change(file, lambda content: content[:-7]), "truncated or was changed"),
    "a bit flipped": (flip_a_bit, "truncated or was changed"),
    "empty": (lambda file: change(file, lambda content: b""), "truncated or was changed"),
    "removed": (Path.unlink, "cannot be read"),
    "half a description": (description(lambda text: text[:-7]), "missing or damaged"),
    "another round in the description": (description(lambda t: t.replace(b'"round": 3', b'"round": 2')), "was changed"),
    "another accuracy in the description": (description(wrong_metric), "was changed"),
    "another round's description": (
        lambda file: shutil.copy(file.with_name("round-0000002.json"), file.with_suffix(".json")),
        "describes round 2",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("damage", "reason"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_the_previous_one_used(
    world: World, damage: Callable[[Path], object], reason: str
) -> None:
    world.killed("run", 4)
    damage(last_two(world)[1])
    folder = world.train("run")
    refusals = [line for line in world.lines if line.startswith("checkpoint refused: ")]
    assert len(refusals) == 1 and reason in refusals[0] and "round-0000003" in refusals[0]
    assert resumed_after(folder) == [2] and outcome(folder) == world.undisturbed()


def test_two_damaged_checkpoints_mean_a_new_start(world: World) -> None:
    world.killed("run", 4)
    for file in last_two(world):
        flip_a_bit(file)
    folder = world.train("run")
    assert sum("refused" in line for line in world.lines) == 2
    assert resumed_after(folder) == [] and outcome(folder) == world.undisturbed()


def test_a_checkpoint_of_other_settings_is_refused(world: World) -> None:
    world.killed("run", 3)
    folder = world.train("run", seed=1)
    assert any("refused" in line and "belongs to another run" in line for line in world.lines)
    assert resumed_after(folder) == [] and outcome(folder) == world.undisturbed(seed=1)


def test_a_checkpoint_of_other_data_code_or_versions_is_refused(world: World) -> None:
    world.killed("run", 3)
    identity = json.loads((world.folder / "run/checkpoints/round-0000002.json").read_text())["identity"]
    facts = {"run_id", "config", "plan", "data", "partition", "code", "noise", "torch", "numpy", "device"}
    assert set(identity) == facts and all(identity.values())
    lines: list[str] = []
    same = Checkpoints(world.folder / "run/checkpoints", identity, report=lines.append)
    assert same.latest() is not None and lines == []
    for fact in facts:
        other = Checkpoints(same.folder, {**identity, fact: "mine"}, report=lines.append)
        assert other.latest() is None
        assert f"{fact} {identity[fact]!r} instead of 'mine'" in lines[-1]
    assert len(lines) == 2 * len(facts)
    assert Checkpoints(same.folder, {**identity, "more": "1"}, report=lines.append).latest() is None
    assert Checkpoints(same.folder, {"run_id": identity["run_id"]}, report=lines.append).latest() is None


def test_settings_of_speed_and_another_place_keep_the_checkpoint(world: World) -> None:
    world.killed("run", 3)
    (world.folder / "run").rename(world.folder / "moved")
    folder = world.train("moved", performance={"checkpoint_minutes": 5})
    assert resumed_after(folder) == [2]


def test_checkpoints_come_by_minutes_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(records.time, "monotonic", lambda: now[0])
    saved: list[int] = []
    monkeypatch.setattr(records.Checkpoints, "_write", lambda self, snapshot: saved.append(snapshot.round))

    def a_minute_later(line: str) -> None:
        now[0] += 60.0

    world.train("run", a_minute_later, every=False, performance={"checkpoint_minutes": 2, "device": "cpu"})
    assert saved == [2, 4]


def test_a_checkpoint_that_cannot_be_written_does_not_end_a_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise StorageError(f"{path} cannot be written: the disk is full.")

    monkeypatch.setattr(records, "write_bytes", full)
    folder = world.train("run")
    assert sum("no checkpoint after round" in line and "full" in line for line in world.lines) == ROUNDS - 1
    assert (folder / "manifest.json").exists()


def test_a_finished_run_is_not_trained_again_when_its_manifest_was_deleted(world: World) -> None:
    folder = world.train("run")
    before = outcome(folder)
    (folder / CHECKPOINTS).mkdir()  # left by a kill right after the manifest
    (folder / "manifest.json").unlink()
    world.train("run")
    (line,) = world.lines
    assert "was finished by an earlier or another attempt" in line
    assert outcome(folder) == before and not (folder / CHECKPOINTS).exists()


@pytest.mark.long
@pytest.mark.parametrize("name", ["steps.parquet", "model.safetensors", "finished.json"])
def test_a_finished_run_that_was_damaged_is_trained_again(world: World, name: str) -> None:
    folder = world.train("run")
    before = outcome(folder)
    (folder / "manifest.json").unlink()
    content = bytearray((folder / name).read_bytes())
    place = content.rindex(b"true") if name == "finished.json" else len(content) // 2
    content[place : place + 4] = b"null"
    (folder / name).write_bytes(content)
    world.train("run")
    assert sum(" round " in line for line in world.lines) == ROUNDS
    assert outcome(folder) == before


def test_what_an_earlier_attempt_left_half_goes_away(world: World) -> None:
    folder = world.train("run")
    before = outcome(folder)
    shutil.copy(folder / "steps.parquet", folder / ".steps.abc.tmp.parquet")
    (folder / "rounds.parquet").write_bytes(b"half")
    world.train("run")
    assert outcome(folder) == before and not list(folder.glob(".*.tmp*"))
