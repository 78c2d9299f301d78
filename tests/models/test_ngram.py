"""The n-gram model: features against a count in plain Python, the engine against a float64 loop, convexity, sizes."""

import math

import pytest
import torch
from torch import Tensor

from engine import oracle
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.models.build import build_model
from subjectdp.models.text import CharacterNGram

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
    pairs = [(a, b) for a in range(SYMBOLS) for b in range(SYMBOLS)]
    newest = window[::-1]
    contexts = [(f"singles.{back}.weight", newest[back]) for back in range(len(model.singles))]
    for back in range(len(model.pairs)):
        contexts.append((f"pairs.{back}.weight", pairs.index((newest[back + 1], newest[back]))))
    norm = math.sqrt(len(contexts))
    return [sum(state[name][row][symbol] for name, row in contexts) / norm for symbol in range(SYMBOLS)]


@pytest.mark.parametrize(("singles", "pairs"), SIZES)
def test_logits_are_the_sum_of_the_rows_that_a_plain_count_finds(singles: int, pairs: int) -> None:
    model, (inputs, _) = trained(singles, pairs), windows(12)
    for window, logits in zip(inputs.tolist(), model(inputs).tolist(), strict=True):
        assert logits == pytest.approx(counted_logits(model, window), abs=1e-5)


@pytest.mark.parametrize(("singles", "pairs"), SIZES)
def test_clipped_sums_of_items_and_subjects_are_those_of_a_float64_loop(singles: int, pairs: int) -> None:
    model, (inputs, labels) = trained(singles, pairs), windows(30)
    rows = oracle.per_item_gradients(model, inputs, labels)
    engine = ClippingEngine(FlatParameters(model), 16)
    total, norms = engine.clipped_sum(inputs, labels, 0.7)
    assert norms.tolist() == pytest.approx(rows.norm(dim=1).tolist(), rel=1e-4)
    assert torch.allclose(total.double(), oracle.clipped_sum(rows, 0.7), atol=1e-5)
    owners = [0, 0, 0] + [1 + item % 4 for item in range(27)]
    weights = torch.tensor([1 / owners.count(owner) for owner in owners])
    grouped = oracle.group_gradients(rows, weights, owners)
    total, norms = engine.clipped_sum(inputs, labels, 0.2, weights, torch.tensor(owners))
    assert norms.tolist() == pytest.approx(grouped.norm(dim=1).tolist(), rel=1e-4)
    assert torch.allclose(total.double(), oracle.clipped_sum(grouped, 0.2), atol=1e-5)


def test_an_item_moves_only_the_rows_that_it_reads_and_by_at_most_root_two() -> None:
    model, (inputs, labels) = trained(4, 2), windows(8)
    with torch.no_grad():
        model.singles[0].weight[:, 0] = 200.0  # certain of symbol 0, mostly wrongly
    engine = ClippingEngine(FlatParameters(model))
    total, norms = engine.clipped_sum(inputs[3:4], labels[3:4] * 0 + 1, math.inf)
    touched = [int(view.any(dim=1).sum()) for view in engine.flat.views(total).values()]
    assert touched == [1] * 6
    assert float(norms[0]) == pytest.approx(math.sqrt(2), rel=1e-5)


@pytest.mark.parametrize("sizes", [{}, {"singles": 3, "pairs": 0}, {"singles": 1, "pairs": 1}])
def test_it_starts_at_zero_with_a_weight_for_each_entry_of_its_tables(sizes: dict[str, int]) -> None:
    model = build_model("char_ngram", 80, "text", 0, sizes)
    singles, pairs = sizes.get("singles", 4), sizes.get("pairs", 2)
    weights = torch.nn.utils.parameters_to_vector(model.parameters())
    assert not weights.any()
    assert model(torch.zeros(2, 80, dtype=torch.int64)).shape == (2, 80)
    assert weights.numel() == (singles + pairs * 80) * 80**2
