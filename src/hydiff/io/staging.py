"""Write files completely or not at all: make them in a folder beside the target, then rename."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from hydiff.errors import OutputError
from hydiff.io.beside import described_by
from hydiff.io.envi import DATA_SUFFIXES, header_names
from hydiff.io.parsing import first_line
from hydiff.io.regular import exists
from hydiff.io.threads import at_once
from hydiff.io.tiff import is_tiff
from hydiff.option_types import of_type

REASONS = {
    errno.EACCES: "permission denied; choose a folder you may write to",
    errno.EPERM: "the operation is not permitted there; choose a folder you may write to",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.ENOENT: "that folder does not exist; create it first",
    errno.EEXIST: "a file of that name is in the way; choose another name",
    errno.ENOTDIR: "part of that path is a file, not a folder; correct the path",
    errno.ENOSPC: "the disk is full; free some space or choose another disk",
    errno.EDQUOT: "the disk quota is used up; free some space or choose another disk",
    errno.EFBIG: "the file is larger than the file system or the shell's limit allows (ulimit -f)",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}

# Files that GDAL keeps beside a raster and reads together with it: statistics, a mask, overviews.
# Those of a file that is replaced would be wrong for the new one.
COMPANIONS = (".aux.xml", ".msk", ".ovr")
# files that no ENVI header describes, so that one of their name belongs to another file
HEADERLESS = (".npy", ".npz", ".mat", ".nc", ".he5", ".h5", ".zarr", ".zip")
STDERR = 2
FLUSH_EVERY = 1.0  # seconds
_holding = threading.Lock()
READERS = {0o070: 0o040, 0o007: 0o004}  # all permission bits of group or others -> the read bit


@contextmanager
def staged(
    target: Path,
    *,
    overwrite: bool = False,
    beside: Iterable[Path] = (),
    source: Path | None = None,
) -> Iterator[Path]:
    """Yield a temporary folder beside `target`, in which to make files under their final names.

    If the block succeeds, each file is renamed into place, `target` itself last.  If it fails, the
    folder is removed and nothing else has been touched.

    beside: existing files that describe an old target; they are removed with it.
    source: the input of the files; users who may not read it may not read the files either.
    """
    beside = tuple(beside)
    of_type("overwrite", overwrite, bool)
    with explained(target, target.parent):
        for path in (target, *beside):
            refuse_existing(path, overwrite)
        folder = Path(tempfile.mkdtemp(prefix=".hydiff-", dir=target.parent))
    try:
        with explained(target, folder):
            yield folder
            if source is not None:
                _withhold(folder, source)
            _move_into_place(folder, target, overwrite, beside)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def flushing(folder: Path) -> Iterator[None]:
    """Flush the files of a folder to disk every FLUSH_EVERY seconds while the block writes them, so
    that little is left to wait for at the end; a block shorter than that is not slowed down."""
    ended = threading.Event()

    def flush() -> None:
        while not ended.wait(FLUSH_EVERY):
            for path in folder.iterdir():
                with suppress(FileNotFoundError):  # a temporary file, removed in the meantime
                    if path.is_file():
                        _to_disk(path)

    with ThreadPoolExecutor(1) as pool:
        flusher = pool.submit(flush)
        try:
            yield
        finally:
            ended.set()
    flusher.result()


def _withhold(folder: Path, source: Path) -> None:
    """Remove the permissions of group or others below a folder if they may not read the source."""
    if not source.exists():
        return
    modes = [p.stat().st_mode for p in _all_below(source)]
    withheld = sum(bits for bits, read in READERS.items() if not all(m & read for m in modes))
    for path in _all_below(folder):
        if path != folder:
            path.chmod(path.stat().st_mode & 0o777 & ~withheld)


def _all_below(path: Path) -> list[Path]:
    """Return the path itself and, for a folder, everything below it except symbolic links."""
    return [path, *(p for p in path.rglob("*") if not p.is_symlink())] if path.is_dir() else [path]


def names_folder(output: str | os.PathLike[str]) -> bool:
    """Return whether a name ends as those of folders do, and has no suffix of a format: a Zarr
    store is a folder itself.  OutputError for what is no name."""
    from hydiff.io import suffixes

    name = os.fspath(of_type("path", output, Path))
    if name in ("", "-"):  # an empty variable of the shell, and the usual sign for stdout
        raise OutputError(f"an output of the name '{name}': expected a file or a folder; name it")
    return name.endswith(("/", os.sep)) and Path(name).suffix.lower() not in suffixes()


def output_file(output: str | os.PathLike[str]) -> Path:
    """Return the path of an output; OutputError if it is named as a folder, by a / at its end."""
    if names_folder(output):
        raise OutputError(
            f"{output} names a folder, and one file is written; give the name of a file in it, "
            "or leave the / out"
        )
    return Path(output)


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Raise OutputError if `path` exists and may not be replaced; of folders only products may."""
    with explained(path, path.parent):
        is_folder, occupied = path.is_dir(), path.exists() or path.is_symlink()
    if is_folder and not is_product(path):
        raise OutputError(f"{path} is a folder; give the name of a file in it")
    if occupied and not overwrite:
        raise OutputError(
            f"{path} exists; pass `overwrite=True` to replace it, or choose another name"
        )


def _to_disk(path: Path) -> None:
    """Flush a file or folder to disk, for a product with everything in it, and wait until done."""
    if path.is_dir() and path.name.endswith(".zarr"):
        os.sync()  # thousands of files: one by one would take minutes
        return
    for part in (*path.rglob("*"), path) if is_product(path) else (path,):
        descriptor = os.open(part, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:  # some file systems cannot flush, or cannot flush folders
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(descriptor)


def refuse_targets(
    source: Path, targets: Sequence[Path], overwrite: bool, named: Path | None = None
) -> None:
    """Raise OutputError if a target exists or is the input, unless `overwrite` is True.

    It is raised in any case if only a part of the input would be replaced, or if the user named the
    input by another of its files than the output.

    targets: the output, and the files replaced with it.  named: the input as the user named it.
    """
    if not any(same(source, target) for target in targets):
        refuse_inputs(targets, [source])
    elif overwrite and named is not None and not same(named, targets[0]):
        raise OutputError(
            f"{targets[0]} and {named} are one cube, and the input would be replaced; choose "
            f"another name, or give {targets[0]} as the input too"
        )
    elif not overwrite:
        raise OutputError(
            f"{targets[0]} is the input itself; choose another name, or pass `overwrite=True` to "
            "replace it"
        )
    for target in targets:
        refuse_existing(target, overwrite)


def refuse_inputs(targets: Iterable[Path], sources: Iterable[Path | None]) -> None:
    """Raise OutputError if a target is one of the input files, or is read together with one."""
    inputs = [path for source in sources if source is not None for path in read_with(source)]
    for target in targets:
        if any(same(target, path) for path in inputs):
            raise OutputError(
                f"{target} is one of the inputs, or a part of it; choose another name"
            )


def same(one: Path, other: Path) -> bool:
    """Return whether two paths lead to the same existing file or folder."""
    return exists(one) and exists(other) and one.samefile(other)


def partners(path: Path, format: str) -> list[Path]:
    """Return the existing files that would be read together with a cube of this path and format."""
    names: list[Path] = []
    if format in ("npz", "mat"):
        names = [path.with_name(path.name + ".json")]
    elif format == "envi" and path.suffix.lower() == ".hdr":
        stem = path.with_suffix("")
        names = [stem.with_name(stem.name + suffix) for suffix in DATA_SUFFIXES]
    elif format == "envi":
        names = header_names(path)
    return [name for name in dict.fromkeys(names) if exists(name) and name.is_file()]


def read_with(source: Path) -> list[Path]:
    """Return a file and the files that may be read with it; a GeoTIFF may have an ENVI header."""
    from hydiff.io import desis

    described = source.suffix.lower() not in HEADERLESS
    if is_tiff(source):
        described = desis.matches(source)
    headers = partners(source, "envi") if described else []
    return [source, *headers, *partners(source, "npz")]


def is_product(folder: Path) -> bool:
    """Return whether a folder is a Zarr store or an EnMAP product, which counts as one file."""
    patterns = ("zarr.json", ".zgroup", ".zarray", "*-METADATA.XML")
    return any(next(folder.glob(pattern), None) is not None for pattern in patterns)


@contextmanager
def explained(target: Path, folder: Path) -> Iterator[None]:
    """Turn an OSError about `folder` into an OutputError; other errors pass unchanged."""
    try:
        yield
    except OSError as error:
        if not _concerns(error, folder):
            raise
        raise OutputError(f"cannot write {target}: {_reason(error)}") from error


def _concerns(error: OSError, folder: Path) -> bool:
    """Return whether an error is about a path in `folder`, or names none, as failed writes do."""
    if error.filename is None:
        return True
    names = (str(name) for name in (error.filename, error.filename2) if name is not None)
    return any(Path(name).is_relative_to(folder) for name in names)


def _reason(error: OSError) -> str:
    """Say why writing failed and what to do about it."""
    # Libraries that write through C report no errno, only that fewer bytes were written.
    message = first_line(error.__cause__ or error)
    unknown = f"{message}; check the free space and the file size limit of that disk"
    return REASONS.get(error.errno or 0, unknown)


def _move_into_place(folder: Path, target: Path, overwrite: bool, beside: tuple[Path, ...]) -> None:
    """Flush all files to disk, then rename them, so that a power cut leaves no incomplete file.

    The old target and everything that belongs to it are moved away before any new file is put in
    place, so that a kill in between leaves no mix of the two.  If one new file replaces one old
    file, that is a single step.
    """
    files = sorted(folder.iterdir(), key=lambda path: (path.name == target.name, path.name))
    new = {path: target.with_name(path.name) for path in files}
    for place in (*new.values(), *beside):
        refuse_existing(place, overwrite)
    at_once(*(partial(_to_disk, path) for path in files))
    stale = {place.with_name(place.name + end) for place in new.values() for end in COMPANIONS}
    stale |= {path for place in new.values() if is_tiff(place) for path in described_by(place)}
    others = sorted({*new.values(), *beside, *stale} - {target})
    old = [place for place in (target, *others) if os.path.lexists(place)]
    if old == [target] and len(new) == 1 and not target.is_dir():
        old = []
    replaced_folder = folder / ".replaced"
    replaced_folder.mkdir()
    _rename([*((place, replaced_folder / place.name) for place in old), *new.items()])
    _to_disk(target.parent)


def _rename(moves: list[tuple[Path, Path]]) -> None:
    """Rename all files or none: if one rename fails, the earlier ones are undone."""
    try:
        for source, place in moves:
            source.replace(place)
    except BaseException:
        for source, place in reversed(moves):
            if not os.path.lexists(source):
                place.replace(source)
        raise


@contextmanager
def lines_held() -> Iterator[None]:
    """Hold back what C libraries print to stderr inside the block, and print it after the block.

    If the block raises an error, the lines are dropped: the error says the same in one line.  If
    several threads enter such blocks, only the first of them holds back and prints the lines.
    """
    if not _holding.acquire(blocking=False):
        yield
        return
    with tempfile.TemporaryFile() as stderr_file:
        stderr_copy = os.dup(STDERR)
        os.dup2(stderr_file.fileno(), STDERR)
        try:
            yield
        finally:
            os.dup2(stderr_copy, STDERR)
            os.close(stderr_copy)
            _holding.release()
        stderr_file.seek(0)
        os.write(STDERR, stderr_file.read())
