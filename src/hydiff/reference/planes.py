"""A reference prepared for a cube: on its grid, aligned, with what is to be said about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
from scipy import ndimage

from hydiff.cube import Bools, Cube, Floats
from hydiff.errors import BadValue
from hydiff.io.provenance import sha256
from hydiff.maths import subspace
from hydiff.reference.grid import onto_grid
from hydiff.reference.models import ReferencePlanes, predict
from hydiff.reference.shift import Shift, estimate_shift, moved

CORRECTED = 0.25  # px: smaller shifts are left to the regression, which sees the pixels around
COARSE = 4.0  # pixels of the cube: a reference with larger ones has no detail to be aligned by
LOOKS = 3  # at a shift, each after correcting the one before
AROUND_CLOUDS = 3  # px that count as cloud around one
MOST_DAYS = 32  # between two dates, beyond which it is said
DATES = ("date", "acquisition date", "acquisition time", "time_coverage_start", "tifftag_datetime")


@dataclass(frozen=True, eq=False)
class Reference:
    """Another image of the same place, prepared for a cube."""

    name: str
    planes: ReferencePlanes
    facts: Mapping[str, Any] = field(default_factory=dict)  # for the record; JSON-able
    words: str = ""  # in brackets behind its name

    def __str__(self) -> str:
        return f"reference {self.name} ({self.words})"


def prepare(
    reference: Cube,
    cube: Cube,
    observed: Bools,
    name: str,
    max_shift: float,
    max_days: float | None = None,
) -> Reference:
    """Both cubes in memory; observed (bands, rows, cols) of the cube.

    BadValue where it cannot be a reference for this cube.
    """
    days = _days(reference, cube, name, max_days)
    measured = reference.observed()
    if not measured.any():
        nothing = ReferencePlanes(np.zeros((1, *cube.shape[1:])), np.zeros(cube.shape[1:], bool))
        return Reference(name, nothing, {"name": name, "covers": 0.0}, "without any value")
    withheld = np.asarray(reference.withheld_in(np.asarray(reference.values)).any(axis=0))
    clouds = ndimage.binary_dilation(withheld, iterations=AROUND_CLOUDS)
    bands = _usable(reference, measured, name)
    part = Cube(
        np.asarray(reference.values)[bands],
        crs=reference.crs,
        transform=reference.transform,
        path=reference.path,
    )
    own = onto_grid(part, measured[bands] & ~clouds, cube, name)
    if not own.observed.all(axis=0).any():
        raise BadValue(
            f"reference {name} covers no pixel of the cube with all its bands; expected an image "
            "of the same place: check its map, or leave it out"
        )
    _refuse_itself(reference, own.values, own.observed, cube, observed, name)
    planes = ReferencePlanes(np.nan_to_num(own.values), np.asarray(own.observed.all(axis=0)))
    shift = None
    if own.pixel <= COARSE:
        planes, shift = _aligned(planes, cube, observed, name, max_shift)
    when = date_of(reference)
    facts = {
        "name": name,
        "path": None if reference.path is None else str(reference.path),
        "sha256": None if reference.path is None else sha256(reference.path),
        "date": None if when is None else when.isoformat(),
        "days": days,
        "bands": int(bands.sum()),
        "bands_left_out": int((~bands).sum()),
        "pixel": round(own.pixel, 4),
        "grid": own.how,
        "shift": None if shift is None else [round(shift.down, 3), round(shift.right, 3)],
        "shift_spread": None if shift is None or shift.spread is None else round(shift.spread, 3),
        "covers": round(float(planes.observed.mean()), 4),
    }
    return Reference(name, planes, facts, ", ".join(_words(facts, shift)))


def date_of(cube: Cube) -> date | None:
    """When an image was taken, as its file says, or its name (YYYYMMDD)."""
    attrs = {str(k).lower(): v for k, v in cube.attrs.items()}
    texts = [str(attrs[k]) for k in DATES if k in attrs]
    texts += [] if cube.path is None else [cube.path.name]
    for text in texts:
        found = re.search(r"(?<!\d)((?:19|20)\d\d)[-:/]?([01]\d)[-:/]?([0-3]\d)", text)
        try:
            if found is not None:
                return date(*(int(part) for part in found.groups()))
        except ValueError:  # digits that are no date
            continue
    return None


def _days(reference: Cube, cube: Cube, name: str, most: float | None) -> int | None:
    """Between two dates; BadValue where they are further apart than is allowed."""
    dates = date_of(reference), date_of(cube)
    days = None if None in dates else abs((dates[0] - dates[1]).days)  # type: ignore[operator]
    if most is not None and days is None:
        which = f"reference {name}" if dates[0] is None else "the cube"
        raise BadValue(
            f"`reference_max_days={most:g}`: {which} does not say its date; leave the option out, "
            "or put the date into the file's name (YYYYMMDD)"
        )
    if most is not None and days is not None and days > most:
        raise BadValue(
            f"reference {name} was taken {days} days apart from the cube, at most {most:g} are "
            "allowed: leave it out, or raise `reference_max_days=`"
        )
    return days


def _usable(reference: Cube, measured: Bools, name: str) -> Bools:
    """(R,) good bands that vary, and have about as many pixels as most."""
    values, share = np.asarray(reference.values), measured.mean(axis=(1, 2))
    varies = [
        bool(own.any()) and np.ptp(v[own]) > 0 for v, own in zip(values, measured, strict=True)
    ]
    bands: Bools = reference.good_bands & np.array(varies)
    if not bands.any():
        raise BadValue(
            f"reference {name}: none of its {reference.bands} bands holds two different values; "
            "expected an image of the same place"
        )
    bands &= share >= 0.5 * np.median(share[bands])
    return bands


def _refuse_itself(
    reference: Cube, values: Floats, there: Bools, cube: Cube, observed: Bools, name: str
) -> None:
    """A reference that is the cube has the same values, and sees none of its gaps."""
    same = reference.path is not None and cube.path is not None
    if not (same and reference.path.resolve() == cube.path.resolve()):  # type: ignore[union-attr]
        if values.shape != cube.shape or (there & ~observed).any():
            return
        both = there & observed
        if not np.array_equal(values[both], np.asarray(cube.values, dtype=np.float64)[both]):
            return
    raise BadValue(f"reference {name} is the cube itself; expected another image of the same place")


def _aligned(
    planes: ReferencePlanes, cube: Cube, observed: Bools, name: str, most: float
) -> tuple[ReferencePlanes, Shift | None]:
    """The reference moved onto the cube, and by how much it was off; BadValue beyond the bound."""
    z, complete = _strongest(cube, observed)
    total: Shift | None = None
    now = planes
    for _ in range(LOOKS):
        step = _step(z, complete, now)
        if step is None:
            break
        down, right = (0.0, 0.0) if total is None else (total.down, total.right)
        total = step._replace(down=down + step.down, right=right + step.right)
        if step.size < CORRECTED or total.size > most:
            break
        every = np.broadcast_to(planes.observed, planes.values.shape)
        values, there = moved(planes.values, every, total)
        now = ReferencePlanes(np.nan_to_num(values), np.asarray(there.all(axis=0)))
    if total is not None and total.size > most:
        raise BadValue(
            f"reference {name} lies {total.down:.1f} rows and {total.right:.1f} columns beside the "
            f"cube, at most {most:g} pixels are allowed: align it, or raise `reference_max_shift=`"
        )
    return now, total


def _step(z: Floats, complete: Bools, planes: ReferencePlanes) -> Shift | None:
    """The clearest shift against planes of the reference that may resemble z (rows, cols): its
    regression, which says little where they are far apart, and the strongest component."""
    near = np.nan_to_num(predict(z[None], complete, [planes], context=0)[0])
    own = _component(planes.values, planes.observed)
    found = [estimate_shift(z, complete, q, planes.observed) for q in (near, own, -own)]
    clear = [shift for shift in found if shift is not None]
    return max(clear, key=lambda shift: shift.correlation, default=None)


def _strongest(cube: Cube, observed: Bools) -> tuple[Floats, Bools]:
    """(rows, cols) the first component of the cube, 0 where a band is missing, and where none is.

    Bands that hardly any pixel has do not count.
    """
    share = observed.mean(axis=(1, 2))
    bands = cube.good_bands & (share >= 0.5 * share.max())
    complete = np.asarray(observed[bands].all(axis=0))
    return _component(np.asarray(cube.values, dtype=np.float64)[bands], complete), complete


def _component(values: Floats, complete: Bools) -> Floats:
    """(rows, cols) the first component of bands (R, rows, cols) of unit variance; 0 elsewhere."""
    z = np.zeros(complete.shape)
    if complete.sum() > 1:
        spectra = values[:, complete]
        spectra = spectra - spectra.mean(axis=1)[:, None]
        spectra /= np.maximum(spectra.std(axis=1)[:, None], 1e-300)
        z[complete] = subspace.fit(spectra, np.ones(spectra.shape, bool), 1).project(spectra)[0]
    return z


def _words(facts: Mapping[str, Any], shift: Shift | None) -> list[str]:
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
    return words
