"""Shared steps of fills on principal components: spectra to coordinates, spatial fill, and back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hydiff.cube import Bools, Floats
from hydiff.errors import BadValue
from hydiff.maths import subspace

SpatialFill = Callable[[Floats, Bools], Floats]  # z (K, H, W), complete (H, W) → filled (K, H, W)

TRUSTED = 0.9  # a pixel is complete if its observed bands explain this share of its variance


def check(components: int, default: int) -> None:
    """Raise BadValue for less than one component; default: the usual number, for the message."""
    if components < 1:
        raise BadValue(f"components = {components}: at least one is needed; {default} is usual")


def decompose(
    y: Floats, observed: Bools, components: int
) -> tuple[subspace.Subspace, Floats, Bools]:
    """Return the subspace of y (C, H, W), coordinates z (K, H, W) and complete pixels (H, W).

    The coordinates of partly observed pixels come from regression on their bands, if these
    determine them well enough; other pixels have z = 0 and are not complete.
    """
    C, H, W = y.shape
    entries = np.broadcast_to(observed, y.shape).reshape(C, -1)
    flat = y.reshape(C, -1)
    space = subspace.fit(flat, entries, components)
    complete: Bools = np.array(entries.all(axis=0))
    z = np.zeros((space.basis.shape[1], H * W))
    z[:, complete] = space.project(flat[:, complete])
    partial = entries.any(axis=0) & ~complete
    if partial.any():
        z[:, partial], explained = subspace.regress(flat[:, partial], entries[:, partial], space)
        least = TRUSTED if complete.any() else min(TRUSTED, float(np.median(explained)))
        complete[partial] = explained >= least
    z[:, ~complete] = 0.0
    return space, z.reshape(-1, H, W), complete.reshape(H, W)


def fill_on_components(y: Floats, observed: Bools, components: int, fill: SpatialFill) -> Floats:
    """Return y (C, H, W) with its gaps filled on the components; observed entries stay."""
    space, z, complete = decompose(y, observed, components)
    if not complete.all():
        z = fill(z, complete)
    return np.where(observed, y, space.reconstruct(z))
