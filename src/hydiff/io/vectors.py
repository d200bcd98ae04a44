"""Drawn masks: polygons on a map (GeoJSON; shapefile and GeoPackage with fiona), and PNG pictures.

A pixel is inside if its centre is.  GeoJSON is in degrees of longitude and latitude unless its
member `crs` names another system, as older programs write it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Bools, Cube
from hydiff.errors import BadValue, CubeFormatError, need
from hydiff.io.gdal import open_picture
from hydiff.io.maps import crs_of
from hydiff.io.parsing import parsing
from hydiff.io.regular import is_there

GEOJSON = (".geojson", ".json")
LAYERS = {".gpkg": "GPKG", ".shp": "ESRI Shapefile"}  # suffix -> the one driver that may open it
POLYGONS = (*GEOJSON, *LAYERS)
PICTURE = ".png"
LARGEST = 256 << 20  # bytes of GeoJSON
LARGEST_PICTURE = 1 << 30  # pixels
AREAS = ("Polygon", "MultiPolygon")
PARTS = {"FeatureCollection": "features", "GeometryCollection": "geometries"}  # of GeoJSON


def is_drawn(path: Path) -> bool:
    """Return whether a mask file holds polygons or a picture, by its suffix."""
    return path.suffix.lower() in (*POLYGONS, PICTURE)


def drawn(path: Path, cube: Cube | None) -> Bools:
    """(rows, cols) True inside the polygons, or where a picture is not black.

    cube: the cube on whose grid polygons are drawn; not needed for a picture.
    """
    if not is_there(path):
        raise CubeFormatError(f"{path}: no such file; check the path")
    if path.suffix.lower() == PICTURE:
        return _picture(path)
    areas, grid = _on_map(path, cube)
    inside = _rasterised(path, areas, grid)
    if not inside.any():
        raise BadValue(
            f"{path}: its polygons cover the centre of no pixel of the cube; check their "
            "coordinate reference system, or draw them larger"
        )
    return inside


def each_drawn(path: Path, cube: Cube) -> Iterator[tuple[str, Bools]]:
    """Yield name and mask, (rows, cols) True inside, of each polygon or multipolygon of a file.

    The name is the feature's property `name`, else `polygon 1` by its place in the file.
    """
    if not is_there(path):
        raise CubeFormatError(f"{path}: no such file; check the path")
    areas, grid = _on_map(path, cube)
    for number, area in enumerate(areas, start=1):
        name = area.get("name") or f"polygon {number}"
        yield str(name), _rasterised(path, [area], grid)


def _picture(path: Path) -> Bools:
    """(rows, cols) True where a picture is not black; an alpha channel is ignored."""
    with parsing(path, "a PNG picture"), open_picture(path) as dataset:
        if dataset.width * dataset.height > LARGEST_PICTURE:
            raise CubeFormatError(
                f"{path}: {dataset.width} × {dataset.height} pixels, expected at most "
                f"{LARGEST_PICTURE}; cut it into parts"
            )
        colours = [1] if dataset.count < 3 else [1, 2, 3]
        values = dataset.read(colours)
        if dataset.colorinterp[0].name == "palette":  # values are numbers of colours
            values = _lit(dataset.colormap(1))[values]
        return np.asarray((values != 0).any(axis=0))


def _lit(palette: Mapping[int, Sequence[int]]) -> Bools:
    """(256,) True for the numbers of a palette whose colour (red, green, blue, alpha) is not black;
    a number that it lacks is black."""
    return np.array([any(palette.get(number, ())[:3]) for number in range(256)])


def _on_map(path: Path, cube: Cube | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the polygons of a file in the CRS of the cube, and the grid of the cube."""
    if cube is None or cube.transform is None:
        raise BadValue(
            f"{path}: polygons have map coordinates, and the cube has no place on a map; "
            "give a mask of pixels (.npz, .png)"
        )
    from rasterio.transform import Affine
    from rasterio.warp import transform_geom

    areas, crs = _layer(path) if path.suffix.lower() in LAYERS else _geojson(path)
    with parsing(path, "polygons", "draw or save them again"):
        if cube.crs is not None and crs is not None:
            target = crs_of(cube.crs, cube.path or path)
            areas = [dict(transform_geom(crs, target, a)) | {"name": a.get("name")} for a in areas]
        return areas, {"out_shape": cube.shape[1:], "transform": Affine(*cube.transform)}


def _rasterised(path: Path, areas: list[dict[str, Any]], grid: dict[str, Any]) -> Bools:
    """(rows, cols) True where the centre of a pixel lies in one of the polygons."""
    from rasterio.features import geometry_mask

    with parsing(path, "polygons", "draw or save them again"):
        return np.asarray(geometry_mask(areas, invert=True, **grid))


def _geojson(path: Path) -> tuple[list[dict[str, Any]], Any]:
    """Return the polygons of a GeoJSON file, and their CRS."""
    if path.stat().st_size > LARGEST:
        raise CubeFormatError(f"{path}: larger than {LARGEST >> 20} MB; simplify its polygons")
    with parsing(path, "GeoJSON"):
        document = json.loads(path.read_text(encoding="utf-8"))
        areas = list(_areas(document, path))
        member = document.get("crs")
    if not areas:
        raise CubeFormatError(f"{path}: no polygon in it; expected {' or '.join(AREAS)}")
    if member is not None:
        return areas, _named_crs(member, path)
    with parsing(path, "polygons of coordinate pairs"):
        corners = np.array([pair[:2] for area in areas for pair in _corners(area["coordinates"])])
        degrees = bool((np.abs(corners) <= (180, 90)).all())
    if not degrees:
        raise CubeFormatError(
            f"{path}: coordinates beyond 180° and 90°, which GeoJSON without a member `crs` is in; "
            "save it in EPSG:4326, or with its `crs`"
        )
    return areas, crs_of("EPSG:4326", path)


def _named_crs(member: Any, path: Path) -> Any:
    """Return the CRS that the member `crs` of a GeoJSON file names."""
    properties = member.get("properties") if isinstance(member, dict) else None
    if not isinstance(properties, dict) or "name" not in properties:
        raise CubeFormatError(
            f"{path}: its member `crs` is {json.dumps(member)[:60]}, expected "
            '{"type": "name", "properties": {"name": "EPSG:…"}}; correct it'
        )
    return crs_of(str(properties["name"]), path, "correct its member `crs`")


def _areas(node: Any, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the polygons of a GeoJSON object, whatever they are wrapped in."""
    if not isinstance(node, dict):
        raise CubeFormatError(
            f"{path}: expected a GeoJSON object with a `type`, found {json.dumps(node)[:60]}; "
            "save it again"
        )
    kind = node.get("type")
    if kind in AREAS:
        yield {"type": kind, "coordinates": node["coordinates"]}
    elif kind == "Feature" and node.get("geometry") is not None:
        properties = node.get("properties")
        name = properties.get("name") if isinstance(properties, dict) else None
        yield from ({**area, "name": name} for area in _areas(node["geometry"], path))
    for part in node.get(PARTS.get(str(kind), ""), ()):
        yield from _areas(part, path)


def _corners(nested: Any) -> Iterator[Any]:
    """Yield the coordinate pairs of nested lists of rings."""
    if nested and isinstance(nested[0], int | float):
        yield nested
    else:
        for part in nested:
            yield from _corners(part)


def _layer(path: Path) -> tuple[list[dict[str, Any]], Any]:
    """Return the polygons of the first layer of a shapefile or GeoPackage, and their CRS."""
    need("fiona", "vector", f"{path.suffix} as a mask")
    import fiona

    driver = LAYERS[path.suffix.lower()]
    with (
        parsing(path, f"a layer of polygons ({driver})"),
        fiona.open(path.absolute(), enabled_drivers=(driver,)) as layer,
    ):
        shapes = [
            {**f.geometry.__geo_interface__, "name": f.properties.get("name")}
            for f in layer
            if f.geometry is not None
        ]
        wkt = layer.crs_wkt
    areas = [dict(shape) for shape in shapes if shape["type"] in AREAS]
    if not areas:
        raise CubeFormatError(f"{path}: no polygon in it; expected {' or '.join(AREAS)}")
    return areas, crs_of(wkt, path) if wkt else None
