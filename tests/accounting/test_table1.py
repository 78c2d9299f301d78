"""Table 1 of the joint-noise paper, all twelve rows, and the divergence under it."""

import math

import pytest

from subjectdp.accounting import table1
from subjectdp.accounting.renyi import SkellamMechanism, sampled_divergences
from subjectdp.accounting.table1 import skellam_noise

CELLS = [(steps, parties) for steps in (1, 10, 50) for parties in (1, 2, 5, 10)]
TIGHT = (3.67, 1.78, 0.63, 0.31, 3.53, 1.75, 0.79, 0.48, 3.79, 2.15, 1.14, 0.74)


@pytest.fixture(scope="module")
def rows() -> list[table1.Row]:
    return table1.rows()


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[0]}-{cell[1]}")
def test_both_printed_decimals(rows: list[table1.Row], cell: tuple[int, int]) -> None:
    row = rows[CELLS.index(cell)]
    assert f"{row.epsilon:.2f}" == f"{row.epsilon_printed:.2f}"
    assert f"{row.sigma_total:.2f}" == f"{row.sigma_printed:.2f}"


@pytest.mark.slow
def test_tight_values(rows: list[table1.Row]) -> None:
    assert [round(row.epsilon_tight, 2) for row in rows] == list(TIGHT)


@pytest.mark.slow
def test_only_one_local_step_gains_from_joint_noise(rows: list[table1.Row]) -> None:
    for row in rows:
        joint = row.local_steps == 1 or row.parties == 1
        assert (row.epsilon_sound == pytest.approx(row.epsilon_tight)) == joint
    assert [row.epsilon_sound for row in rows if row.local_steps == 50] == [pytest.approx(3.79, abs=0.01)] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bits", "sigma"), [(2, 0.95465), (4, 0.90572), (6, 0.90220), (8, 0.90198), (12, 0.90197), (32, 0.90197)]
)
def test_noise_by_quantisation(bits: int, sigma: float) -> None:
    assert skellam_noise(5.0, 1e-5, 0.1, 10, 2.0**bits) == pytest.approx(sigma, abs=2e-5)


def test_a_fine_scale_is_the_gaussian() -> None:
    fine = SkellamMechanism(2.0, scale=2.0**30)
    assert [fine.divergence(j) for j in (2, 10)] == pytest.approx([2 / 8, 10 / 8], rel=1e-6)


def test_sampled_divergence_of_order_two_by_hand() -> None:
    """log(1 - q² + q² e^{ε(2)}) for the second order: (1-q)²·1 + 2q(1-q)·1 + q² e^{ε(2)}."""
    mechanism, q = SkellamMechanism(1.3), 0.2
    expected = math.log(1 - q * q + q * q * math.exp(mechanism.divergence(2)))
    assert sampled_divergences(mechanism, q, (2,))[0] == pytest.approx(expected, rel=1e-12)
