"""Two fills of the same cube beside each other: how they differ, and which is nearer to the truth.

Arrays are (bands, rows, cols).  Differences are B - A in the unit of the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import io, metrics
from hydiff.cube import Array, Bools, Cube, Floats
from hydiff.errors import BadValue
from hydiff.io import provenance
from hydiff.report import same_shape
from hydiff.report.survey import planes_of

HIGHER = ("scc", "mssim", "mpsnr")  # scores that are better when larger; of the others, less is
COVER = 0.8  # of the entries an interval of 80 % ought to hold
TYPICAL = 0.5, 0.95  # quantiles of differences that are given


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two fills."""

    path: Path  # of its values
    cube: Cube
    values: Floats  # NaN where it has no value
    filled: Bools
    sigma: Floats | None


class Differences(NamedTuple):
    """Of entries that both have filled, B - A; or of angles between spectra."""

    mean: float
    rms: float
    median: float  # of the magnitude
    most: float  # 95 % of the magnitudes lie below
    largest: float


class ScoreRow(NamedTuple):
    """One score of both fills, on entries that both have filled."""

    label: str
    a: float
    b: float
    better: str  # "A", "B", or "" where they are equal


@dataclass(frozen=True, eq=False)
class Compared:
    """What `compare` finds."""

    a: Side
    b: Side
    both: Bools  # filled by both
    only_a: int  # entries
    only_b: int
    measured_differ: int  # entries that neither has filled, and that are not the same
    unit: Differences  # in the unit of the file
    in_sigma: Differences | None  # None where neither has error bars
    in_degrees: Differences  # angles between the spectra of a pixel; the mean is the SAM
    z: Floats | None  # differences in σ; NaN where not both filled
    angle: Floats  # (rows, cols) degrees; NaN where not both filled
    rms_by_band: Floats  # (bands,) in the unit of the file
    truth: Floats | None
    scores: list[ScoreRow] | None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; None for what is not known."""
        rows = None if self.scores is None else [row._asdict() for row in self.scores]
        entries = {"both": int(self.both.sum()), "only_a": self.only_a, "only_b": self.only_b}
        plain: dict[str, Any] = _plain(
            {
                "a": str(self.a.path),
                "b": str(self.b.path),
                "entries": {**entries, "measured_differ": self.measured_differ},
                "difference": self.unit._asdict(),
                "difference_in_sigma": None if self.in_sigma is None else self.in_sigma._asdict(),
                "angle": self.in_degrees._asdict(),
                "rms_by_band": self.rms_by_band.tolist(),
                "scores": rows,
            }
        )
        return plain


def compare(
    a: str | Path, b: str | Path, truth: str | Path | None = None, var: str | None = None
) -> Compared:
    """Compare two fills where both have filled; with the truth, score both there.

    var: the variable to read, in files that hold several.
    """
    cubes = [io.read(path, var=var) for path in (a, b)]
    one, two = (side_of(same_shape(cube, cubes[0])) for cube in cubes)
    both = one.filled & two.filled & np.isfinite(one.values) & np.isfinite(two.values)
    if not both.any():
        raise BadValue(
            f"{a} and {b} have no filled entry in common; expected two fills of the same cube"
        )
    clean = None if truth is None else same_shape(io.read(truth, var=var), one.cube)
    angle = angles(one.values, two.values, both)
    difference = np.where(both, two.values - one.values, np.nan)
    sigma = joint_sigma(one.sigma, two.sigma)
    z = None if sigma is None else _ratio(difference, sigma)
    neither = ~(one.filled | two.filled)
    unequal = (one.values != two.values) & ~(np.isnan(one.values) & np.isnan(two.values))
    return Compared(
        a=one,
        b=two,
        both=both,
        only_a=int((one.filled & ~two.filled).sum()),
        only_b=int((two.filled & ~one.filled).sum()),
        measured_differ=int((neither & unequal).sum()),
        unit=differences(difference),
        in_sigma=None if z is None else differences(z),
        in_degrees=differences(angle),
        z=z,
        angle=angle,
        rms_by_band=np.array([differences(band).rms for band in difference]),
        truth=None if clean is None else with_gaps(clean),
        scores=None if clean is None else scored(one, two, clean, both),
    )


def side_of(cube: Cube) -> Side:
    """A fill that was read from a file, with its layers."""
    assert cube.path is not None
    path = provenance.base_of(cube.path)
    planes = list(planes_of(path, cube))
    bars = [plane.sigma for plane in planes if plane.sigma is not None]
    return Side(
        path=path,
        cube=cube,
        values=with_gaps(cube),
        filled=np.stack([plane.filled for plane in planes]),
        sigma=np.stack(bars).astype(np.float64) if bars else None,
    )


def with_gaps(cube: Cube) -> Floats:
    """float64, NaN where the cube has no value."""
    values = np.asarray(cube.values)
    return np.where(cube.observed_in(values), values.astype(np.float64), np.nan)


def joint_sigma(a: Floats | None, b: Floats | None) -> Floats | None:
    """The RMS of both error bars, or those that there are.

    Two fills share their neighbours, so that their errors do not add up as independent ones do.
    """
    given = [one for one in (a, b) if one is not None]
    return np.sqrt(np.mean(np.square(given), axis=0)) if given else None


def differences(values: Floats) -> Differences:
    """Of the finite ones; NaN where there is none."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return Differences(*[float("nan")] * 5)
    size = np.abs(finite)
    middle, most = np.quantile(size, TYPICAL)
    rms = float(np.sqrt(np.mean(finite**2)))
    return Differences(float(finite.mean()), rms, float(middle), float(most), float(size.max()))


def angles(a: Floats, b: Floats, where: Bools) -> Floats:
    """(rows, cols) degrees between the spectra of pixels with an entry in `where`; else NaN.

    2 atan2(|u - v|, |u + v|) of the unit vectors u and v, which is 0 for equal spectra, where the
    arc cosine of a rounded product is not.
    """
    finite = np.isfinite(a) & np.isfinite(b)
    u, v = (np.where(finite, x, 0.0) for x in (a, b))
    u, v = (_ratio(x, np.broadcast_to(np.linalg.norm(x, axis=0), x.shape)) for x in (u, v))
    apart, along = np.linalg.norm(u - v, axis=0), np.linalg.norm(u + v, axis=0)
    degrees: Floats = np.where(where.any(axis=0), np.degrees(2 * np.arctan2(apart, along)), np.nan)
    return degrees


def scored(a: Side, b: Side, truth: Cube, both: Bools) -> list[ScoreRow]:
    """Both fills against the truth, on entries that both have filled."""
    one, two = (metrics.score(side.cube, truth, both).missing or {} for side in (a, b))
    rows = [
        _row(label, one[key], two[key], -1.0 if key in HIGHER else 1.0)
        for key, label in metrics.LABELS.items()
    ]
    if a.sigma is None or b.sigma is None:
        return rows
    first, second = (_calibration(side, with_gaps(truth), both) for side in (a, b))
    cover = first.covered_80, second.covered_80
    off = (abs(c - COVER) for c in cover)
    rows.append(ScoreRow("80 % intervals cover, share", *cover, _better(*off)))
    return [*rows, _row("CRPS of the error bars", first.crps, second.crps, 1.0)]


def _calibration(side: Side, truth: Floats, both: Bools) -> metrics.Calibration:
    sigma = np.where(both, np.nan if side.sigma is None else side.sigma, np.nan)
    return metrics.calibration(side.values, truth, sigma, provenance.intervals_of(side.path))


def _row(label: str, a: float, b: float, sign: float) -> ScoreRow:
    return ScoreRow(label, a, b, _better(sign * a, sign * b))


def _better(a: float, b: float) -> str:
    """The smaller one; none of equal ones, or where one is not known."""
    return "A" if a < b else "B" if b < a else ""


def _ratio(top: Array, bottom: Array) -> Floats:
    """top / bottom; NaN where bottom is not positive."""
    out = np.full(np.shape(top), np.nan)
    return np.asarray(np.divide(top, bottom, out=out, where=np.asarray(bottom) > 0))


def _plain(entry: Any) -> Any:
    """None for what JSON cannot say."""
    if isinstance(entry, dict):
        return {key: _plain(value) for key, value in entry.items()}
    if isinstance(entry, list):
        return [_plain(value) for value in entry]
    return None if isinstance(entry, float) and not np.isfinite(entry) else entry
