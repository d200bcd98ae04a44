"""`Cube`: a hyperspectral image with all metadata of its file.

Values are (bands, rows, cols) in the dtype and unit of the file.  They may still be on disk, as a
numpy memmap or as a `Lazy` array that reads a window when it is indexed.
"""

from __future__ import annotations

import math
import re
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

NAMED = re.compile(
    r"(?<![\w.])(\d+(?:\.\d+)?)\s*(nanometers?|nm|micrometers?|microns?|um|µm|μm)\b", re.IGNORECASE
)
BAND_DIMS = ("band", "bands", "wavelength", "wavelengths", "channel", "spectral")
ROW_DIMS = ("y", "row", "rows", "line", "lines", "lat", "latitude", "northing", "downtrack")
COL_DIMS = ("x", "col", "cols", "sample", "samples", "lon", "longitude", "easting", "crosstrack")
# entries of attrs with one item per band, and those of its entry "geotiff"
PER_BAND = ("detector", "data gain values", "data offset values", "reflectance scale factor")
PER_BAND_IN_GEOTIFF = ("scales", "offsets", "units", "colorinterp", "band_tags")
ENVI_POINTS = ("geo points", "rpc info")  # header entries that refer to the first pixel
SQUARED = 1e-100  # spans below it and values above its inverse cannot be squared in float64
WAVELENGTHS = ("wavelength", "wavelengths", "wavelength_nm", "band_wavelength")
# CF names: `standard_name` or `axis` of a coordinate -> one of the dimension names above
CF_WAVELENGTHS = ("radiation_wavelength", "sensor_band_central_radiation_wavelength")
CF_NAMES = {
    **dict.fromkeys(("X", "projection_x_coordinate", "longitude", "grid_longitude"), "x"),
    **dict.fromkeys(("Y", "projection_y_coordinate", "latitude", "grid_latitude"), "y"),
    **dict.fromkeys((*CF_WAVELENGTHS, "sensor_band_identifier"), "band"),
}


class Values(Protocol):
    """The interface of a cube's values, which numpy arrays, memmaps and `Lazy` arrays provide."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def __getitem__(self, key: Any, /) -> Any: ...


class Lazy:
    """An array on disk with known shape and dtype, whose values are read when it is indexed.

    read: function that takes three slices (bands, rows, cols) with step 1 and returns that block.
    chunks: shape of the blocks that the file can read at once, if it has any.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        dtype: np.dtype[Any],
        read: Callable[[slice, slice, slice], Array],
        chunks: tuple[int, int, int] | None = None,
    ) -> None:
        self.shape, self.dtype, self._read = shape, np.dtype(dtype), read
        self.chunks, self.ndim = chunks, 3

    def __getitem__(self, key: Any) -> Array:
        """Return the indexed part: integers, slices with a positive step, and `...`."""
        keys = key if isinstance(key, tuple) else (key,)
        if not all(k is ... or isinstance(k, int | np.integer | slice) for k in keys):
            raise IndexError(
                "arrays on disk are indexed by integers, slices and `...`: load them first, "
                "such as by `cube.load()`"
            )
        if len(keys) > 3 + (Ellipsis in keys):
            raise IndexError(f"{len(keys)} indices for the three axes of a cube")
        at = keys.index(...) if Ellipsis in keys else len(keys)
        rest = [slice(None)] * (3 + (Ellipsis in keys) - len(keys))
        keys = (*keys[:at], *rest, *keys[at + 1 :])
        blocks, inside = zip(*map(_read_and_taken, keys, self.shape), strict=True)
        return np.asarray(self._read(*blocks)[inside])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self[...], dtype=dtype, copy=bool(copy) or None)


def _read_and_taken(key: int | slice, n: int) -> tuple[slice, int | slice]:
    """Return the block of an axis of length n that is read for a key, and what is taken of it."""
    if not isinstance(key, slice):
        i = range(n)[key]
        return slice(i, i + 1), 0
    start, stop, step = key.indices(n)
    if step < 1:
        raise IndexError(f"step {step}: arrays on disk are read forwards; load them first")
    return slice(start, max(start, stop)), slice(None, None, step)


class Glt(NamedTuple):
    """A geographic lookup table: the sensor pixel shown at each pixel of a map grid."""

    lookup: Values  # (rows', cols', 2) sensor column and row, 1-based, 0 = none, < 0 = interpolated
    transform: tuple[float, ...]  # affine of the map grid
    crs: str | None  # WKT of the map grid


class Scale(NamedTuple):
    """The affine map between a cube's own unit and the unit range: 0 ↔ low, 1 ↔ high.

    Both ends are numbers, or arrays (bands, 1, 1) where each detector has its own scale.
    """

    low: Any
    high: Any

    @property
    def span(self) -> Any:
        """high - low, in the cube's own unit."""
        return self.high - self.low

    @property
    def spans(self) -> Floats:
        """(1,) or (bands,) span, to scale arrays with one entry per band."""
        return np.reshape(self.span, -1)

    def to_unit(self, values: Any) -> Any:
        """Return values of the cube's own unit on the unit range."""
        unit = values - self.low
        unit /= self.span  # in place: cubes are large
        return unit

    def from_unit(self, values: Any) -> Any:
        """Return values of the unit range in the cube's own unit."""
        restored = values * self.span
        restored += self.low
        return restored


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
    missing_rule: Callable[[Array], Bools] | None = None  # True where the product marks as missing
    withheld_rule: Callable[[Array], Bools] | None = None  # True where withheld, not lost (clouds)
    attrs: Mapping[str, Any] = field(default_factory=dict)  # all other attributes, unchanged
    path: Path | None = None  # the file it was read from
    format: str | None = None  # the io module that read it
    mark: Mark | None = None  # record of filled entries; None = all values were measured

    def __post_init__(self) -> None:
        if len(self.values.shape) != 3:
            raise ShapeMismatch(
                f"a cube has three axes (bands, rows, cols); found shape {tuple(self.values.shape)}"
            )
        for name in ("good", "valid"):  # a bbl of 0 and 1 would index instead of select
            entry = getattr(self, name)
            if entry is not None and not isinstance(entry, Lazy):
                object.__setattr__(self, name, np.asarray(entry).astype(bool))
        for name in ("wavelengths", "fwhm"):
            entry = getattr(self, name)
            if entry is not None and not isinstance(entry, np.ndarray):
                object.__setattr__(self, name, np.array(entry, dtype=np.float64))
        if self.transform is not None:  # an Affine of rasterio has a third row, 0 0 1
            object.__setattr__(self, "transform", tuple(self.transform)[:6])
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

    def __repr__(self) -> str:
        """Return a summary of at most six lines, without reading values."""
        crs = None if self.crs is None else [*self.crs.split('"'), ""]
        rows = {
            "cube": size_and_wavelengths(self),
            "file": None if self.path is None else f"{self.path} ({self.format})",
            "FILLED": None if self.mark is None else self.mark.text,
            "nodata": None if self.nodata is None else f"{self.nodata:.10g}",
            "map": None if crs is None else crs[1] or crs[0],  # a WKT begins with its name
        }
        return "\n".join(["hydiff.Cube", *(f"{k:9} {v}" for k, v in rows.items() if v is not None)])

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of bands, rows and columns."""
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
        """Size of the values in bytes, if they were in memory."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def good_bands(self) -> Bools:
        """(bands,) True where a band is good; all True if the file has no list of bad bands."""
        return np.ones(self.bands, bool) if self.good is None else self.good

    @property
    def detectors(self) -> tuple[str, ...] | None:
        """(bands,) name of each band's detector, or None if the file lists fewer than two."""
        names = self.attrs.get("detector")
        if not isinstance(names, list | tuple | np.ndarray) or len(names) != self.bands:
            return None
        return tuple(map(str, names)) if len(set(names)) > 1 else None

    def load(self) -> Self:
        """Return the same cube with its values in memory."""
        valid = None if self.valid is None else np.asarray(self.valid)
        return replace(self, values=np.asarray(self.values), valid=valid)

    def window(
        self, rows: slice = slice(None), cols: slice = slice(None), bands: slice = slice(None)
    ) -> Self:
        """Return the part of the cube inside the slices `rows`, `cols` and `bands`, in memory.

        Its affine transform refers to the first pixel of the window.
        """
        if any(s.step not in (None, 1) for s in (rows, cols, bands)):
            raise BadValue("a window takes every pixel: give slices without a step")
        row0, col0 = (s.indices(n)[0] for s, n in zip((rows, cols), self.shape[1:], strict=True))

        def per_band(entry: Any) -> Any:
            """Return the entries of the chosen bands; None stays None."""
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
            attrs=_moved(_attrs_of(self.attrs, bands, self.bands), row0, col0),
        )

    def observed(self, nodata: Nodata = None, *, whole: Nodata = None) -> Bools:
        """(bands, rows, cols) True = measured, for the whole cube.

        nodata, whole: as in `observed_in`.
        """
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
        """Return True where a block of this cube's values was measured.

        This is the only rule for missing values in the package.  The first applicable case decides:

        1. If `nodata` is given, exactly its values are missing.  Those that are also in `whole` are
           missing only in pixels where every good band is missing; the block must then contain all
           bands.
        2. If the reader of the product provides a rule, that rule decides.
        3. Otherwise the declared nodata value and the validity layer of the file decide.

        NaN and Inf are always missing.  Values are compared in the dtype of the file.
        `rows`, `cols` and `bands` are the position of the block, needed for the validity layer.
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
        """Return the validity layer of a block: (rows, cols), or (bands, rows, cols)."""
        assert self.valid is not None
        whole = len(self.valid.shape) == 3
        return np.asarray(self.valid[(bands, rows, cols) if whole else (rows, cols)])

    def validated(self, filled: Values) -> Values | None:
        """Return the validity layer after a fill, or None if the cube has no such layer.

        filled: (bands, rows, cols) True = filled.  A layer (rows, cols) marks a pixel as valid if
        at least one of its bands is filled.
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
        """Return True where the product withholds values of a block, such as screened clouds."""
        if self.withheld_rule is None:
            return np.zeros(values.shape, bool)
        return self.withheld_rule(values)

    def to_xarray(self) -> xarray.DataArray:
        """Return a DataArray (band, y, x).

        A cube made from a DataArray is returned with the dimensions, coordinates and attributes of
        that DataArray, and with `missing_value` if that declares no nodata value but the cube does.
        """
        need("xarray", "xarray", "to_xarray")
        import xarray

        marked = {} if self.mark is None else self.mark.attributes
        like = self.attrs.get("xarray")
        if isinstance(like, xarray.DataArray):
            values = np.asarray(self.values).transpose(_axes_from(like)[1])
            declared = {"missing_value": like.encoding.get("missing_value"), **like.attrs}
            if self.nodata is not None and _declared_nodata(declared) is None:
                marked = {**marked, "missing_value": self.dtype.type(self.nodata)}
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
        """Return a cube from a 3-D DataArray.

        The band axis is found by the names of the dimensions; if none of them is known, it is the
        first.
        """
        if array.ndim != 3:
            raise ShapeMismatch(f"expected a DataArray with 3 dimensions, found {array.dims}")
        order, _ = _axes_from(array)
        band_dim = array.dims[order[0]]
        transform, crs = _place(array, order)

        def per_band(*names: str, dtype: Any = np.float64) -> tuple[Any, str | None]:
            """Return the first of these coordinates with one entry per band, and its unit."""
            for name in names:  # the name of a coordinate, or its standard name
                name = next((str(k) for k, c in array.coords.items() if _cf(c) == name), name)
                if name in array.coords and array.coords[name].dims == (band_dim,):
                    coordinate = array.coords[name]
                    return np.asarray(coordinate, dtype), coordinate.attrs.get("units")
            return None, None

        attrs, text = array.attrs, array.attrs.get(FILLED)
        bands = array.shape[order[0]]
        names = _names(attrs.get("long_name"), bands)
        wavelengths, units = per_band(*WAVELENGTHS, *CF_WAVELENGTHS)
        if wavelengths is None and (named := named_wavelengths(names or ())) is not None:
            wavelengths, units = named
        return cls(
            values=array.values.transpose(order),
            wavelengths=wavelengths,
            wavelength_units=attrs.get("wavelength_units", units),
            fwhm=per_band("fwhm")[0],
            good=per_band("good", "good_wavelengths", "bbl", dtype=None)[0],
            nodata=_declared_nodata(attrs),
            crs=crs,
            transform=transform,
            band_names=names,
            attrs={"xarray": array, **scaling_by(attrs, bands)},
            mark=None if text is None else parsed(text, attrs.get(RECORD), bands=bands),
        )


def size_and_wavelengths(cube: Cube) -> str:
    """Return the shape, dtype and wavelength range of a cube as text."""
    bands, rows, cols = cube.shape
    text = f"{bands} bands × {rows} rows × {cols} cols, {cube.dtype}"
    if cube.wavelengths is None:
        return text
    low, high = min(cube.wavelengths), max(cube.wavelengths)
    unit = (cube.wavelength_units or "").strip()
    unit = "" if unit.lower() in ("unknown", "none") else unit  # as ENVI headers may say
    return f"{text}, {low:.4g} … {high:.4g} {unit}".rstrip()


def as_cube(data: Cube | Array | xarray.DataArray) -> Cube:
    """Return a Cube from a Cube, a DataArray, or a plain or masked array (bands, rows, cols)."""
    if isinstance(data, Cube):
        return data
    if isinstance(data, np.ma.MaskedArray):
        if data.dtype.kind == "f":
            return Cube(values=data.filled(np.nan))
        if data.dtype.kind not in "iu":  # a fill refuses them
            return Cube(values=data.data)
        nodata = _unused(data)
        return Cube(values=data.filled(nodata), nodata=float(nodata))
    if isinstance(data, np.ndarray) or not hasattr(data, "dims"):
        return Cube(values=np.asarray(data))
    return Cube.from_xarray(data)


def as_mask(mask: Any, cube: Cube, name: str = "mask") -> Any:
    """Return a mask with named dimensions as an array (rows, cols) or (bands, rows, cols).

    Dimensions are found by their names, in any order; coordinates must be those of the cube if it
    was made from a DataArray.  A mask without names that has the shape of that DataArray, and not
    that of the cube, is arranged as it is; any other is returned unchanged.
    """
    like = cube.attrs.get("xarray")
    named = hasattr(mask, "dims")
    if like is None:
        return _by_names(mask) if named else mask
    order, _ = _axes_from(like)
    dims = [like.dims[i] for i in order]
    if not named:
        own = np.shape(mask) == like.shape != cube.shape
        return np.transpose(mask, order) if own else mask
    if not set(dims[1:]) <= set(mask.dims) <= set(dims):
        raise ShapeMismatch(
            f"{name} with dimensions {mask.dims}, expected {like.dims} or those of rows and "
            "columns; rename them, or give its values alone"
        )
    check_same_place(like, mask, name)
    return mask.transpose(*[d for d in dims if d in mask.dims]).values


def _by_names(mask: xarray.DataArray) -> Array:
    """Return the values of a mask with its dimensions in the order bands, rows, columns."""
    if mask.ndim == 3:
        return np.asarray(mask.values.transpose(_axes_from(mask)[0]))
    names = [name.lower() for name in dim_names(mask)]
    turned = mask.ndim == 2 and (names[0] in COL_DIMS or names[1] in ROW_DIMS)
    return np.asarray(mask.values.T if turned else mask.values)


def check_same_place(array: Any, other: Any, name: str) -> None:
    """Raise ShapeMismatch unless two DataArrays have the same coordinates where both have some.

    Rounding does not matter: numbers may differ by a hundredth of the least step.
    """
    for dim in (d for d in array.dims if d in other.dims):
        both = dim in array.indexes and dim in other.indexes
        same = array.sizes[dim] == other.sizes[dim]
        if not same or (both and not _alike(array.indexes[dim], other.indexes[dim])):
            raise ShapeMismatch(
                f"array and {name} do not lie on the same coordinates along {dim} "
                f"({array.sizes[dim]} and {other.sizes[dim]}); align them first, such as with "
                "reindex_like"
            )


def _alike(index: Any, other: Any) -> bool:
    """Return whether two indexes of one length are equal but for rounding."""
    if index.equals(other):
        return True
    a, b = np.asarray(index), np.asarray(other)
    if a.dtype.kind not in "iuf" or b.dtype.kind not in "iuf":
        return False
    step = np.abs(np.diff(a.astype(np.float64))).min(initial=np.inf)
    return bool(np.isfinite(step) and np.allclose(a, b, rtol=0, atol=0.01 * step))


def _unused(data: np.ma.MaskedArray[Any, Any]) -> int:
    """Return a value of the array's dtype that no entry has: its own fill value if possible."""
    entries, limits = data.compressed(), np.iinfo(data.dtype)
    ends = [int(data.fill_value), limits.min, limits.max]
    unused = [n for n in ends if limits.min <= n <= limits.max and not (entries == n).any()]
    if not unused:  # both ends of the range occur, most likely in a small type: look for a hole
        taken = np.unique(entries).astype(object)
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
    """Return the unit scale of a cube, with ends (bands, 1, 1) if it has several detectors.

    Each detector is scaled by `unit_scale` of its own bands.  A detector without any observed entry
    in a good band takes the scale of the whole cube.
    """
    whole = unit_scale(values, observed, good)
    if detectors is None:
        return whole
    low, high = (np.full((len(values), 1, 1), end) for end in whole)
    for name in set(detectors):
        of_detector = np.array([d == name for d in detectors])
        if (
            np.broadcast_to(observed, values.shape)[of_detector] & good[of_detector][:, None, None]
        ).any():
            low[of_detector], high[of_detector] = unit_scale(values, observed, good & of_detector)
    return Scale(low, high)


def unit_scale(values: Array, observed: Bools, good: Bools) -> Scale:
    """Return the scale from the 0.01 and 99.99 percentiles, widened by 5 % of their span each side.

    The percentiles are those of the observed entries of good bands.  values: (bands, rows, cols);
    observed: of the same shape, or (rows, cols); good: (bands,).
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
    if margin == 0:  # a constant cube: any span that does not vanish in rounding
        margin = max(0.5, 1e-3 * abs(low))
    return Scale(float(low - margin), float(high + margin))


def _outer_percentiles(sample: Array, low: float, high: float) -> Floats:
    """Return two percentiles near both ends, as `np.percentile` does, in float64 for any dtype.

    Only the entries near the ends are sorted, which is faster.  Where they begin is estimated from
    every 64th entry; if that leaves too few entries, all are sorted.
    """
    if np.isnan(sample.min()):
        return np.full(2, np.nan)
    position = np.array([low, high]) / 100 * (len(sample) - 1)
    below = np.floor(position).astype(np.intp)
    above = np.minimum(below + 1, len(sample) - 1)
    needed = int(max(above[0] + 1, len(sample) - below[1]))
    subsample, margin = np.sort(sample[::64]), needed // 32 + 8
    lowest = highest = sample
    if len(subsample) > 2 * margin:
        lowest, highest = (
            sample[sample <= subsample[margin]],
            sample[sample >= subsample[-1 - margin]],
        )
    if min(len(lowest), len(highest)) < needed:
        lowest = highest = sample
    lowest, highest = np.sort(lowest), np.sort(highest)
    a = np.array([lowest[below[0]], highest[below[1] - len(sample)]], np.float64)
    b = np.array([lowest[above[0]], highest[above[1] - len(sample)]], np.float64)
    share = position - below
    between: Floats = np.where(share < 0.5, a + (b - a) * share, b - (b - a) * (1 - share))
    return between


def representable(nodata: float, dtype: np.dtype[Any]) -> bool:
    """Return whether a value of this dtype can equal `nodata`."""
    if dtype.kind == "f":
        return True
    if dtype.kind not in "iu":
        return False
    info = np.iinfo(dtype)
    return bool(np.isfinite(nodata)) and nodata == int(nodata) and info.min <= nodata <= info.max


def equals(values: Array, nodata: float) -> Bools:
    """Return values == nodata, compared in the dtype of the values.

    So float32(-3.4e38) equals a declared nodata value of -3.4e38.
    """
    if not representable(nodata, values.dtype):
        raise BadValue(
            f"nodata {nodata:g} cannot occur in {values.dtype} values; "
            "give a value of that type with `nodata=`"
        )
    if np.isnan(nodata):
        return np.isnan(values)
    with np.errstate(over="ignore"):  # a float64 beyond the range of float32 becomes infinite
        flag = np.asarray(nodata).astype(values.dtype)
    return np.asarray(values == flag)


def equals_any(values: Array, nodata: Nodata) -> Bools:
    """Return True where values equal one of the nodata values, compared as in `equals`."""
    equal = np.zeros(values.shape, bool)
    for value in listed(nodata):
        equal |= equals(values, value)
    return equal


def listed(nodata: Nodata) -> tuple[float, ...]:
    """Return the nodata values as a tuple without duplicates; () for None."""
    if nodata is None:
        return ()
    try:
        return tuple(dict.fromkeys(float(v) for v in np.ravel(nodata)))
    except (TypeError, ValueError):
        raise BadValue(f"`nodata={nodata!r}`: expected a number, or several") from None


def _shifted(transform: tuple[float, ...] | None, rows: int, cols: int) -> tuple[float, ...] | None:
    """Return the affine transform of a window whose first pixel is (rows, cols)."""
    if transform is None:
        return None
    a, b, c, d, e, f = transform
    return (a, b, c + a * cols + b * rows, d, e, f + d * cols + e * rows)


def _attrs_of(attrs: Mapping[str, Any], bands: slice, count: int) -> dict[str, Any]:
    """Return the attributes of some of `count` bands, without the DataArray that they came from."""

    def chosen(entries: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        listed = {
            k: v
            for k, v in entries.items()
            if k in names and (isinstance(v, list | tuple) or np.ndim(v)) and len(v) == count
        }
        return {**entries, **{k: v[bands] for k, v in listed.items()}}

    kept = chosen({k: v for k, v in attrs.items() if k != "xarray"}, PER_BAND)
    if isinstance(box := kept.get("geotiff"), Mapping):
        kept["geotiff"] = chosen(box, PER_BAND_IN_GEOTIFF)
    return kept


def _moved(attrs: Mapping[str, Any], rows: int, cols: int) -> dict[str, Any]:
    """Return the attributes of a window whose first pixel is (rows, cols): control points and RPCs
    of a GeoTIFF refer to it; those of an ENVI header are left out."""
    if rows == cols == 0:
        return dict(attrs)
    moved = {key: v for key, v in attrs.items() if key.lower() not in ENVI_POINTS}
    if isinstance(box := moved.get("geotiff"), Mapping):
        tags, points = box.get("tags", {}), box.get("gcps")
        if points:
            box = {**box, "gcps": [[p[0] - rows, p[1] - cols, *p[2:]] for p in points]}
        if rpc := tags.get("RPC"):
            first = (("LINE_OFF", rows), ("SAMP_OFF", cols))
            offsets = {key: repr(float(rpc[key].split()[0]) - n) for key, n in first if key in rpc}
            box = {**box, "tags": {**tags, "RPC": {**rpc, **offsets}}}
        moved["geotiff"] = box
    return moved


def _axes_from(array: xarray.DataArray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axis order that moves bands to the front, and the order that moves them back."""
    order = band_order(dim_names(array))
    return order, tuple(int(i) for i in np.argsort(order))


def _place(
    array: xarray.DataArray, order: Sequence[int]
) -> tuple[tuple[float, ...] | None, str | None]:
    """Return the affine transform and the CRS of a DataArray, None where it does not state them.

    Evenly spaced coordinates come before the attribute `transform`, which a selection leaves as it
    was; it is kept where it agrees, because it is not rounded.  The CRS is that of rioxarray's
    coordinate, else the attribute `crs`.
    """
    texts = [c.attrs.get("crs_wkt", c.attrs.get("spatial_ref")) for c in array.coords.values()]
    crs = next((str(text) for text in texts if text is not None), array.attrs.get("crs"))
    y, x = (array.coords.get(array.dims[i]) for i in order[1:])
    return transform_by(y, x, array.attrs.get("transform")), crs


def transform_by(y: Any, x: Any, stated: Any) -> tuple[float, ...] | None:
    """Return the affine transform by the coordinates of rows and columns, which may be None.

    stated: the one among the attributes, returned where the coordinates agree or say nothing.
    """
    rows, cols = _spaced(y), _spaced(x)
    if rows is None or cols is None:
        return None if stated is None else tuple(stated)
    (top, down), (left, right) = rows, cols
    transform = (right, 0.0, left, 0.0, down, top)
    agrees = np.shape(stated) == (6,) and np.allclose(stated, transform, 1e-9)
    return tuple(stated) if agrees else transform


def _spaced(coordinate: Any) -> tuple[float, float] | None:
    """Return the outer edge and the step of a coordinate; None unless it is one on a map, evenly
    spaced and not the number of the pixel."""
    if coordinate is None or coordinate.size < 2 or coordinate.dtype.kind not in "iuf":
        return None
    centres = np.asarray(coordinate, np.float64)
    steps = np.diff(centres)
    even = steps[0] and np.allclose(steps, steps[0], rtol=1e-3, atol=0)
    if not even or np.array_equal(centres, np.arange(centres.size)):
        return None
    step = float(np.mean(steps))
    return float(centres[0]) - step / 2, step


def named_wavelengths(names: Sequence[str]) -> tuple[Floats, str] | None:
    """Return wavelengths and their unit from names such as "376.44 Nanometers" or "band 1 (0.455
    um)"; None unless each name has exactly one wavelength, and all have the same unit."""
    matches = [NAMED.findall(name) for name in names]
    if not matches or any(len(pairs) != 1 for pairs in matches):
        return None
    units = {unit for ((_, unit),) in matches}
    numbers = np.array([float(number) for ((number, _),) in matches])
    return (numbers, units.pop()) if len(units) == 1 else None


def _names(names: Any, bands: int) -> tuple[str, ...] | None:
    """Return the names of the bands, where rioxarray puts them; None for any other `long_name`."""
    listed = isinstance(names, tuple | list) and len(names) == bands
    return tuple(str(name) for name in names) if listed else None


def scaling_by(attrs: Mapping[Any, Any], bands: int) -> dict[str, list[float]]:
    """Return the scale and offset of stored values as entries of `Cube.attrs`, if there are any."""
    if not {"scale_factor", "add_offset"} & set(attrs):
        return {}
    pair = attrs.get("scale_factor", 1.0), attrs.get("add_offset", 0.0)
    try:
        gains, offsets = (np.broadcast_to(np.asarray(x, float), bands).tolist() for x in pair)
    except (TypeError, ValueError):  # not numbers, or not one per band
        return {}
    return {"data gain values": gains, "data offset values": offsets}


def _declared_nodata(attrs: Mapping[Any, Any]) -> float | None:
    """Return the first nodata value that the attributes declare, or None."""
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
    """Return the names of a DataArray's dimensions.

    A dimension is called x, y or band if the CF attributes of a coordinate along it identify it;
    otherwise its own name is returned.
    """
    along = {str(dim): str(dim) for dim in array.dims}
    for coordinate in array.coords.values():
        if len(coordinate.dims) == 1 and _cf(coordinate) in CF_NAMES:
            along[str(coordinate.dims[0])] = CF_NAMES[_cf(coordinate)]
    return list(along.values())


def _cf(coordinate: xarray.DataArray) -> str:
    """Return the CF `standard_name` of a coordinate, else its `axis`, else an empty string."""
    return str(coordinate.attrs.get("standard_name") or coordinate.attrs.get("axis", ""))


def band_axis(dims: Sequence[str]) -> int | None:
    """Return the number of the band axis among three named axes, or None if no name identifies it.

    It is the axis with a name for bands, or the remaining axis if the other two are rows and
    columns.
    """
    names = [name.lower() for name in dims]
    by_name = [i for i, n in enumerate(names) if n in BAND_DIMS or n.startswith("wavelength")]
    remaining = [i for i, n in enumerate(names) if n not in (*ROW_DIMS, *COL_DIMS)]
    return by_name[0] if by_name else remaining[0] if len(remaining) == 1 else None


def band_order(dims: Sequence[str]) -> tuple[int, int, int]:
    """Return the numbers of the band, row and column axes among three named axes.

    If no name identifies the band axis, it is the first.
    """
    names = [name.lower() for name in dims]
    band = band_axis(names) or 0
    first, second = (i for i in range(3) if i != band)
    if names[second] in ROW_DIMS and names[first] not in ROW_DIMS:
        first, second = second, first
    return band, first, second
