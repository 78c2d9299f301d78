"""The compiled noise against its parts done slowly: the cipher in plain Python, Box-Muller in float64, exact tails; and
that of a GPU against the CPU's, on the CPU and, where there is one, on a GPU."""

import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from noise.test_gaussian import fits
from subjectdp.noise import gaussian
from subjectdp.noise.gaussian import (
    LANES,
    PIECE,
    add_normals,
    add_on_device,
    add_secure_gaussian,
    cipher,
    cipher_blocks,
    grid_of,
    normal_pairs,
    normals,
    redraw_tails,
)

EXPAND = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)


def plain_block(state: list[int], rounds: int) -> bytes:
    """A ChaCha block after RFC 8439, section 2.3, on Python's integers."""
    x = list(state)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for p, q, r, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[p] = (x[p] + x[q]) % 2**32
            x[r] ^= x[p]
            x[r] = (x[r] << by | x[r] >> (32 - by)) % 2**32

    for _ in range(rounds // 2):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for column in range(4):
            quarter(column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    return b"".join(((a + b) % 2**32).to_bytes(4, "little") for a, b in zip(x, state, strict=True))


def words_of(key: bytes, counter: int, nonce: int, lanes: int = 1) -> np.ndarray:
    words = np.empty((16, lanes), dtype=np.uint32)
    cipher_blocks(np.frombuffer(key, dtype=np.uint32), np.uint32(counter), np.uint32(nonce), words)
    return words


def state_of(key: bytes, counter: int, nonce: tuple[int, int, int]) -> list[int]:
    return [*EXPAND, *np.frombuffer(key, dtype=np.uint32).tolist(), counter, *nonce]


def test_the_plain_cipher_is_that_of_the_rfc() -> None:
    """RFC 8439, section 2.3.2: 20 rounds."""
    block = plain_block(state_of(bytes(range(32)), 1, (0x09000000, 0x4A000000, 0)), 20)
    assert block.hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


def test_the_compiled_cipher_gives_the_published_block_of_eight_rounds() -> None:
    """Key and nonce zero (draft-strombergson-chacha-test-vectors-00, TC1, 256 bits, 8 rounds)."""
    assert words_of(bytes(32), 0, 0).tobytes().hex() == (
        "3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e"
        "984ce172b9216f419f445367456d5619314a42a3da86b001387bfdb80e0cfe42"
    )


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_the_compiled_cipher_is_the_plain_one(key: bytes, counter: int, nonce: int) -> None:
    words = words_of(key, counter, nonce, lanes=3)
    for lane in range(3):  # the counter goes round at 2^32
        state = state_of(key, (counter + lane) % 2**32, (nonce, 0, 0))
        assert words[:, lane].tobytes() == plain_block(state, 8)


EDGES = [0, 1, 255, 256, 2**24, 2**29 - 1, 2**29, 2**29 + 1, 2**30, 2**31 - 1, 2**31, 3 * 2**29, 2**32 - 1]


def pairs(radii: np.ndarray, angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.empty(len(radii), np.float32), np.empty(len(radii), np.float32)
    normal_pairs(radii, angles, np.empty(len(radii), np.float32), first, second)
    return first, second


def test_pairs_are_those_of_box_and_muller() -> None:
    generator = np.random.default_rng(5)
    edges = np.array([(r, a) for r in EDGES for a in EDGES], dtype=np.uint32)
    radii = np.concatenate([edges[:, 0], generator.integers(0, 2**32, 200_000, dtype=np.uint32)])
    angles = np.concatenate([edges[:, 1], generator.integers(0, 2**32, 200_000, dtype=np.uint32)])
    first, second = pairs(radii, angles)
    length = np.sqrt(-2.0 * np.log((radii.astype(np.float64) + 0.5) / 2.0**32))
    # near u = 1 a float32 of u has 24 bits, so that a short length is off by up to √(2^-24)
    allowed = 1.5e-6 + np.minimum(2.5e-4, 1.3e-7 / np.maximum(length, 1e-12))
    turn = 2.0 * np.pi * angles.astype(np.float64) / 2.0**32
    assert (np.abs(first - length * np.cos(turn)) <= allowed).all()
    assert (np.abs(second - length * np.sin(turn)) <= allowed).all()


def test_rare_radii_get_the_tails_exact_law_and_nothing_else_changes() -> None:
    """Beyond √(48 ln 2), r²/2 is exponential: the law without memory."""
    generator = np.random.default_rng(6)
    count = 20_000
    radii = generator.integers(0, 256, count, dtype=np.uint32)
    radii[::10] = 256
    angles = generator.integers(0, 2**32, count, dtype=np.uint32)
    before = pairs(radii, angles)
    after = before[0].copy(), before[1].copy()
    key = np.frombuffer(bytes(range(32)), dtype=np.uint32)
    redraw_tails(key, np.uint32(0), radii, *after)
    kept = radii == 256
    assert all(np.array_equal(a[kept], b[kept]) for a, b in zip(before, after, strict=True))
    first, second = (half[~kept].astype(np.float64) for half in after)
    assert stats.kstest((first**2 + second**2) / 2 - 24 * math.log(2), "expon").pvalue > 1e-4
    assert np.allclose(np.arctan2(second, first), np.arctan2(before[1][~kept], before[0][~kept]), atol=1e-5)
    assert np.hypot(first, second).max() > 6.77  # where 32 bits end
    other = before[0].copy(), before[1].copy()
    redraw_tails(key, np.uint32(count), radii, *other)  # other pairs of the same key
    assert (other[0][~kept] != after[0][~kept]).mean() > 0.999


def normals_of(key: bytes, count: int) -> np.ndarray:
    numbers = np.zeros(count, np.float32)
    add_normals(numbers, np.float32(1), np.frombuffer(key, np.uint32))
    return numbers


KEY, WITH_A_TAIL = bytes(range(32)), (64).to_bytes(32, "little")


def test_a_draw_takes_its_rare_radii_from_the_tail() -> None:
    """Under the key 64 pair 218 of the fifth piece has the radius word 85 (found by search)."""
    piece, pair = 4, 218
    words = words_of(WITH_A_TAIL, piece * LANES, 0, LANES)
    radius, angle = int(words[:8].reshape(-1)[pair]), int(words[8:].reshape(-1)[pair])
    assert radius == 85
    drawn = normals_of(WITH_A_TAIL, 5 * PIECE)
    number = piece * PIECE // 2 + pair
    tail = words_of(WITH_A_TAIL, number, 1)[:2, 0].tolist()
    uniform = ((tail[0] >> 5) * 2**26 + (tail[1] >> 6) + 0.5) / 2**53
    length = math.sqrt(-2.0 * math.log(uniform * 2.0**-24))
    turn = 2 * math.pi * angle / 2**32
    assert drawn[piece * PIECE + pair] == pytest.approx(length * math.cos(turn), abs=3e-6)
    assert drawn[piece * PIECE + PIECE // 2 + pair] == pytest.approx(length * math.sin(turn), abs=3e-6)
    assert abs(length - math.sqrt(-2.0 * math.log((radius + 0.5) / 2**32))) > 1e-3


def test_the_same_bits_on_every_machine() -> None:
    """No fused operation, no library function on the way (the tails apart): a digest stands for all bits."""
    digest = "a5af6287e50410cc5cc60bdab69614d34658c4dff5eff62dae6383945fde6e8f"
    assert hashlib.sha256(normals_of(KEY, 3 * PIECE + 5).tobytes()).hexdigest() == digest


# --- secure noise of a GPU beside the CPU's ---


Patch = pytest.MonkeyPatch
DEVICES = [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]


def drawn(count: int, key: bytes, device: torch.device) -> np.ndarray:
    return torch.cat([part.flatten().cpu() for _, part in normals(count, key, device)])[:count].numpy()


@pytest.mark.parametrize("device", DEVICES)
def test_the_cipher_gives_the_same_bits(device: torch.device) -> None:
    counters = torch.arange(2**31 - 3, 2**31 + 61).to(torch.int32)  # beyond the sign
    words = cipher(counters.to(device), KEY, 5).cpu().numpy().view(np.uint32)
    assert np.array_equal(words, words_of(KEY, 2**31 - 3, 5, lanes=64))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("key", "count"), [(KEY, 1), (KEY, PIECE), (KEY, 5 * PIECE + 7), (WITH_A_TAIL, 5 * PIECE)])
def test_the_numbers_are_the_same(key: bytes, count: int, device: torch.device, monkeypatch: Patch) -> None:
    """In passes of two pieces."""
    monkeypatch.setattr(gaussian, "_AT_ONCE", 2)
    np.testing.assert_allclose(drawn(count, key, device), normals_of(key, count), rtol=0, atol=3e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_secure_noise_is_that_of_the_cpu_on_its_grid(device: torch.device) -> None:
    sums = torch.randn(40 * PIECE + 3, generator=torch.Generator().manual_seed(2))
    expected, found = add_secure_gaussian(sums.clone(), 3.0, KEY), sums.clone().to(device)
    add_on_device(found, 3.0, grid_of(3.0), KEY)
    found = found.cpu()
    assert torch.equal(found / grid_of(3.0), torch.round(found / grid_of(3.0)))
    assert float((found - expected).abs().max()) <= 1.01 * grid_of(3.0), "a sum near a border may fall on either side"
    assert float((found == expected).float().mean()) > 0.99
    noise = (found - sums).numpy().astype(np.float64)
    assert fits(noise, 3.0) and not fits(noise, 3.1)
