"""Convert a cube to another format or put it on a map, together with the layers of its fill.

The layers are converted like the cube: they go into its file, or beside it in its format, where
QGIS and ENVI can show them on top of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydiff import io
from hydiff.cube import Array, Cube
from hydiff.errors import BadValue
from hydiff.flags import LAYERS
from hydiff.io import fill_layers, provenance
from hydiff.io.missing import declared
from hydiff.io.ortho import ortho as on_map
from hydiff.mark import UNKNOWN, of_fill


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
    """Write `source` to `path`, all or nothing; return the files made, that of the values first.

    ortho: put it on the map, by its own lookup table or that of the file `glt`.
    cog: lay out the GeoTIFF for reading over a network, with overviews.
    unmarked: allow a filled cube in a file that cannot record that it is filled (.npy).
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
    companions = provenance.companions(original, cube.shape, cube.mark)
    cube, target = _marked(cube, companions), io.format_for(cube, path)
    if cube.mark is not None:
        io.refuse_unmarked(cube, path, unmarked)
    layers = {
        place: fill_layers.like(cube, companions[name], name)
        for name in LAYERS
        if name in companions and (place := _place(path.with_name(base), name, target)) is not None
    }
    if ortho:
        cube = on_map(declared(cube), table)
        layers = {name: on_map(layer, table) for name, layer in layers.items()}
    layers = {name: with_band_names(layer) for name, layer in layers.items()}
    if (target := io.format_for(cube, path)) != cube.format:
        cube = with_band_names(cube, plain=target == "envi")
    stale = provenance.stale(io.values_path(cube, path), original)
    with io.staged(path, overwrite=overwrite, beside=stale, source=original) as folder:
        files = io.write_into(cube, folder / path.name)
        if cog:
            io.cloud_optimised(files[0])
        for name, layer in layers.items():
            files += io.write_into(layer, folder / name)
    return [path.with_name(file.name) for file in files]


def with_band_names(cube: Cube, plain: bool = False) -> Cube:
    """Return the cube with a name for each band, "band 7 (450.1 nm)", unless it has names already.

    plain: without the wavelength, which programs add themselves when they read ENVI headers.
    """
    if cube.band_names is not None or cube.wavelengths is None:
        return cube
    unit = f" {cube.wavelength_units}" if cube.wavelength_units else ""
    suffixes = ["" if plain else f" ({w:.6g}{unit})" for w in cube.wavelengths]
    return replace(
        cube, band_names=tuple(f"band {i}{suffix}" for i, suffix in enumerate(suffixes, start=1))
    )


def _place(path: Path, name: str, kind: str) -> str | None:
    """Return the file name of a layer; for formats of bare arrays it is that of a GeoTIFF, which
    has a place on the map."""
    place = fill_layers.layer_path(path, name, "geotiff" if kind in fill_layers.COMPACT else kind)
    return None if place is None else place.name


def _marked(cube: Cube, companions: Mapping[str, Array]) -> Cube:
    """Return the cube with the layers beside it, if its file holds none, or no mark (.npy)."""
    if not companions or (cube.mark is not None and cube.mark.filled is not None):
        return cube
    mark, filled = cube.mark, companions["filled"]
    layers, shares = {k: v for k, v in companions.items() if k in LAYERS}, filled.mean(axis=(1, 2))
    if mark is None:
        record = provenance.read_record(provenance.base_of(cube.path or Path()))
        method = str(record.get("method", UNKNOWN))
        new_mark = of_fill(filled, shares, method, record, layers=layers)
        return replace(cube, mark=new_mark)
    share_fields: dict[str, Any] = {"by_band": shares, "share": float(shares.mean())}
    return replace(cube, mark=replace(mark, filled=filled, layers=layers, **share_fields))
