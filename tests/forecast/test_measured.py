"""The pace of finished runs."""

from __future__ import annotations

from forecast.small_runs import run_of
from subjectdp.forecast.measured import Measurement, Paces, measurements


def measured(device: str, model: str, algorithm: str, factor: float) -> Measurement:
    return Measurement(device, model, algorithm, factor, 100.0)


def test_a_manifest_that_cannot_be_read_is_passed_over(tmp_path):
    (tmp_path / "runs/half").mkdir(parents=True)
    (tmp_path / "runs/half/manifest.json").write_text('{"config": ')
    (tmp_path / "runs/old").mkdir(parents=True)
    (tmp_path / "runs/old/manifest.json").write_text('{"config": {"seed": 1}}')
    assert measurements(str(tmp_path)) == []


def test_the_closest_measurement_counts_and_a_gpu_before_a_cpu():
    run = run_of(algorithm="fed_avg")
    far = [measured("cpu", "leaf_cnn", "UserLDP", 9.0)]
    model = [measured("cpu", "small_cnn", "UserLDP", factor) for factor in (2.0, 3.0, 7.0)]
    same = [measured("cpu", "small_cnn", "FedAvg", 1.5)]
    assert Paces([]).pace(run).factor == 1.0
    assert Paces(far).pace(run).factor == 9.0
    assert Paces(far + model).pace(run).factor == 3.0
    assert Paces(far + model + same).pace(run).factor == 1.5
    fast = [measured("cuda", "leaf_cnn", "FedAvg", 0.01)]
    assert Paces(far + model + same + fast).pace(run).factor == 0.01
    assert Paces(same, gflops=100.0).pace(run).factor == 0.5
