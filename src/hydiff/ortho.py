"""From the sensor's geometry to the map: a lookup table applied to whatever has the sensor's grid.

Fills are made in sensor geometry, where neighbours are neighbours; a map is for showing and
combining them.  Each map pixel takes the value of one sensor pixel, so values stay what they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hydiff.cube import Array, Cube, Glt, Lazy, Values
from hydiff.errors import BadValue, ShapeMismatch


def ortho(cube: Cube, glt: Glt | None = None) -> Cube:
    """The cube on its map grid, by its own lookup table or by `glt`; lazy, window by window.

    A cube that is on a map already, without a table, is returned as it is.  Map pixels that show no
    sensor pixel hold the nodata value: that of the cube, else NaN, else 0.
    """
    table = glt or cube.glt
    if table is None:
        if cube.transform is not None:
            return cube
        raise BadValue(
            "no lookup table (GLT) and no geotransform: nothing says where the pixels lie; "
            "name a file that holds the table with --glt"
        )
    empty = cube.nodata
    if empty is None:
        empty = np.nan if cube.dtype.kind == "f" else 0.0
    return replace(
        cube,
        values=mapped(cube.values, table, empty),
        nodata=empty,
        valid=None,
        crs=table.crs,
        transform=table.transform,
        glt=None,
        path=None,
        format=None,
        attrs={k: v for k, v in cube.attrs.items() if k not in ("array", "xarray", "geotiff")},
    )


def mapped(values: Values, glt: Glt, empty: float) -> Lazy:
    """(bands, rows, cols) of the sensor as (bands, rows', cols') of the map, `empty` elsewhere."""
    bands, rows, cols = values.shape

    def read(which: slice, lines: slice, samples: slice) -> Array:
        lookup = np.asarray(glt.lookup[lines, samples, :])
        out = np.full((which.stop - which.start, *lookup.shape[:2]), empty, values.dtype)
        shown = (lookup != 0).all(axis=-1)
        if not shown.any():
            return out
        x, y = np.abs(lookup[shown].astype(np.int64)).T - 1  # negative: interpolated by its maker
        if x.max() >= cols or y.max() >= rows:
            raise ShapeMismatch(
                f"the lookup table points to column {x.max() + 1}, row {y.max() + 1} of a cube "
                f"with {cols} columns and {rows} rows; it belongs to another scene or is damaged"
            )
        top, left = int(y.min()), int(x.min())
        part = values[which, top : int(y.max()) + 1, left : int(x.max()) + 1]
        out[:, shown] = np.asarray(part)[:, y - top, x - left]
        return out

    down, across, _ = glt.lookup.shape
    return Lazy((bands, down, across), values.dtype, read)
