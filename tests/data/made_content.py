"""Small contents of images and of text, and prepared data made of them in memory."""

from pathlib import Path

import numpy as np

from subjectdp.data.content import IMAGE, TEXT, WINDOW, Content, subjects_in_order
from subjectdp.data.shakespeare import VOCABULARY
from subjectdp.data.store import PreparedData


def images(items: list[int]) -> Content:
    generator = np.random.default_rng(0)
    return Content(
        dataset="femnist",
        kind=IMAGE,
        features=generator.integers(0, 256, (sum(items), 28, 28), dtype=np.uint8),
        labels=generator.integers(0, 62, sum(items), dtype=np.uint8),
        classes=62,
        **subjects_in_order([f"f{i:04d}_14" for i in range(len(items))], items),
    )


def text_of(items: list[int]) -> Content:
    length = sum(items) + WINDOW * len(items)
    return Content(
        dataset="shakespeare",
        kind=TEXT,
        features=np.random.default_rng(0).integers(0, 80, length, dtype=np.uint8),
        labels=np.empty(0, dtype=np.uint8),
        classes=80,
        window=WINDOW,
        vocabulary="x" * 80,
        **subjects_in_order([f"P_{i}" for i in range(len(items))], items, WINDOW)
        | {"groups": ["PQ"[i % 2] for i in range(len(items))]},
    )


def texts_of(content: Content) -> dict[str, str]:
    """The text of each subject."""
    stream = "".join(VOCABULARY[symbol] for symbol in content.features)
    spans = zip(content.subject_ids, content.first_items.tolist(), content.items.tolist(), strict=True)
    return {subject: stream[first : first + items + WINDOW] for subject, first, items in spans}


def prepared(content: Content) -> PreparedData:
    return PreparedData(**vars(content), folder=Path("unused"), meta={})
