"""Acquisition date and angles of an image, from its file, and their differences between images."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from typing import Any

from hydiff.cube import Cube
from hydiff.errors import BadValue
from hydiff.io.headers import carried

MOST_DAYS = 32  # difference of dates above which it is reported
MOST_DEGREES = 10.0  # difference of angles above which it is reported
DATES: tuple[str, ...] = ("date", "acquisition date", "acquisition time", "time_coverage_start")
DATES += ("tifftag_datetime", "time")
# a date, alone or with its time: a year and a day of the year (2012101123456) must not match
DIGITS = re.compile(
    r"(?<!\d)((?:19|20)\d\d)[-:/]?([01]\d)[-:/]?([0-3]\d)(?=\D|$|\d{4}(?:\D|$)|\d{6}(?:\D|$))"
)
# names of angles in files, in lower case and with spaces; elevations are above the horizon
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
    """Return the date of an image from its metadata or file name (YYYYMMDD); None if unknown."""
    attrs = {key.lower(): text for key, text in carried(cube.attrs).items()}
    texts = [str(attrs[k]) for k in DATES if k in attrs]
    texts += [] if cube.path is None else [cube.path.name]
    for match in (match for text in texts for match in DIGITS.finditer(text)):
        with suppress(ValueError):  # the digits are no date
            return date(*(int(part) for part in match.groups()))
    return None


def days_between(reference: Cube, cube: Cube, name: str, most: float | None) -> int | None:
    """Return the days between two images, None if unknown; BadValue if more than `most`."""
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
    """Return the angles in degrees by the names in ANGLES, without those that the file lacks."""
    attrs = {re.sub(r"[_\-\s]+", " ", str(k)).strip().lower(): v for k, v in cube.attrs.items()}
    angles = {name: _number(attrs, keys) for name, keys in ANGLES.items()}
    if angles["sun zenith"] is None and (above := _number(attrs, ELEVATIONS)) is not None:
        angles["sun zenith"] = 90.0 - above
    return {name: angle for name, angle in angles.items() if angle is not None}


def angles_between(one: Cube, other: Cube) -> dict[str, float]:
    """Return the differences in degrees, 180 at most, of the angles known for both images."""
    first, second = angles_of(one), angles_of(other)
    apart = {name: abs(first[name] - second[name]) % 360 for name in first if name in second}
    return {name: round(min(angle, 360 - angle), 2) for name, angle in apart.items()}


def _number(attrs: Mapping[str, Any], keys: tuple[str, ...]) -> float | None:
    """Return the first entry with one of the keys that is a number; None without any."""
    for key in keys:
        try:
            return float(str(attrs[key]).split()[0])
        except (KeyError, ValueError, IndexError):  # absent, or not a number
            continue
    return None
