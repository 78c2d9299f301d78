"""Scattering against its definition, sums over pixels in float64; its principal components on random curves against
numpy's SVD and curves drawn pixel by pixel."""

import cmath
import math

import numpy as np
import pytest
import torch

from subjectdp.models import fixed
from subjectdp.models.build import build_model
from subjectdp.models.fixed import NormalisedScattering
from subjectdp.models.scattering import Scattering, low_pass, morlet, random_curves
from subjectdp.noise.keys import Purpose, numpy_generator

pytestmark = pytest.mark.slow

SIDE, MARGIN = 36, 4  # 28 pixels and four mirrored ones on each side


def images(count: int) -> torch.Tensor:
    return torch.rand(count, 1, 28, 28, generator=torch.Generator().manual_seed(3))


def wavelet(row: int, column: int, scale: int, angle: float, angles: int) -> complex:
    """A Morlet wavelet, written out for one pixel from its textbook form (Kymatio's constants)."""
    width, frequency, slant = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, 4 / angles

    def bump(u: float, v: float) -> float:
        along, across = u * math.cos(angle) + v * math.sin(angle), v * math.cos(angle) - u * math.sin(angle)
        return math.exp(-(along**2 + slant**2 * across**2) / (2 * width**2))

    mass, wave = 0.0, 0j
    shifts = [k * SIDE for k in range(-2, 3)]
    for du in shifts:
        for dv in shifts:
            u, v = row + du, column + dv
            along = u * math.cos(angle) + v * math.sin(angle)
            wave += bump(u, v) * cmath.exp(1j * frequency * along)
            mass += bump(u, v)
    # the mean of the wave over the plane, by the Gaussian's Fourier transform at the wave's frequency
    total = wave - math.exp(-((frequency * width) ** 2) / 2) * mass
    return total * slant / (2 * math.pi * width**2)


def circular(signal: np.ndarray, filter_: np.ndarray) -> np.ndarray:
    """Circular convolution by summing shifted copies, no Fourier transform."""
    out = np.zeros(signal.shape, dtype=np.complex128)
    for row in range(signal.shape[0]):
        for column in range(signal.shape[1]):
            out += signal[row, column] * np.roll(filter_, (row, column), axis=(0, 1))
    return out


def mirrored(image: torch.Tensor) -> np.ndarray:
    return np.pad(image[0].double().numpy(), MARGIN, mode="reflect")


def filters(scales: int, angles: int) -> tuple[list[list[np.ndarray]], np.ndarray]:
    turned = [math.pi * (angles // 2 - 1 - turn) / angles for turn in range(angles)]
    return [[morlet(SIDE, j, a, 4 / angles) for a in turned] for j in range(scales)], low_pass(SIDE, scales)


def coarser(filter_: np.ndarray, factor: int) -> np.ndarray:
    """A band-limited filter on a grid coarser by ``factor``: every factor-th value, times factor²."""
    return filter_[::factor, ::factor] * factor**2


@pytest.mark.parametrize(("scale", "angles", "turn"), [(0, 8, 0), (0, 8, 5), (1, 8, 3), (1, 4, 1)])
def test_wavelets_are_those_of_the_textbook(scale: int, angles: int, turn: int) -> None:
    angle = math.pi * turn / angles
    found = morlet(SIDE, scale, angle, 4 / angles)
    for row, column in [(0, 0), (1, 0), (0, 2), (35, 1), (30, 33), (4, 7)]:
        assert found[row, column] == pytest.approx(wavelet(row, column, scale, angle, angles), abs=2e-3)


def test_wavelets_have_mean_zero_and_the_low_pass_has_mass_one() -> None:
    waves, average = filters(2, 8)
    assert all(abs(wave.sum()) < 1e-12 for row in waves for wave in row)
    assert average.sum() == pytest.approx(1.0, abs=1e-5)


def test_all_orders_are_what_sums_over_pixels_give() -> None:
    transform, image = Scattering(2, 4), images(1)
    found = transform(image)[0].double().numpy()
    waves, average = filters(2, 4)
    signal, inside = mirrored(image[0]), slice(1, -1)
    wanted = [circular(signal, average).real[::4, ::4][inside, inside]]
    first = [[np.abs(circular(signal, wave)) for wave in row] for row in waves]
    wanted += [circular(m, average).real[::4, ::4][inside, inside] for m in first[0]]
    # scale 1 is kept at every second pixel
    half = coarser(average, 2)
    wanted += [circular(m[::2, ::2], half).real[::2, ::2][inside, inside] for m in first[1]]
    for modulus in first[0]:
        for wave in waves[1]:
            twice = np.abs(circular(modulus, wave))[::2, ::2]
            wanted.append(circular(twice, half).real[::2, ::2][inside, inside])
    assert found.shape == (1 + 8 + 16, 7, 7)
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-6, err_msg=f"channel {place}")


def test_an_image_is_transformed_by_itself_and_turning_it_permutes_the_angles() -> None:
    transform, batch = Scattering(2, 8), images(3)
    whole = transform(batch)
    torch.testing.assert_close(whole[1:2], transform(batch[1:2]), rtol=1e-5, atol=1e-6)
    bar = torch.zeros(1, 1, 28, 28)
    bar[..., 12:15, 8:19] = 1.0  # along the second axis
    first, second = (int(transform(each)[0, 1:9].sum((1, 2)).argmax()) for each in (bar, bar.transpose(2, 3)))
    assert abs(first - second) == 4, "a quarter turn is four of eight angles"


def test_random_directions_keep_lengths_and_are_the_same_for_every_run() -> None:
    whole = build_model("scattering_head", 62, "image", 0)
    heads = [build_model("scattering_head", 62, "image", seed, {"directions": 512}) for seed in (0, 1)]
    items = images(8)
    full, (first, second) = whole.features(items), [head.features(items) for head in heads]
    assert torch.equal(first, second)
    assert first.shape == (8, 512) and heads[0].head.weight.shape == (62, 512)
    # a projection's squared length is that of the features times chi-squared(512) / 512, of deviation 1/16
    ratios = first.square().sum(1) / full.square().sum(1)
    assert float(ratios.min()) > 0.75
    assert float(ratios.max()) < 1.25
    between = (first[0] - first[1]).square().sum() / (full[0] - full[1]).square().sum()
    assert 0.75 < float(between) < 1.25


def test_no_filter_has_values_that_a_processor_is_slow_with() -> None:
    least = torch.finfo(torch.float32).tiny ** 0.5  # products of two such values are normal numbers
    for name, values in Scattering(2, 8).named_buffers():
        assert values[values != 0].abs().min() > least, name


SMALL = {"scales": 1, "angles": 2, "components": 20}  # 588 coefficients


def test_features_are_what_numpys_decomposition_of_the_curves_gives() -> None:
    coefficients = NormalisedScattering(1, 2)
    curves = coefficients(random_curves(1000)).double().numpy()
    mean = curves.mean(axis=0)
    _, lengths, directions = np.linalg.svd(curves - mean, full_matrices=False)
    deviations = (lengths / math.sqrt(1000))[:20]
    scores = (coefficients(images(6)).double().numpy() - mean) @ directions[:20].T / np.sqrt(deviations)
    wanted = scores / math.sqrt(deviations.sum())  # Σ λ / λ^½ is the mean square norm on the curves
    found = build_model("scattering_head", 62, "image", 0, SMALL).features(images(6)).double().numpy()
    signs = np.sign((found * wanted).sum(axis=0))
    np.testing.assert_allclose(found, wanted * signs, rtol=1e-3, atol=1e-5)


def test_they_are_the_same_for_every_seed_and_process_and_whatever_the_levels_of_ink() -> None:
    first = build_model("scattering_head", 62, "image", 0, SMALL).features(images(6))
    fixed._components_of_curves.cache_clear()
    features = build_model("scattering_head", 62, "image", 1, SMALL).features
    assert torch.equal(features(images(6)), first)
    torch.testing.assert_close(features(3 * images(6) - 0.5), first, rtol=1e-3, atol=1e-4)
    assert float(features(random_curves(1000)).square().sum(dim=1).mean()) == pytest.approx(1.0, abs=1e-3)


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
