"""Quality measures that compare a filled cube with the truth.

The functions take arrays (bands, rows, cols) on the unit range of the truth and compute in float64.
An entry is counted where both arrays are finite and `where` (bool, None = everywhere) is True, so
gaps and bad bands that are NaN, or masked in a masked array, are not counted.  A measure without
any counted entry is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import ndimage

from hydiff.cube import Array, Bools, Cube, Floats, Scale, as_cube, as_mask, check_same_place
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.maths import scoring
from hydiff.maths.ssim import ssim_map

if TYPE_CHECKING:
    import xarray

CAP = 100.0  # dB; the PSNR of a perfect band would be infinite and dominate the mean

NORMAL_QUANTILES = scoring.NORMAL_QUANTILES
POOR = 0.9  # NRMSE above which a band is hardly better than its mean

# Measures that matter for the use of spectra come first; MPSNR, which a single bright band can
# dominate, comes last.
LABELS = {
    "nrmse_median": "NRMSE by band, median",
    "poor_bands": f"Bands with NRMSE above {POOR:g}, share",
    "sam": "SAM (°)",
    "derivative_rmse": "Derivative RMSE",
    "nrmse": "NRMSE by band, mean",
    "scc": "SCC",
    "mssim": "MSSIM",
    "ergas": "ERGAS",
    "mpsnr": "MPSNR (dB)",
}


def psnr_per_band(x: Array, truth: Array, where: Bools | None = None) -> Floats:
    """(bands,) 10 log10(1 / mse) in dB, peak 1, at most 100."""
    return _psnr(_mse_per_band(x, truth, where))


def mpsnr(x: Array, truth: Array, where: Bools | None = None) -> float:
    """Mean PSNR in dB over the bands that have counted entries."""
    return _mean(psnr_per_band(x, truth, where))


def mssim(x: Array, truth: Array, where: Bools | None = None) -> float:
    """Mean over bands of the SSIM of windows centred on counted entries.

    It is NaN if a side is shorter than 11 pixels.
    """
    return _mean_of_bands(ssim_map(_with_nan(x), _with_nan(truth)), where)


def sam(x: Array, truth: Array, where: Bools | None = None) -> float:
    """Mean spectral angle in degrees over pixels with any counted entry.

    All finite bands of such a pixel take part; pixels with a zero spectrum are skipped.
    """
    a, b, _ = _spectra(x, truth, where)
    return _mean(np.degrees(np.arccos(_cosine(a, b))))


def scc(x: Array, truth: Array, where: Bools | None = None) -> float:
    """Mean over pixels with any counted entry of the Pearson correlation along their finite bands.

    Pixels with a constant spectrum are skipped.  (Spectral; not the spatial SCC of pansharpening.)
    """
    a, b, both = _spectra(x, truth, where)
    return _mean(_cosine(_centred(a, both), _centred(b, both)))


def nrmse_per_band(x: Array, truth: Array, where: Bools | None = None) -> Floats:
    """(bands,) RMSE over counted entries divided by the standard deviation of the truth.

    The deviation is that of all finite entries of the band, so it depends on no mask, and a fill
    with the band's mean scores about 1.  NaN for a constant band.
    """
    truth = _with_nan(truth)
    finite = np.isfinite(truth)
    values = np.where(finite, truth, 0.0).astype(np.float64).reshape(len(finite), -1)
    centred = _centred(values.T, finite.reshape(len(finite), -1).T).T.reshape(finite.shape)
    return _ratio(np.sqrt(_mse_per_band(x, truth, where)), np.sqrt(_per_band(centred**2, finite)))


def nrmse_median(x: Array, truth: Array, where: Bools | None = None) -> float:
    """Median of the bands' NRMSE: half of the bands are filled better than this."""
    return _median(nrmse_per_band(x, truth, where))


def poor_bands(x: Array, truth: Array, where: Bools | None = None, above: float = POOR) -> float:
    """Share of bands whose NRMSE exceeds a bound, among the bands with counted entries."""
    return _share_above(nrmse_per_band(x, truth, where), above)


def derivative_rmse(x: Array, truth: Array, where: Bools | None = None) -> float:
    """RMSE of the difference between adjacent bands, over pixels with any counted entry."""
    a, b, both = _spectra(x, truth, where)
    pairs = both[1:] & both[:-1]
    return float(np.sqrt(_mean(np.diff(a - b, axis=0)[pairs] ** 2)))


def ergas(x: Array, truth: Array, where: Bools | None = None) -> float:
    """100 sqrt(mean over bands of (rmse / mean of the truth)²), resolution ratio 1.

    It was designed for pansharpening; without a resolution ratio it only summarises the RMSE.
    """
    truth = _with_nan(truth)
    mean = _per_band(truth, np.isfinite(truth))
    relative = _ratio(np.sqrt(_mse_per_band(x, truth, where)), mean)
    return float(100 * np.sqrt(_mean(relative**2)))


def band_depth(spectra: Floats, left: int, centre: int, right: int) -> Floats:
    """Return the depth of an absorption: 1 - value / continuum at its centre band.

    The continuum is the straight line between the left and the right band.  spectra: (bands, ...).
    The depth is 0 where the continuum is 0.
    """
    share = (centre - left) / (right - left)
    line = (1 - share) * spectra[left] + share * spectra[right]
    out = np.ones_like(line)
    return np.asarray(1 - np.divide(spectra[centre], line, out=out, where=np.abs(line) > 1e-9))


def band_ratio(spectra: Floats, top: int, bottom: int) -> Floats:
    """Return the normalised difference (a - b) / (a + b) of two bands, such as the NDVI.

    It is 0 where both bands are 0.
    """
    a, b = spectra[top], spectra[bottom]
    out = np.zeros_like(a)
    return np.asarray(np.divide(a - b, a + b, out=out, where=np.abs(a + b) > 1e-9))


def band_depth_rmse(
    x: Array, truth: Array, bands: tuple[int, int, int], where: Bools | None = None
) -> float:
    """RMSE of the depth of an absorption feature.

    bands: numbers of the left shoulder, the centre and the right shoulder.  The RMSE is over pixels
    with a counted entry in at least one of these bands, and all three finite in both arrays.
    Arrays are in the cube's own unit, not scaled.
    """
    return _feature_rmse(band_depth, x, truth, bands, where)


def band_ratio_rmse(
    x: Array, truth: Array, bands: tuple[int, int], where: Bools | None = None
) -> float:
    """RMSE of the normalised difference of two bands, over the pixels of `band_depth_rmse`."""
    return _feature_rmse(band_ratio, x, truth, bands, where)


def _feature_rmse(
    feature: Callable[..., Floats],
    x: Array,
    truth: Array,
    bands: tuple[int, ...],
    where: Bools | None,
) -> float:
    """Return the RMSE of a feature over counted pixels where all of its bands are finite."""
    chosen = list(bands)
    where_chosen = where if where is None or where.ndim == 2 else where[chosen]
    a, b, both = _spectra(x[chosen], truth[chosen], where_chosen)
    at = range(len(chosen))
    return float(np.sqrt(_mean((feature(a, *at) - feature(b, *at))[both.all(axis=0)] ** 2)))


def plume_recovery(
    x: Array, plain: Array, truth: Array, base: Array, where: Bools | None = None
) -> float:
    """Share of a plume that a fill recovers: 1 = all of it, 0 = nothing.

    truth: base with a plume added.  x, plain: the fills of truth and base under the same gaps; all
    four have the same shape.  The share is the difference of the fills, projected on the difference
    of the truths.  It is NaN if the plume is 0 at all counted entries.
    """
    x, plain, truth, base = (_with_nan(a) for a in (x, plain, truth, base))
    counted = _counted(np.subtract(x, plain), np.subtract(truth, base), where)
    filled, added = (np.subtract(a, b, dtype=np.float64)[counted] for a, b in
                     ((x, plain), (truth, base)))  # fmt: skip
    square = float(added @ added)
    return float(filled @ added) / square if square > 0 else float("nan")


class DistanceBin(NamedTuple):
    """Errors of missing entries at a distance low <= d < high from the nearest observed pixel."""

    low: float  # pixels
    high: float
    entries: int
    rmse: float
    psnr: float  # dB


def by_distance(
    x: Array, truth: Array, missing: Bools, edges: Sequence[float] = (1, 2, 3, 5, 8, 13, np.inf)
) -> list[DistanceBin]:
    """Errors of missing entries by distance in pixels to the nearest observed pixel of their band.

    missing: (rows, cols) or (bands, rows, cols).  Entries where the truth is not finite do not
    count as observed.  A band without any observed pixel is in the last bin if that is unbounded.
    """
    x, truth = _with_nan(x), _with_nan(truth)
    missing = np.broadcast_to(missing, np.shape(truth))
    counted = _counted(x, truth, missing)
    distance = _distance_to(~missing & np.isfinite(truth))[counted]
    squares = np.subtract(x[counted], truth[counted], dtype=np.float64) ** 2
    bins = []
    for low, high in pairwise(edges):
        part = squares[(distance >= low) & ((distance < high) | (high == np.inf))]
        rmse = float(np.sqrt(_mean(part)))
        bins.append(DistanceBin(low, high, part.size, rmse, float(_psnr(np.square(rmse)))))
    return bins


class Calibration(NamedTuple):
    """Comparison of error bars with the errors of a fill."""

    covered_50: float  # share of entries inside their 50 % interval
    covered_80: float
    covered_95: float
    crps: float  # mean continuous ranked probability score, in the unit of the values
    crps_constant: float  # CRPS of the same errors with one σ for all entries: their RMS
    entries: int


def calibration(
    x: Array, truth: Array, sigma: Array, intervals: Sequence[float] = NORMAL_QUANTILES
) -> Calibration:
    """Compare 1-σ error bars with the errors of a fill, where all three arrays are finite.

    intervals: half widths of the 50, 80 and 95 % intervals in σ; the record of a fill has its own.
    The CRPS assumes Gaussian errors.
    """
    error, std = errors_and_bars(x, truth, sigma)
    covered_50, covered_80, covered_95 = (
        _mean((np.abs(error) <= q * std).astype(np.float64)) for q in intervals
    )
    rms = np.full_like(std, np.sqrt(_mean(error**2)))
    crps, constant = (_mean(scoring.crps_normal(error, scale)) for scale in (std, rms))
    return Calibration(covered_50, covered_80, covered_95, crps, constant, error.size)


def errors_and_bars(x: Array, truth: Array, sigma: Array) -> tuple[Floats, Floats]:
    """Return errors of a fill and their 1-σ error bars, both (n,), where finite and σ > 0."""
    x, truth, sigma = _with_nan(x), _with_nan(truth), _with_nan(sigma)
    where = _counted(x, truth, np.isfinite(sigma) & (np.asarray(sigma) > 0))
    error = np.subtract(x, truth, dtype=np.float64)[where]
    return error, np.asarray(sigma, np.float64)[where]


class ScoreTable(list[tuple[str, float, float | None]]):
    """List of rows (label with unit, everywhere, missing only) that prints as a table."""

    def __repr__(self) -> str:
        columns = 2 if all(row[2] is None for row in self) else 3
        cells = [("", "all", "gaps"), *((row[0], *map(_digits, row[1:])) for row in self)]
        first = max(len(row[0]) for row in cells)
        return "\n".join(
            "  ".join([row[0].ljust(first), *(cell.rjust(8) for cell in row[1:columns])])
            for row in cells
        )


def _digits(value: float | None) -> str:
    """Return a score with four digits; a dash for None and NaN."""
    return "–" if value is None or value != value else f"{value:.4g}"


@dataclass(frozen=True, eq=False)
class Scores:
    """Measures of an estimate against the truth, on the truth's unit range; keys as in `LABELS`."""

    everywhere: dict[str, float]  # over all comparable entries
    missing: dict[str, float] | None  # over missing entries; bands without any are skipped
    raw: dict[str, float] | None  # everywhere, of the raw output before observed entries are put in
    per_band: dict[str, Floats]  # psnr, nrmse: (bands,), over missing entries when given
    by_distance: list[DistanceBin] | None
    unfilled: int  # valid entries of the truth that the estimate leaves missing: not scored
    compared: int  # entries scored
    range: tuple[float, float]  # of the truth, in its unit: the peak of MPSNR

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers for JSON; NaN and infinity become None."""
        plain: dict[str, Any] = _plain(asdict(self))
        if self.by_distance is not None:
            plain["by_distance"] = [_plain(b._asdict()) for b in self.by_distance]
        return plain

    def table(self) -> ScoreTable:
        """Return rows (label with unit, everywhere, missing only) in the order of `LABELS`.

        `print(scores.table())` shows them in columns.
        """
        gaps = self.missing
        return ScoreTable(
            (label, self.everywhere[key], None if gaps is None else gaps[key])
            for key, label in LABELS.items()
        )

    def __repr__(self) -> str:
        return (
            f"{self.compared:,} entries scored, {self.unfilled:,} without a value\n{self.table()}"
        )


def score(
    estimate: Cube | Array | xarray.DataArray,
    truth: Cube | Array | xarray.DataArray,
    missing: Array | None = None,
    *,
    good: Array | None = None,
    raw: Cube | Array | xarray.DataArray | None = None,
) -> Scores:
    """Compare a filled cube with the truth.

    missing: bool (rows, cols) or (bands, rows, cols), True = gap that the method filled; also a
        DataArray with these dimensions in any order.
    good: bool (bands,), False = bad band; without it, the bad bands that either cube declares.
    raw: the method's own output before observed entries were put back.
    The unit range runs from the minimum to the maximum of the truth's valid entries in good bands,
    so it depends neither on the mask nor on the method.
    """
    t, x = as_cube(truth), as_cube(estimate)
    r = None if raw is None else as_cube(raw)
    _check_place(x, truth=t, raw=r)
    like = x if "xarray" in x.attrs else t
    _check("estimate", x.shape, t.shape)
    bands = (x.good_bands & t.good_bands) if good is None else np.asarray(good, dtype=bool)
    gaps = None if missing is None else np.asarray(as_mask(missing, like), dtype=bool)
    _check("raw", None if r is None else r.shape, t.shape)
    _check("good", bands.shape, t.shape[:1])
    _check("missing", None if gaps is None else gaps.shape, t.shape, t.shape[1:])

    reference = _with_gaps(t, bands)
    scale = _range_of(reference)
    reference, values = scale.to_unit(reference), scale.to_unit(_with_gaps(x, bands))
    compared = int(_counted(values, reference, None).sum())
    if compared == 0:
        raise BadValue("the estimate has no value where the truth has one; nothing can be scored")
    everywhere, inside = _summaries(values, reference, gaps)
    return Scores(
        everywhere=everywhere,
        missing=inside,
        raw=None if r is None else _summaries(scale.to_unit(_with_gaps(r, bands)), reference)[0],
        per_band={
            "psnr": psnr_per_band(values, reference, gaps),
            "nrmse": nrmse_per_band(values, reference, gaps),
        },
        by_distance=None if gaps is None else by_distance(values, reference, gaps),
        unfilled=int(np.isfinite(reference).sum()) - compared,
        compared=compared,
        range=(scale.low, scale.high),
    )


def _summaries(
    x: Floats, truth: Floats, gaps: Bools | None = None
) -> tuple[dict[str, float], dict[str, float] | None]:
    """Return the measures of `LABELS` over all entries, and over the gaps (None without gaps).

    The SSIM map, the slowest part, is computed once for both.
    """
    similarity = ssim_map(x, truth)

    def row(where: Bools | None) -> dict[str, float]:
        """Return the measures over the entries where `where` is True, by the keys of `LABELS`."""
        by_band = nrmse_per_band(x, truth, where)
        return {
            "nrmse_median": _median(by_band),
            "poor_bands": _share_above(by_band, POOR),
            "sam": sam(x, truth, where),
            "derivative_rmse": derivative_rmse(x, truth, where),
            "nrmse": _mean(by_band),
            "scc": scc(x, truth, where),
            "mssim": _mean_of_bands(similarity, where),
            "ergas": ergas(x, truth, where),
            "mpsnr": mpsnr(x, truth, where),
        }

    return row(None), None if gaps is None else row(gaps)


def _check(name: str, shape: tuple[int, ...] | None, *expected: tuple[int, ...]) -> None:
    """Raise ShapeMismatch unless a shape is one of those expected; None passes."""
    if shape is not None and shape not in expected:
        shapes = " or ".join(str(e) for e in expected)
        raise ShapeMismatch(
            f"{name} has shape {shape}, but the truth asks for {shapes}; axes are "
            f"(bands, rows, cols): crop or transpose {name} to match"
        )


def _check_place(x: Cube, **others: Cube | None) -> None:
    """Raise ShapeMismatch unless cubes that were made from DataArrays have the same coordinates."""
    for name, cube in others.items():
        if cube is not None and {"xarray"} <= set(x.attrs) & set(cube.attrs):
            check_same_place(x.attrs["xarray"], cube.attrs["xarray"], name)


def _with_gaps(cube: Cube, good: Bools) -> Floats:
    """Values in float64 with NaN wherever the cube has no valid value or the band is bad."""
    values = np.asarray(cube.values)
    valid = cube.observed_in(values) & good[:, None, None]
    return np.where(valid, values.astype(np.float64), np.nan)


def _range_of(truth: Floats) -> Scale:
    """Return the unit scale from the minimum to the maximum of the finite values."""
    valid = truth[np.isfinite(truth)]
    if valid.size == 0:
        raise BadValue("the truth has no valid entry in any good band; nothing can be scored")
    low, high = float(valid.min()), float(valid.max())
    return Scale(low, high if high > low else low + 1)  # a constant truth: any span is suitable


def _with_nan(values: Array) -> Array:
    """Return a masked array with NaN where it is masked; any other array unchanged."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    return np.where(np.ma.getmaskarray(values), np.nan, np.asarray(values, np.float64))


def _counted(x: Array, truth: Array, where: Bools | None) -> Bools:
    """Return True where both arrays are finite and `where`, if given, is True."""
    both: Bools = np.isfinite(x) & np.isfinite(truth)
    return both if where is None else both & where


def _mean(values: Floats, of: Callable[[Floats], Any] = np.mean) -> float:
    """Mean of the finite values; NaN, without a warning, when there is none."""
    finite = values[np.isfinite(values)]
    return float(of(finite)) if finite.size else float("nan")


def _median(values: Floats) -> float:
    return _mean(values, np.median)


def _share_above(values: Floats, bound: float) -> float:
    """Return the share of the finite values that exceed a bound."""
    return _mean((values[np.isfinite(values)] > bound).astype(np.float64))


def _ratio(top: Floats, bottom: Array) -> Floats:
    """top / bottom; NaN where bottom is not positive."""
    out = np.full(top.shape, np.nan)
    return np.asarray(np.divide(top, bottom, out=out, where=bottom > 0))


def _per_band(values: Array, where: Bools) -> Floats:
    """(bands,) mean of each band's entries where `where` is True."""
    total: Floats = np.sum(values, axis=(1, 2), dtype=np.float64, where=where)
    return _ratio(total, where.sum(axis=(1, 2)))


def _mse_per_band(x: Array, truth: Array, where: Bools | None) -> Floats:
    """(bands,) mean squared error over the counted entries."""
    x, truth = _with_nan(x), _with_nan(truth)
    counted = _counted(x, truth, where)
    out = np.zeros(counted.shape)
    return _per_band(np.subtract(x, truth, out=out, where=counted, dtype=np.float64) ** 2, counted)


def _psnr(mse: Floats) -> Floats:
    """PSNR in dB with peak 1, at most CAP."""
    return np.asarray(-10 * np.log10(np.maximum(mse, 10 ** (-CAP / 10))))


def _mean_of_bands(values: Floats, where: Bools | None) -> float:
    """Return the mean over bands of the mean of each band's finite entries inside `where`."""
    return _mean(_per_band(values, _counted(values, values, where)))


def _spectra(x: Array, truth: Array, where: Bools | None) -> tuple[Floats, Floats, Bools]:
    """Return both spectra (bands, n) at the pixels with counted entries, and where both are finite.

    Entries that are not finite in both are set to 0 in both.
    """
    x, truth = _with_nan(x), _with_nan(truth)
    pixels = _counted(x, truth, where).any(axis=0)
    a, b = (v[:, pixels].astype(np.float64) for v in (x, truth))
    both = _counted(a, b, None)
    return np.where(both, a, 0.0), np.where(both, b, 0.0), both


def _centred(spectra: Floats, both: Bools) -> Floats:
    """Return spectra minus their mean; exactly 0 if they are constant up to rounding."""
    mean = _ratio(spectra.sum(axis=0), both.sum(axis=0))
    centred = np.where(both, spectra - mean, 0.0)
    flat = np.abs(centred).max(axis=0, initial=0) <= 1e-12 * np.abs(mean)
    return np.where(flat, 0.0, centred)


def _cosine(a: Floats, b: Floats) -> Floats:
    """(pixels,) cosine between spectra (bands, pixels); NaN where a spectrum is zero."""
    norms = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    return np.clip(_ratio(np.einsum("bp,bp->p", a, b), norms), -1, 1)


def _distance_to(observed: Bools) -> Floats:
    """(bands, rows, cols) pixels to the nearest observed pixel of the band; inf if it has none."""
    distance = np.full(observed.shape, np.inf)
    for band, plane in enumerate(observed):
        if band and np.array_equal(plane, observed[band - 1]):  # bands mostly share their mask
            distance[band] = distance[band - 1]
        elif plane.any():
            distance[band] = ndimage.distance_transform_edt(~plane)
    return distance


def _plain(entry: Any) -> Any:
    """Return an entry with Python lists and numbers; NaN and infinity become None."""
    if isinstance(entry, dict):
        return {key: _plain(value) for key, value in entry.items()}
    if isinstance(entry, list | tuple):
        return [_plain(value) for value in entry]
    if isinstance(entry, np.ndarray):
        return _plain(entry.tolist())
    return None if isinstance(entry, float) and not np.isfinite(entry) else entry
