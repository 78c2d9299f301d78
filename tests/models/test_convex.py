"""The convex models: √2-Lipschitz whatever the image; n-grams against a count in plain Python and a float64 loop."""

import math

import pytest
import torch
from torch import Tensor

from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.models.build import build_model
from subjectdp.models.linear import LIPSCHITZ, Logistic
from subjectdp.models.text import CharacterNGram

GREY = (1, 28, 28)


def images(count: int, seed: int = 0) -> Tensor:
    """Random ones, a blank one, and one far brighter than any real image."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.rand(count, 1, 28, 28, generator=generator) * 3 - 0.5
    found[0] = 0.0
    found[1] *= 1e4
    return found


@pytest.mark.parametrize(
    ("sizes", "parameters"),
    [
        *(({"pool": 1}, 785 * 62), ({"pool": 2}, 197 * 62), ({"pool": 4}, 50 * 62), ({"pool": 28}, 2 * 62)),
        *(({}, 164 * 80**2), ({"singles": 3, "pairs": 0}, 3 * 80**2), ({"singles": 1, "pairs": 1}, 81 * 80**2)),
    ],
)
def test_size_and_start(sizes: dict[str, int], parameters: int) -> None:
    """The n-gram model has a weight for each entry of its tables: of 4 symbols and 2 pairs where nothing is said."""
    name, classes, kind = ("logistic", 62, "image") if "pool" in sizes else ("char_ngram", 80, "text")
    model = build_model(name, classes, kind, 0, sizes)
    weights = torch.nn.utils.parameters_to_vector(model.parameters())
    assert weights.numel() == parameters
    assert not weights.any(), "training starts at 0"
    items = images(3) if kind == "image" else torch.zeros(3, 80, dtype=torch.int64)
    assert model(items).shape == (3, classes)


def test_features_have_norm_at_most_1() -> None:
    norms = torch.linalg.vector_norm(Logistic(62, GREY, 2).features(images(20)), dim=1)
    assert float(norms.max()) <= 1 + 1e-6
    assert float(norms[0]) == pytest.approx(1 / math.sqrt(2)), "a blank image has its constant feature alone"
    assert norms[1:].tolist() == pytest.approx([1.0] * 19, abs=1e-6)


def test_no_gradient_exceeds_the_lipschitz_constant_and_some_come_close() -> None:
    """The engine clips to √2 in training, which must then change nothing."""
    model = Logistic(10, GREY, 4)
    inputs = images(40)
    labels = torch.arange(40) % 10
    with torch.no_grad():
        model.output.weight[:] = 0.0
        model.output.weight[3] = 200.0  # certain of class 3: wrong for most labels
    engine = ClippingEngine(FlatParameters(model))
    total, norms = engine.clipped_sum(inputs, labels, LIPSCHITZ)
    assert float(norms.max()) <= LIPSCHITZ * (1 + 1e-6)
    assert float(norms.max()) > 0.99 * LIPSCHITZ
    assert torch.allclose(total, engine.gradient_sum(inputs, labels), rtol=1e-4, atol=1e-4)


# --- the n-gram model ---


SYMBOLS, WINDOW = 7, 9
SIZES = [(4, 2), (3, 0), (0, 1), (1, 3)]


def windows(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(0, SYMBOLS, (count, WINDOW + 1), generator=generator)
    text[1] = text[0]  # the same item twice
    text[2] = 3  # one symbol only
    return text[:, :-1], text[:, -1]


def trained(singles: int, pairs: int, seed: int = 1) -> CharacterNGram:
    model = CharacterNGram(SYMBOLS, (80,), singles, pairs)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for table in model.parameters():
            table.normal_(generator=generator)
    return model


def counted_logits(model: CharacterNGram, window: list[int]) -> list[float]:
    """By lists, and the place of a pair among all pairs in order."""
    state = {name: table.tolist() for name, table in model.state_dict().items()}
    weight = [] if model.singles is None else model.singles.weight.t().tolist()
    pairs = [(a, b) for a in range(SYMBOLS) for b in range(SYMBOLS)]
    newest = window[::-1]
    rows = [weight[back * SYMBOLS + newest[back]] for back in range(len(weight) // SYMBOLS)]
    for back in range(len(model.pairs)):
        rows.append(state[f"pairs.{back}.weight"][pairs.index((newest[back + 1], newest[back]))])
    norm = math.sqrt(len(rows))
    return [sum(row[symbol] for row in rows) / norm for symbol in range(SYMBOLS)]


@pytest.mark.parametrize(("singles", "pairs"), SIZES)
def test_logits_are_the_sum_of_the_rows_that_a_plain_count_finds(singles: int, pairs: int) -> None:
    model, (inputs, _) = trained(singles, pairs), windows(12)
    for window, logits in zip(inputs.tolist(), model(inputs).tolist(), strict=True):
        assert logits == pytest.approx(counted_logits(model, window), abs=1e-5)


def test_an_item_moves_only_the_rows_that_it_reads_and_by_at_most_root_two() -> None:
    model, (inputs, labels) = trained(4, 2), windows(8)
    with torch.no_grad():
        model.pairs[0].weight[:, 0] = 200.0  # certain of symbol 0, mostly wrongly
    engine = ClippingEngine(FlatParameters(model))
    total, norms = engine.clipped_sum(inputs[3:4], labels[3:4] * 0 + 1, math.inf)
    first, *tables = engine.flat.views(total).values()
    assert [int(view.any(dim=1).sum()) for view in (first.t(), *tables)] == [4, 1, 1]
    assert float(norms[0]) == pytest.approx(math.sqrt(2), rel=1e-5)
