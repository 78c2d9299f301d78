"""Keyed torch generators, for draws other than a plan's noise (see :mod:`subjectdp.noise.keys`)."""

import hashlib

import torch

_STATE_OFFSET = 24  # seed (8 bytes), left, seeded, next: the 624 words of the twister follow
_STATE_BYTES = 624 * 8  # stored as 64-bit integers, 32 bits used


def keyed_generator(key: bytes, device: torch.device | str = "cpu") -> torch.Generator:
    """A new generator for ``key`` (32 bytes).

    On the CPU torch's Mersenne twister accepts a 32-bit seed only, and many draws would probably share one. Its whole
    state is therefore filled from the key (SHAKE-256). On other devices the first 64 bits of the key seed the
    counter-based generator.
    """
    device = torch.device(device)
    generator = torch.Generator(device)
    if device.type != "cpu":
        generator.manual_seed(int.from_bytes(key[:8], "little") & 0x7FFF_FFFF_FFFF_FFFF)
        return generator
    generator.manual_seed(0)
    state = generator.get_state().clone()
    words = torch.frombuffer(bytearray(hashlib.shake_256(key).digest(624 * 4)), dtype=torch.int32)
    unsigned = words.to(torch.int64) & 0xFFFF_FFFF
    state[_STATE_OFFSET : _STATE_OFFSET + _STATE_BYTES] = unsigned.view(torch.uint8)
    generator.set_state(state)
    return generator
