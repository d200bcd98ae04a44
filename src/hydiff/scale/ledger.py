"""What is done, on disk: files that are whole or absent, and what they belong to.

A finished tile is a pair: a file of values, and a marker that names what the values belong to and
their hash.  Both are written beside their place, brought to disk and renamed, the marker last.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Cube
from hydiff.errors import BadValue, HydiffError, OutputError
from hydiff.io import npz
from hydiff.io.regular import is_there
from hydiff.io.versions import versions
from hydiff.learn.checkpoint import fingerprint
from hydiff.request import MASKS, Request
from hydiff.scale.bits import Bits
from hydiff.scale.tiles import Grid, Tile

# every name in the folder of the tiles
OURS = re.compile(
    r"(tile-\d+|scene|decided|prior)\.(json|npy|npz)(\..*\.part)?|(seen|withheld|target|filled)\.bits"
)


def prepare(work: Path, resume: bool) -> None:
    """An empty folder for the tiles, or the one of the interrupted run."""
    known = is_there(work) and is_there(work / "scene.json")
    if work.exists() and not known:  # a kill may have left files of ours, as it came or went
        if not all(OURS.fullmatch(path.name) for path in work.iterdir()):
            raise OutputError(
                f"{work} is in the way and holds no unfinished fill; move it elsewhere"
            )
        shutil.rmtree(work)
    if known and not resume:
        shutil.rmtree(work)
    work.mkdir(mode=0o700, exist_ok=True)  # values of an input that may be private
    if not (work / "scene.json").exists():
        write_whole(work / "scene.json", b"{}")


@contextmanager
def tidied(work: Path) -> Iterator[None]:
    """Remove the folder after an error, unless there are finished tiles to go on with."""
    try:
        yield
    except HydiffError:
        if next(work.glob("tile-*.json"), None) is None:
            shutil.rmtree(work, ignore_errors=True)
        raise


def belongings(
    input_hash: str, masks: Iterable[Bits], order: Request, cuts: Grid, cube: Cube
) -> dict[str, Any]:
    """What a tile belongs to, by the name that a refusal gives it."""
    apart = {"recipe", "seed", "report", *MASKS}
    how: dict[str, Any] = {k: v for k, v in asdict(order).items() if k not in apart}
    return {
        "the input": input_hash,
        "its metadata": fingerprint(
            str(cube.dtype),
            cube.shape,
            *(None if a is None else a.tolist() for a in (cube.wavelengths, cube.good)),
        ),
        "what is missing": [_digest(bits.path) for bits in masks],
        "the settings": fingerprint(how),
        "the recipe": fingerprint(order.recipe),
        "the seed": order.seed,
        "the tiling": [list(cuts.rows), list(cuts.cols), cuts.overlap],
        "hydiff's version": versions()["hydiff"],
    }


def claim(work: Path, belongs: Mapping[str, Any]) -> None:
    """Write down what the tiles of this run belong to; refuse those of another."""
    path = work / "scene.json"
    before = json.loads(path.read_text())
    now = json.loads(json.dumps(belongs))
    if before and before != now:
        changed = " and ".join(key for key in now if before.get(key) != now[key])
        raise BadValue(
            f"cannot go on with the tiles in {work}: {changed} changed since they were made; "
            "take that back, or leave `resume=` out to start again"
        )
    if not before:
        write_whole(path, json.dumps(now).encode())


def marker(work: Path, tile: Tile) -> Path:
    return work / f"tile-{tile.number:06d}.json"


def kept(work: Path, tile: Tile) -> Path:
    return work / f"tile-{tile.number:06d}.npy"


def keep(work: Path, tile: Tile, tag: str, values: Array, told: Mapping[str, Any]) -> None:
    """The tile's values, then its marker: a marker vouches for whole values."""
    path = kept(work, tile)
    with _draft(path).open("wb") as file:
        npz.write_array(file, np.ascontiguousarray(values))  # bands apart, as they are read
        _to_disk(file)
    _draft(path).replace(path)
    note = {"belongs to": tag, "sha256": _digest(path), **told}
    write_whole(marker(work, tile), json.dumps(note).encode())


def is_done(work: Path, tile: Tile, tag: str) -> bool:
    try:
        told = json.loads(marker(work, tile).read_text())
        digest = _digest(kept(work, tile))
    except (OSError, ValueError):
        return False
    return bool(told["belongs to"] == tag and told["sha256"] == digest)


def write_whole(path: Path, content: bytes) -> None:
    with _draft(path).open("wb") as file:
        file.write(content)
        _to_disk(file)
    _draft(path).replace(path)


def glance(path: Path) -> str:
    """A hash of the size and of some blocks of a file, or of the sizes in a folder.

    Cheap enough to ask before every tile; tells one file from another, not one byte from another.
    """
    if path.is_dir():
        sizes = sorted((p.relative_to(path).as_posix(), p.stat().st_size) for p in _files(path))
        return sha256(json.dumps(sizes).encode()).hexdigest()
    size = path.stat().st_size
    found = sha256(str(size).encode())
    with path.open("rb") as file:
        for i in range(9):
            file.seek(i * max(size - 4096, 0) // 8)
            found.update(file.read(4096))
    return found.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    return (p for p in folder.rglob("*") if p.is_file())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _draft(path: Path) -> Path:
    """A name that no other process writes to: a worker given up for dead may still be at it."""
    return path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}.part")


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
