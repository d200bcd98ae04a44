"""The record of finished tiles on disk.

A finished tile is a pair of files: its values, and a marker with their hash and a fingerprint of
the inputs they belong to.  Both are written under another name and then renamed, the marker last,
so a file is either complete or absent.  Values are not flushed to disk: if a power cut damages
them, their hash does not match and the tile is filled again.
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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Cube
from hydiff.errors import BadValue, HydiffError, OutputError
from hydiff.io import npz, typed
from hydiff.io.provenance import InputChanged
from hydiff.io.regular import is_there
from hydiff.io.versions import versions
from hydiff.learn.checkpoint import fingerprint
from hydiff.request import MASKS, Request
from hydiff.scale.bits import Bits
from hydiff.scale.contents import by_content
from hydiff.scale.tiles import Grid, Tile

SCENE = "scene.json"
# all file names that occur in the folder of the tiles
OURS = re.compile(
    r"(tile-\d+|reference-\d+|references|scene|decided|prior)\.(json|npy|npz)(\..*\.part)?"
    r"|(seen|own|withheld|target|filled)\.bits|(values|flags|sigma)\.gaps|sample-\d+\.f4"
)


@contextmanager
def held(work: Path) -> Iterator[None]:
    """Hold the folder of the tiles; raise OutputError if another process holds it.

    The hold ends with the process.  Without a folder, or a system that has such locks, do nothing.
    """
    if find_spec("fcntl") is None or not work.exists():
        yield
        return
    import fcntl

    folder = os.open(work, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                f"another process is filling into {work}; wait for it, or choose another output"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(folder)


def prepare(work: Path, resume: bool) -> None:
    """Create an empty folder for the tiles; with `resume`, keep the one of an interrupted run."""
    has_scene = is_there(work) and is_there(work / SCENE)
    # a run that was killed at its start or end may have left some of its files
    if work.exists() and not has_scene:
        if not all(OURS.fullmatch(path.name) for path in work.iterdir()):
            raise OutputError(
                f"{work} is in the way and holds no unfinished fill; move it elsewhere"
            )
        shutil.rmtree(work)
    if has_scene and not resume:
        shutil.rmtree(work)
    work.mkdir(mode=0o700, exist_ok=True)  # for this user only: the input may be private
    if not (work / SCENE).exists():
        write_whole(work / SCENE, b"{}")


@contextmanager
def tidied(work: Path) -> Iterator[None]:
    """Remove the folder after an error, unless it holds finished tiles to resume from."""
    try:
        yield
    except HydiffError as error:
        of_use = next(work.glob("tile-*.json"), None) and not isinstance(error, InputChanged)
        if not of_use:
            shutil.rmtree(work, ignore_errors=True)
        raise


@dataclass(frozen=True)
class Belongings:
    """The inputs and options that the tiles of a scene depend on; stored in scene.json."""

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
        """The grid of the tiles."""
        return Grid(self.rows, self.cols, self.overlap)


NAMES = (  # of the fields above, in error messages
    *("the input", "its metadata", "what is missing", "the settings", "the recipe", "the seed"),
    *["the tiling"] * 3,
    "hydiff's version",
)


def belongings(
    input_hash: str, masks: Iterable[Bits], request: Request, cuts: Grid, cube: Cube
) -> Belongings:
    """Return the belongings of a run.

    masks: of the observed entries and of the entries to fill.  cuts: the grid of the tiles.
    """
    left_out = {"recipe", "seed", "report", "compact", "input_uncertainty", *MASKS}
    settings = {k: v for k, v in by_content(request).items() if k not in left_out}
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
    """Return the belongings stored in a folder of tiles.

    Raises OSError or ValueError if none are stored yet.
    """
    belongings: Belongings = typed.checked(Belongings, typed.load(work / SCENE), SCENE)
    return belongings


def claim(work: Path, now: Belongings) -> None:
    """Store the belongings of this run; raise BadValue if the folder has those of another run."""
    if (work / SCENE).read_bytes() == b"{}":
        write_whole(work / SCENE, json.dumps(asdict(now)).encode())
        return
    try:
        before: Belongings | None = read_belongings(work)
    except ValueError:  # written by another version
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
    """Summary of a finished tile."""

    entries: int  # number of filled entries
    complete: bool  # every entry to fill was filled
    bars: bool  # the values have error bars
    notes: tuple[str, ...]
    # set by the method `auto` only
    expected: dict[str, Any] = field(default_factory=dict)  # expected scores of the filled entries
    doubtful: float = 0.0  # share of filled entries hardly better than the mean of their band
    by_kind: dict[str, Any] = field(default_factory=dict)  # `expected` of each kind of gaps
    entries_by_kind: dict[str, Any] = field(default_factory=dict)
    with_reference: int = 0  # number of entries filled with other images of the place


@dataclass(frozen=True)
class Marker:
    """Proof that the values of a tile are complete; stored in tile-NUMBER.json."""

    tag: str  # fingerprint of what the tile depends on
    sha256: str  # of the file of values
    outline: Outline


def marker_path(work: Path, tile: Tile) -> Path:
    return work / f"tile-{tile.number:06d}.json"


def values_path(work: Path, tile: Tile) -> Path:
    return work / f"tile-{tile.number:06d}.npy"


def read_marker(work: Path, tile: Tile) -> Marker:
    """Return the marker of a finished tile; raise OSError or ValueError if it has none."""
    path = marker_path(work, tile)
    marker: Marker = typed.checked(Marker, typed.load(path), path.name)
    return marker


def keep(work: Path, tile: Tile, tag: str, values: Array, outline: Outline) -> None:
    """Write the values of a tile, then its marker, so that a marker implies complete values."""
    path = values_path(work, tile)
    write_array(path, values, to_disk=False)
    marker = Marker(tag, _digest(path), outline)
    write_whole(marker_path(work, tile), json.dumps(asdict(marker)).encode())


def is_done(work: Path, tile: Tile, tag: str) -> bool:
    """Return whether the values of a tile are on disk, undamaged, and made for the same inputs."""
    try:
        marker, digest = read_marker(work, tile), _digest(values_path(work, tile))
    except (OSError, ValueError):
        return False
    return marker.tag == tag and marker.sha256 == digest


def write_array(path: Path, values: Array, to_disk: bool = True) -> None:
    """Write an array as .npy, complete or not at all.  to_disk: wait until it is on the disk."""
    with _draft(path).open("wb") as file:
        npz.write_array(file, np.ascontiguousarray(values))  # band by band, as they are read
        if to_disk:
            _to_disk(file)
    _draft(path).replace(path)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, complete or not at all, and wait until it is on the disk."""
    with _draft(path).open("wb") as file:
        file.write(content)
        _to_disk(file)
    _draft(path).replace(path)


def glance(path: Path) -> str:
    """Return a hash of the size and some blocks of a file, or of all file sizes in a folder.

    It is fast enough to be computed before every tile.  It distinguishes different files, but not
    every change of a file.
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
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _draft(path: Path) -> Path:
    """Return a temporary name that no other process uses.

    A worker that was assumed dead may still be writing the same file.
    """
    return path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}.part")


def _to_disk(file: Any) -> None:
    """Wait until a file is on the disk."""
    file.flush()
    os.fsync(file.fileno())
