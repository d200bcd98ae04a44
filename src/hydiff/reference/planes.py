"""Prepare a reference for a cube: on its grid, aligned, with facts to report about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hydiff.cube import Bools, Cube, Floats
from hydiff.errors import BadValue
from hydiff.io.provenance import sha256
from hydiff.maths import subspace
from hydiff.reference import own_gaps
from hydiff.reference.facts import (
    MOST_DAYS,
    MOST_DEGREES,
    angles_between,
    date_of,
    days_between,
)
from hydiff.reference.grid import OnGrid, onto_grid
from hydiff.reference.models import Model, ReferencePlanes, predict
from hydiff.reference.shift import Shift, estimate_shift, moved

CORRECTED = 0.25  # px: smaller shifts are left to the regression, which uses neighbouring pixels
COARSE = 4.0  # pixels of the cube: references with larger pixels have no detail for an alignment
LOOKS = 3  # most estimates of the shift, each after correcting the shift estimated before
EVERYWHERE = (slice(None), slice(None))


@dataclass(frozen=True, eq=False)
class Reference:
    """Another image of the same place, prepared for a cube."""

    name: str
    planes: ReferencePlanes
    facts: Mapping[str, Any] = field(default_factory=dict)  # for the record; JSON-able
    words: str = ""  # in brackets after its name
    likeness: float = 0.0  # share of variance of the cube's first component that it explains

    def __str__(self) -> str:
        return f"reference {self.name} ({self.words})"


def prepare(
    reference: Cube,
    cube: Cube,
    observed: Bools,
    name: str,
    max_shift: float,
    max_days: float | None = None,
    *,
    scene: Cube | None = None,
    at: tuple[slice, slice] = EVERYWHERE,
    mask: Bools | None = None,
) -> Reference:
    """Put a reference on the grid of the cube, align it and collect its facts.

    Both cubes are in memory; observed (bands, rows, cols): of the cube; mask: of the reference,
    True = measured, as in `own_gaps.measured_in`.
    scene: if the cube is only the part `at` (rows, cols) of a scene, the reference is put on the
    grid of the scene, and aligned by that part.
    Raises BadValue if the image cannot be a reference for this cube.
    """
    scene = cube if scene is None else scene
    days = days_between(reference, scene, name, max_days)
    measured = own_gaps.measured_in(reference, mask)
    if not measured.any():
        size = scene.shape[1:]
        no_planes = ReferencePlanes(np.zeros((1, *size)), np.zeros(size, bool))
        return Reference(name, no_planes, {"name": name, "covers": 0.0}, "without any value")
    bands = _usable(reference, measured, name)
    on_grid = _on_grid(reference, measured, bands, scene, name)
    inside = (slice(None), *at)
    values, covered = on_grid.values[inside], on_grid.observed[inside]
    if _is_same_file(reference, scene) or _has_same_values(values, covered, cube, observed):
        raise BadValue(
            f"reference {name} is the cube itself; expected another image of the same place"
        )
    seen = np.asarray(on_grid.observed.all(axis=0))
    planes = ReferencePlanes(np.nan_to_num(on_grid.values), seen)
    shift, (z, complete) = None, _strongest(cube, observed)
    if on_grid.pixel <= COARSE:
        planes, shift = _aligned(planes, at, z, complete, name, max_shift)
    facts = {
        "name": name,
        **_origin(reference),
        "days": days,
        "angles": angles_between(reference, scene),
        "bands": int(bands.sum()),
        "bands_left_out": int((~bands).sum()),
        "pixel": round(on_grid.pixel, 4),
        "grid": on_grid.how,
        "shift": None if shift is None else [round(shift.down, 3), round(shift.right, 3)],
        "shift_spread": None if shift is None or shift.spread is None else round(shift.spread, 3),
        "covers": round(float(planes.observed.mean()), 4),
    }
    likeness = _likeness(z, complete, ReferencePlanes(planes.values[inside], planes.observed[at]))
    return Reference(name, planes, facts, ", ".join(_words(facts, shift)), likeness)


def _usable(reference: Cube, measured: Bools, name: str) -> Bools:
    """(R,) good bands that are not constant and have at least half the usual number of pixels."""
    values, share = np.asarray(reference.values), measured.mean(axis=(1, 2))
    varies = [
        bool(mask.any()) and np.ptp(v[mask]) > 0 for v, mask in zip(values, measured, strict=True)
    ]
    bands: Bools = reference.good_bands & np.array(varies)
    if not bands.any():
        raise BadValue(
            f"reference {name}: none of its {reference.bands} bands holds two different values; "
            "expected an image of the same place"
        )
    bands &= share >= 0.5 * np.median(share[bands])
    return bands


def _on_grid(reference: Cube, measured: Bools, bands: Bools, scene: Cube, name: str) -> OnGrid:
    """Return some bands of a reference on the grid of a scene, of which it must cover a pixel."""
    part = Cube(
        np.asarray(reference.values)[bands],
        crs=reference.crs,
        transform=reference.transform,
        path=reference.path,
    )
    on_grid = onto_grid(part, measured[bands], scene, name)
    if not on_grid.observed.all(axis=0).any():
        raise BadValue(
            f"reference {name} covers no pixel of the cube with all its bands; expected an image "
            "of the same place: check its map, or leave it out"
        )
    return on_grid


def _is_same_file(reference: Cube, scene: Cube) -> bool:
    """Whether both were read from one file."""
    paths = [image.path.resolve() for image in (reference, scene) if image.path is not None]
    return len(paths) == 2 and paths[0] == paths[1]


def _has_same_values(values: Floats, covered: Bools, cube: Cube, observed: Bools) -> bool:
    """Whether a reference (values, covered) equals the cube, and has nothing in its gaps."""
    if values.shape != cube.shape or (covered & ~observed).any():
        return False
    both = covered & observed
    return np.array_equal(values[both], np.asarray(cube.values, dtype=np.float64)[both])


def _origin(reference: Cube) -> dict[str, str | None]:
    """Return the path, the hash and the date of a reference, None where unknown."""
    path, acquired = reference.path, date_of(reference)
    return {
        "path": None if path is None else str(path),
        "sha256": None if path is None else sha256(path),
        "date": None if acquired is None else acquired.isoformat(),
    }


def _aligned(
    planes: ReferencePlanes,
    at: tuple[slice, slice],
    z: Floats,
    complete: Bools,
    name: str,
    most: float,
) -> tuple[ReferencePlanes, Shift | None]:
    """Return the reference moved onto the cube, and its shift; BadValue if that is above `most`.

    z, complete: (rows, cols) a plane of the part `at` of the scene, for comparison.
    """
    total: Shift | None = None
    current = planes
    for _ in range(LOOKS):
        step = _step(z, complete, ReferencePlanes(current.values[:, *at], current.observed[at]))
        if step is None:
            break
        down, right = (0.0, 0.0) if total is None else (total.down, total.right)
        total = step._replace(down=down + step.down, right=right + step.right)
        if step.size < CORRECTED or total.size > most:
            break
        entries = np.broadcast_to(planes.observed, planes.values.shape)
        values, covered = moved(planes.values, entries, total)
        current = ReferencePlanes(np.nan_to_num(values), np.asarray(covered.all(axis=0)))
    if total is not None and total.size > most:
        raise BadValue(
            f"reference {name} lies {total.down:.1f} rows and {total.right:.1f} columns beside the "
            f"cube, at most {most:g} pixels are allowed: align it, or raise `reference_max_shift=`"
        )
    return current, total


def _likeness(z: Floats, complete: Bools, planes: ReferencePlanes) -> float:
    """Return the share of the variance of z (rows, cols) explained by regression on a reference."""
    both = complete & planes.observed
    if both.sum() < 2:
        return 0.0
    residual = (z - predict(z[None], complete, [planes], Model(context=0))[0])[both]
    residual = residual if np.isfinite(residual).all() else z[both]
    return float(1 - residual.var() / max(z[both].var(), 1e-300))


def _step(z: Floats, complete: Bools, planes: ReferencePlanes) -> Shift | None:
    """Return the shift with the highest correlation between z (rows, cols) and candidate planes of
    the reference: the regression of z on its bands, which is poor for large shifts, and its
    strongest component with either sign."""
    fit = np.nan_to_num(predict(z[None], complete, [planes], Model(context=0))[0])
    component = _component(planes.values, planes.observed)
    shifts = [estimate_shift(z, complete, q, planes.observed) for q in (fit, component, -component)]
    clear = [shift for shift in shifts if shift is not None]
    return max(clear, key=lambda shift: shift.correlation, default=None)


def _strongest(cube: Cube, observed: Bools) -> tuple[Floats, Bools]:
    """Return the first component (rows, cols) of the cube and its mask; 0 where a band is missing.

    Bands with less than half the pixels of the best band are ignored.
    """
    share = observed.mean(axis=(1, 2))
    bands = cube.good_bands & (share >= 0.5 * share.max())
    complete = np.asarray(observed[bands].all(axis=0))
    return _component(np.asarray(cube.values, dtype=np.float64)[bands], complete), complete


def _component(values: Floats, complete: Bools) -> Floats:
    """Return the first component (rows, cols) of bands with unit variance; 0 where incomplete."""
    z = np.zeros(complete.shape)
    if complete.sum() > 1:
        spectra = values[:, complete]
        spectra = spectra - spectra.mean(axis=1)[:, None]
        spectra /= np.maximum(spectra.std(axis=1)[:, None], 1e-300)
        z[complete] = subspace.fit(spectra, np.ones(spectra.shape, bool), 1).project(spectra)[0]
    return z


def _words(facts: Mapping[str, Any], shift: Shift | None) -> list[str]:
    """Return the facts about a reference as short phrases, for messages."""
    words = [facts["date"]] if facts["date"] else []
    words.append(f"{facts['bands']} band{'s' * (facts['bands'] > 1)}")
    if facts["bands_left_out"]:
        words.append(f"{facts['bands_left_out']} constant, bad or empty ones left out")
    if facts["grid"] != "pixel to pixel":
        words.append(f"pixels of {facts['pixel']:.3g} of the cube's, {facts['grid']}")
    if shift is None:
        words.append("no clear shift")
    else:
        words.append(f"shifted by {shift.down:.1f}, {shift.right:.1f} px".replace("-0.0", "0.0"))
    if facts["days"] is not None and facts["days"] > MOST_DAYS:
        words.append(f"{facts['days']} days apart")
    far = {name: angle for name, angle in facts["angles"].items() if angle > MOST_DEGREES}
    return words + [f"{name} {angle:.0f}° apart" for name, angle in far.items()]
