"""Cube: a hyperspectral image with everything its file says about it.

Values are (bands, rows, cols) in the file's own dtype and unit.  They may still be on disk:
a numpy memmap, or a `Lazy` array that reads the windows it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from hydiff.errors import BadValue, NothingObserved, ShapeMismatch, need
from hydiff.mark import FILLED, RECORD, Mark, parsed

if TYPE_CHECKING:
    import xarray

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Nodata = float | Sequence[float] | None  # the value, or values, that mean missing

BAND_DIMS = ("band", "bands", "wavelength", "wavelengths", "channel", "spectral")
ROW_DIMS = ("y", "row", "rows", "line", "lines", "lat", "latitude", "northing", "downtrack")
COL_DIMS = ("x", "col", "cols", "sample", "samples", "lon", "longitude", "easting", "crosstrack")
PER_BAND = ("detector", "data gain values", "data offset values")  # entries of attrs
SQUARED = 1e-100  # spans below it, and values above its inverse, have no square
WAVELENGTHS = ("wavelength", "wavelengths", "wavelength_nm", "band_wavelength")
# what the CF conventions call them: `standard_name`, or `axis`, of a coordinate -> a name of above
CF_WAVELENGTHS = ("radiation_wavelength", "sensor_band_central_radiation_wavelength")
CF_NAMES = {
    **dict.fromkeys(("X", "projection_x_coordinate", "longitude", "grid_longitude"), "x"),
    **dict.fromkeys(("Y", "projection_y_coordinate", "latitude", "grid_latitude"), "y"),
    **dict.fromkeys((*CF_WAVELENGTHS, "sensor_band_identifier"), "band"),
}


class Values(Protocol):
    """What a cube needs of its values; numpy arrays, memmaps and `Lazy` all have it."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def __getitem__(self, key: Any, /) -> Any: ...


class Lazy:
    """An array on disk: shape and dtype are known, values are read when indexed.

    `read` takes three slices (bands, rows, cols) with step 1 and returns that block.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        dtype: np.dtype[Any],
        read: Callable[[slice, slice, slice], Array],
        chunks: tuple[int, int, int] | None = None,  # what the file can read at once
    ) -> None:
        self.shape, self.dtype, self._read = shape, np.dtype(dtype), read
        self.chunks, self.ndim = chunks, 3

    def __getitem__(self, key: Any) -> Array:
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > 3 + (Ellipsis in keys):
            raise IndexError(f"{len(keys)} indices for the three axes of a cube")
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            keys = (*keys[:at], *[slice(None)] * (4 - len(keys)), *keys[at + 1 :])
        keys = (*keys, *[slice(None)] * (3 - len(keys)))
        blocks: list[slice] = []
        inside: list[int | slice] = []
        for k, n in zip(keys, self.shape, strict=True):
            if isinstance(k, int | np.integer):
                i = range(n)[k]
                blocks.append(slice(i, i + 1))
                inside.append(0)
            else:
                start, stop, step = k.indices(n)
                if step < 1:
                    raise IndexError(
                        f"step {step}: arrays on disk are read forwards; load them first"
                    )
                blocks.append(slice(start, max(start, stop)))
                inside.append(slice(None, None, step))
        return np.asarray(self._read(*blocks)[tuple(inside)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self[...], dtype=dtype, copy=bool(copy) or None)


class Glt(NamedTuple):
    """A geographic lookup table: which pixel of the sensor each pixel of a map grid shows."""

    lookup: Values  # (rows', cols', 2) sensor column and row, 1-based, 0 = none, < 0 = interpolated
    transform: tuple[float, ...]  # affine of the map grid
    crs: str | None  # WKT of the map grid


class Scale(NamedTuple):
    """The affine map between a cube's own unit and the unit range: 0 ↔ low, 1 ↔ high.

    Both ends are numbers, or arrays (bands, 1, 1) where detectors have scales of their own.
    """

    low: Any
    high: Any

    @property
    def span(self) -> Any:
        return self.high - self.low

    @property
    def spans(self) -> Floats:
        """(1,) or (bands,), for what has one entry per band."""
        return np.reshape(self.span, -1)

    def to_unit(self, values: Any) -> Any:
        unit = values - self.low
        unit /= self.span  # in place: cubes are large
        return unit

    def from_unit(self, values: Any) -> Any:
        own = values * self.span
        own += self.low
        return own


@dataclass(frozen=True, eq=False)
class Cube:
    """A hyperspectral cube and its metadata; fields that the file does not declare are None."""

    values: Values  # (bands, rows, cols)
    wavelengths: Floats | None = None  # (bands,), in `wavelength_units`
    wavelength_units: str | None = None  # as the file spells it
    fwhm: Floats | None = None  # (bands,), same unit
    good: Bools | None = None  # (bands,); False = bad band (bbl 0, good_wavelengths 0)
    nodata: float | None = None  # the declared value of missing entries
    crs: str | None = None  # WKT
    transform: tuple[float, ...] | None = None  # affine (a, b, c, d, e, f), pixel corner to map
    glt: Glt | None = None  # from the sensor's geometry to a map
    band_names: tuple[str, ...] | None = None
    valid: Values | None = None  # of bool: (rows, cols), or (bands, rows, cols); a validity layer
    missing_rule: Callable[[Array], Bools] | None = None  # what the product calls missing
    withheld_rule: Callable[[Array], Bools] | None = None  # of that, what is no loss (clouds)
    attrs: Mapping[str, Any] = field(default_factory=dict)  # every other attribute, verbatim
    path: Path | None = None  # the file it was read from
    format: str | None = None  # the io module that read it
    mark: Mark | None = None  # what was filled, and how; None = all of it was measured

    def __post_init__(self) -> None:
        if len(self.values.shape) != 3:
            raise ShapeMismatch(
                f"a cube has three axes (bands, rows, cols); found shape {tuple(self.values.shape)}"
            )
        for name in ("good", "valid"):  # a bbl of 0 and 1 would index instead of select
            entry = getattr(self, name)
            if entry is not None and not isinstance(entry, Lazy):
                object.__setattr__(self, name, np.asarray(entry).astype(bool))
        if self.valid is not None and self.valid.shape not in (self.shape[1:], self.shape):
            raise ShapeMismatch(
                f"the validity layer has shape {self.valid.shape}, expected {self.shape[1:]} or "
                f"{self.shape}"
            )
        for name in ("wavelengths", "fwhm", "good", "band_names"):
            entry = getattr(self, name)
            if entry is not None and len(entry) != self.bands:
                raise ShapeMismatch(
                    f"{name} has {len(entry)} entries, but the cube has {self.bands} bands; "
                    f"correct or remove {name}"
                )

    @property
    def shape(self) -> tuple[int, int, int]:
        bands, rows, cols = self.values.shape
        return bands, rows, cols

    @property
    def bands(self) -> int:
        return self.values.shape[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def good_bands(self) -> Bools:
        """(bands,) True where a band is good; all True when the file does not say."""
        return np.ones(self.bands, bool) if self.good is None else self.good

    @property
    def detectors(self) -> tuple[str, ...] | None:
        """(bands,) the detector behind each band, when the file knows of two or more."""
        names = self.attrs.get("detector")
        if not isinstance(names, list | tuple) or len(names) != self.bands or len(set(names)) < 2:
            return None
        return tuple(str(name) for name in names)

    def load(self) -> Self:
        """The same cube with its values in memory."""
        valid = None if self.valid is None else np.asarray(self.valid)
        return replace(self, values=np.asarray(self.values), valid=valid)

    def window(
        self, rows: slice = slice(None), cols: slice = slice(None), bands: slice = slice(None)
    ) -> Self:
        """The part of the cube inside three slices, read now; its map coordinates move along."""
        if any(s.step not in (None, 1) for s in (rows, cols, bands)):
            raise BadValue("a window takes every pixel: give slices without a step")
        row0, col0 = (s.indices(n)[0] for s, n in zip((rows, cols), self.shape[1:], strict=True))

        def per_band(entry: Any) -> Any:
            return None if entry is None else entry[bands]

        return replace(
            self,
            values=np.asarray(self.values[bands, rows, cols]),
            wavelengths=per_band(self.wavelengths),
            fwhm=per_band(self.fwhm),
            good=per_band(self.good),
            band_names=per_band(self.band_names),
            valid=None if self.valid is None else self._valid_in(bands, rows, cols),
            transform=_shifted(self.transform, row0, col0),
            mark=None if self.mark is None else self.mark.window(bands, rows, cols),
            glt=None,
            path=None,
            attrs={
                k: v[bands] if k in PER_BAND and len(v) == self.bands else v
                for k, v in self.attrs.items()
                if k != "xarray"
            },
        )

    def observed(self, nodata: Nodata = None, *, whole: Nodata = None) -> Bools:
        """(bands, rows, cols) True = measured, read from the whole cube; see `observed_in`."""
        return self.observed_in(np.asarray(self.values), nodata, whole=whole)

    def observed_in(
        self,
        values: Array,
        nodata: Nodata = None,
        rows: slice = slice(None),
        cols: slice = slice(None),
        bands: slice = slice(None),
        *,
        whole: Nodata = None,
    ) -> Bools:
        """True where a block of this cube's values was measured.  The one rule:

        1. `nodata`, when the user gives it, alone names the missing values; those of them
           in `whole` count only in pixels where every good band is missing (the block then has
           all bands); else
        2. the product's own rule, when its reader knows one; else
        3. the nodata value and the validity layer that the file declares.
        NaN and Inf are missing whatever else holds.  Values are compared in the file's dtype.
        `rows`, `cols` and `bands` say where the block lies, for the validity layer.
        """
        if nodata is not None:
            missing = equals_any(values, nodata)
            if doubted := listed(whole):
                lost = missing | ~np.isfinite(values) if values.dtype.kind == "f" else missing
                missing &= lost[self.good_bands].all(axis=0) | ~equals_any(values, doubted)
        elif self.missing_rule is not None:
            missing = np.broadcast_to(self.missing_rule(values), values.shape).copy()
        else:
            missing = np.zeros(values.shape, bool)
            if self.nodata is not None and representable(self.nodata, values.dtype):
                missing |= equals(values, self.nodata)
            if self.valid is not None:
                missing |= ~self._valid_in(bands, rows, cols)
        if values.dtype.kind in "fc":
            missing |= ~np.isfinite(values)
        return ~missing

    def _valid_in(self, bands: slice, rows: slice, cols: slice) -> Bools:
        """The validity layer of a block: (rows, cols), or (bands, rows, cols)."""
        assert self.valid is not None
        whole = len(self.valid.shape) == 3
        return np.asarray(self.valid[(bands, rows, cols) if whole else (rows, cols)])

    def validated(self, filled: Values) -> Values | None:
        """The validity layer once some entries (bands, rows, cols) are filled; None without one.

        A layer for all bands calls a pixel valid when one of its bands is filled.
        """
        if self.valid is None:
            return None
        if len(self.valid.shape) == 2:
            pixels: Bools = np.array(self.valid)
            for band in range(self.bands):
                pixels |= np.asarray(filled[band : band + 1, :, :])[0]
            return pixels
        if isinstance(filled, np.ndarray):
            return np.asarray(self.valid) | filled

        def read(*block: slice) -> Bools:
            return np.asarray(self._valid_in(*block) | np.asarray(filled[block]))

        return Lazy(self.shape, np.dtype(bool), read)

    def withheld_in(self, values: Array) -> Bools:
        """True where a block of values is missing without being lost, such as screened clouds."""
        if self.withheld_rule is None:
            return np.zeros(values.shape, bool)
        return self.withheld_rule(values)

    def to_xarray(self) -> xarray.DataArray:
        """A DataArray (band, y, x); a cube that came from a DataArray gets its own form back."""
        need("xarray", "xarray", "to_xarray")
        import xarray

        marked = {} if self.mark is None else self.mark.attributes
        like = self.attrs.get("xarray")
        if isinstance(like, xarray.DataArray):
            values = np.asarray(self.values).transpose(_axes_from(like)[1])
            return like.copy(data=values).assign_attrs(marked)
        coords: dict[str, Any] = {"band": np.arange(1, self.bands + 1)}
        per_band = {"wavelength": self.wavelengths, "fwhm": self.fwhm, "good": self.good}
        coords |= {name: ("band", entry) for name, entry in per_band.items() if entry is not None}
        if self.transform is not None and self.transform[1] == self.transform[3] == 0:
            a, _, c, _, e, f = self.transform
            coords["x"] = c + a * (np.arange(self.shape[2]) + 0.5)
            coords["y"] = f + e * (np.arange(self.shape[1]) + 0.5)
        fields = {k: getattr(self, k) for k in ("wavelength_units", "nodata", "crs", "transform")}
        attrs = {**self.attrs, **marked, **{k: v for k, v in fields.items() if v is not None}}
        return xarray.DataArray(
            np.asarray(self.values), dims=("band", "y", "x"), coords=coords, attrs=attrs
        )

    @classmethod
    def from_xarray(cls, array: xarray.DataArray) -> Cube:
        """A cube from a 3-D DataArray; its names say which axis has bands, else the first."""
        if array.ndim != 3:
            raise ShapeMismatch(f"expected a DataArray with 3 dimensions, found {array.dims}")
        order, _ = _axes_from(array)
        band_dim = array.dims[order[0]]

        def per_band(*names: str, dtype: Any = np.float64) -> tuple[Any, str | None]:
            """The first of these coordinates that has an entry for each band, and its unit."""
            for name in names:  # a name, or a standard name
                name = next((str(k) for k, c in array.coords.items() if _cf(c) == name), name)
                if name in array.coords and array.coords[name].dims == (band_dim,):
                    coordinate = array.coords[name]
                    return np.asarray(coordinate, dtype), coordinate.attrs.get("units")
            return None, None

        attrs, text = array.attrs, array.attrs.get(FILLED)
        bands = array.shape[order[0]]
        wavelengths, units = per_band(*WAVELENGTHS, *CF_WAVELENGTHS)
        return cls(
            values=array.values.transpose(order),
            wavelengths=wavelengths,
            wavelength_units=attrs.get("wavelength_units", units),
            fwhm=per_band("fwhm")[0],
            good=per_band("good", "good_wavelengths", "bbl", dtype=None)[0],
            nodata=_declared_nodata(attrs),
            crs=attrs.get("crs"),
            transform=attrs.get("transform"),
            attrs={"xarray": array},
            mark=None if text is None else parsed(text, attrs.get(RECORD), bands=bands),
        )


def as_cube(data: Cube | Array | xarray.DataArray) -> Cube:
    """A Cube from a Cube, a DataArray, or a numpy array (bands, rows, cols), masked or plain."""
    if isinstance(data, Cube):
        return data
    if isinstance(data, np.ma.MaskedArray):
        if data.dtype.kind == "f":
            return Cube(values=data.filled(np.nan))
        nodata = _unused(data)
        return Cube(values=data.filled(nodata), nodata=float(nodata))
    if isinstance(data, np.ndarray) or not hasattr(data, "dims"):
        return Cube(values=np.asarray(data))
    return Cube.from_xarray(data)


def _unused(data: np.ma.MaskedArray[Any, Any]) -> int:
    """A value of the array's type that no entry has: its own fill value if possible."""
    known, kind = data.compressed(), np.iinfo(data.dtype)
    ends = [int(data.fill_value), kind.min, kind.max]
    unused = [n for n in ends if kind.min <= n <= kind.max and not (known == n).any()]
    if not unused:  # a small type, most likely
        taken = np.unique(known).astype(object)
        unused = [int(n) + 1 for n, after in pairwise(taken) if after > n + 1]
    if not unused:
        raise BadValue(
            f"a masked array of {data.dtype} that has every value there is: none is left to mark "
            "the masked entries; use a larger type"
        )
    return unused[0]


def detector_scale(
    values: Array, observed: Bools, good: Bools, detectors: Sequence[str] | None
) -> Scale:
    """`unit_scale`, for each detector by itself where there are several (bands, 1, 1).

    A detector without an observed entry in a good band takes the scale of all of them.
    """
    whole = unit_scale(values, observed, good)
    if detectors is None:
        return whole
    low, high = (np.full((len(values), 1, 1), end) for end in whole)
    for name in set(detectors):
        own = np.array([d == name for d in detectors])
        if (np.broadcast_to(observed, values.shape)[own] & good[own][:, None, None]).any():
            low[own], high[own] = unit_scale(values, observed, good & own)
    return Scale(low, high)


def unit_scale(values: Array, observed: Bools, good: Bools) -> Scale:
    """0.01 and 99.99 percentiles of the observed entries of good bands, widened by 5 % each side.

    values, observed: (bands, rows, cols), or observed (rows, cols); good: (bands,)
    """
    entries = np.broadcast_to(observed, values.shape)
    chosen = entries if good.all() else entries & good[:, None, None]
    sample = values[chosen]
    if not sample.size:
        raise NothingObserved(
            "no observed entry in any good band: there is nothing to fill from; "
            "check `nodata=`, the mask, and the bad-band list"
        )
    low, high = _outer_percentiles(sample, 0.01, 99.99)
    with np.errstate(over="ignore"):
        finite = np.isfinite(high - low)
    if not finite:
        raise BadValue(
            "NaN, Inf or values near the largest number among the entries that are said to be "
            "observed; mark them as missing"
        )
    if max(abs(low), abs(high)) > 1 / SQUARED or 0 < high - low < SQUARED:
        raise BadValue(
            f"values from {low:g} to {high:g}: their squares are beyond what numbers can hold; "
            "scale them, or mark what is no measurement as missing"
        )
    margin = 0.05 * (high - low)
    if margin == 0:  # a constant cube: any span will do that does not vanish beside its value
        margin = max(0.5, 1e-3 * abs(low))
    return Scale(float(low - margin), float(high + margin))


def _outer_percentiles(sample: Array, low: float, high: float) -> Floats:
    """`np.percentile` near both ends, in float64 whatever the type of the sample is.

    Only the entries near the ends are sorted; one in 64 of all shows about where these begin.
    """
    if np.isnan(sample.min()):
        return np.full(2, np.nan)
    place = np.array([low, high]) / 100 * (len(sample) - 1)
    below = np.floor(place).astype(np.intp)
    above = np.minimum(below + 1, len(sample) - 1)
    few = int(max(above[0] + 1, len(sample) - below[1]))
    some, about = np.sort(sample[::64]), few // 32 + 8
    first = last = sample
    if len(some) > 2 * about:
        first, last = sample[sample <= some[about]], sample[sample >= some[-1 - about]]
    if min(len(first), len(last)) < few:
        first = last = sample
    first, last = np.sort(first), np.sort(last)
    a = np.array([first[below[0]], last[below[1] - len(sample)]], np.float64)
    b = np.array([first[above[0]], last[above[1] - len(sample)]], np.float64)
    share = place - below
    between: Floats = np.where(share < 0.5, a + (b - a) * share, b - (b - a) * (1 - share))
    return between


def representable(nodata: float, dtype: np.dtype[Any]) -> bool:
    """Whether a value of this dtype can equal `nodata`."""
    if dtype.kind == "f":
        return True
    if dtype.kind not in "iu":
        return False
    info = np.iinfo(dtype)
    return bool(np.isfinite(nodata)) and nodata == int(nodata) and info.min <= nodata <= info.max


def equals(values: Array, nodata: float) -> Bools:
    """values == nodata in the dtype of the values, so that float32(-3.4e38) meets -3.4e38."""
    if not representable(nodata, values.dtype):
        raise BadValue(
            f"nodata {nodata:g} cannot occur in {values.dtype} values; "
            "give a value of that type with `nodata=`"
        )
    if np.isnan(nodata):
        return np.isnan(values)
    with np.errstate(over="ignore"):  # a double beyond float32 becomes its infinity
        flag = np.asarray(nodata).astype(values.dtype)
    return np.asarray(values == flag)


def equals_any(values: Array, nodata: Nodata) -> Bools:
    """Where values equal one of the nodata values, each compared as `equals` does."""
    equal = np.zeros(values.shape, bool)
    for value in listed(nodata):
        equal |= equals(values, value)
    return equal


def listed(nodata: Nodata) -> tuple[float, ...]:
    """The nodata values, each once."""
    if nodata is None:
        return ()
    try:
        return tuple(dict.fromkeys(float(v) for v in np.ravel(nodata)))
    except (TypeError, ValueError):
        raise BadValue(f"`nodata={nodata!r}`: expected a number, or several") from None


def _shifted(transform: tuple[float, ...] | None, rows: int, cols: int) -> tuple[float, ...] | None:
    if transform is None:
        return None
    a, b, c, d, e, f = transform
    return (a, b, c + a * cols + b * rows, d, e, f + d * cols + e * rows)


def _axes_from(array: xarray.DataArray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The order that brings the band axis to the front, and the order that brings it back."""
    order = band_order(dim_names(array))
    return order, tuple(int(i) for i in np.argsort(order))


def _declared_nodata(attrs: Mapping[Any, Any]) -> float | None:
    """The first of the attributes that name a value of missing entries."""
    declared = [n for n in ("_FillValue", "missing_value", "nodata") if attrs.get(n) is not None]
    if not declared:
        return None
    try:
        return float(np.ravel(attrs[declared[0]])[0])
    except (TypeError, ValueError, IndexError):
        raise BadValue(
            f"the attribute {declared[0]} is {attrs[declared[0]]!r}, expected a number; "
            "correct or remove it"
        ) from None


def dim_names(array: xarray.DataArray) -> list[str]:
    """The dimensions of a DataArray, called x, y or band where CF attributes of a coordinate along
    them say so, and by their own names elsewhere."""
    along = {str(dim): str(dim) for dim in array.dims}
    for coordinate in array.coords.values():
        if len(coordinate.dims) == 1 and _cf(coordinate) in CF_NAMES:
            along[str(coordinate.dims[0])] = CF_NAMES[_cf(coordinate)]
    return list(along.values())


def _cf(coordinate: xarray.DataArray) -> str:
    """What the CF conventions call a coordinate; empty where it does not say."""
    return str(coordinate.attrs.get("standard_name") or coordinate.attrs.get("axis", ""))


def band_axis(dims: Sequence[str]) -> int | None:
    """Which of three named axes has the bands: the one called so, or the one beside two that are
    rows and columns; None if no name says so."""
    names = [name.lower() for name in dims]
    by_name = [i for i, n in enumerate(names) if n in BAND_DIMS]
    beside = [i for i, n in enumerate(names) if n not in (*ROW_DIMS, *COL_DIMS)]
    return by_name[0] if by_name else beside[0] if len(beside) == 1 else None


def band_order(dims: Sequence[str]) -> tuple[int, int, int]:
    """Which of three named axes are bands, rows and cols; the first is bands if no name says so."""
    names = [name.lower() for name in dims]
    band = band_axis(names) or 0
    first, second = (i for i in range(3) if i != band)
    if names[second] in ROW_DIMS and names[first] not in ROW_DIMS:
        first, second = second, first
    return band, first, second
