"""Small contents of images and of text, and prepared data made of them in memory."""

from pathlib import Path

import numpy as np

from subjectdp.data.content import Content
from subjectdp.data.splits import IMAGE, TEXT, WINDOW
from subjectdp.data.store import PreparedData


def images(items: list[int]) -> Content:
    counts = np.array(items, dtype=np.int64)
    total = int(counts.sum())
    generator = np.random.default_rng(0)
    return Content(
        dataset="femnist",
        kind=IMAGE,
        features=generator.integers(0, 256, (total, 28, 28), dtype=np.uint8),
        labels=generator.integers(0, 62, total, dtype=np.uint8),
        subject_ids=[f"f{i:04d}" for i in range(len(items))],
        groups=[""] * len(items),
        first_items=np.cumsum(counts) - counts,
        items=counts,
        classes=62,
    )


def text_of(items: list[int]) -> Content:
    counts = np.array(items, dtype=np.int64)
    lengths = counts + WINDOW
    return Content(
        dataset="shakespeare",
        kind=TEXT,
        features=np.random.default_rng(0).integers(0, 80, int(lengths.sum()), dtype=np.uint8),
        labels=np.empty(0, dtype=np.uint8),
        subject_ids=[f"P_{i}" for i in range(len(items))],
        groups=["P", "Q"] * (len(items) // 2) + ["P"] * (len(items) % 2),
        first_items=np.cumsum(lengths) - lengths,
        items=counts,
        classes=80,
        window=WINDOW,
        vocabulary="x" * 80,
    )


def prepared(content: Content) -> PreparedData:
    return PreparedData(**vars(content), folder=Path("unused"), meta={})
