"""Fixed wavelet features of 28x28 images: the scattering transform of one item.

Bruna, Mallat 2013, "Invariant scattering convolution networks"; its use under DP: Tramèr, Boneh 2021, "Differentially
private learning needs better features (or much more data)". Filters and subsampling follow Kymatio (Andreux et al.
2020), so that coefficients can be compared.
"""

import math
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from subjectdp.noise.keys import Purpose, numpy_generator

_WIDTH = 0.8  # standard deviation of the finest wavelet and of the low pass at scale 0, in pixels
_FREQUENCY = 0.75 * math.pi  # centre of the finest wavelet's pass band
_REPLICAS = range(-2, 3)  # a periodic filter is the sum of the Gaussian at so many neighbouring periods
_TAIL = 1e-12  # what a filter has below this share of its largest value is 0
_AT_ONCE = 32  # images, so that intermediate results stay in the cache


def gabor(side: int, width: float, angle: float, frequency: float, slant: float) -> NDArray[np.complex128]:
    """A periodic Gabor function (side, side), centred at (0, 0); its Gaussian alone sums to about 1.

    ``width``: standard deviation in pixels along the wave; across it is ``width / slant``. ``angle`` in radians from
    the first axis, ``frequency`` in radians a pixel.
    """
    grid = np.arange(side, dtype=np.float64)
    total = np.zeros((side, side), dtype=np.complex128)
    cosine, sine = math.cos(angle), math.sin(angle)
    for down, right in product(_REPLICAS, _REPLICAS):
        rows, columns = (grid + down * side)[:, None], (grid + right * side)[None, :]
        along, across = rows * cosine + columns * sine, columns * cosine - rows * sine
        total += np.exp(-(along**2 + (slant * across) ** 2) / (2 * width**2) + 1j * frequency * along)
    return total * slant / (2 * math.pi * width**2)


def morlet(side: int, scale: int, angle: float, slant: float) -> NDArray[np.complex128]:
    """A Morlet wavelet of the dyadic ``scale``: a Gabor function minus a multiple of its Gaussian, with mean 0."""
    width, frequency = _WIDTH * 2**scale, _FREQUENCY / 2**scale
    wave, envelope = gabor(side, width, angle, frequency, slant), gabor(side, width, angle, 0.0, slant)
    return np.asarray(wave - wave.sum() / envelope.sum() * envelope)


def low_pass(side: int, scales: int) -> NDArray[np.float64]:
    """The Gaussian that averages over about 2^scales pixels, (side, side)."""
    return np.asarray(gabor(side, _WIDTH * 2 ** (scales - 1), 0.0, 0.0, 1.0).real)


class Scattering(nn.Module):
    """Scattering coefficients up to order 2: float (B, 1, 28, 28) to (B, ``channels``, 28 / 2^scales, 28 / 2^scales).

    Order 0 is x ⋆ φ, order 1 |x ⋆ ψ_1| ⋆ φ for ``angles`` wavelets at each of ``scales`` scales, order 2
    ||x ⋆ ψ_1| ⋆ ψ_2| ⋆ φ for ψ_2 of a coarser scale than ψ_1; in this order, ψ_2 running fastest. Convolutions are
    circular on the image mirrored at its borders, and subsampled as far as their bands allow. There are no parameters;
    the filters are buffers that are not saved.
    """

    def __init__(self, scales: int = 2, angles: int = 8, side: int = 28) -> None:
        super().__init__()
        self.scales, self.angles, self.margin = scales, angles, 2**scales
        self.channels = 1 + scales * angles + scales * (scales - 1) // 2 * angles**2
        self.side = side // 2**scales
        padded = side + 2 * self.margin
        turned = [math.pi * (angles // 2 - 1 - turn) / angles for turn in range(angles)]
        for scale in range(scales):
            waves = np.stack([morlet(padded, scale, turn, 4 / angles) for turn in turned])
            self.register_buffer(f"waves_{scale}", _bands(waves, 2**scale), persistent=False)
            self.register_buffer(f"average_{scale}", averages(padded, scales, scale), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([self._coefficients(some) for some in torch.split(images, _AT_ONCE)])

    def _coefficients(self, images: Tensor) -> Tensor:
        padded = F.pad(images, [self.margin] * 4, mode="reflect")
        spectrum = torch.fft.fft2(padded)
        found = [self._averaged(padded, 0)]
        moduli = [self._moduli(spectrum, scale) for scale in range(self.scales)]
        found += [self._averaged(modulus, scale) for scale, modulus in enumerate(moduli)]
        if self.scales == 2:
            twice = self._moduli(torch.fft.fft2(moduli[0]).unsqueeze(2), 1)
            found.append(self._averaged(twice, 1).flatten(1, 2))
        return torch.cat(found, dim=1)

    def _moduli(self, spectra: Tensor, scale: int) -> Tensor:
        """|y ⋆ ψ| at every 2^scale-th pixel for all angles of ``scale``, of spectra of y (..., 1, n, n)."""
        moduli: Tensor = torch.fft.ifft2(products(spectra, self.get_buffer(f"waves_{scale}"), 2**scale)).abs()
        return moduli

    def _averaged(self, maps: Tensor, scale: int) -> Tensor:
        """y ⋆ φ at every 2^scales-th pixel, without the margin, of maps y on a grid coarser by 2^scale."""
        smooth: Tensor = maps.flatten(-2) @ self.get_buffer(f"average_{scale}")
        return smooth.view(*smooth.shape[:-1], self.side, self.side)


def _bands(filters: NDArray[np.complex128], factor: int) -> Tensor:
    """Bands of (real) spectra that meet on a coarser grid, each value twice: float32 (factor², filters, n, 2 n)."""
    side = filters.shape[-1] // factor
    spectra = np.fft.fft2(filters).real / factor**2
    bands = spectra.reshape(-1, factor, side, factor, side).transpose(1, 3, 0, 2, 4)
    return _float32(np.repeat(bands.reshape(factor**2, -1, side, side), 2, axis=-1))


def products(spectra: Tensor, bands: Tensor, factor: int) -> Tensor:
    """Spectra of y ⋆ ψ at every ``factor``-th pixel, complex (..., filters, n, n); of y: (..., 1, n · factor, ...)."""
    side = spectra.shape[-1] // factor
    grid = torch.view_as_real(spectra).reshape(*spectra.shape[:-2], factor, side, factor, 2 * side)
    parts = [grid[..., down, :, right, :] for down, right in product(range(factor), repeat=2)]
    total: Tensor = parts[0] * bands[0]
    for part, band in zip(parts[1:], bands[1:], strict=True):
        total.addcmul_(part, band)
    return torch.view_as_complex(total.view(*total.shape[:-1], side, 2))


def averages(side: int, scales: int, resolution: int) -> Tensor:
    """Convolution with φ and subsampling as one matrix, float32 (n², m²), for maps (n, n) on a grid coarser by
    2^resolution, n = side / 2^resolution; the outer pixels of the result are left out: m = side / 2^scales - 2.
    """
    factor = 2**resolution
    average = low_pass(side, scales)[::factor, ::factor] * factor**2
    size, step = side // factor, 2**scales // factor
    kept = np.arange(1, side // 2**scales - 1) * step
    shift = (kept[:, None] - np.arange(size)) % size
    return _float32(average[shift[:, None, :, None], shift[None, :, None, :]].reshape(len(kept) ** 2, size**2).T)


def _float32(values: NDArray[np.float64]) -> Tensor:
    """As a tensor, with 0 for the tails: numbers next to the least float32 make a processor many times slower."""
    large = np.abs(values) > _TAIL * np.abs(values).max()
    return torch.from_numpy(np.ascontiguousarray(np.where(large, values, 0.0), dtype=np.float32))


_MOST = 3  # curves in an image
_POINTS = 48  # of a curve, which are at most about a pixel apart
_MARGIN = 3  # pixels of paper around the corners that a curve is drawn by


def random_curves(count: int, side: int = 28) -> Tensor:
    """``count`` images float32 (count, 1, side, side) from 0 (paper) to 1 (ink), the same at every call.

    An image has one to three cubic Bézier curves, with corners drawn uniformly, of a pen of 1 to 3 pixels. The first
    images of a larger ``count`` are others.
    """
    draws = numpy_generator(0, Purpose.MODEL_INIT, "curves")
    corners = draws.uniform(_MARGIN, side - 1 - _MARGIN, (count, _MOST, 4, 2))
    numbers, pens = draws.integers(1, _MOST + 1, count), draws.uniform(1.0, 3.0, count)
    time = np.linspace(0.0, 1.0, _POINTS)[:, None]
    weights = np.hstack([(1 - time) ** 3, 3 * time * (1 - time) ** 2, 3 * time**2 * (1 - time), time**3])
    images = [
        _drawn((weights @ some[:number]).reshape(-1, 2), pen, side)
        for some, number, pen in zip(corners, numbers, pens, strict=True)
    ]
    return torch.from_numpy(np.stack(images).astype(np.float32)).unsqueeze(1)


def _drawn(points: NDArray[np.float64], pen: float, side: int) -> NDArray[np.float64]:
    """Ink (side, side) of a round pen of this width at ``points`` (n, 2), fading out over one pixel."""
    squares = (np.arange(side)[:, None] - points.T[:, None, :]) ** 2  # (2, side, n)
    nearest = (squares[0][:, None] + squares[1][None, :]).min(axis=2)
    return np.asarray(np.clip(pen / 2 + 0.5 - np.sqrt(nearest), 0.0, 1.0))
