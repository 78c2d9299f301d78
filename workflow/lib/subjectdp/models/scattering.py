"""Fixed wavelet features of 28x28 images: the scattering transform of one item.

Bruna, Mallat 2013, "Invariant scattering convolution networks"; its use under DP: Tramèr, Boneh 2021, "Differentially
private learning needs better features (or much more data)". Filters and subsampling follow Kymatio (Andreux et al.
2020), so that coefficients can be compared.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from subjectdp.errors import ModelError, expected

_WIDTH = 0.8  # standard deviation of the finest wavelet and of the low pass at scale 0, in pixels
_FREQUENCY = 0.75 * math.pi  # centre of the finest wavelet's pass band
_REPLICAS = range(-2, 3)  # a periodic filter is the sum of the Gaussian at so many neighbouring periods


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

    Raises ModelError for ``scales`` other than 1 or 2, or fewer than 1 or more than 64 ``angles``.
    """

    def __init__(self, scales: int = 2, angles: int = 8, side: int = 28) -> None:
        super().__init__()
        if type(scales) is not int or scales not in (1, 2):
            raise expected("model.parameters.scales", scales, f"1 or 2 (2^scales divides {side})", ModelError)
        if type(angles) is not int or not 1 <= angles <= 64:
            raise expected("model.parameters.angles", angles, "a whole number from 1 to 64", ModelError)
        self.scales, self.angles, self.margin = scales, angles, 2**scales
        self.channels = 1 + scales * angles + scales * (scales - 1) // 2 * angles**2
        self.side = side // 2**scales
        padded = side + 2 * self.margin
        turned = [math.pi * (angles // 2 - 1 - turn) / angles for turn in range(angles)]
        waves = [[morlet(padded, scale, turn, 4 / angles) for turn in turned] for scale in range(scales)]
        self.register_buffer("waves", _spectrum(np.stack([np.stack(row) for row in waves])), persistent=False)
        self.register_buffer("average", _spectrum(low_pass(padded, scales)), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        padded = F.pad(images, [self.margin] * 4, mode="reflect")[:, 0]
        spectrum = torch.fft.fft2(padded)
        found = [self._averaged(spectrum, 0).unsqueeze(1)]
        moduli = [self._moduli(spectrum[:, None], 0, scale) for scale in range(self.scales)]
        found += [self._averaged(modulus, scale) for scale, modulus in enumerate(moduli)]
        for first, second in product(range(self.scales), repeat=2):
            if second > first:
                twice = self._moduli(moduli[first][:, :, None], first, second)
                found.append(self._averaged(twice, second).flatten(1, 2))
        return torch.cat(found, dim=1)

    def _moduli(self, spectra: Tensor, resolution: int, scale: int) -> Tensor:
        """Spectra of |y ⋆ ψ| for all angles at ``scale``, on a grid coarser by 2^(scale - resolution)."""
        waves = self.get_buffer("waves")[scale]
        filtered = folded(spectra * periodised(waves, 2**resolution), 2 ** (scale - resolution))
        spectrum: Tensor = torch.fft.fft2(torch.fft.ifft2(filtered).abs())
        return spectrum

    def _averaged(self, spectra: Tensor, resolution: int) -> Tensor:
        """y ⋆ φ at every 2^scales-th pixel, without the margin."""
        average = periodised(self.get_buffer("average"), 2**resolution)
        smooth: Tensor = torch.fft.ifft2(folded(spectra * average, 2 ** (self.scales - resolution))).real
        return smooth[..., 1:-1, 1:-1]


def _spectrum(filters: NDArray[np.complex128] | NDArray[np.float64]) -> Tensor:
    """Fourier transform of filters that are even or conjugate-even: real, float32."""
    return torch.from_numpy(np.fft.fft2(filters).real.astype(np.float32))


def folded(spectra: Tensor, factor: int) -> Tensor:
    """The spectrum (..., n/factor, n/factor) of every ``factor``-th sample of a signal with spectrum (..., n, n)."""
    return periodised(spectra, factor) / factor**2


def periodised(spectra: Tensor, factor: int) -> Tensor:
    """The spectrum of a filter for a grid coarser by ``factor``: the sum over the bands that fall together."""
    if factor == 1:
        return spectra
    side = spectra.shape[-1] // factor
    parts = spectra.reshape(*spectra.shape[:-2], factor, side, factor, side)
    return parts.sum(dim=(-4, -2))
