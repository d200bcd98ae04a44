"""Layers of a scene that the viewer shows, read a band or a spectrum at a time.

Bands are (rows, cols) and spectra (bands,), both float with NaN where an entry is missing.  Cubes
stay on disk until a band or spectrum is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hydiff import io
from hydiff.cube import Array, Bools, Cube, Floats, Ints, as_cube
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.flags import FILLED
from hydiff.io import fill_layers, provenance
from hydiff.io.regular import exists
from hydiff.mark import Mark
from hydiff.reference.grid import onto_grid
from hydiff.result import Result
from hydiff.viewer import images, tile_progress


class ImageWindow(NamedTuple):
    """A part of the scene, or every `step`-th row and column of it; ends are excluded."""

    top: int
    bottom: int
    left: int
    right: int
    step: int = 1

    @property
    def cut(self) -> tuple[slice, slice]:
        """Slices of the rows and columns of the scene."""
        return slice(self.top, self.bottom, self.step), slice(self.left, self.right, self.step)


@dataclass(frozen=True, eq=False)
class Fills:
    """Filled entries and their error bars, packed as in the companion files."""

    bits: NDArray[np.uint8]  # (⌈bands/8⌉, rows, cols), eight bands to a byte
    bands: int
    sigma: Array | None = None  # (n,) error bars of filled entries, in cube order and its unit

    @classmethod
    def of(cls, filled: Bools, sigma: Array | None = None) -> Fills:
        """Make Fills from arrays (bands, rows, cols)."""
        bars = None if sigma is None else np.asarray(sigma[filled])
        return cls(np.packbits(filled, axis=0), len(filled), bars)

    def plane(self, band: int) -> Bools:
        """Return the filled entries of a band (rows, cols)."""
        plane: Bools = (self.bits[band // 8] >> (7 - band % 8) & 1).astype(bool)
        return plane

    def all(self) -> Bools:
        """Return the filled entries (bands, rows, cols)."""
        return np.unpackbits(self.bits, axis=0, count=self.bands).astype(bool)

    def at(self, row: int, col: int) -> Bools:
        """Return the filled entries of a pixel (bands,)."""
        return np.unpackbits(self.bits[:, row, col], count=self.bands).astype(bool)

    def sigma_plane(self, band: int) -> Floats:
        """Return the error bars of a band (rows, cols), in the cube's unit; NaN if not filled."""
        where = self.plane(band)
        plane = np.full(where.shape, np.nan)
        if self.sigma is not None:
            first = self._starts[band, 0]
            plane[where] = self.sigma[first : first + where.sum()]
        return plane

    def sigma_at(self, row: int, col: int) -> Floats:
        """Return the error bars of a pixel (bands,), in the cube's unit; NaN if not filled."""
        where = self.at(row, col)
        bars = np.full(self.bands, np.nan)
        if self.sigma is not None:
            left = np.unpackbits(self.bits[:, row, :col], axis=0, count=self.bands)
            index = self._starts[:, row] + left.sum(axis=1, dtype=np.int64)
            bars[where] = self.sigma[index[where]]
        return bars

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Number of filled entries before each row of each band (bands, rows), in cube order."""
        counts = np.concatenate(
            [np.unpackbits(group[None], axis=0).sum(axis=2, dtype=np.int64) for group in self.bits]
        )[: self.bands]
        starts: NDArray[np.int64] = np.cumsum(counts) - counts.ravel()
        return starts.reshape(counts.shape)


@dataclass(frozen=True, eq=False)
class Layer:
    """One version of the scene."""

    cube: Cube
    hidden: Fills | None = None  # filled entries, shown as missing
    # (bands,) for an image of another sensor: its band for each band of the scene, -1 for none
    bands: Ints | None = None

    @property
    def foreign(self) -> bool:
        """Whether this is an image of another sensor, with values that cannot be compared."""
        return self.bands is not None

    def plane(self, band: int, window: ImageWindow | None = None) -> Floats:
        """Return a band (rows, cols), or a window of it."""
        rows, cols = (slice(None), slice(None)) if window is None else window.cut
        if self.bands is not None:
            band = int(self.bands[band])
            if band < 0:
                return np.full(self.cube.shape[1:], np.nan)[rows, cols]
        values: Floats = self._read(slice(band, band + 1), rows, cols)[0]
        if self.hidden is not None:
            values[self.hidden.plane(band)[rows, cols]] = np.nan
        return values

    def block(self, rows: slice, cols: slice) -> Floats:
        """Return a part of all bands (bands, rows, cols) of the scene."""
        values = self._read(slice(None), rows, cols)
        if self.hidden is not None:
            bits = self.hidden.bits[:, rows, cols]
            values[np.unpackbits(bits, axis=0, count=self.hidden.bands).astype(bool)] = np.nan
        if self.bands is not None:
            values = np.where((self.bands < 0)[:, None, None], np.nan, values[self.bands])
        return values

    def alive(self) -> Bools:
        """Return flags (bands,), True where some pixel has a value; reads the whole cube."""
        observed = self.cube.observed()
        if self.hidden is not None:
            observed &= ~self.hidden.all()
        return np.asarray(observed.any(axis=(1, 2)))

    def spectrum(self, row: int, col: int) -> Floats:
        """Return the spectrum of a pixel (bands,)."""
        values: Floats = self.block(slice(row, row + 1), slice(col, col + 1))[:, 0, 0]
        return values

    def _read(self, bands: slice, rows: slice, cols: slice) -> Floats:
        """Read a part of the cube (bands, rows, cols), NaN where an entry is missing."""
        values = np.asarray(self.cube.values[bands, rows, cols])
        return np.where(self.cube.observed_in(values, None, rows, cols, bands), values, np.nan)


@dataclass(frozen=True, eq=False)
class ViewedScene:
    """A cube with gaps and, where available, its fill, error bars and truth."""

    before: Layer
    after: Layer | None = None
    truth: Layer | None = None
    fills: Fills | None = None
    name: str = "cube"
    unfinished: tuple[Path, Path] | None = None  # output and tile folder of a running fill
    observed: Bools | None = None  # additional mask, True = measured; (rows, cols) or as the cube
    result: Result | None = None  # the fill, if it is in memory
    other: Layer | None = None  # shown left of the line instead of `before`
    var: str | None = None  # the variable that was read, in files that hold several

    @property
    def cube(self) -> Cube:
        return self.before.cube

    def masked(self, band: int, window: ImageWindow) -> Bools | None:
        """Return a window (rows, cols) of a band, True where the additional mask is missing."""
        if self.observed is None:
            return None
        plane = self.observed if self.observed.ndim == 2 else self.observed[band]
        masked: Bools = ~plane[window.cut]
        return masked


def from_files(
    file: Path, filled: Path | None = None, truth: Path | None = None, var: str | None = None
) -> ViewedScene:
    """Open the files of a scene; values are read when they are shown.

    var: the variable to read from `file` and `filled`, in files that hold several.
    If `file` is a fill and `filled` is None, its `before` is the fill without its filled entries.
    If `filled` is still being written by tiles, its finished tiles are shown.
    """
    cube = _numbers(io.read(file, var=var), file)
    true_layer = None if truth is None else Layer(_like(cube, io.read(truth), truth))
    if filled is None:
        fills = read_fills(cube.path or file, cube.shape, cube.mark)
        if fills is None:
            return ViewedScene(Layer(cube), None, true_layer, name=file.name, var=var)
        return ViewedScene(Layer(cube, fills), Layer(cube), true_layer, fills, file.name, var=var)
    target = io.envi.data_name(cube, filled)
    tile_folder = provenance.tiles_path(target)
    if not exists(filled) and tile_folder.is_dir():
        after = Layer(tile_progress.cube(tile_folder, cube))
        return ViewedScene(
            Layer(cube), after, true_layer, None, file.name, (target, tile_folder), var=var
        )
    after = Layer(_like(cube, io.read(filled, var=var), filled))
    fills = read_fills(after.cube.path or filled, cube.shape, after.cube.mark)
    return ViewedScene(Layer(cube, fills), after, true_layer, fills, file.name, var=var)


def from_data(
    data: Result | Cube | Array,
    filled: Result | Cube | Array | None = None,
    truth: Cube | Array | None = None,
) -> ViewedScene:
    """Make a scene from data in memory; the `before` of a Result is its cube without the fill."""
    fill = data if isinstance(data, Result) else filled
    if isinstance(fill, Result):
        scene = of_result(fill)
    else:
        cube = _numbers(as_cube(data), None)  # type: ignore[arg-type]
        after = None if fill is None else Layer(_like(cube, as_cube(fill), None))
        scene = ViewedScene(Layer(cube), after, name=_name(cube))
    if truth is not None:
        scene = replace(scene, truth=Layer(_like(scene.cube, as_cube(truth), None)))
    return scene


def of_result(result: Result) -> ViewedScene:
    """Return the scene of a fill in memory; its `before` is the cube without the filled entries."""
    fills = Fills.of(result.filled, result.sigma)
    cube = result.cube
    after = Layer(cube)
    return ViewedScene(Layer(cube, fills), after, None, fills, _name(cube), result=result)


def of_reference(reference: Cube, cube: Cube) -> Layer:
    """Resample a reference image to the pixels of a cube, with the nearest band in wavelength.

    Without wavelengths, bands are matched by number.
    """
    loaded = reference.load()
    name = _name(reference)
    on_grid = onto_grid(loaded, loaded.observed(), cube, name)
    bands = np.arange(cube.bands)
    reference_nm, cube_nm = images.nanometres(reference), images.nanometres(cube)
    if reference_nm is None or cube_nm is None:
        bands[reference.bands :] = -1
    else:
        distance = np.abs(reference_nm - cube_nm[:, None])
        distance = np.where(np.isnan(distance), np.inf, distance)  # of bands without a wavelength
        near = distance.min(axis=1) <= images.NEAR
        bands = np.where(near, distance.argmin(axis=1), -1)
    return Layer(Cube(on_grid.values, path=reference.path), bands=bands)


def read_fills(path: Path, shape: tuple[int, int, int], mark: Mark | None = None) -> Fills | None:
    """Read filled entries and error bars from a fill or its companion files; None without any.

    mark: the mark of the filled file itself, if it has one.
    """
    planes = fill_layers.planes(provenance.base_of(path), shape, mark)
    if planes is None:
        return None
    bits, bars = np.zeros((-(-shape[0] // 8), *shape[1:]), np.uint8), []
    for band, plane in enumerate(planes):
        bits[band // 8] |= (plane.flags & FILLED) << (7 - band % 8)
        if plane.sigma is not None:
            bars.append(plane.sigma[plane.filled].astype(np.float32))
    if not bars:
        return Fills(bits, shape[0])
    return Fills(bits, shape[0], np.concatenate(bars))


def _numbers(cube: Cube, path: Path | None) -> Cube:
    """Return the cube; BadValue if it is empty or its values are not real numbers."""
    if cube.dtype.kind not in "iufb" or 0 in cube.shape:
        raise BadValue(
            f"{path or 'the cube'}: {cube.dtype} values of shape {cube.shape} cannot be shown; "
            "expected real numbers (bands, rows, cols)"
        )
    return cube


def _like(cube: Cube, other: Cube, path: Path | None) -> Cube:
    """Return `other`; ShapeMismatch if its shape differs from that of `cube`."""
    if other.shape != cube.shape:
        raise ShapeMismatch(
            f"{path or 'the other cube'} has shape {other.shape}, but the first one {cube.shape} "
            "(bands, rows, cols); give versions of one scene"
        )
    return other


def _name(cube: Cube) -> str:
    return "cube" if cube.path is None else cube.path.name
