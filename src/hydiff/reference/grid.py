"""Put a reference on the pixels of the cube, by map coordinates or, without them, one to one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from hydiff.cube import Bools, Cube, Floats
from hydiff.errors import ShapeMismatch
from hydiff.io import grids, maps
from hydiff.io.gdal import gdal

FINER = 0.75  # of the cube's pixel size: smaller pixels are averaged, others interpolated
WHOLE = 0.99  # share of a pixel that observed pixels of the reference must cover


class OnGrid(NamedTuple):
    """A reference on the grid of a cube."""

    values: Floats  # (R, H, W), NaN where the reference has no value
    observed: Bools  # (R, H, W)
    pixel: float  # side of the reference's pixels, in pixels of the cube
    how: str  # "pixel to pixel", "averaged" or "interpolated"


def onto_grid(reference: Cube, observed: Bools, cube: Cube, name: str) -> OnGrid:
    """Resample a reference to the grid of the cube.

    reference: in memory; observed (R, rows, cols): its mask; name: of the reference, for messages.
    Pixels of a finer reference are averaged, as by the sensor of the cube; those of a coarser one
    are interpolated.
    """
    values = np.where(observed, np.asarray(reference.values, dtype=np.float64), np.nan)
    _refuse_unknown_place(reference, cube, name)
    if reference.transform is None or cube.transform is None or _same_grid(reference, cube):
        if reference.shape[1:] != cube.shape[1:]:
            raise ShapeMismatch(
                f"reference {name} has {_size(reference)} pixels and the cube {_size(cube)}, and "
                "not both have map coordinates; expected the same size: crop or warp it first"
            )
        return OnGrid(values, observed.copy(), 1.0, "pixel to pixel")
    if (reference.crs is None) != (cube.crs is None):
        which = f"reference {name}" if reference.crs is None else "the cube"
        raise ShapeMismatch(
            f"{which} has map coordinates without a coordinate reference system, and the other has "
            "one; set it (gdal_edit.py -a_srs), or remove the map from both to go pixel to pixel"
        )
    pixel = _pixel(reference, cube)
    how = "averaged" if pixel < FINER else "interpolated"
    warped = _warped(values, reference, cube, how)
    share = _warped(observed.astype(np.float64), reference, cube, how)
    covered = np.isfinite(warped) & (np.nan_to_num(share) >= WHOLE)
    return OnGrid(np.where(covered, warped, np.nan), covered, pixel, how)


def _refuse_unknown_place(reference: Cube, cube: Cube, name: str) -> None:
    """Refuse a reference with another coordinate reference system and no transform in it."""
    if reference.transform is not None or reference.crs is None or cube.crs is None:
        return
    if not grids.same_crs(str(reference.crs), str(cube.crs)):
        raise ShapeMismatch(
            f"reference {name} has another coordinate reference system than the cube and no "
            "transform, so that its place in it is unknown; warp it onto the grid of the cube"
        )


def _warped(planes: Floats, source: Cube, cube: Cube, how: str) -> Floats:
    """Return planes (R, H, W) of a source resampled to the grid of the cube, NaN outside."""
    from affine import Affine
    from rasterio.enums import Resampling
    from rasterio.warp import reproject

    out = np.full((len(planes), *cube.shape[1:]), np.nan)
    # without reference systems both have the same unit: any projected system serves
    source_crs, cube_crs = (
        maps.crs_of(c.crs or "EPSG:3857", c.path or Path("reference")) for c in (source, cube)
    )
    method = Resampling.average if how == "averaged" else Resampling.bilinear
    with gdal():
        reproject(
            planes,
            out,
            src_transform=Affine(*source.transform),  # type: ignore[misc]
            dst_transform=Affine(*cube.transform),  # type: ignore[misc]
            src_crs=source_crs,
            dst_crs=cube_crs,
            src_nodata=np.nan,
            dst_nodata=np.nan,
            resampling=method,
        )
    return out


def _pixel(reference: Cube, cube: Cube) -> float:
    """Return the side of a pixel of the reference, near its middle, in pixels of the cube."""
    if reference.crs is None or grids.same_crs(reference.crs, str(cube.crs)):
        return _side(reference) / _side(cube)
    from rasterio.warp import transform

    rows, cols = (n / 2 for n in reference.shape[1:])
    a, b, c, d, e, f = reference.transform or ()
    corners = [(cols, rows), (cols + 1, rows), (cols, rows + 1)]
    x, y = zip(*((a * j + b * i + c, d * j + e * i + f) for j, i in corners), strict=True)
    systems = (maps.crs_of(str(s.crs), s.path or Path("reference")) for s in (reference, cube))
    with gdal():
        east, north = (np.array(v) for v in transform(*systems, x, y))
    area = np.linalg.det([np.diff(east[[0, 1, 0, 2]])[::2], np.diff(north[[0, 1, 0, 2]])[::2]])
    return float(abs(area) ** 0.5) / _side(cube)


def _side(cube: Cube) -> float:
    """Return the side of a pixel, in the unit of the map."""
    a, b, _, d, e, _ = cube.transform or ()
    return float(abs(a * e - b * d) ** 0.5)


def _same_grid(first: Cube, second: Cube) -> bool:
    """Whether two cubes have the same pixel grid, by their map coordinates."""
    if first.shape[1:] != second.shape[1:] or None in (first.transform, second.transform):
        return False
    if (first.crs is None) != (second.crs is None):
        return False
    same = first.crs is None or grids.same_crs(str(first.crs), str(second.crs))
    return same and bool(np.allclose(first.transform, second.transform, rtol=1e-9))  # type: ignore[arg-type]


def _size(cube: Cube) -> str:
    """Return the size of an image in words, "rows × columns"."""
    return f"{cube.shape[1]} × {cube.shape[2]}"
