"""Kriging of components: the expectation of each field, given its values at the complete pixels.

Letters: z (K, H, W) components; complete (H, W), True where z is known; f the field in
z = f + texture + noise, as in `smooth`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from hydiff.cube import Bools, Floats
from hydiff.maths.variogram import LEAST_NUGGET, Covariance, Kind
from hydiff.methods.classical import field
from hydiff.methods.membranes import Membrane
from hydiff.methods.remainder import membrane_of

if TYPE_CHECKING:
    from hydiff.learn.gap_fields import GapFields


def krige(
    z: Floats,
    complete: Bools,
    covariances: Sequence[Covariance],
    noise: float,
    membranes: dict[float, Membrane] | None = None,
    gaps: GapFields | None = None,
) -> Floats:
    """Return E[f + texture | z] (K, H, W) for noise of variance `noise` on every component.

    Without noise the complete pixels keep their values.  membranes: cache of the membranes of this
    mask, by reach; new ones are added.  gaps: as in `fields`.
    """
    membranes = {} if membranes is None else membranes
    mean = z[:, complete].mean(axis=1)[:, None, None]
    centred = np.where(complete, z - mean, 0.0)
    # the nugget of the variogram is texture and noise together
    total = [c._replace(nugget=max(c.nugget, noise)) for c in covariances]
    f = np.zeros_like(z)
    varying = [k for k, c in enumerate(total) if c.kind[2] < inf]
    if varying:
        kinds = [total[k].kind for k in varying]
        kinds = [(s, reach, kappa if kappa > LEAST_NUGGET else 0.0) for s, reach, kappa in kinds]
        f[varying] = fields(centred[varying], complete, kinds, membranes, gaps)
    texture = np.array([1 - noise / c.nugget if c.nugget > 0 else 1.0 for c in total])
    centred -= f
    centred *= texture[:, None, None]
    centred *= complete
    f += centred
    f += mean
    return f


def fields(
    z: Floats,
    complete: Bools,
    kinds: Sequence[Kind],
    membranes: dict[float, Membrane],
    gaps: GapFields | None = None,
) -> Floats:
    """Return the fill (K, H, W) of components that have these kinds of covariance.

    membranes: cache of membranes, by reach.  gaps: those of the mask on a device; used, if given,
    as long as the device can do it.
    """
    f = None if gaps is None else gaps.fields(z, kinds)
    if f is None:
        f = np.empty_like(z)
        for kind in dict.fromkeys(kinds):
            (s, reach, kappa), members = kind, [k for k, own in enumerate(kinds) if own == kind]
            f[members] = plain_field(z[members], complete, s, reach, membranes, kappa=kappa)
    return f


def plain_field(
    z: Floats,
    complete: Bools,
    s: float,
    reach: float,
    membranes: dict[float, Membrane],
    *,
    kappa: float = 0.0,
) -> Floats:
    """Return the fill (K, H, W) by `classical.field`; membranes: cache of membranes, by reach."""
    surface = None if complete.all() else membrane_of(complete, reach, membranes)
    return field(z, complete, s, reach, surface, kappa=kappa)
