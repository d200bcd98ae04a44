"""What is done, on disk: files that are whole or absent, and what they belong to.

A finished tile is a pair: a file of values, and a marker that names what the values belong to and
their hash.  Both are written beside their place and renamed, the marker last.  Nobody waits until
the values are on the disk: by their hash, what a power cut took is missed, and filled again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Cube
from hydiff.errors import BadValue, HydiffError, OutputError
from hydiff.io import npz, provenance, typed
from hydiff.io.regular import is_there
from hydiff.io.versions import versions
from hydiff.learn.checkpoint import fingerprint
from hydiff.reference.image_choice import files_of
from hydiff.request import MASKS, Request
from hydiff.scale.bits import Bits
from hydiff.scale.tiles import Grid, Tile

SCENE = "scene.json"
# every name in the folder of the tiles
OURS = re.compile(
    r"(tile-\d+|reference-\d+|references|scene|decided|prior)\.(json|npy|npz)(\..*\.part)?"
    r"|(seen|own|withheld|target|filled)\.bits|flags\.bytes"
)


def prepare(work: Path, resume: bool) -> None:
    """An empty folder for the tiles, or the one of the interrupted run."""
    known = is_there(work) and is_there(work / SCENE)
    if work.exists() and not known:  # a kill may have left files of ours, as it came or went
        if not all(OURS.fullmatch(path.name) for path in work.iterdir()):
            raise OutputError(
                f"{work} is in the way and holds no unfinished fill; move it elsewhere"
            )
        shutil.rmtree(work)
    if known and not resume:
        shutil.rmtree(work)
    work.mkdir(mode=0o700, exist_ok=True)  # values of an input that may be private
    if not (work / SCENE).exists():
        write_whole(work / SCENE, b"{}")


@contextmanager
def tidied(work: Path) -> Iterator[None]:
    """Remove the folder after an error, unless there are finished tiles to go on with."""
    try:
        yield
    except HydiffError:
        if next(work.glob("tile-*.json"), None) is None:
            shutil.rmtree(work, ignore_errors=True)
        raise


@dataclass(frozen=True)
class Belongings:
    """What the tiles of a scene belong to: scene.json."""

    input: str  # SHA-256
    metadata: str
    missing: tuple[str, ...]  # SHA-256 of the masks
    settings: str
    recipe: str
    seed: int
    rows: tuple[int, ...]  # of the grid
    cols: tuple[int, ...]
    overlap: int  # px
    version: str

    @property
    def cuts(self) -> Grid:
        return Grid(self.rows, self.cols, self.overlap)


NAMES = (  # how a refusal calls them
    *("the input", "its metadata", "what is missing", "the settings", "the recipe", "the seed"),
    *["the tiling"] * 3,
    "hydiff's version",
)


def belongings(
    input_hash: str, masks: Iterable[Bits], request: Request, cuts: Grid, cube: Cube
) -> Belongings:
    apart = {"recipe", "seed", "report", "compact", "input_uncertainty", *MASKS}
    settings: dict[str, Any] = {k: v for k, v in asdict(request).items() if k not in apart}
    for name in ("reference", "reference_missing"):
        settings[name] = [provenance.sha256(path) for path in files_of(getattr(request, name))]
    bands = (None if a is None else a.tolist() for a in (cube.wavelengths, cube.good))
    return Belongings(
        input_hash,
        fingerprint(str(cube.dtype), cube.shape, *bands),
        tuple(_digest(bits.path) for bits in masks),
        fingerprint(settings),
        fingerprint(request.recipe),
        request.seed,
        cuts.rows,
        cuts.cols,
        cuts.overlap,
        versions()["hydiff"],
    )


def read_belongings(work: Path) -> Belongings:
    """Of the scene whose tiles a folder holds; OSError or ValueError before they are known."""
    belongings: Belongings = typed.checked(Belongings, typed.load(work / SCENE), SCENE)
    return belongings


def claim(work: Path, now: Belongings) -> None:
    """Write down what the tiles of this run belong to; refuse those of another."""
    if (work / SCENE).read_bytes() == b"{}":
        write_whole(work / SCENE, json.dumps(asdict(now)).encode())
        return
    try:
        before: Belongings | None = read_belongings(work)
    except ValueError:  # of another version
        before = None
    pairs = zip(asdict(now), NAMES, strict=True)
    changed = [name for key, name in pairs if getattr(before, key, None) != getattr(now, key)]
    if changed:
        raise BadValue(
            f"cannot go on with the tiles in {work}: {' and '.join(dict.fromkeys(changed))} "
            "changed since they were made; take that back, or leave `resume=` out to start again"
        )


@dataclass(frozen=True)
class Outline:
    """A finished tile in a few numbers."""

    entries: int  # that were filled
    complete: bool  # all that were to be filled were
    bars: bool  # the values have error bars
    notes: tuple[str, ...]
    # by `auto` only
    expected: dict[str, Any] = field(default_factory=dict)  # scores of the filled entries
    doubtful: float = 0.0  # share of them
    by_kind: dict[str, Any] = field(default_factory=dict)  # `expected` of each kind of gaps
    entries_by_kind: dict[str, Any] = field(default_factory=dict)
    with_reference: int = 0  # entries that other images of the place served


@dataclass(frozen=True)
class Marker:
    """What vouches for the values of a tile: tile-NUMBER.json."""

    tag: str  # what the tile belongs to
    sha256: str  # of the file of values
    outline: Outline


def marker_path(work: Path, tile: Tile) -> Path:
    return work / f"tile-{tile.number:06d}.json"


def values_path(work: Path, tile: Tile) -> Path:
    return work / f"tile-{tile.number:06d}.npy"


def read_marker(work: Path, tile: Tile) -> Marker:
    """Of a finished tile; OSError or ValueError where there is none."""
    path = marker_path(work, tile)
    marker: Marker = typed.checked(Marker, typed.load(path), path.name)
    return marker


def keep(work: Path, tile: Tile, tag: str, values: Array, outline: Outline) -> None:
    """The tile's values, then its marker: a marker vouches for whole values."""
    path = values_path(work, tile)
    write_array(path, values, to_disk=False)
    marker = Marker(tag, _digest(path), outline)
    write_whole(marker_path(work, tile), json.dumps(asdict(marker)).encode())


def is_done(work: Path, tile: Tile, tag: str) -> bool:
    try:
        marker, digest = read_marker(work, tile), _digest(values_path(work, tile))
    except (OSError, ValueError):
        return False
    return marker.tag == tag and marker.sha256 == digest


def write_array(path: Path, values: Array, to_disk: bool = True) -> None:
    with _draft(path).open("wb") as file:
        npz.write_array(file, np.ascontiguousarray(values))  # bands apart, as they are read
        if to_disk:
            _to_disk(file)
    _draft(path).replace(path)


def write_whole(path: Path, content: bytes) -> None:
    with _draft(path).open("wb") as file:
        file.write(content)
        _to_disk(file)
    _draft(path).replace(path)


def glance(path: Path) -> str:
    """A hash of the size and of some blocks of a file, or of the sizes in a folder.

    Cheap enough to ask before every tile; another file has another one, not every other byte.
    """
    if path.is_dir():
        sizes = sorted((p.relative_to(path).as_posix(), p.stat().st_size) for p in _files(path))
        return sha256(json.dumps(sizes).encode()).hexdigest()
    size = path.stat().st_size
    digest = sha256(str(size).encode())
    with path.open("rb") as file:
        for i in range(9):
            file.seek(i * max(size - 4096, 0) // 8)
            digest.update(file.read(4096))
    return digest.hexdigest()


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
