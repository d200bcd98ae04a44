"""Exemplar: patches copied from elsewhere in the image (Criminisi, Pérez, Toyama, 2004).

The pixel on the rim of a gap with the highest priority (many complete pixels around it, a strong
edge that meets the gap) is filled next.  The window around it is compared with all complete windows
of the image, and its missing pixels are copied from the most similar one.  Similarity and copies
use the principal components, so that all bands come from one place and spectra stay realistic.

If there are too few complete windows of the given size, a smaller size is used; if there are too
few even of 3 × 3 pixels, each missing pixel is filled with the nearest complete one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import ndimage

from hydiff.cube import Bools, Floats
from hydiff.errors import BadValue
from hydiff.methods import components
from hydiff.methods.classical import Plain, nearest
from hydiff.result import Step

FEWEST = 50  # complete windows that a window size needs


@dataclass(frozen=True)
class Exemplar:
    patch: int = 9  # side of the window, odd; the published size
    components: int = 8  # principal components compared and copied

    PRESETS: ClassVar[dict[str, Exemplar]]

    def __post_init__(self) -> None:
        components.check(self.components, 8)
        if self.patch < 3 or self.patch % 2 == 0:
            raise BadValue(f"patch = {self.patch}: expected an odd side of 3 or more; 9 is usual")


Exemplar.PRESETS = {"paper": Exemplar(), "fast": Exemplar(patch=5, components=4)}


def exemplar(
    y: Floats, observed: Bools, sigma_y: Floats, settings: Exemplar, *, rng: Any
) -> Iterator[Step]:
    """Fill a cube patch by patch, yielding about 20 steps.

    y (C, H, W), 0 where missing; observed (H, W) or (C, H, W); noise is not modelled.
    """
    space, z, complete = components.decompose(y, observed, settings.components)
    total, yielded = max(int((~complete).sum()), 1), 0
    for filled, left in _copied(z, complete, settings.patch):
        done = total - left
        # computing all bands costs more than a patch of components: only 20 times
        if left == 0 or done - yielded >= total / 20:
            yielded = done
            yield Step(done, total, np.where(observed, y, space.reconstruct(filled)))


def window_size(complete: Bools, wished: int) -> int:
    """Return the largest odd size up to `wished` with enough complete windows; else 1."""
    for size in range(wished, 1, -2):
        if _whole(complete, size).sum() >= FEWEST:
            return size
    return 1


def _whole(complete: Bools, size: int) -> Bools:
    """Return a mask of the centres of complete windows that lie inside the image."""
    return ndimage.minimum_filter(complete, size, mode="constant", cval=False)


def _copied(z: Floats, complete: Bools, wished: int) -> Iterator[tuple[Floats, int]]:
    """Yield z (K, H, W) after each patch, with the number of pixels left to fill."""
    size = window_size(complete, wished)
    if size == 1 or complete.all():
        *_, step = nearest(z, complete, np.zeros(len(z)), Plain(), rng=None)
        yield step.x, 0
        return
    r = size // 2
    windows = np.lib.stride_tricks.sliding_window_view(z, (size, size), axis=(1, 2))
    sources = np.argwhere(_whole(complete, size))
    # (sources, K, size · size), computed once: filled pixels are never sources
    bank = windows[:, sources[:, 0] - r, sources[:, 1] - r].swapaxes(0, 1)
    bank = np.ascontiguousarray(bank.reshape(len(sources), len(z), -1).astype(np.float32))
    # pad by a frame that counts as missing, so that windows at the border need no special case
    x = np.pad(z, ((0, 0), (r, r), (r, r)))
    have = np.pad(complete, r)
    inside = np.pad(np.ones(complete.shape, bool), r)
    confidence = have.astype(float)
    while True:
        missing = inside & ~have
        rim = missing & ndimage.binary_dilation(have)
        left = int(missing.sum())
        if left == 0:
            break
        row, col, trust = _next(x, have, missing, rim, confidence, size)
        patch = (slice(row - r, row + r + 1), slice(col - r, col + r + 1))
        present, empty = have[patch].ravel(), missing[patch].ravel()
        target = x[(slice(None), *patch)].reshape(len(x), -1)
        difference = bank[:, :, present] - target[:, present].astype(np.float32)
        best = int(np.argmin(np.einsum("nkp,nkp->n", difference, difference)))
        target = np.where(empty, bank[best], target)
        x[(slice(None), *patch)] = target.reshape(len(x), size, size)
        confidence[patch] = np.where(missing[patch], trust, confidence[patch])
        have[patch] |= missing[patch]
        left -= int(empty.sum())
        yield x[:, r:-r, r:-r], left


def _next(
    x: Floats, have: Bools, missing: Bools, rim: Bools, confidence: Floats, size: int
) -> tuple[int, int, float]:
    """Return the rim pixel to fill next, and the confidence of its fill."""
    trust = ndimage.uniform_filter(np.where(have, confidence, 0.0), size, mode="constant")
    image = x[0]  # the strongest component shows the edges
    level = float(image[have].std()) or 1.0
    down, across = (ndimage.sobel(np.where(have, image, 0.0), axis) / level for axis in (0, 1))
    interior = ndimage.binary_erosion(have)  # elsewhere the gradient is that of the rim of the gap
    down, across = np.where(interior, down, 0.0), np.where(interior, across, 0.0)
    strength = np.hypot(down, across)
    strongest = ndimage.maximum_filter(strength, 3)
    gap = missing.astype(float)
    normal = [ndimage.sobel(gap, axis) for axis in (0, 1)]
    length = np.hypot(*normal) + 1e-9
    # edges run along isophotes; those that meet the gap at a right angle are continued first
    flow = np.abs(-across * normal[0] + down * normal[1]) / length
    data = 1e-3 + np.where(strongest > 0, ndimage.maximum_filter(flow, 3), 0.0)
    priority = np.where(rim, trust * data, -1.0)
    row, col = np.unravel_index(int(np.argmax(priority)), rim.shape)
    return int(row), int(col), float(trust[row, col])
