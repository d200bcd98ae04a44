"""Handing over: a cube in another format or on a map, together with what lies beside it.

The filled mask and whatever else `provenance.companions` finds go the same way as the cube and
become GeoTIFFs beside it, OUT.filled.tif and so on, which QGIS and ENVI open on top of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import io
from hydiff.cube import Array, Cube
from hydiff.errors import BadValue
from hydiff.io import provenance
from hydiff.io.headers import SCALING, number, scaling
from hydiff.io.ortho import ortho as on_map
from hydiff.mark import of_fill


def convert(
    source: Path,
    path: Path,
    *,
    ortho: bool = False,
    glt: Path | None = None,
    cog: bool = False,
    var: str | None = None,
    overwrite: bool = False,
    unmarked: bool = False,
) -> list[Path]:
    """Write `source` to `path`, all or nothing; the files made, the one with the values first.

    ortho: onto the map, by its own lookup table or that of the file `glt`.
    cog: a GeoTIFF laid out for reading over a network, with overviews.
    unmarked: allow a filled cube in a file that cannot say so (.npy).
    """
    if cog and path.suffix.lower() not in (".tif", ".tiff"):
        raise BadValue(f"`cog=True` makes a GeoTIFF; name the output {path.stem}.tif")
    if glt is not None and not ortho:
        raise BadValue("`glt=` goes with `ortho=True`")
    cube = io.read(source, var=var)
    table = cube.glt if glt is None else io.read(glt).glt
    if glt is not None and table is None:
        raise BadValue(f"{glt} holds no lookup table (GLT); name the product it came with")
    original = cube.path or source
    base = io.values_path(cube, path).name
    beside = provenance.companions(original, cube.shape)
    cube = _marked(cube, beside.get("filled"))
    if cube.mark is not None:
        io.refuse_unmarked(cube, path, unmarked)
    also = {
        f"{base}.{name}.tif": _like(cube, values, scaled=name == "sigma")
        for name, values in beside.items()
    }
    if ortho:
        cube = on_map(cube, table)
        also = {name: on_map(layer, table) for name, layer in also.items()}
    also = {name: with_band_names(layer) for name, layer in also.items()}
    if (target := io.format_for(cube, path)) != cube.format:
        cube = with_band_names(cube, plain=target == "envi")
    with io.staged(path, overwrite=overwrite, source=original) as folder:
        files = io.write_into(cube, folder / path.name)
        if cog:
            io.cloud_optimised(files[0])
        for name, layer in also.items():
            files += io.write_into(layer, folder / name)
    return [path.with_name(file.name) for file in files]


def with_band_names(cube: Cube, plain: bool = False) -> Cube:
    """The cube with a name for each band, "band 7 (450.1 nm)", unless it has names already.

    plain: without the wavelength, which programs add themselves when they read ENVI headers.
    """
    if cube.band_names is not None or cube.wavelengths is None:
        return cube
    unit = f" {cube.wavelength_units}" if cube.wavelength_units else ""
    suffixes = ["" if plain else f" ({w:.6g}{unit})" for w in cube.wavelengths]
    return replace(
        cube, band_names=tuple(f"band {i}{suffix}" for i, suffix in enumerate(suffixes, start=1))
    )


def _like(cube: Cube, values: Array, scaled: bool) -> Cube:
    """Values on the grid of a cube, with its bands and its place; not its meaning.

    scaled: they are differences of its values, with its gain and units; an offset cancels out.
    """
    return replace(
        cube,
        values=values,
        nodata=None if values.dtype.kind == "u" else np.nan,
        valid=None,
        missing_rule=None,
        withheld_rule=None,
        attrs=_of_differences(cube) if scaled else {},
        path=None,
        format=None,
        mark=None,
    )


def _of_differences(cube: Cube) -> dict[str, Any]:
    """What the header of a cube says of differences of its values: their gain and their units."""
    scale, box = scaling(cube.attrs, cube.bands), cube.attrs.get("geotiff")
    attrs: dict[str, Any] = {}
    if scale is not None:
        attrs[SCALING[0]] = [number(gain) for gain in scale[0]]
    if isinstance(box, Mapping) and box.get("units"):
        attrs["geotiff"] = {"units": box["units"]}
    return attrs


def _marked(cube: Cube, filled: Array | None) -> Cube:
    """With the mask beside it where its file holds none, or no mark at all (.npy)."""
    if filled is None or (cube.mark is not None and cube.mark.filled is not None):
        return cube
    mark, shares = cube.mark, filled.mean(axis=(1, 2))
    if mark is None:
        record = provenance.read_record(cube.path or Path())
        return replace(cube, mark=of_fill(filled, shares, str(record.get("method")), record))
    return replace(
        cube, mark=replace(mark, filled=filled, by_band=shares, share=float(shares.mean()))
    )
