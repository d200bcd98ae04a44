"""Writing whole files or nothing: files are made in a folder beside the target, then renamed."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydiff.errors import OutputError
from hydiff.io.parsing import first_line

REASONS = {
    errno.EACCES: "permission denied; choose a folder you may write to",
    errno.EPERM: "the operation is not permitted there; choose a folder you may write to",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.ENOENT: "that folder does not exist; create it first",
    errno.ENOTDIR: "part of that path is a file, not a folder; correct the path",
    errno.ENOSPC: "the disk is full; free some space or choose another disk",
    errno.EDQUOT: "the disk quota is used up; free some space or choose another disk",
    errno.EFBIG: "the file is larger than the file system or the shell's limit allows (ulimit -f)",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}

# What GDAL keeps beside a raster and reads together with it: statistics, a mask, overviews.
# Those of the file that is being replaced would be wrong for the new one.
COMPANIONS = (".aux.xml", ".msk", ".ovr")


@contextmanager
def staged(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder beside `target`, for files under their final names.

    When the block ends well, each file is renamed into place, `target` itself last.  When it
    fails, the folder is removed and nothing else was touched.
    """
    with explained(target, target.parent):
        refuse_existing(target, overwrite)
        folder = Path(tempfile.mkdtemp(prefix=".hydiff-", dir=target.parent))
    try:
        with explained(target, folder):
            yield folder
            _move_into_place(folder, target, overwrite)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def refuse_existing(path: Path, overwrite: bool) -> None:
    """OutputError if `path` is taken; of folders, only a product is ever replaced."""
    if path.is_dir() and not is_product(path):
        raise OutputError(f"{path} is a folder; give the name of a file in it")
    if (path.exists() or path.is_symlink()) and not overwrite:
        raise OutputError(f"{path} exists; pass --overwrite to replace it, or choose another name")


def _to_disk(path: Path) -> None:
    """Wait until a file, or a folder that is a product, is on the disk."""
    if path.is_dir() and path.name.endswith(".zarr"):
        os.sync()  # thousands of files: one by one would take minutes
        return
    for each in (*path.iterdir(), path) if is_product(path) else (path,):
        if each.is_file() or each == path:
            place = os.open(each, os.O_RDONLY)
            try:
                os.fsync(place)
            except OSError as error:  # some file systems cannot, and some folders
                if error.errno != errno.EINVAL:
                    raise
            finally:
                os.close(place)


def refuse_input(source: Path, target: Path, overwrite: bool) -> None:
    """OutputError if the output is the input itself, and that was not asked for."""
    if not overwrite and target.exists() and source.exists() and source.samefile(target):
        raise OutputError(
            f"{target} is the input itself; choose another name, or pass --overwrite to replace it"
        )


def is_product(folder: Path) -> bool:
    """A Zarr store or an EnMAP product: a folder that stands for one file."""
    marks = ("zarr.json", ".zgroup", ".zarray", "*-METADATA.XML")
    return any(next(folder.glob(mark), None) is not None for mark in marks)


@contextmanager
def explained(target: Path, folder: Path) -> Iterator[None]:
    """Turn an OSError about `folder` into an OutputError; others are not about the output."""
    try:
        yield
    except OSError as error:
        if not _concerns(error, folder):
            raise
        raise OutputError(f"cannot write {target}: {_reason(error)}") from error


def _concerns(error: OSError, folder: Path) -> bool:
    """A failed write names no file; anything else must be in the folder."""
    if error.filename is None:
        return True
    names = (str(name) for name in (error.filename, error.filename2) if name is not None)
    return any(Path(name).is_relative_to(folder) for name in names)


def _reason(error: OSError) -> str:
    # Libraries that write through C report no errno, only that fewer bytes were written.
    found = first_line(error.__cause__ or error)
    unknown = f"{found}; check the free space and the file size limit of that disk"
    return REASONS.get(error.errno or 0, unknown)


def _move_into_place(folder: Path, target: Path, overwrite: bool) -> None:
    """First all bytes to the disk, then the names: after a power cut a name stands for a whole.

    The old target goes before the new companions come, so that a kill in between leaves no mix of
    the two; a single file replaces the old one in one step.
    """
    made = sorted(folder.iterdir(), key=lambda path: (path.name == target.name, path.name))
    for path in made:
        refuse_existing(target.with_name(path.name), overwrite)
        _to_disk(path)
    if target.is_dir() or (len(made) > 1 and target.exists()):
        target.replace(folder / ".replaced")
    for path in made:
        place = target.with_name(path.name)
        if place.is_dir():
            shutil.rmtree(place)
        path.replace(place)
    _to_disk(target.parent)
    written = {path.name for path in made}
    for stale in {name + suffix for name in written for suffix in COMPANIONS} - written:
        target.with_name(stale).unlink(missing_ok=True)
