"""A silo's table, the example's files, the socket of a silo's process, and kill -9: one release a round."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from federation.world import Here, TalkingSilo, World, make_world, proposed
from subjectdp.cli.silo import serve
from subjectdp.config.sections import DataConfig
from subjectdp.engine.flat import FlatParameters
from subjectdp.errors import ConfigError, DataError, StorageError, WorkerError
from subjectdp.federation.proposal import ROUND, pack, unpack
from subjectdp.federation.server import lead, read_federation
from subjectdp.federation.silo import Budget
from subjectdp.federation.site import conforming, load_site, own_items, read_site_data
from subjectdp.federation.wire import SOCKET, ask_silo
from subjectdp.models.build import build_model

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "federation"


def table(path: Path, seed: int, rows: int, people: int) -> None:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 2))
    lines = [f"{a:.3f},{b:.3f},{'ill' if a + b > 0 else 'well'},p{generator.integers(people)}" for a, b in x]
    path.write_text("\n".join(["age,value,outcome,patient", *lines]))


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example's files beside made-up tables of three hospitals."""
    for name in ("federation.yaml", "site.yaml"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    table(tmp_path / "sample.csv", 9, 300, 100)
    site = (tmp_path / "site.yaml").read_text()
    for silo in range(3):
        (tmp_path / str(silo)).mkdir()
        table(tmp_path / str(silo) / "patients.csv", silo, 1500, 500)
        (tmp_path / str(silo) / "site.yaml").write_text(site.replace("silo: 0", f"silo: {silo}"))
    return tmp_path


@pytest.mark.slow
def test_the_example_trains_within_its_epsilon(example: Path) -> None:
    _, agreed = proposed(read_federation(example / "federation.yaml"))
    sites = [load_site(example / str(silo) / "site.yaml") for silo in range(3)]
    silos = {n: TalkingSilo(site.model_copy(update={"plan": agreed.digest})) for n, site in enumerate(sites)}
    folder = lead(read_federation(example / "federation.yaml"), Here(silos))
    assert (folder / "model.safetensors").is_file()
    for silo in silos.values():
        assert silo.said("of 4 for one subject") and silo.said("round 20 answered")
        assert silo.said("cap of 4 items a person: ")


def test_a_person_is_limited_only_where_rows_say_whose_they_are(example: Path) -> None:
    path = example / "0" / "site.yaml"
    named = path.read_text()
    path.write_text(named.replace("subject: patient ", "drop: [patient] "))
    with pytest.raises(ConfigError, match=r"data.subject to be the column .* \(unit: item\)"):
        load_site(path)
    path.write_text(path.read_text().replace("unit: subject", "unit: item"))
    assert load_site(path).data.own_subjects


def test_labels_are_numbered_by_the_names_that_were_agreed_on(example: Path) -> None:
    with open(example / "sample.csv", "a") as sample:
        sample.write("\n1,1,mild,p1")
    (example / "0" / "patients.csv").write_text("age,value,outcome,patient\n1,2,well,a\n2,3,ill,b\n")
    _, proposal = proposed(read_federation(example / "federation.yaml"))
    site = load_site(example / "0" / "site.yaml")
    data = read_site_data(site)
    own = own_items(site, data, proposal, proposal.run_with(site.data, site.performance))
    assert proposal.items.class_names == ("ill", "mild", "well") and own.prepared.labels.tolist() == [2, 0]
    assert own.prepared.classes == 3 and own.partition.silo(0)[0].tolist() == [0, 1]
    (example / "0" / "patients.csv").write_text("value,age,outcome,patient\n1,2,ill,a\n2,3,well,b\n")
    moved = conforming(read_site_data(site).content, site.data, proposal.items)
    assert moved.features.tolist() == [[2, 1], [3, 2]] and proposal.items.features == ("age", "value")
    (example / "0" / "patients.csv").write_text("age,value,outcome,patient\n1,2,well,a\n2,3,well,b\n")  # all are
    alike = conforming(read_site_data(site).content, site.data, proposal.items)
    assert alike.labels.tolist() == [2, 2] and alike.classes == 3
    for spoiled, message in (
        ("age,value,outcome,patient\n1,2,dead,a\n2,3,well,b\n", "class of this silo's items 'dead'"),
        ("age,outcome,patient\n1,ill,a\n2,well,b\n", "with value, as agreed"),
        ("age,value,more,outcome,patient\n1,2,3,ill,a\n2,3,3,well,b\n", "feature of this silo's items 'more'"),
    ):
        (example / "0" / "patients.csv").write_text(spoiled)
        with pytest.raises(DataError, match=message):
            conforming(read_site_data(site).content, site.data, proposal.items)


def test_words_that_a_silo_lacks_are_zeros_and_ranges_are_agreed_on(example: Path) -> None:
    header = "age,sex,outcome,patient\n"
    (example / "sample.csv").write_text(header + "".join(f"{n},{'fm'[n % 2]},{n % 5},p{n}\n" for n in range(40)))
    (example / "0" / "patients.csv").write_text(header + "1,m,0,a\n2,m,3,b\n")
    site, ranges = load_site(example / "0" / "site.yaml"), {"age": [0, 100]}
    text = (example / "federation.yaml").read_text()
    text = text.replace("subject: patient}", "subject: patient, ranges: {age: [0, 100]}}")
    (example / "federation.yaml").write_text(text)
    _, proposal = proposed(read_federation(example / "federation.yaml"))
    with pytest.raises(DataError, match="ranges of this silo's items"):
        conforming(read_site_data(site).content, site.data, proposal.items)
    data = DataConfig.model_validate({**site.data.model_dump(mode="json"), "ranges": ranges})
    found = conforming(read_site_data(site.model_copy(update={"data": data})).content, data, proposal.items)
    assert proposal.items.features == ("age", "sex=f", "sex=m")
    assert found.features == pytest.approx(np.array([[0.01, 0, 1], [0.02, 0, 1]])) and found.labels.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("results: sample.csv", "results to be a folder"),
        ("run: {performance: {checkpoint_minutes: 5}}", "run.performance.checkpoint_minutes to be left out: .*every"),
    ],
)
def test_the_server_s_file_asks_for_nothing_that_is_not_done(example: Path, more: str, message: str) -> None:
    file = yaml.safe_load((example / "federation.yaml").read_text()) | yaml.safe_load(more)
    (example / "federation.yaml").write_text(yaml.safe_dump(file))
    with pytest.raises(ConfigError, match=message):
        read_federation(example / "federation.yaml")


def test_a_run_s_people_stay_those_of_one_column(example: Path) -> None:
    """Round 1 protected visits; a file that was corrected went on, with the epsilon of patients in the ledger."""
    at = example / "0" / "patients.csv"
    header, *rows = at.read_text().splitlines()
    at.write_text("\n".join([f"{header},visit", *(f"{row},v{number}" for number, row in enumerate(rows))]))
    _, agreed = proposed(read_federation(example / "federation.yaml"))
    model = FlatParameters(build_model("linear", 2, "vector", 0, {}, (2,))).vector
    site = load_site(example / "0" / "site.yaml").model_copy(update={"plan": agreed.digest})
    found = []
    for round_, (subject, drop) in enumerate([("visit", "patient"), ("patient", "visit")], 1):
        data = site.data.model_copy(update={"subject": subject, "drop": (drop,)})
        silo = TalkingSilo(site.model_copy(update={"data": data}))
        sent = {"ask": ROUND, "proposal": agreed.model_dump(mode="json"), "round": round_}
        found.append(silo.release(pack(sent, model)) is not None)
    assert found == [True, False] and silo.said("or data: of this file has")


def test_a_silo_without_its_file_says_so(example: Path) -> None:
    (example / "0" / "patients.csv").unlink()
    with pytest.raises(DataError, match="an existing file or folder"):
        TalkingSilo(load_site(example / "0" / "site.yaml"))


def test_the_silos_process_answers_on_a_socket_of_its_group_alone(tmp_path: Path) -> None:
    lines: list[str] = []
    # a daemon, so that the test's process may end
    arguments = tmp_path, lambda report: bytes.upper, lines.append
    threading.Thread(target=serve, args=arguments, daemon=True).start()
    socket = tmp_path / SOCKET
    for _ in range(100):
        if any("listening" in line for line in lines):
            break
        threading.Event().wait(0.05)
    assert stat.S_IMODE(socket.stat().st_mode) == 0o660
    assert [ask_silo(socket, content) for content in (b"one", b"two")] == [b"ONE", b"TWO"]
    with pytest.raises(StorageError, match="is in use by"):
        serve(tmp_path, lambda report: bytes.upper, lines.append)


def test_a_missing_silo_and_a_path_too_long_for_a_socket_are_told(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="start `subjectdp silo`"):
        ask_silo(tmp_path / "none.sock", b"")
    with pytest.raises(ConfigError, match="a path of at most"):
        serve(tmp_path / ("long" * 40), lambda report: bytes.upper, print)


DELAYS = (0.0, 0.02, 0.05, 0.1, 0.3)  # seconds after the request, one round each


class Process:
    """`subjectdp silo` as a process."""

    def __init__(self, world: World) -> None:
        self.folder = Path(load_site(world.sites[0]).folder)
        log = self.folder / "silo.log"
        before = log.read_text().count("listening") if log.exists() else 0
        command = [sys.executable, "-m", "subjectdp", "silo", str(world.sites[0])]
        own = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "workflow" / "lib")}
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=own)
        end = time.monotonic() + 60
        while not (log.exists() and log.read_text().count("listening") > before):
            assert self.process.poll() is None and time.monotonic() < end
            time.sleep(0.05)

    def ask(self, request: bytes) -> bytes | None:
        try:
            return ask_silo(self.folder / SOCKET, request)
        except WorkerError:
            return None

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)


@pytest.mark.long
def test_a_killed_silo_never_gives_two_releases_of_a_round(tmp_path: Path) -> None:
    """With secure noise, so that a release made anew would differ."""
    changes = {"privacy": {"noise_source": "secure"}, "training": {"rounds": len(DELAYS)}}
    world = make_world(tmp_path, "subject_release", **changes)
    for round_, delay in enumerate(DELAYS, 1):
        request, got = world.request(round_), list[bytes | None]()
        silo = Process(world)
        asked = threading.Thread(target=lambda silo=silo, request=request, got=got: got.append(silo.ask(request)))
        asked.start()
        time.sleep(delay)
        silo.kill()
        asked.join(30)
        silo = Process(world)
        again, more = silo.ask(request), silo.ask(request)
        silo.kill()
        assert again is not None and more == again and unpack(again)[1] is not None
        assert got[0] in (None, again), "the same bits or none"
    modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in silo.folder.iterdir()}
    assert modes[".json"] == modes[".release"] == modes[".log"] == 0o600 and modes[".sock"] == 0o660
    assert stat.S_IMODE(silo.folder.stat().st_mode) == 0o710
    (record,) = Budget(silo.folder).records().values()
    assert sorted(record.rounds) == list(range(1, len(DELAYS) + 1))
