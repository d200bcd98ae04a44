"""When an image was taken and from where, as its file says; and how far two images are apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from hydiff.cube import Cube
from hydiff.errors import BadValue

MOST_DAYS = 32  # between two dates, beyond which it is said
MOST_DEGREES = 10.0  # between two angles, beyond which it is said
DATES = ("date", "acquisition date", "acquisition time", "time_coverage_start", "tifftag_datetime")
# what files call an angle, in lower case and with spaces; elevations count from the horizon
ANGLES = {
    "sun zenith": (
        *("sun zenith", "solar zenith", "sun zenith angle", "solar zenith angle"),
        *("mean sun zenith", "mean solar zenith angle"),
    ),
    "sun azimuth": (
        *("sun azimuth", "solar azimuth", "sun azimuth angle", "solar azimuth angle"),
        "mean sun azimuth",
    ),
    "view zenith": (
        *("view zenith", "view zenith angle", "sensor zenith", "viewing zenith angle"),
        *("off nadir", "off nadir angle", "view angle"),
    ),
}
ELEVATIONS = ("sun elevation", "solar elevation", "sun elevation angle")


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


def days_between(reference: Cube, cube: Cube, name: str, most: float | None) -> int | None:
    """BadValue where they are further apart than is allowed; None without two dates."""
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


def angles_of(cube: Cube) -> dict[str, float]:
    """Degrees, by the names of ANGLES; those that the file does not say are left out."""
    attrs = {re.sub(r"[_\-\s]+", " ", str(k)).strip().lower(): v for k, v in cube.attrs.items()}
    angles = {name: _number(attrs, keys) for name, keys in ANGLES.items()}
    if angles["sun zenith"] is None and (above := _number(attrs, ELEVATIONS)) is not None:
        angles["sun zenith"] = 90.0 - above
    return {name: angle for name, angle in angles.items() if angle is not None}


def angles_between(one: Cube, other: Cube) -> dict[str, float]:
    """Degrees that two images are apart, for the angles that both say; at most 180."""
    first, second = angles_of(one), angles_of(other)
    apart = {name: abs(first[name] - second[name]) % 360 for name in first if name in second}
    return {name: round(min(angle, 360 - angle), 2) for name, angle in apart.items()}


def _number(attrs: Mapping[str, Any], keys: tuple[str, ...]) -> float | None:
    for key in keys:
        try:
            return float(str(attrs[key]).split()[0])
        except (KeyError, ValueError, IndexError):  # absent, or no number
            continue
    return None
