"""Unusable pixels of a reference: gaps, flags of quality layers, clouds and their rims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import ndimage

from hydiff.cube import Bools, Cube
from hydiff.flags import CLOUD
from hydiff.io import quality

AROUND_CLOUDS = 3  # px around a cloud that count as cloud too


def measured_in(reference: Cube, mask: Bools | None = None) -> Bools:
    """Return a mask (R, rows, cols), True = usable.  mask: given by the user, (rows, cols) or by
    band, True = measured; pixels that it excludes are treated like clouds."""
    measured = reference.observed()
    clouds = np.asarray(reference.withheld_in(np.asarray(reference.values)).any(axis=0))
    if mask is not None:
        clouds = clouds | (~mask if mask.ndim == 2 else ~mask.all(axis=0))
    for flag, entries in _flagged(reference):
        if _is_cloud(flag):
            clouds = clouds | entries.any(axis=0)
        else:
            measured = measured & ~entries
    return measured & ~ndimage.binary_dilation(clouds, iterations=AROUND_CLOUDS)


def _flagged(reference: Cube) -> list[tuple[str, Bools]]:
    """Return relevant flags of quality layers beside a product, with entries (R, rows, cols)."""
    if reference.path is None:
        return []
    flagged = []
    for path, flags in quality.beside(reference.path, reference.format).items():
        layers = quality.layers(Path(path), str(reference.format))
        for flag in flags:
            if _is_cloud(flag) or flag in quality.USUAL:
                entries = layers[flag](reference.shape)
                flagged.append((flag, np.broadcast_to(entries, reference.shape)))
    return flagged


def _is_cloud(flag: str) -> bool:
    """Whether a flag of a quality layer marks clouds or shadows."""
    return quality.reason_of(flag) == CLOUD or "shadow" in flag.lower()
