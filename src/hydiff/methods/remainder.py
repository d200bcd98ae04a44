"""The remainder of spectra: their difference from the principal components, filled band by band.

Letters: y (C, H, W) a cube; z (K, H, W) coordinates of its spectra; complete (H, W), True where z
is known.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from hydiff.cube import Bools, Floats, Ints
from hydiff.maths.subspace import Subspace
from hydiff.methods.membranes import Elsewhere, Membrane, membrane

AT_ONCE = 2048  # pixels whose spectra are projected together, so that they stay in the cache


class Remainder(NamedTuple):
    """The whitened spectra of a cube minus their components."""

    rest: Floats  # (C, n) remainder, filled in the gaps
    column: Ints  # (H, W) column of each pixel in `rest`; -1 where it is not needed
    rest_var: Floats  # (C,) variance of the remainder at the complete pixels


def remainder(
    y: Floats,
    complete: Bools,
    weight: Floats,
    space: Subspace,
    noise: Floats,
    membranes: dict[float, Membrane],
    *,
    everywhere: bool,
    elsewhere: Elsewhere | None = None,
) -> tuple[Floats, Remainder]:
    """Return the components z (K, H, W) of a cube y (C, H, W) at its complete pixels, and the
    filled remainder of the spectra: at the missing pixels only, or everywhere.

    The remainder is texture and noise of single bands and, in places, a feature that no component
    holds, such as the absorption of a plume or of a mineral.  A membrane in each band carries it
    into the gaps; all bands share one factorised matrix.  With noise of variance `noise` (C,) a
    band keeps only the share of its remainder above the noise.
    membranes: cache of the membranes of this mask, by reach.  elsewhere: as in `membrane`.
    """
    (C, K), missing = space.basis.shape, ~complete
    wanted = np.ones_like(complete) if everywhere else missing
    column = np.where(wanted, np.cumsum(wanted).reshape(wanted.shape) - 1, -1)
    rest = np.zeros((C, int(wanted.sum())))
    if K == C or not complete.any():  # there is no remainder
        z, *_ = _projected(y, complete, weight, space, np.zeros_like(complete))
        return z, Remainder(rest, column, np.zeros(C))
    surface = membrane_of(complete, inf, membranes, elsewhere) if missing.any() else None
    sampled = complete if everywhere or surface is None else surface.rim.pixels
    z, residual, rest_var = _projected(y, complete, weight, space, sampled)
    if noise.any():
        noise = noise * (1 - (space.basis**2).sum(axis=1))  # the components contain the other part
        residual *= (np.maximum(rest_var - noise, 0) / np.maximum(rest_var, 1e-300))[:, None]
    if everywhere:
        rest[:, complete.ravel()] = residual
    if surface is not None:
        rest[:, missing[wanted]] = surface.inside(residual[:, surface.rim.pixels[sampled]])
    return z, Remainder(rest, column, rest_var)


def _projected(
    y: Floats, complete: Bools, weight: Floats, space: Subspace, sampled: Bools
) -> tuple[Floats, Floats, Floats]:
    """Return z (K, H, W), the remainder (C, n) of the weighted spectra at the n complete pixels in
    the mask `sampled` (H, W), and its variance (C,) over all complete pixels.  Pixels are projected
    in small batches, since cubes are large.
    """
    (C, K), at = space.basis.shape, np.flatnonzero(complete)
    z, residual = np.zeros((K, complete.size)), np.empty((C, int(sampled.sum())))
    square = np.zeros(C)
    number = np.cumsum(sampled) - 1
    for start in range(0, len(at), AT_ONCE):
        part = at[start : start + AT_ONCE]
        spectra = y.reshape(C, -1)[:, part]
        if (weight != 1).any():
            spectra *= weight[:, None]
        z[:, part] = coordinates = space.project(spectra)
        spectra -= space.reconstruct(coordinates)
        square += np.einsum("cn,cn->c", spectra, spectra)
        in_sample = sampled.ravel()[part]
        residual[:, number[part[in_sample]]] = spectra[:, in_sample]
    return z.reshape(K, *complete.shape), residual, square / max(len(at), 1)


def membrane_of(
    complete: Bools,
    reach: float,
    membranes: dict[float, Membrane],
    elsewhere: Elsewhere | None = None,
) -> Membrane:
    """Return the membrane with this reach from the cache `membranes`, or add it there."""
    if reach not in membranes:
        membranes[reach] = membrane(complete, reach, elsewhere)
    return membranes[reach]
