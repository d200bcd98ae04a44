"""Move cubes and layers from sensor geometry to the map, by a geographic lookup table.

Fills are made in sensor geometry, where adjacent pixels were measured side by side; a map is for
showing and combining them.  Each map pixel takes the value of one sensor pixel, unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from hydiff.cube import Array, Cube, Glt, Lazy, Values
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.mark import Mark

SLAB = 256 << 20  # bytes of bands in sensor geometry that are kept for the next window


def ortho(cube: Cube, glt: Glt | None = None) -> Cube:
    """Return the cube on its map grid, by its own lookup table or by `glt`; lazy, by windows.

    A cube without a table that is on a map already is returned as it is.  Map pixels that show no
    sensor pixel hold the nodata value: that of the cube, else NaN for floats, else 0.
    """
    table = glt or cube.glt
    if table is None:
        if cube.transform is not None:
            return cube
        raise BadValue(
            "no lookup table (GLT) and no geotransform: nothing says where the pixels lie; "
            "name a file that holds the table with `glt=FILE`"
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
        mark=_marked(cube.mark, table),
        path=None,
        format=None,
        attrs=_on_map(cube.attrs),
    )


def _on_map(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that also hold on the map; for GeoTIFF, scale and unit of its bands."""
    others = {k: v for k, v in attrs.items() if k not in ("array", "xarray", "geotiff")}
    box = attrs.get("geotiff", {})
    scale = {key: box[key] for key in ("scales", "offsets", "units") if key in box}
    return {**others, "geotiff": scale} if scale else others


def _marked(mark: Mark | None, glt: Glt) -> Mark | None:
    """Return the mark with its layers on the map; its shares stay those of the sensor's pixels."""
    if mark is None or mark.filled is None:
        return mark
    layers = {
        name: mapped(layer, glt, np.nan if np.dtype(layer.dtype).kind == "f" else 0)
        for name, layer in mark.layers.items()
    }
    return replace(mark, filled=mapped(mark.filled, glt, 0), layers=layers)


def mapped(values: Values, glt: Glt, empty: float) -> Lazy:
    """Return sensor values (bands, rows, cols) as lazy map values (bands, rows', cols').

    empty: the value of map pixels that show no sensor pixel.
    """
    bands, rows, cols = values.shape
    down, across, _ = glt.lookup.shape

    @cache
    def places() -> Array:
        """(rows', cols') index of the sensor pixel shown, counted along the rows; -1 for none."""
        x, y = np.abs(np.moveaxis(np.asarray(glt.lookup[...]), -1, 0))  # < 0: interpolated
        if x.max(initial=0) > cols or y.max(initial=0) > rows:
            raise ShapeMismatch(
                f"the lookup table points to column {x.max()}, row {y.max()} of a cube with {cols} "
                f"columns and {rows} rows; it belongs to another scene or is damaged"
            )
        return np.where((x > 0) & (y > 0), (y - 1) * cols + (x - 1), -1)

    slab = lru_cache(1)(lambda first, stop: np.asarray(values[first:stop]))

    def read(band_range: slice, lines: slice, samples: slice) -> Array:
        place = places()[lines, samples]
        shown = place >= 0
        out = np.full((band_range.stop - band_range.start, *place.shape), empty, values.dtype)
        first, stop = _aligned(values, band_range)
        if shown.any() and (stop - first) * rows * cols * values.dtype.itemsize <= SLAB:
            part = slab(first, stop)[band_range.start - first : band_range.stop - first]
            out[:, shown] = part.reshape(len(part), -1)[:, place[shown]]
        elif shown.any():  # too large to keep: read only the part that the window shows
            y, x = np.divmod(place[shown], cols)
            top, left = int(y.min()), int(x.min())
            part = np.asarray(values[band_range, top : int(y.max()) + 1, left : int(x.max()) + 1])
            out[:, shown] = part[:, y - top, x - left]
        return out

    return Lazy((bands, down, across), values.dtype, read)


def _aligned(values: Values, bands: slice) -> tuple[int, int]:
    """Return the first and last (exclusive) band of the whole chunks that hold these bands."""
    chunks = getattr(values, "chunks", None)
    step = 1 if chunks is None else chunks[0]
    return bands.start // step * step, min(-(-bands.stop // step) * step, values.shape[0])
