"""What the principal components of a cube leave of its spectra, filled band by band.

Letters: y (C, H, W) a cube; z (K, H, W) coordinates of its spectra; complete (H, W), True where
they are.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from hydiff.cube import Bools, Floats, Ints
from hydiff.maths.subspace import Subspace
from hydiff.methods.membranes import Membrane, membrane

AT_ONCE = 2048  # pixels whose spectra are projected at a time: they stay in the cache


class Remainder(NamedTuple):
    """What the components of a cube leave of its whitened spectra."""

    rest: Floats  # (C, n) filled
    place: Ints  # (H, W) the column of a pixel in `rest`; -1 where that is not needed
    left: Floats  # (C,) its variance at the complete pixels


def remainder(
    y: Floats,
    complete: Bools,
    weight: Floats,
    space: Subspace,
    noise: Floats,
    membranes: dict[float, Membrane],
    *,
    everywhere: bool,
) -> tuple[Floats, Remainder]:
    """The components z (K, H, W) of a cube y (C, H, W) at its complete pixels, and what they leave
    of the spectra: at the missing pixels, or everywhere.

    The remainder is texture and noise of single bands, and here and there what no component holds:
    the absorption of a plume, a mineral.  A membrane in each band carries that into the gaps; all
    bands share its factor.  With noise of variance `noise` (C,) a band keeps the share of its
    remainder that is more than noise.
    """
    (C, K), missing = space.basis.shape, ~complete
    wanted = np.ones_like(complete) if everywhere else missing
    place = np.where(wanted, np.cumsum(wanted).reshape(wanted.shape) - 1, -1)
    rest = np.zeros((C, int(wanted.sum())))
    if K == C or not complete.any():  # nothing is left
        z, *_ = _projected(y, complete, weight, space, np.zeros_like(complete))
        return z, Remainder(rest, place, np.zeros(C))
    given = membrane_of(complete, inf, membranes) if missing.any() else None
    looked = complete if everywhere or given is None else given.rim.pixels
    z, leaves, left = _projected(y, complete, weight, space, looked)
    if noise.any():
        noise = noise * (1 - (space.basis**2).sum(axis=1))  # the components hold the other part
        leaves *= (np.maximum(left - noise, 0) / np.maximum(left, 1e-300))[:, None]
    if everywhere:
        rest[:, complete.ravel()] = leaves
    if given is not None:
        rest[:, missing[wanted]] = given.inside(leaves[:, given.rim.pixels[looked]])
    return z, Remainder(rest, place, left)


def _projected(
    y: Floats, complete: Bools, weight: Floats, space: Subspace, looked: Bools
) -> tuple[Floats, Floats, Floats]:
    """z (K, H, W); what the components leave of the weighed spectra at some of the complete pixels
    (H, W), (C, n); and its variance (C,) at all of them.  A few pixels at a time: cubes are large.
    """
    (C, K), at = space.basis.shape, np.flatnonzero(complete)
    z, leaves, left = np.zeros((K, complete.size)), np.empty((C, int(looked.sum()))), np.zeros(C)
    column = np.cumsum(looked) - 1
    for start in range(0, len(at), AT_ONCE):
        part = at[start : start + AT_ONCE]
        spectra = y.reshape(C, -1)[:, part]
        if (weight != 1).any():
            spectra *= weight[:, None]
        z[:, part] = own = space.project(spectra)
        spectra -= space.reconstruct(own)
        left += np.einsum("cn,cn->c", spectra, spectra)
        those = looked.ravel()[part]
        leaves[:, column[part[those]]] = spectra[:, those]
    return z.reshape(K, *complete.shape), leaves, left / max(len(at), 1)


def membrane_of(complete: Bools, reach: float, membranes: dict[float, Membrane]) -> Membrane:
    """The one that is at hand, or is now added to them."""
    if reach not in membranes:
        membranes[reach] = membrane(complete, reach)
    return membranes[reach]
