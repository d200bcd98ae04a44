"""Make sure that only files and folders are opened: a FIFO or a device could block for ever."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from hydiff.errors import CubeFormatError

KINDS = {
    stat.S_IFIFO: "a FIFO (named pipe)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
ABSENT = (errno.ENOENT, errno.ENOTDIR)
REASONS = {
    errno.ENAMETOOLONG: "the name is too long for this file system; give the file a shorter one",
    errno.ELOOP: "its symbolic links lead in a circle; name the file itself",
    errno.EACCES: "permission denied; check the permissions of its folders",
}


def exists(path: Path) -> bool:
    """Return whether a path exists; also False if no file can have that name."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def advice(path: Path, suffixes: Iterable[str]) -> str:
    """Return what to do about a file that does not exist: name one of those with its name and one
    of the suffixes, or of an ENVI header, if there are any."""
    ends = {end for suffix in (*suffixes, ".hdr") for end in (suffix, suffix.upper())}
    names = sorted(path.name + end for end in ends) if path.name else []
    found = [name for name in names if exists(path.with_name(name))]
    if not found:
        return "check the path"
    return f"found {' and '.join(found)}: give the name with its suffix"


def is_there(path: Path) -> bool:
    """Return whether a file or folder exists; CubeFormatError if it is neither, or on other errors.

    This check comes before any file that a user or another file has named is opened.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno in ABSENT:
            return False
        why = REASONS.get(error.errno or 0, f"{error.strerror}; check the path")
        raise CubeFormatError(f"{path}: {why}") from None
    except ValueError:  # a NUL in the name
        raise CubeFormatError(f"{path}: no file can have this name; check the path") from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = KINDS.get(stat.S_IFMT(mode), "neither file nor folder")
        raise CubeFormatError(
            f"{path}: is {kind}, expected a file; save what it gives to a file, and name that"
        )
    return True


def check_tree(folder: Path, above: tuple[str, ...] = ()) -> None:
    """Raise CubeFormatError if a folder holds devices and the like, or broken or circular links."""
    above = (*above, os.path.realpath(folder))
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            if path.is_file():  # False for a link to itself, for which entry.is_file() would raise
                continue
            if not is_there(path):
                raise CubeFormatError(f"{path}: is a link to nothing; remove it")
            if os.path.realpath(path) in above:
                raise CubeFormatError(
                    f"{path}: its symbolic links lead in a circle; remove that link"
                )
            check_tree(path, above)
