"""Hostile files: small good ones, mutants of them, and bad ones made by hand.

An input is a few files in a folder, one of which is opened through a *door*: what of hydiff reads
such files.  It must read, or be refused by a HydiffError of one line; anything else is a defect.
"""

from __future__ import annotations

import io as bytes_io
import json
import os
import pickle
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import mutations

Files = dict[str, bytes]  # by their names, relative to a folder
SHAPE = (5, 6, 7)  # of the cubes here: (bands, rows, cols)
LONGEST = 4000  # characters of a message that a person may still read
CORPUS = Path(__file__).with_name("corpus")  # inputs of campaigns that ended the process once


class Link(bytes):
    """Content of what is no file but a symbolic link: its target."""


class Input(NamedTuple):
    name: str
    door: str
    opened: str  # the name that is opened, "" for the folder itself
    files: Files


# --- doors ----------------------------------------------------------------------------------------


def _cube(path: Path, made: Path) -> None:
    """Everything that `info`, `mask` and `fill` ask of a file, then a copy of it."""
    from hydiff import io
    from hydiff.gaps import describe

    cube = io.read(path)
    describe.lines(describe.facts(cube))
    if cube.nbytes <= 4 << 20:
        cube = cube.load()
        cube.observed()
        if made.is_dir():
            io.write(cube, made / path.name)


def _fill(path: Path, made: Path) -> None:
    """As `info`, `fill` and, where a map goes along, `convert` do, from file to file."""
    from hydiff import io
    from hydiff.gaps import describe
    from hydiff.request import Request
    from hydiff.scale import execute, scene

    cube = io.read(path)
    describe.lines(describe.facts(cube))
    if cube.nbytes <= 4 << 20 and made.is_dir():
        name = "filled.npz" if path.suffix == ".npy" else path.name  # .npy cannot say so
        execute.fill_file(path, made / name, Request(method="linear"), scene.limits("500MB"))
        for name in ("map.bsq", "map2.tif") if cube.crs is not None else ():
            io.write(cube.load(), made / name)


def _report(path: Path, made: Path) -> None:
    """A page about a fill, from its files."""
    from hydiff import report

    if made.is_dir():
        report.write(path, made / "report.html")


def _mask(path: Path, made: Path) -> None:
    from hydiff import io

    io.read_mask(path, "missing", SHAPE)


def _quality(path: Path, made: Path) -> None:
    from hydiff import io

    io.read_quality(path, SHAPE)


def _weights(path: Path, made: Path) -> None:
    from types import SimpleNamespace

    from hydiff.learn import weights

    settings = SimpleNamespace(weights=path, **weights.network_of(path))
    weights.load_weights(settings, bands=SHAPE[0])


def _checkpoint(path: Path, made: Path) -> None:
    from hydiff.learn.checkpoint import Checkpoint, history_of

    history_of(Checkpoint(path, "its owner").load() or {})


def _recipe(path: Path, made: Path) -> None:
    """Read, and followed on a small cube with a gap."""
    import hydiff
    from hydiff import auto

    values = _values("float64")
    values[:, 2:4, 3:5] = np.nan
    recipe = auto.read_recipe(path)
    filled = hydiff.fill(values, recipe=recipe).values
    assert np.isfinite(filled).all(), "not finite"


def _companions(path: Path, made: Path) -> None:
    """What lies beside a fill: which entries were filled, their error bars, the record."""
    from hydiff.io import provenance

    fill = path.with_name(path.name.partition(".npy.")[0] + ".npy")
    provenance.companions(fill, SHAPE)
    provenance.intervals_of(fill)


DOORS: dict[str, Callable[[Path, Path], None]] = {
    "cube": _cube,
    "fill": _fill,
    "report": _report,
    "mask": _mask,
    "quality": _quality,
    "weights": _weights,
    "checkpoint": _checkpoint,
    "recipe": _recipe,
    "companions": _companions,
}


def put(given: Input, folder: Path) -> Path:
    """Lay an input down in a folder; the path to open."""
    for name, content in given.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            (folder / name).symlink_to(content.decode())
        else:
            (folder / name).write_bytes(content)
    return folder / given.opened


def defect(given: Input, path: Path, made: Path) -> str | None:
    """Open an input; what is wrong with how that went, or None."""
    from hydiff.errors import HydiffError

    try:
        DOORS[given.door](path, made)
    except HydiffError as error:
        text = str(error)
        if "\n" in text or "\r" in text:
            return f"message of several lines: {text[:200]!r}"
        if len(text) > LONGEST:
            return f"message of {len(text)} characters: {text[:200]!r}"
        return None
    except Exception as error:
        return f"{type(error).__module__}.{type(error).__name__}: {str(error)[:200]!r}{_at(error)}"
    return None


def _at(error: BaseException) -> str:
    """The innermost line of hydiff that an exception passed."""
    at, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if "hydiff" in Path(file).parts:
            at = f" at {Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return at


# --- good files -----------------------------------------------------------------------------------


def good(folder: Path) -> list[Input]:
    """Small files of every kind that hydiff reads, made in `folder`, which is left empty."""
    found: list[Input] = []

    def take(name: str, door: str, opened: str = "") -> None:
        files = {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}
        found.append(Input(name, door, opened, {k: p.read_bytes() for k, p in files.items()}))

    def clear() -> None:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    makers = (
        *(_good_arrays, _good_rasters, _good_products, _good_companions, _good_zarrs),
        _good_marked,
    )
    for make in makers:
        for _ in make(folder, take):
            clear()
    return found


def real(folder: Path) -> list[Input]:
    """Small real files of other makers, where the development data are at hand."""
    names = sorted(p for p in folder.glob("*") if p.is_file() and p.stat().st_size < 1 << 20)
    found = []
    for path in names:
        files = {path.name: path.read_bytes()}
        if path.suffix == ".bsq":
            files[path.stem + ".hdr"] = path.with_suffix(".hdr").read_bytes()
        elif path.suffix == ".hdr":
            continue
        found.append(Input(path.name, "cube", path.name, files))
        if "MASK" in path.name:
            found.append(Input(path.name, "quality", path.name, files))
    return found


def _values(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    return (rng.random(SHAPE) * 1000).astype(dtype)


def _described(dtype: str) -> Any:
    from hydiff.cube import Cube

    waves = np.linspace(400, 2400, SHAPE[0])
    names = tuple(f"band {i}" for i in range(SHAPE[0]))
    good = np.arange(SHAPE[0]) != 2
    return Cube(
        _values(dtype), waves, "Nanometers", waves / 50, good, -1.0, band_names=names,
        transform=(30.0, 0.0, 5e5, 0.0, -30.0, 5e6),
    )  # fmt: skip


def _good_arrays(folder: Path, take: Any) -> Any:
    import h5py
    from scipy.io import savemat

    from hydiff import io

    for name in ("a.npy", "a.npz", "a.mat"):
        io.write(_described("float32"), folder / name)
        take(name, "cube", name)
        yield
    io.write(io.read(io.write(_described("int16"), folder / "b.tif")[0]), folder / "a.npy")
    (folder / "b.tif").unlink()
    take("npy from tif", "cube", "a.npy")
    yield
    savemat(folder / "a.mat", {"cube": _values("int16"), "wavelength": np.arange(5.0), "s": "text"})
    take("plain v5", "cube", "a.mat")
    yield
    with h5py.File(folder / "a.mat", "w", userblock_size=512) as file:
        file["cube"] = _values("float64").T
        file["cube"].attrs["MATLAB_class"] = np.bytes_("double")
    take("v7.3", "cube", "a.mat")
    yield
    for version in (2, 3):
        _zarr(folder / "a.zarr", version)
        take(f"zarr {version}", "cube", "a.zarr")
        yield


def _good_marked(folder: Path, take: Any) -> Any:
    """Files that say that they are filled."""
    from hydiff import io
    from hydiff.mark import of_fill

    filled = _values("float32") > 900
    mark = of_fill(
        filled, filled.mean(axis=(1, 2)), "smooth", {"time": "2026-01-01", "notes": [""]}
    )
    for name in ("a.tif", "a.img", "a.npz", "a.mat", "a.zarr"):
        io.write(replace(_described("int16"), mark=mark), folder / name)
        take(f"marked {name}", "cube", name)
        yield


def packed_zarrs() -> dict[str, tuple[int, dict[str, Any]]]:
    """Versions and ways to compress that zarr would not choose by itself."""
    import numcodecs
    from zarr.codecs import BloscCodec

    sharded = {"chunks": (5, 2, 2), "shards": (5, 4, 4), "compressors": BloscCodec()}
    return {
        "zlib": (2, {"filters": [numcodecs.Shuffle(4)], "compressors": numcodecs.Zlib()}),
        "lz4": (2, {"filters": [numcodecs.Delta("<f4")], "compressors": numcodecs.LZ4()}),
        "zstd": (2, {"filters": [numcodecs.Fletcher32()], "compressors": numcodecs.Zstd()}),
        "blosc": (3, {"compressors": BloscCodec(cname="zlib", shuffle="bitshuffle")}),
        "sharded": (3, sharded),
    }


def _good_zarrs(folder: Path, take: Any) -> Any:
    for name, (version, packed) in packed_zarrs().items():
        _zarr(folder / "a.zarr", version, **packed)
        take(f"zarr {version} {name}", "cube", "a.zarr")
        yield


def _zarr(path: Path, version: Any, **packed: Any) -> None:
    import zarr

    group = zarr.create_group(path, zarr_format=version)
    named: Any = {"dimension_names": ("band", "y", "x")} if version == 3 else {}
    about = {"chunks": (5, 4, 4)} | packed | named
    array = group.create_array("cube", shape=SHAPE, dtype="f4", **about)
    array[...] = _values("float32")
    own: Any = {"dimension_names": ("band",)} if version == 3 else {}
    waves = group.create_array("wavelength", shape=SHAPE[:1], dtype="f8", **own)
    waves[...] = np.arange(5.0)
    if version == 2:
        array.attrs["_ARRAY_DIMENSIONS"], waves.attrs["_ARRAY_DIMENSIONS"] = list("byx"), ["b"]


def _good_rasters(folder: Path, take: Any) -> Any:
    from hydiff import io

    for name in ("a.bsq", "a.bil", "a.bip", "a.tif"):
        io.write(_described("int16"), folder / name)
        take(name, "cube", "a.hdr" if name == "a.bil" else name)
        yield


def _good_products(folder: Path, take: Any) -> Any:
    import products

    floats, whole = _values("float32"), _values("int16")
    products.emit(folder / "a.nc", floats)
    take("emit", "cube", "a.nc")
    yield
    flagged = _values("float32") > 900
    products.emit_mask(folder / "mask.nc", flagged, flagged[0])
    take("emit mask", "quality", "mask.nc")
    yield
    for level in ("L1", "L2D"):
        products.prisma(
            folder / "a.he5", whole[:3].astype("u2"), whole[3:].astype("u2"), level=level
        )
        take(f"prisma {level}", "cube", "a.he5")
        take(f"prisma {level} errors", "quality", "a.he5")
        yield
    products.aviris(folder / "a.nc", floats)
    take("aviris", "cube", "a.nc")
    yield
    products.neon(folder / "a.h5", whole.astype("i2"))
    take("neon", "cube", "a.h5")
    take("neon classes", "quality", "a.h5")
    yield
    image = products.desis(folder, whole)
    take("desis", "cube", image.name)
    yield
    for zipped in (False, True):
        path = products.enmap(folder / "enmap", whole, zipped=zipped)
        take(f"enmap {path.suffix}", "cube", path.name)
        take(f"enmap quality {path.suffix}", "quality", path.name)
        yield
    products.envi(folder / "ang20200101t000000_rfl", floats, **{"data ignore value": "-9999"})
    take("aviris as envi", "cube", "ang20200101t000000_rfl")
    yield


def _good_companions(folder: Path, take: Any) -> Any:
    import torch
    from safetensors.torch import save_file

    import hydiff
    from hydiff import io
    from hydiff.io import provenance
    from hydiff.learn import network

    filled = _values("float32") > 700
    for name in ("m.npz", "m.npy"):
        io.write_mask(filled, folder / name, "missing")
        take(f"mask {name}", "mask", name)
        yield
    values = np.where(filled, np.nan, _values("float32"))
    result = hydiff.fill(values, method="auto", budget="fast")
    provenance.save(result, folder / "f.npy", unmarked=True)
    take("companions", "companions", "f.npy.fill.json")
    take("recipe", "recipe", "f.npy.fill.json")
    take("report", "report", "f.npy")
    yield
    about = {"layout": 1, "bands": SHAPE[0], "channels": 2, "scales": 1, "settings": {}}
    tensors = network.SkipNet(SHAPE[0], 2, 1).state_dict()
    save_file(tensors, folder / "w.safetensors", metadata={"hydiff": json.dumps(about)})
    take("weights", "weights", "w.safetensors")
    yield
    state = {"network.x": torch.arange(6.0), "history.loss": torch.arange(3.0).double()}
    save_file(state, folder / "c", metadata={"belongs_to": "its owner"})
    take("checkpoint", "checkpoint", "c")
    yield


# --- mutants --------------------------------------------------------------------------------------

ABSURD = (
    *("0", "-1", "1", "2", "65537", "100000", "2147483647", "2147483648", "4294967295"),
    *(
        "1125899906842624",
        "9223372036854775807",
        "18446744073709551616",
        "1e308",
        "1e400",
        "-1e-320",
    ),
    *("nan", "inf", "-inf", "", "{", "}", "{}", "{,}", "[]", "null", "true", "x" * 300, "\0", "é"),
    *("../../etc/passwd", "/etc/passwd", "bsq", "bip", "%s%n", "١٢", "0x10", "1_000", "9" * 5000),
)
NODES: tuple[Any, ...] = (
    *(0, -1, 1, 100000, 2**31, 2**63, 10**30, 1e308, float("nan"), float("inf"), 1e-320),
    *(None, True, "", "x", "../../x", "nan", [], {}, [[]], [0] * 9, {"a": 1}, [None], ["a"] * 5),
)
NUMBERS = (
    0,
    1,
    2**7,
    2**8 - 1,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**63 - 1,
    2**64 - 1,
)


def mutant(given: Input, others: list[Input], rng: np.random.Generator) -> Input:
    """One or a few changes to one or two files of an input."""
    files = dict(given.files)
    for _ in range(1 + int(rng.random() < 0.2)):
        name = _pick(rng, sorted(name for name in files if not isinstance(files[name], Link)))
        files[name] = _changed(files[name], others, rng)
    if rng.random() < 0.02:
        files.pop(_pick(rng, sorted(files)))
    return given._replace(files=files)


def _pick(rng: np.random.Generator, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def _changed(data: bytes, others: list[Input], rng: np.random.Generator) -> bytes:
    if data[:4] == b"PK\x03\x04" and rng.random() < 0.8:
        return _in_zip(data, others, rng)
    if data[:1] == b"{" and rng.random() < 0.7:
        return _in_json(data, rng)
    if data[8:9] == b"{" and rng.random() < 0.7:  # safetensors
        return _in_safetensors(data, rng)
    if data[:6] == b"\x93NUMPY" and rng.random() < 0.6:
        return _in_npy(data, rng)
    text = b"\0" not in data[:4096]
    ways = (_texts, _texts, _lines) if text else (_bits, _bits, _integers, _integers, _bytes)
    ways = (*ways, _cut, _splice, _texts)
    if rng.random() < 0.03:
        return bytes(_pick(rng, list(_pick(rng, others).files.values())))
    for _ in range(int(rng.integers(1, 4))):
        data = _pick(rng, ways)(data, rng)
    return data


def _bits(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for at in rng.integers(0, max(1, len(data)), int(rng.integers(1, 9))) if data else ():
        changed[at] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _bytes(data: bytes, rng: np.random.Generator) -> bytes:
    at, count = int(rng.integers(len(data) + 1)), int(rng.integers(1, 64))
    return data[:at] + rng.bytes(count) + data[at + count :]


def _integers(data: bytes, rng: np.random.Generator) -> bytes:
    size = int(_pick(rng, (1, 2, 4, 8)))
    value = int(_pick(rng, NUMBERS)) % (1 << 8 * size)
    at = int(rng.integers(max(1, len(data) - size)))
    return data[:at] + value.to_bytes(size, _pick(rng, ("little", "big"))) + data[at + size :]


def _cut(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: int(rng.integers(len(data) + 1))]


def _splice(data: bytes, rng: np.random.Generator) -> bytes:
    """Leave a piece out, or put one in twice."""
    start, stop, to = np.sort(rng.integers(0, len(data) + 1, 3)).tolist()
    return data[:start] + data[stop:] if rng.random() < 0.5 else data[:to] + data[start:]


def _texts(data: bytes, rng: np.random.Generator) -> bytes:
    """A number or a word becomes something absurd."""
    pattern = rb"[0-9.+-]+" if rng.random() < 0.7 else rb"[A-Za-z_]+"
    found = [m.span() for m in re.finditer(pattern, data[:50000])]
    if not found:
        return _bytes(data, rng)
    start, stop = _pick(rng, found)
    return data[:start] + str(_pick(rng, ABSURD)).encode() + data[stop:]


def _lines(data: bytes, rng: np.random.Generator) -> bytes:
    """A line is lost, doubled, or moved."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    line = lines.pop(int(rng.integers(len(lines))))
    for _ in range(int(rng.integers(3))):
        lines.insert(int(rng.integers(len(lines) + 1)), line)
    return b"".join(lines)


def _in_json(data: bytes, rng: np.random.Generator) -> bytes:
    try:
        tree = json.loads(data)
        if rng.random() < 0.5:
            return json.dumps(next(mutations.mutations(tree, rng))).encode()
        return json.dumps(_node(tree, rng)).encode()
    except ValueError:
        return _texts(data, rng)


def _node(tree: Any, rng: np.random.Generator) -> Any:
    """The same with one node, at a random depth, replaced or left out."""
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.1:
        return _pick(rng, NODES)
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = _pick(rng, keys)
    copied: Any = dict(tree) if isinstance(tree, dict) else list(tree)
    if rng.random() < 0.1:
        del copied[key]
    else:
        copied[key] = _node(tree[key], rng)
    return copied


def _in_safetensors(data: bytes, rng: np.random.Generator) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header, rest = data[8 : 8 + length], data[8 + length :]
    try:
        tree = json.loads(header)
        about = tree.get("__metadata__", {})
        if "hydiff" in about and rng.random() < 0.5:
            about["hydiff"] = _in_json(about["hydiff"].encode(), rng).decode()
            header = json.dumps(tree).encode()
        else:
            header = _in_json(header, rng)
    except (ValueError, AttributeError, TypeError):
        header = _texts(header, rng)
    return struct.pack("<Q", len(header)) + header + rest


def _in_npy(data: bytes, rng: np.random.Generator) -> bytes:
    """The header of an array, its length kept right."""
    length = int.from_bytes(data[8:10], "little")
    header = _texts(data[10 : 10 + length], rng)[: 2**16 - 1]
    return data[:8] + struct.pack("<H", len(header)) + header + data[10 + length :]


def _in_zip(data: bytes, others: list[Input], rng: np.random.Generator) -> bytes:
    """A member, its checksum kept right; now and then its name."""
    try:
        with zipfile.ZipFile(bytes_io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        return _bits(data, rng)
    if not members:
        return _bits(data, rng)
    name = _pick(rng, sorted(members))
    content = _changed(members.pop(name), others, rng)
    if rng.random() < 0.1:
        name = _pick(rng, ("../" + name, "/" + name, name + "/", "x" * 200 + name, name.upper()))
    made = bytes_io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, value in {**members, name: content}.items():
            archive.writestr(key, value)
    return made.getvalue()


# --- made by hand ---------------------------------------------------------------------------------


class Canary:
    """Unpickled, it would make a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def crafted(folder: Path, secret: Path) -> list[Input]:
    """Files that must be refused.  Those that run code would make the folder `secret`/ran; those
    that look elsewhere would show `secret`/secret.h5 or secret.raw.  `folder` is left empty."""
    evil = pickle.dumps(Canary(str(secret / "ran")))
    return [
        *_arrays_by_hand(evil, secret),
        *_headers_by_hand(),
        *_hdf5_by_hand(folder, secret),
        *_enmap_by_hand(folder, secret),
        *_zarr_by_hand(folder, evil),
        *_texts_by_hand(),
        *corpus(),
    ]


def corpus() -> list[Input]:
    """Inputs that were defects once: a folder each, called by its door, with what is opened."""
    found = []
    for folder in sorted(CORPUS.iterdir()):
        files = {
            str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()
        }
        door, opened = folder.name.partition("-")[0], next(folder.iterdir()).name
        found.append(Input(folder.name, door, opened, files))
    return found


def _npy(shape: str, descr: str = "'<f4'", data: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def _zip(members: Files) -> bytes:
    made = bytes_io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


def _arrays_by_hand(evil: bytes, secret: Path) -> list[Input]:
    from scipy.io import savemat

    objects = _npy("(5, 6, 7)", "'|O'", evil)
    bits, number = _npy("(1, 6, 7)", "'|u1'", bytes(42)), _npy("()", "'<i8'", bytes(8))
    huge = "(1048576, 1048576, 1024)"  # four petabytes of float32
    bomb = _zip({"cube.npy": _npy("(16384, 16384, 64)", data=bytes(16 << 20))})
    mat = bytes_io.BytesIO()
    savemat(mat, {"cube": np.array([Canary(str(secret / "ran")).path, 1], object)})
    good = np.zeros(SHAPE, np.float32)
    plain = bytes_io.BytesIO()
    np.save(plain, good)
    deep = b"[" * 100_000 + b"]" * 100_000

    def sided(name: str, text: bytes) -> Input:
        return Input(name, "cube", "a.npy", {"a.npy": plain.getvalue(), "a.npy.json": text})

    return [
        Input("pickle in npy", "cube", "a.npy", {"a.npy": objects}),
        Input("pickle as npy", "cube", "a.npy", {"a.npy": evil}),
        Input("pickle in npz", "cube", "a.npz", {"a.npz": _zip({"cube.npy": objects})}),
        Input("pickle as npz", "cube", "a.npz", {"a.npz": evil}),
        Input("pickle in a mask", "mask", "m.npz", {"m.npz": _zip({"missing.npy": objects})}),
        Input("pickled bands", "mask", "m.npz", {
            "m.npz": _zip({"missing.npy": bits, "bands.npy": objects})
        }),
        Input("pickle beside a fill", "companions", "f.npy.fill.json", {
            "f.npy.fill.json": b"{}",
            "f.npy.filled.npz": _zip({"missing.npy": _npy("(6, 7)", "'|b1'", bytes(42))}),
            "f.npy.sigma.npz": _zip({"share.npy": objects, "unit.npy": objects}),
        }),
        Input("pickle as weights", "weights", "w", {"w": evil}),
        Input("pickle as a checkpoint", "checkpoint", "c", {"c": evil}),
        Input("objects in mat", "cube", "a.mat", {"a.mat": mat.getvalue()}),
        Input("petabytes in npy", "cube", "a.npy", {"a.npy": _npy(huge)}),
        Input("petabytes in npz", "cube", "a.npz", {"a.npz": _zip({"cube.npy": _npy(huge)})}),
        Input("petabytes in a mask", "mask", "m.npz", {
            "m.npz": _zip({"missing.npy": _npy(huge, "'|u1'"), "bands.npy": number})
        }),
        Input("a zip bomb", "cube", "a.npz", {"a.npz": bomb}),
        Input("negative lengths", "cube", "a.npy", {"a.npy": _npy("(-5, 6, 7)")}),
        Input("overflow", "cube", "a.npy", {"a.npy": _npy("(4294967296, 4294967296, 4)")}),
        Input("no bands", "cube", "a.npy", {"a.npy": _npy("(6, 7, 0)")}),
        Input("no pixels", "cube", "a.npz", {"a.npz": _zip({"cube.npy": _npy("(0, 7, 5)")})}),
        Input("code in a header", "cube", "a.npy", {"a.npy": _npy("__import__('os').getpid()")}),
        sided("a deep sidecar", deep),
        sided("a sidecar of numbers", b'{"attrs": [1, 2]}'),
        sided("a sidecar with a list of units", b'{"wavelength_units": [1, {"a": 2}]}'),
        sided("a sidecar with a crs of numbers", b'{"crs": 12.5}'),
        sided("a sidecar with a short transform", b'{"transform": [1, 2]}'),
        sided("a sidecar with axes of numbers", b'{"axes": 5}'),
    ]  # fmt: skip


ENVI = {
    "samples": "7", "lines": "6", "bands": "5", "header offset": "0", "data type": "2",
    "interleave": "bsq", "byte order": "0",
}  # fmt: skip


def _headers_by_hand() -> list[Input]:
    def envi(name: str, size: int = 420, **entries: str) -> Input:
        about = ENVI | {key.replace("_", " "): value for key, value in entries.items()}
        text = "\n".join(["ENVI", *(f"{key} = {value}" for key, value in about.items()), ""])
        return Input(
            f"envi: {name}", "cube", "a.hdr", {"a.hdr": text.encode(), "a.img": bytes(size)}
        )

    return [
        envi("petabytes", samples="1125899906842624"),
        envi("negative", lines="-6"),
        envi("overflow", samples="4294967296", lines="4294967296", bands="1"),
        envi("overflow to nothing", size=0, samples="4294967296", lines="4294967296", bands="4"),
        envi("overflow to the size", samples=str(2**63 + 7)),
        envi("no bands", size=0, bands="0"),
        envi("100 000 bands", bands="100000"),
        envi("thousands of digits", bands="9" * 5000),
        envi("unknown interleave", interleave="bxq"),
        envi("complex", data_type="6", size=1680),
        envi("byte order", byte_order="2"),
        envi("an offset beyond the file", header_offset="1000000"),
        envi("no number", data_ignore_value="{1, 2}"),
        envi("a list of lists", wavelength="{" * 1000 + "}" * 1000),
        envi("compressed", file_compression="1"),
    ]


def _hdf5_by_hand(folder: Path, secret: Path) -> list[Input]:
    import h5py

    waves = np.linspace(400, 900, SHAPE[0]).astype("f4")
    found = []

    def emit(name: str, fill: Callable[[Any], None]) -> None:
        path = folder / "a.nc"
        with h5py.File(path, "w") as file:
            file["sensor_band_parameters/wavelengths"] = waves
            fill(file)
        found.append(Input(f"hdf5: {name}", "cube", "a.nc", {"a.nc": path.read_bytes()}))
        path.unlink()

    def stored(name: str, shape: tuple[int, ...], **options: Any) -> Callable[[Any], None]:
        def fill(file: Any) -> None:
            file.create_dataset(name, shape, **options)

        return fill

    rows, cols, bands = SHAPE[1], SHAPE[2], SHAPE[0]

    def linked(file: Any) -> None:
        file["reflectance"] = h5py.ExternalLink(str(secret / "secret.h5"), "/reflectance")

    def linked_group(file: Any) -> None:
        file["reflectance"] = np.zeros((rows, cols, bands), "f4")
        file["location"] = h5py.ExternalLink(str(secret / "secret.h5"), "/")

    def loop(file: Any) -> None:
        file["reflectance"] = h5py.SoftLink("/radiance")
        file["radiance"] = h5py.SoftLink("/reflectance")

    def virtual(file: Any) -> None:
        layout = h5py.VirtualLayout((rows, cols, bands), "f4")
        layout[...] = h5py.VirtualSource(str(secret / "secret.h5"), "reflectance", layout.shape)
        file.create_virtual_dataset("reflectance", layout)

    def wide(file: Any) -> None:
        chunks = (rows, 1 << 14, 1 << 14)
        file.create_dataset("reflectance", chunks, "f4", chunks=(1, 1 << 14, 1 << 14))

    raw = [(str(secret / "secret.raw"), 0, rows * cols * bands)]
    emit("external link", linked)
    emit("external group", linked_group)
    emit("soft links in a circle", loop)
    emit("virtual dataset", virtual)
    emit(
        "external raw values", stored("reflectance", (rows, cols, bands), dtype="u1", external=raw)
    )
    emit("a chunk of a gigabyte", wide)
    emit("text", stored("reflectance", (rows, cols, bands), dtype="S4"))
    emit("complex", stored("reflectance", (rows, cols, bands), dtype="c8"))
    emit("a compound", stored("reflectance", (rows, cols, bands), dtype=[("a", "f4"), ("b", "i2")]))
    emit("references", stored("reflectance", (rows, cols, bands), dtype=h5py.ref_dtype))
    emit("no pixels", stored("reflectance", (0, cols, bands), dtype="f4"))
    emit("a group for a cube", lambda file: file.create_group("reflectance"))
    return found


def _enmap_by_hand(folder: Path, secret: Path) -> list[Input]:
    import products

    whole = products.enmap(folder / "p", _values("int16"))
    files = {path.name: path.read_bytes() for path in whole.iterdir()}
    for path in whole.iterdir():
        path.unlink()
    whole.rmdir()
    image, metadata = (next(n for n in files if n.endswith(e)) for e in ("IMAGE.TIF", "DATA.XML"))
    levels = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12))
    bomb = f'<!DOCTYPE x [<!ENTITY a0 "ha">{levels}]><x>&a11;</x>'
    outside = f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{secret}/secret.raw">]><x>&e;</x>'

    def as_folder(name: str, **changed: bytes) -> Input:
        inside = {f"p/{key}": value for key, value in {**files, **changed}.items()}
        return Input(f"enmap: {name}", "cube", "p", inside)

    def as_zip(name: str, members: Files) -> Input:
        return Input(f"enmap: {name}", "cube", "p.zip", {"p.zip": _zip(members)})

    net = "/vsicurl/http://localhost:9/-SPECTRAL_IMAGE.TIF"
    others = {key: value for key, value in files.items() if key != image}
    return [
        as_folder("an XML bomb", **{metadata: bomb.encode()}),
        as_folder("an external entity", **{metadata: outside.encode()}),
        as_folder("deep XML", **{metadata: b"<a>" * 200_000}),
        as_folder("no bands in the XML", **{metadata: b"<x/>"}),
        as_zip("an absolute member", {**others, f"{secret}/secret-SPECTRAL_IMAGE.TIF": b"x"}),
        as_zip("a member above", {**others, "../../secret-SPECTRAL_IMAGE.TIF": files[image]}),
        as_zip("a member on the net", {**others, net: b""}),
        as_zip("a zip bomb for XML", {**files, metadata: bytes(33 << 20)}),
    ]  # fmt: skip


def _zarr_by_hand(folder: Path, evil: bytes) -> list[Input]:
    def store(name: str, version: int, change: Callable[[dict[str, Any]], Any], at: str) -> Input:
        _zarr(folder / "a.zarr", version)
        files = {
            str(p.relative_to(folder)): p.read_bytes()
            for p in sorted(folder.rglob("*"))
            if p.is_file()
        }
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        about = json.loads(files[f"a.zarr/{at}"])
        change(about)
        files[f"a.zarr/{at}"] = json.dumps(about).encode()
        chunks = [k for k in files if k.rpartition("/")[2] in ("0", "0.0.0")]
        return Input(f"zarr: {name}", "cube", "a.zarr", files | dict.fromkeys(chunks, evil))

    pickled = [{"id": "pickle", "protocol": 5}]
    return [
        store("pickle filter", 2, lambda t: t.update(
            filters=pickled, compressor=None), "cube/.zarray"),
        store("pickled wavelengths", 2, lambda t: t.update(
            dtype="|O", filters=pickled, compressor=None, fill_value=None), "wavelength/.zarray"),
        store("pickle compressor", 2, lambda t: t.update(compressor=pickled[0]), "cube/.zarray"),
        store("pickle codec", 3, lambda t: t.update(
            codecs=[{"name": "numcodecs.pickle", "configuration": {}}]), "wavelength/zarr.json"),
        store("petabytes in a chunk", 3, lambda t: t["chunk_grid"]["configuration"].update(
            chunk_shape=[5, 1 << 20, 1 << 30]), "cube/zarr.json"),
        store("petabytes of wavelengths", 2, lambda t: t.update(
            shape=[1 << 50], chunks=[1 << 50]), "wavelength/.zarray"),
        store("too long an axis", 2, lambda t: t.update(shape=[5, 1 << 63, 7]), "cube/.zarray"),
        store("a shape of fractions", 2, lambda t: t.update(shape=[5, 6.5, 7]), "cube/.zarray"),
        store("no pixels", 2, lambda t: t.update(shape=[5, 0, 7]), "cube/.zarray"),
        store("negative", 2, lambda t: t.update(shape=[5, -6, 7]), "cube/.zarray"),
        store("a number for a shape", 3, lambda t: t.update(shape=7), "cube/zarr.json"),
    ]  # fmt: skip


def _texts_by_hand() -> list[Input]:
    def safetensors(name: str, **about: Any) -> Input:
        entries = {"layout": 1, "bands": SHAPE[0], "channels": 2, "scales": 1} | about
        header = json.dumps({"__metadata__": {"hydiff": json.dumps(entries)}}).encode()
        return Input(
            f"weights: {name}", "weights", "w", {"w": struct.pack("<Q", len(header)) + header}
        )

    def recipe(name: str, content: Any) -> Input:
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        return Input(f"recipe: {name}", "recipe", "r.json", {"r.json": text})

    whole = {"candidates": [], "weights": [], "errors": {}}
    return [
        safetensors("no scales", scales=None),
        safetensors("a million scales", scales=1_000_000),
        safetensors("channels beyond memory", channels=10**12),
        safetensors("negative channels", channels=-2),
        safetensors("words", channels="../../x"),
        safetensors("infinite", channels=float("inf")),
        safetensors("one number", scales=True),
        Input("weights: petabytes", "weights", "w", {"w": struct.pack("<Q", 1 << 50) + b"{}"}),
        recipe("deep", b"[" * 100_000 + b"]" * 100_000),
        recipe("no text", b"\xff\xfe\x00"),
        recipe("a list", [1, 2, 3]),
        recipe("a number of candidates", whole | {"candidates": 5}),
        recipe("ragged weights", whole | {"weights": [[1], [2, 3]]}),
        recipe("nothing inside", whole),
    ]
