"""The convex model: convex, √2-Lipschitz whatever the image, and the engine's gradients never exceed √2."""

import math

import pytest
import torch
from torch import Tensor

from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.errors import ModelError
from subjectdp.models.build import build_model
from subjectdp.models.linear import LIPSCHITZ, Logistic

GREY = (1, 28, 28)


def images(count: int, seed: int = 0) -> Tensor:
    """Random ones, a blank one, and one far brighter than any real image."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.rand(count, 1, 28, 28, generator=generator) * 3 - 0.5
    found[0] = 0.0
    found[1] *= 1e4
    return found


@pytest.mark.parametrize(("pool", "parameters"), [(1, 785 * 62), (2, 197 * 62), (4, 50 * 62), (28, 2 * 62)])
def test_size_and_start(pool: int, parameters: int) -> None:
    model = build_model("logistic", 62, "image", 0, {"pool": pool})
    weights = torch.nn.utils.parameters_to_vector(model.parameters())
    assert weights.numel() == parameters
    assert not weights.any(), "training starts at 0"
    assert model(images(3)).shape == (3, 62)


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


@pytest.mark.parametrize("pool", [0, 3, 29])
def test_a_pool_that_does_not_fit_is_refused(pool: int) -> None:
    with pytest.raises(ModelError, match="a divisor of 28"):
        build_model("logistic", 62, "image", 0, {"pool": pool})
