"""Keys of random draws: what has a different name is a different draw."""

from itertools import product

import numpy as np

from subjectdp.noise.keys import Purpose, key_bytes, key_int, numpy_generator


def test_no_two_purposes_share_a_key() -> None:
    assert len({key_bytes(0, purpose, 1, 2, 3) for purpose in Purpose}) == len(Purpose)
    first = {float(numpy_generator(0, purpose, 1).random()) for purpose in Purpose}
    assert len(first) == len(Purpose)


def test_every_part_of_a_path_counts() -> None:
    paths = [(round_, silo, step) for round_, silo, step in product(range(13), repeat=3)]
    keys = {key_bytes(0, Purpose.NOISE, *path) for path in paths}
    assert len(keys) == len(paths)
    assert key_bytes(0, Purpose.NOISE, 1, 23) != key_bytes(0, Purpose.NOISE, 12, 3)
    assert key_bytes(0, Purpose.NOISE, "a", "b") != key_bytes(0, Purpose.NOISE, "ab")
    assert key_bytes(0, Purpose.NOISE, 1) != key_bytes(0, Purpose.NOISE, "1")


def test_neighbouring_seeds_differ_and_a_numpy_integer_is_an_integer() -> None:
    assert len({key_int(seed, Purpose.SPLIT) for seed in range(-2, 50)}) == 52
    assert key_int(int(np.int64(7)), Purpose.SPLIT) == key_int(7, Purpose.SPLIT)
