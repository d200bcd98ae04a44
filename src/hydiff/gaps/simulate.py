"""Simulate damage of a clean cube: y = M x + n, in the unit and dtype of the cube."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hydiff.cube import Array, Bools, Cube, Nodata, equals, representable
from hydiff.errors import BadValue, need_torch
from hydiff.gaps import mask
from hydiff.gaps.rule import observed_entries
from hydiff.gaps.stored import into_dtype
from hydiff.option_types import check_seed, of_type


def simulate(
    cube: Cube,
    kind: str = "stripes",
    missing: float | None = None,
    *,
    noise: float = 0.0,
    seed: int = 0,
    nodata: Nodata = None,
    nodata_in: str | None = None,
) -> tuple[Cube, Bools]:
    """Return a damaged copy of a cube, and the mask of the damage (True = measured).

    kind, missing: kind of gaps, one of `mask.MASKS`, and the share of entries to hide.
    noise: std of the added Gaussian noise as a share of the range of the good bands.
    nodata, nodata_in: values that are missing already, as for a fill; these get no noise.
    Missing entries take the cube's nodata value; a cube without one gets NaN, or the lowest
    (else highest) value of its integer type that does not occur.
    """
    check_seed(seed)
    kind, missing = of_type("kind", kind, str), of_type("missing", missing, float | None)
    noise = of_type("noise", noise, float)
    if not 0 <= noise < math.inf:
        raise BadValue(f"`noise={noise:g}`: expected a share of the cube's range, 0 or more")
    cube = cube.load()
    observed = mask.make_mask(kind, cube.shape, missing, np.random.default_rng(seed))
    damaged, lost = np.array(cube.values), ~np.broadcast_to(observed, cube.shape)
    if noise or nodata is not None:
        measured, _ = observed_entries(cube, None, nodata, nodata_in)
        damaged = _noisy(cube, measured, noise, seed, nodata) if noise else damaged
        lost = lost if nodata is None else lost | ~measured
    gap = _unused_value(cube, damaged)
    damaged[lost] = gap
    return replace(cube, values=damaged, nodata=gap, path=None), observed


def _noisy(cube: Cube, observed: Bools, noise: float, seed: int, nodata: Nodata) -> Array:
    """Return the values with noise at observed entries, none of which becomes nodata by it.

    noise: std as a share of the range of the good bands.
    """
    need_torch("noise that is added")
    import torch

    values = np.array(cube.values, dtype=np.float64)
    clean = values[observed & cube.good_bands[:, None, None]]
    if not clean.size:
        raise BadValue("no good band has a measured entry, so that noise has no range to go by")
    sigma = noise * float(clean.max() - clean.min())
    rng = torch.Generator().manual_seed(seed)
    standard = torch.randn(values.shape, generator=rng, dtype=torch.float64).numpy()
    return into_dtype(cube, values + sigma * standard, observed, nodata)[0]


def _unused_value(cube: Cube, values: Array) -> float:
    """Return the value that will mean missing: the cube's nodata, NaN or an unused integer."""
    if cube.nodata is not None and representable(cube.nodata, cube.dtype):
        return cube.nodata
    if cube.dtype.kind == "f":
        return float("nan")
    info = np.iinfo(cube.dtype)
    for value in (info.min, info.max):
        if not equals(values, value).any():
            return float(value)
    raise BadValue(
        f"{cube.dtype} values use their whole range, so no value is left to mean missing; "
        "convert the cube to a wider type first"
    )
