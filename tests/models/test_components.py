"""Principal components of random curves: against numpy's SVD and curves drawn pixel by pixel; public constants."""

import math

import numpy as np
import pytest
import torch

from subjectdp.errors import ModelError
from subjectdp.models import fixed
from subjectdp.models.build import build_model
from subjectdp.models.fixed import NormalisedScattering
from subjectdp.models.scattering import random_curves
from subjectdp.noise.keys import Purpose, numpy_generator

SMALL = {"scales": 1, "angles": 2, "components": 20}  # 588 coefficients


def images(count: int = 6) -> torch.Tensor:
    return torch.rand(count, 1, 28, 28, generator=torch.Generator().manual_seed(5))


def test_features_are_what_numpys_decomposition_of_the_curves_gives() -> None:
    coefficients = NormalisedScattering(1, 2)
    curves = coefficients(random_curves(1000)).double().numpy()
    mean = curves.mean(axis=0)
    _, lengths, directions = np.linalg.svd(curves - mean, full_matrices=False)
    deviations = (lengths / math.sqrt(1000))[:20]
    scores = (coefficients(images()).double().numpy() - mean) @ directions[:20].T / np.sqrt(deviations)
    wanted = scores / math.sqrt(deviations.sum())  # Σ λ / λ^½ is the mean square norm on the curves
    found = build_model("scattering_head", 62, "image", 0, SMALL).features(images()).double().numpy()
    signs = np.sign((found * wanted).sum(axis=0))
    np.testing.assert_allclose(found, wanted * signs, rtol=1e-3, atol=1e-5)


def test_they_are_the_same_for_every_seed_and_process_and_whatever_the_levels_of_ink() -> None:
    first = build_model("scattering_head", 62, "image", 0, SMALL).features(images())
    fixed._components_of_curves.cache_clear()
    features = build_model("scattering_head", 62, "image", 1, SMALL).features
    assert torch.equal(features(images()), first)
    torch.testing.assert_close(features(3 * images() - 0.5), first, rtol=1e-3, atol=1e-4)
    assert float(features(random_curves(1000)).square().sum(dim=1).mean()) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"components": 1000}, "components to be 0 .all features. or a whole number from 1 to 999"),
        ({"components": -1}, "components to be 0 .all features. or a whole number from 1 to 999"),
        ({"scales": 1, "angles": 1, "components": 393}, "a whole number from 1 to 392"),
    ],
)
def test_what_cannot_be_is_refused(parameters: dict[str, int], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build_model("scattering_head", 62, "image", 0, parameters)


def test_a_curve_is_ink_near_its_points() -> None:
    """The first images again, from the same draws, by de Casteljau's construction and one pixel after another."""
    found = random_curves(3)
    assert found.shape == (3, 1, 28, 28)
    draws = numpy_generator(0, Purpose.MODEL_INIT, "curves")
    corners, numbers = draws.uniform(3, 24, (3, 3, 4, 2)), draws.integers(1, 4, 3)
    pens = draws.uniform(1, 3, 3)
    for image, curves, number, pen in zip(found[:, 0], corners, numbers, pens, strict=True):
        points = [point(curve, step / 47) for curve in curves[:number] for step in range(48)]
        for row, column in [(0, 0), (5, 7), (13, 14), (20, 9), *(map(round, p) for p in points[::11])]:
            nearest = min(math.dist((row, column), p) for p in points)
            assert float(image[row, column]) == pytest.approx(min(1, max(0, pen / 2 + 0.5 - nearest)), abs=1e-5)


def point(corners: np.ndarray, time: float) -> tuple[float, float]:
    """A point of a Bézier curve: corners are replaced by points between neighbours until one is left."""
    while len(corners) > 1:
        corners = (1 - time) * corners[:-1] + time * corners[1:]
    return float(corners[0][0]), float(corners[0][1])
