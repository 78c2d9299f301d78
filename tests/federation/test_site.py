"""A silo's table: labels by name, columns as agreed; the example's files; the socket of a silo's process."""

from __future__ import annotations

import shutil
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from federation.world import Here, TalkingSilo, proposed
from subjectdp.cli.silo import serve
from subjectdp.config.sections import DataConfig
from subjectdp.errors import ConfigError, DataError, StorageError, WorkerError
from subjectdp.federation.server import lead, read_federation
from subjectdp.federation.site import conforming, load_site, own_items, read_site_data
from subjectdp.federation.wire import SOCKET, ask_silo

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


def test_the_example_trains_within_its_epsilon(example: Path) -> None:
    silos = {silo: TalkingSilo(load_site(example / str(silo) / "site.yaml")) for silo in range(3)}
    folder = lead(read_federation(example / "federation.yaml"), Here(silos))
    assert (folder / "model.safetensors").is_file()
    for silo in silos.values():
        assert silo.said("of 4 for one subject") and silo.said("round 20 answered")
        assert silo.said("cap of 4 items a person: ")


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
