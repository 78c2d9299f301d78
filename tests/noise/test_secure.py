"""Secure noise of a GPU against the CPU's, on the CPU and, where there is one, on a GPU."""

import math

import numpy as np
import pytest
import torch

from noise.test_gaussian import fits
from subjectdp.noise import secure
from subjectdp.noise.gaussian import PIECE, add_normals, cipher_blocks
from subjectdp.noise.secure import add_secure_gaussian, grid_of

DEVICES = [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]
KEY = bytes(range(32))
WITH_A_TAIL, AT = (64).to_bytes(32, "little"), 4314  # found by search: the word of its radius is 85


def on_the_cpu(count: int, key: bytes) -> np.ndarray:
    numbers = np.zeros(count, np.float32)
    add_normals(numbers, np.float32(1), np.frombuffer(key, np.uint32))
    return numbers


def drawn(count: int, key: bytes, device: torch.device) -> np.ndarray:
    return torch.cat([part.flatten().cpu() for _, part in secure.normals(count, key, device)])[:count].numpy()


@pytest.mark.parametrize("device", DEVICES)
def test_the_cipher_gives_the_same_bits(device: torch.device) -> None:
    counters = torch.arange(2**31 - 3, 2**31 + 61).to(torch.int32)  # beyond the sign
    words = np.empty((16, 64), np.uint32)
    cipher_blocks(np.frombuffer(KEY, np.uint32), np.uint32(2**31 - 3), np.uint32(5), words)
    assert np.array_equal(secure.cipher(counters.to(device), KEY, 5).cpu().numpy().view(np.uint32), words)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, PIECE, 5 * PIECE + 7])
def test_the_numbers_are_the_same(count: int, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure, "_AT_ONCE", 2)
    found = drawn(count, KEY, device)
    np.testing.assert_allclose(found, on_the_cpu(count, KEY), rtol=0, atol=3e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_a_rare_length_is_redrawn(device: torch.device) -> None:
    expected = on_the_cpu(AT + PIECE, WITH_A_TAIL)
    assert math.hypot(expected[AT], expected[AT + PIECE // 2]) > 5.7
    np.testing.assert_allclose(drawn(AT + PIECE, WITH_A_TAIL, device), expected, rtol=0, atol=3e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_secure_noise_is_that_of_the_cpu_on_its_grid(device: torch.device) -> None:
    sums = torch.randn(40 * PIECE + 3, generator=torch.Generator().manual_seed(2))
    expected, found = add_secure_gaussian(sums.clone(), 3.0, KEY), sums.clone().to(device)
    secure.add_on_device(found, 3.0, grid_of(3.0), KEY)
    found = found.cpu()
    assert torch.equal(found / grid_of(3.0), torch.round(found / grid_of(3.0)))
    assert float((found - expected).abs().max()) <= 1.01 * grid_of(3.0), "a sum near a border may fall on either side"
    assert float((found == expected).float().mean()) > 0.99
    noise = (found - sums).numpy().astype(np.float64)
    assert fits(noise, 3.0) and not fits(noise, 3.1)
