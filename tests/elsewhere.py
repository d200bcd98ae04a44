"""Valid files that name other files: each could lead a reader to `secret`, to a host, or nowhere.

What they name lies in a folder that no input may open; see tracing.py for how that is seen.  Files
of GDAL's kind are in leading.py.
"""

from __future__ import annotations

import io as bytes_io
import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import hostile
import leading
import products
from hostile import SHAPE, Files, Input, Link

HOST = "http://127.0.0.1:9"  # nobody answers there; who asks is seen
BANDS, ROWS, COLS = SHAPE


def secrets(folder: Path) -> Path:
    """What no input may show: arrays of every kind, bytes, an image, a record."""
    from hydiff import io
    from hydiff.cube import Cube

    folder.mkdir()
    (folder / "secret.raw").write_bytes(b"secret" * 100)
    with h5py.File(folder / "secret.h5", "w") as file:
        file["reflectance"] = np.ones((ROWS, COLS, BANDS), "f4")
        file["wavelengths"] = np.arange(float(BANDS))
    for name in ("secret.npy", "secret.zarr", "secret.bsq"):
        io.write(Cube(np.ones(SHAPE, "f4")), folder / name)
    products.geotiff(folder / "secret-SPECTRAL_IMAGE.TIF", np.ones(SHAPE, "i2"))
    return folder


def inputs(folder: Path, secret: Path) -> list[Input]:
    """`folder` is left empty."""
    makers = (_headers, _hdf5, _mat, _arrays, _zarr, _enmap, _records)
    return [given for make in makers for given in make(folder, secret)]


def _names(secret: Path, name: str) -> tuple[str, ...]:
    """Ways to name a file elsewhere."""
    return (
        str(secret / name),
        f"../../secret/{name}",  # from the folder of the input, in a campaign
        f"file://{secret / name}",
        f"/vsicurl/{HOST}/{name}",
        f"{HOST}/{name}",
    )


def _taken(folder: Path) -> Files:
    """What was made in a folder, which is left empty."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    return dict(sorted(found.items()))


def _values(dtype: str) -> np.ndarray:
    """With a gap, so that there is something to fill."""
    values = (np.random.default_rng(7).random(SHAPE) * 900 + 1).astype(dtype)
    values[:, 2:4, 3:5] = -1
    return values


def tiffs(folder: Path, kept: Path) -> list[Input]:
    """Those of leading.py, made in `kept`, where what they name stays."""
    return [
        Input(f"leads: tiff {path.parent.name} {path.name}", "fill", path.name, {
            str(p.relative_to(path.parent)): p.read_bytes()
            for p in sorted(path.parent.rglob("*"))
            if p.is_file()
        })
        for path in leading.corpus(kept)
    ]  # fmt: skip


# --- text headers ---------------------------------------------------------------------------------


def _maps(secret: Path) -> Iterator[str]:
    """Coordinate systems whose libraries look for files, or ask a host."""
    yield from _names(secret, "secret.raw")
    grid = f"+proj=longlat +nadgrids={secret}/secret.raw +type=crs"
    yield grid
    yield f"+init={secret}/secret.raw:4326"
    yield f'GEOGCS["x",DATUM["x",SPHEROID["x",6378137,298]],EXTENSION["PROJ4","{grid}"]]'


def _headers(folder: Path, secret: Path) -> Iterator[Input]:
    data = _values("int16").astype("<i2").tobytes()
    lines = [f"{key} = {value}" for key, value in hostile.ENVI.items()]

    def envi(name: str, *more: str) -> Input:
        text = "\n".join(["ENVI", *lines, "data ignore value = -1", *more, ""])
        files = {"a.hdr": text.encode(), "a.img": data}
        return Input(f"leads: envi {name}", "fill", "a.hdr", files)

    keys = ("data file", "file", "parent folder", "glt file", "igm file", "geo points", "header")
    for i, path in enumerate(_names(secret, "secret.raw")):
        yield envi(f"keys {i}", *(f"{key} = {path}" for key in keys))
    info = "map info = {UTM, 1, 1, 5e5, 5e6, 30, 30, 33, North, WGS-84}"
    for i, text in enumerate(_maps(secret)):
        yield envi(f"crs {i}", info, f"coordinate system string = {{{text}}}")


def _arrays(folder: Path, secret: Path) -> Iterator[Input]:
    from hydiff import io
    from hydiff.cube import Cube

    io.write(Cube(_values("float32"), nodata=-1.0), folder / "a.npy")
    plain = _taken(folder)
    for i, text in enumerate(_maps(secret)):
        info = {"axes": "bands,rows,cols", "nodata": -1.0, "crs": text, "attrs": {"source": text}}
        info |= {"transform": [30.0, 0.0, 5e5, 0.0, -30.0, 5e6]}
        files = plain | {"a.npy.json": json.dumps(info).encode()}
        yield Input(f"leads: sidecar crs {i}", "fill", "a.npy", files)
    number = bytes_io.BytesIO()
    np.save(number, _values("float32"))
    for i, name in enumerate(_names(secret, "info")):
        files = {
            "a.npz": _zipped({"cube.npy": number.getvalue(), f"{name}.npy": number.getvalue()})
        }
        yield Input(f"leads: npz member {i}", "fill", "a.npz", files)


def _zipped(members: Files) -> bytes:
    """With names as they are given: zipfile would clean some."""
    made = bytes_io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo("x")
            entry.filename = name
            archive.writestr(entry, content)
    return made.getvalue()


# --- HDF5 and MATLAB ------------------------------------------------------------------------------


def _hdf5(folder: Path, secret: Path) -> Iterator[Input]:
    def made(name: str, change: Callable[[Any], None]) -> Input:
        products.emit(folder / "a.nc", _values("float32"))
        with h5py.File(folder / "a.nc", "r+") as file:
            change(file)
        return Input(f"leads: hdf5 {name}", "fill", "a.nc", _taken(folder))

    def linked(at: str, path: str, to: str) -> Callable[[Any], None]:
        def change(file: Any) -> None:
            if at in file:
                del file[at]
            file[at] = h5py.ExternalLink(path, to)

        return change

    def raw(path: str) -> Callable[[Any], None]:
        def change(file: Any) -> None:
            del file["reflectance"]
            external = [(path, 0, 4 * ROWS * COLS * BANDS)]
            file.create_dataset("reflectance", (ROWS, COLS, BANDS), "f4", external=external)

        return change

    def virtual(path: str) -> Callable[[Any], None]:
        def change(file: Any) -> None:
            del file["reflectance"]
            layout = h5py.VirtualLayout((ROWS, COLS, BANDS), "f4")
            layout[...] = h5py.VirtualSource(path, "reflectance", layout.shape)
            file.create_virtual_dataset("reflectance", layout)

        return change

    def chained(file: Any) -> None:
        linked("elsewhere", str(secret / "secret.h5"), "/reflectance")(file)
        del file["reflectance"]
        file["reflectance"] = h5py.SoftLink("/elsewhere")

    waves = "sensor_band_parameters/wavelengths"
    for i, path in enumerate(_names(secret, "secret.h5")):
        yield made(f"link {i}", linked("reflectance", path, "/reflectance"))
        yield made(f"wavelengths {i}", linked(waves, path, "/wavelengths"))
        yield made(f"virtual {i}", virtual(path))
        yield made(f"raw {i}", raw(path))
    yield made("group", linked("sensor_band_parameters", str(secret / "secret.h5"), "/"))
    yield made("unread link", linked("quality", str(secret / "secret.h5"), "/"))
    yield made("soft link to a link", chained)
    yield made("soft links to parents", lambda f: f.__setitem__("x", h5py.SoftLink("/../../etc")))


def _mat(folder: Path, secret: Path) -> Iterator[Input]:
    from scipy.io import savemat

    with h5py.File(folder / "a.mat", "w", userblock_size=512) as file:
        file["cube"] = h5py.ExternalLink(str(secret / "secret.h5"), "/reflectance")
    yield Input("leads: mat 7.3 link", "fill", "a.mat", _taken(folder))
    savemat(folder / "a.mat", {"cube": _values("int16"), "s": {"name": "system", "args": "x"}})
    files = _taken(folder)
    data = files["a.mat"]
    at = data.index(struct.pack("<IIBB", 6, 8, 2, 0))  # the flags of a struct: class 2
    for name, code in (("object", 3), ("function handle", 16), ("opaque", 17)):
        changed = data[: at + 8] + bytes([code]) + data[at + 9 :]
        yield Input(f"leads: mat {name}", "fill", "a.mat", {"a.mat": changed})


# --- Zarr -----------------------------------------------------------------------------------------


def _zarr(folder: Path, secret: Path) -> Iterator[Input]:
    def store(name: str, version: int, at: str, change: Callable[[Any], None]) -> Input:
        hostile._zarr(folder / "a.zarr", version)
        files = _taken(folder)
        info = json.loads(files.get(f"a.zarr/{at}", b"{}"))
        change(info)
        files[f"a.zarr/{at}"] = json.dumps(info).encode()
        return Input(f"leads: zarr {name}", "fill", "a.zarr", files)

    hostile._zarr(folder / "a.zarr", 3)
    new = {k: json.loads(v) for k, v in _taken(folder).items() if k.endswith("/zarr.json")}
    new = {k[7:-10]: v for k, v in new.items() if k != "a.zarr/zarr.json"}  # by array
    hostile._zarr(folder / "a.zarr", 2)
    old = {k[7:]: v for k, v in _taken(folder).items() if k.rpartition("/")[2].startswith(".z")}
    old = {k: json.loads(v) for k, v in old.items()}
    for i, path in enumerate(_names(secret, "secret.zarr")):
        listed = new | {path: new["cube"], f"{path}/cube": new["cube"]}
        inline = {"kind": "inline", "must_understand": False, "metadata": listed}
        yield store(f"3 consolidated {i}", 3, "zarr.json", lambda t, c=inline: t.update(
            consolidated_metadata=c))  # fmt: skip
        listed = old | {f"{path}/.zarray": old["cube/.zarray"], f"{path}/.zattrs": {}}
        yield store(f"2 consolidated {i}", 2, ".zmetadata", lambda t, c=listed: t.update(
            zarr_consolidated_format=1, metadata=c))  # fmt: skip
        named = {"coordinates": path, "grid_mapping": path, "ancillary_variables": path}
        yield store(f"attributes {i}", 2, "cube/.zattrs", lambda t, c=named: t.update(c))
        led = [{"name": "reference", "configuration": {"path": path}}]
        yield store(f"transformers {i}", 3, "cube/zarr.json", lambda t, c=led: t.update(
            storage_transformers=c))  # fmt: skip
    for i, text in enumerate(_maps(secret)):
        info = {"crs_wkt": text, "GeoTransform": "5e5 30 0 5e6 0 -30"}
        named = {"grid_mapping": "spatial_ref"}
        given = store(f"crs {i}", 2, "cube/.zattrs", lambda t, c=named: t.update(c))
        scalar = {
            **old["cube/.zarray"],
            "shape": [],
            "chunks": [],
            "dtype": "<i4",
            "compressor": None,
        }
        more = {".zarray": scalar, ".zattrs": info | {"_ARRAY_DIMENSIONS": []}}
        files = {f"a.zarr/spatial_ref/{k}": json.dumps(v).encode() for k, v in more.items()}
        yield given._replace(files=given.files | files)
    plain = store("links", 2, ".zattrs", lambda t: None)
    for name, target in (("to itself", "loop"), ("to its parent", ".."), ("to nothing", "none")):
        files = plain.files | {"a.zarr/loop": Link(target.encode())}
        yield plain._replace(name=f"leads: zarr link {name}", files=files)


# --- EnMAP ----------------------------------------------------------------------------------------


def _enmap(folder: Path, secret: Path) -> Iterator[Input]:
    products.enmap(folder / "p", _values("int16"))
    files = {name.removeprefix("p/"): content for name, content in _taken(folder).items()}
    image, metadata = (next(n for n in files if n.endswith(e)) for e in ("IMAGE.TIF", "DATA.XML"))
    text = files[metadata].decode()

    def both(name: str, **changed: bytes) -> Iterator[Input]:
        inside = {**files, **changed}
        in_folder = {f"p/{key}": value for key, value in inside.items()}
        yield Input(f"leads: enmap {name}", "fill", "p", in_folder)
        yield Input(f"leads: enmap zip {name}", "fill", "p.zip", {"p.zip": _zipped(inside)})

    body = text.partition("?>")[2] if text.startswith("<?xml") else text
    for i, path in enumerate(_names(secret, "secret-SPECTRAL_IMAGE.TIF")):
        yield from both(f"names {i}", **{metadata: text.replace(image, path).encode()})
        entity = f'<!DOCTYPE x [<!ENTITY e SYSTEM "{path}">]>'
        yield from both(f"entity {i}", **{metadata: (entity + body).encode()})
        style = f'<?xml-stylesheet href="{path}"?>'
        yield from both(f"stylesheet {i}", **{metadata: (style + body).encode()})
        outer = f'<!DOCTYPE x SYSTEM "{path}">'
        yield from both(f"doctype {i}", **{metadata: (outer + body).encode()})
        more = _zipped(files | {path: files[image], f"{path}/": b""})
        yield Input(f"leads: enmap member {i}", "fill", "p.zip", {"p.zip": more})


# --- what hydiff writes itself --------------------------------------------------------------------


def _records(folder: Path, secret: Path) -> Iterator[Input]:
    import hydiff
    from hydiff.io import provenance

    values = _values("float32")
    result = hydiff.fill(np.where(values < 0, np.nan, values), method="auto", budget="fast")
    provenance.save(result, folder / "f.npy", unmarked=True)
    files = _taken(folder)
    record = json.loads(files["f.npy.fill.json"])
    for i, path in enumerate(_names(secret, "secret.npy")):
        led = json.loads(json.dumps(record))
        network = {"name": "network", "method": "hydiff-ei", "settings": {"weights": path}}
        led["recipe"]["candidates"][0] = network
        text = json.dumps(led).encode()
        yield Input(f"leads: recipe {i}", "recipe", "r.json", {"r.json": text})
        named = {**record, "input": {"path": path}, "outputs": [path], "report": path}
        text = json.dumps(named).encode()
        yield Input(
            f"leads: companions {i}",
            "companions",
            "f.npy.fill.json",
            files | {"f.npy.fill.json": text},
        )
