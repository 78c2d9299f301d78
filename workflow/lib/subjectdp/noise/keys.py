"""Keyed randomness: every random draw of a run has its own key; no generator is shared or reseeded.

A key is the root seed, a purpose and a path (round, silo, step ...), hashed (BLAKE2b). Draws with different keys are
independent; the same key gives the same bits on every machine.
"""

import hashlib
from enum import StrEnum
from typing import Any, cast

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray


class Purpose(StrEnum):
    """What a draw is for. Different kinds of draw never share a purpose."""

    EMBEDDED_DATA = "embedded_data"
    SPLIT = "split"
    PARTITION = "partition"
    SILO_SAMPLING = "silo_sampling"
    ITEM_SAMPLING = "item_sampling"
    SUBJECT_SAMPLING = "subject_sampling"
    NOISE = "noise"
    DITHER = "dither"
    MODEL_INIT = "model_init"
    EVALUATION = "evaluation"
    AUDIT = "audit"
    STATISTICS = "statistics"


def key_bytes(root_seed: int, purpose: Purpose, *path: int | str, size: int = 32) -> bytes:
    """``size`` (1..64) bytes derived from the key."""
    text = "\x1f".join([str(int(root_seed)), purpose.value, *[f"{type(p).__name__}:{p}" for p in path]])
    return hashlib.blake2b(text.encode(), digest_size=size, person=b"subjectdp").digest()


def key_int(root_seed: int, purpose: Purpose, *path: int | str) -> int:
    """A 64-bit unsigned integer derived from the key."""
    return int.from_bytes(key_bytes(root_seed, purpose, *path, size=8), "little")


class _Key(ISeedSequence):
    """A key as the seed that Philox takes it from; ``Philox(key=...)`` first asks the system for entropy."""

    def __init__(self, key: NDArray[np.uint64]) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        """The key, whatever is asked for: Philox asks for two words of 64 bits."""
        return self._key


def numpy_generator(root_seed: int, purpose: Purpose, *path: int | str) -> np.random.Generator:
    """A new counter-based numpy generator (Philox, 128-bit key) for this key."""
    key = np.frombuffer(key_bytes(root_seed, purpose, *path, size=16), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(cast(Any, _Key(key))))
