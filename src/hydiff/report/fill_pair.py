"""Compare two fills of the same cube: how they differ, and which is nearer to the truth.

Arrays are (bands, rows, cols).  Differences are B - A in the unit of the file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import io, metrics
from hydiff.cube import Array, Bools, Cube, Floats
from hydiff.errors import BadValue
from hydiff.io import provenance
from hydiff.report import same_shape
from hydiff.report.survey import planes_of

HIGHER = ("scc", "mssim", "mpsnr")  # scores where larger is better; for the others, smaller is
COVER = 0.8  # share of the entries that an interval of 80 % should contain
TYPICAL = 0.5, 0.95  # quantiles of the size of differences that are reported


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two fills."""

    path: Path  # file of the values
    cube: Cube
    values: Floats  # float64, NaN where missing
    filled: Bools
    sigma: Floats | None


class Differences(NamedTuple):
    """Statistics of B - A over entries that both have filled, or of angles between spectra."""

    mean: float
    rms: float
    median: float  # median of the magnitude
    most: float  # 95 % of the magnitudes lie below
    largest: float  # largest magnitude


class ScoreRow(NamedTuple):
    """A score of both fills, on entries that both have filled."""

    label: str
    a: float
    b: float
    better: str  # "A", "B", or "" where they are equal


@dataclass(frozen=True, eq=False)
class Compared:
    """Result of `compare`."""

    a: Side
    b: Side
    both: Bools  # entries filled by both
    only_a: int  # number of entries filled by A alone
    only_b: int  # by B alone
    measured_differ: int  # number of entries that neither has filled and that differ
    unit: Differences  # in the unit of the file
    in_sigma: Differences | None  # None where neither has error bars
    in_degrees: Differences  # angles between the spectra of a pixel; the mean is the SAM
    z: Floats | None  # differences in σ; NaN where not both filled
    angle: Floats  # (rows, cols) degrees; NaN where not both filled
    rms_by_band: Floats  # (bands,) in the unit of the file
    truth: Floats | None
    scores: list[ScoreRow] | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for JSON; None for unknown values."""
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
    """Compare two fills on the entries that both have filled; with the truth, score both there.

    var: the variable to read, in files that hold several.
    """
    cubes = [io.read(path, var=var) for path in (a, b)]
    side_a, side_b = (side_of(same_shape(cube, cubes[0])) for cube in cubes)
    both = side_a.filled & side_b.filled & np.isfinite(side_a.values) & np.isfinite(side_b.values)
    if not both.any():
        raise BadValue(
            f"{a} and {b} have no filled entry in common; expected two fills of the same cube"
        )
    clean = None if truth is None else same_shape(io.read(truth, var=var), side_a.cube)
    angle = angles(side_a.values, side_b.values, both)
    difference = np.where(both, side_b.values - side_a.values, np.nan)
    sigma = joint_sigma(side_a.sigma, side_b.sigma)
    z = None if sigma is None else _ratio(difference, sigma)
    neither = ~(side_a.filled | side_b.filled)
    unequal = (side_a.values != side_b.values) & ~(
        np.isnan(side_a.values) & np.isnan(side_b.values)
    )
    return Compared(
        a=side_a,
        b=side_b,
        both=both,
        only_a=int((side_a.filled & ~side_b.filled).sum()),
        only_b=int((side_b.filled & ~side_a.filled).sum()),
        measured_differ=int((neither & unequal).sum()),
        unit=differences(difference),
        in_sigma=None if z is None else differences(z),
        in_degrees=differences(angle),
        z=z,
        angle=angle,
        rms_by_band=np.array([differences(band).rms for band in difference]),
        truth=None if clean is None else with_gaps(clean),
        scores=None if clean is None else scored(side_a, side_b, clean, both),
    )


def side_of(cube: Cube) -> Side:
    """Return a fill read from a file, together with its companion layers."""
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
    """Return the values of a cube as float64, NaN where missing."""
    values = np.asarray(cube.values)
    return np.where(cube.observed_in(values), values.astype(np.float64), np.nan)


def joint_sigma(a: Floats | None, b: Floats | None) -> Floats | None:
    """Return the RMS of both error bars, those of one fill if only it has any, or None.

    The fills use the same neighbouring data, so their errors are not independent and their
    variances are not added.
    """
    bars = [sigma for sigma in (a, b) if sigma is not None]
    return np.sqrt(np.mean(np.square(bars), axis=0)) if bars else None


def differences(values: Floats) -> Differences:
    """Statistics of the finite values; NaN if there are none."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return Differences(*[float("nan")] * 5)
    size = np.abs(finite)
    middle, most = np.quantile(size, TYPICAL)
    rms = float(np.sqrt(np.mean(finite**2)))
    return Differences(float(finite.mean()), rms, float(middle), float(most), float(size.max()))


def angles(a: Floats, b: Floats, where: Bools) -> Floats:
    """Return the angle (rows, cols) in degrees between the spectra of each pixel.

    NaN for pixels where no band is in `where`.  Computed as 2 atan2(|u - v|, |u + v|) of the unit
    vectors u and v, which is exactly 0 for equal spectra; the arc cosine of a rounded product is
    not.
    """
    finite = np.isfinite(a) & np.isfinite(b)
    u, v = (np.where(finite, x, 0.0) for x in (a, b))
    u, v = (_ratio(x, np.broadcast_to(np.linalg.norm(x, axis=0), x.shape)) for x in (u, v))
    apart, along = np.linalg.norm(u - v, axis=0), np.linalg.norm(u + v, axis=0)
    degrees: Floats = np.where(where.any(axis=0), np.degrees(2 * np.arctan2(apart, along)), np.nan)
    return degrees


def scored(a: Side, b: Side, truth: Cube, both: Bools) -> list[ScoreRow]:
    """Score both fills against the truth, on entries that both have filled.

    Entries that one fill alone has count for neither, also not as neighbours or other bands of
    those that are scored.
    """
    shared = np.isfinite(a.values) & np.isfinite(b.values) & (a.filled == b.filled)
    bare: dict[str, Any] = {"nodata": None, "valid": None, "missing_rule": None}
    scores_a, scores_b = (
        metrics.score(
            replace(side.cube, values=np.where(shared, side.values, np.nan), **bare), truth, both
        ).missing
        or {}
        for side in (a, b)
    )
    rows = [
        _row(label, scores_a[key], scores_b[key], -1.0 if key in HIGHER else 1.0)
        for key, label in metrics.LABELS.items()
    ]
    if a.sigma is None or b.sigma is None:
        return rows
    calibration_a, calibration_b = (_calibration(side, with_gaps(truth), both) for side in (a, b))
    cover = calibration_a.covered_80, calibration_b.covered_80
    deviations = (abs(c - COVER) for c in cover)
    rows.append(ScoreRow("80 % intervals cover, share", *cover, _better(*deviations)))
    return [*rows, _row("CRPS of the error bars", calibration_a.crps, calibration_b.crps, 1.0)]


def _calibration(side: Side, truth: Floats, both: Bools) -> metrics.Calibration:
    """Score the error bars of a fill on the entries that both have filled."""
    sigma = np.where(both, np.nan if side.sigma is None else side.sigma, np.nan)
    return metrics.calibration(side.values, truth, sigma, provenance.intervals_of(side.path))


def _row(label: str, a: float, b: float, sign: float) -> ScoreRow:
    """Return the row of one score; sign: 1 if smaller is better, -1 if larger is."""
    return ScoreRow(label, a, b, _better(sign * a, sign * b))


def _better(a: float, b: float) -> str:
    """Name the fill with the smaller number; "" if they are equal or one is NaN."""
    return "A" if a < b else "B" if b < a else ""


def _ratio(top: Array, bottom: Array) -> Floats:
    """top / bottom; NaN where bottom is not positive."""
    out = np.full(np.shape(top), np.nan)
    return np.asarray(np.divide(top, bottom, out=out, where=np.asarray(bottom) > 0))


def _plain(entry: Any) -> Any:
    """Replace numbers that JSON cannot represent by None."""
    if isinstance(entry, dict):
        return {key: _plain(value) for key, value in entry.items()}
    if isinstance(entry, list):
        return [_plain(value) for value in entry]
    return None if isinstance(entry, float) and not np.isfinite(entry) else entry
