"""Classes of entries: by distance to the data, by group of bands, by texture around them."""

from __future__ import annotations

import numpy as np

from hydiff import mask, validate
from hydiff.cube import Bools, Cube, Floats
from hydiff.mask import Ints

BAND_GROUPS = 4
D, T = len(validate.EDGES) + 1, validate.TEXTURES


def groups(bands: int) -> Ints:
    """(bands,) the group of each band."""
    return np.minimum(np.arange(bands) * BAND_GROUPS // max(bands, 1), BAND_GROUPS - 1)


def band_spread(cube: Cube, seen: Bools) -> Floats:
    """(bands,) standard deviation of the seen entries; 1 for constant bands."""
    values = np.asarray(cube.values, dtype=np.float64)
    spread = np.array([v[s].std() if s.any() else 0.0 for v, s in zip(values, seen, strict=True)])
    return np.where(spread > 0, spread, 1.0)


def kinds_of(cube: Cube, seen: Bools, target: Bools) -> tuple[Ints, Floats]:
    """Distance class and roughness of the entries to fill in good bands."""
    target = target & cube.good_bands[:, None, None]
    distance = np.empty(seen.shape, np.intp)
    distance[:] = validate.distance_class(mask.shared(seen))
    values = np.asarray(cube.values, dtype=np.float64)
    rough = np.broadcast_to(validate.roughness(values, seen), seen.shape)
    return distance[target], rough[target]


def share_of_length(size: Floats, spectra: Floats) -> Floats:
    """A size (pixels,) as a share of the length of spectra (bands, pixels); 0 where they are 0."""
    length = np.linalg.norm(spectra, axis=0)
    share: Floats = np.divide(size, length, out=np.zeros(length.shape), where=length > 0)
    return share
