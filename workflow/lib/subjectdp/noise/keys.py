"""Keyed randomness: every random draw of a run is named, never taken from a shared or reseeded generator.

A key is the root seed, a purpose and a path of integers (round, silo, step ...). Two draws with different keys are
independent; the same key gives the same bits on every machine. The key is hashed (BLAKE2b), so that neighbouring
seeds are as far apart as any others and seed 0 is a seed like the rest.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import numpy as np


class Purpose(StrEnum):
    """What a draw is for; a purpose is never shared by two kinds of draw."""

    EMBEDDED_DATA = "embedded_data"
    SPLIT = "split"
    PARTITION = "partition"
    SILO_SAMPLING = "silo_sampling"
    ITEM_SAMPLING = "item_sampling"
    SUBJECT_SAMPLING = "subject_sampling"
    NOISE = "noise"
    DITHER = "dither"
    MODEL_INIT = "model_init"
    PRETRAINING = "pretraining"
    EVALUATION = "evaluation"
    AUDIT = "audit"
    STATISTICS = "statistics"


def key_bytes(root_seed: int, purpose: Purpose, *path: int | str, size: int = 32) -> bytes:
    """The ``size`` (1..64) bytes that the key stands for."""
    text = "\x1f".join([str(int(root_seed)), purpose.value, *(f"{type(p).__name__}:{p}" for p in path)])
    return hashlib.blake2b(text.encode(), digest_size=size, person=b"subjectdp").digest()


def key_int(root_seed: int, purpose: Purpose, *path: int | str) -> int:
    """A 64-bit unsigned integer of the key."""
    return int.from_bytes(key_bytes(root_seed, purpose, *path, size=8), "little")


def numpy_generator(root_seed: int, purpose: Purpose, *path: int | str) -> np.random.Generator:
    """A counter-based numpy generator (Philox, 128-bit key) of its own for this key."""
    key = np.frombuffer(key_bytes(root_seed, purpose, *path, size=16), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))
