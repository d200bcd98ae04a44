"""Files that the page may open: those below the folders that were named at its start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from hydiff.errors import BadValue
from hydiff.io import provenance

SUFFIXES = {
    *(".tif", ".tiff", ".hdr", ".img", ".bsq", ".bil", ".bip", ".dat", ".envi"),
    *(".nc", ".h5", ".he5", ".mat", ".npy", ".npz", ".zarr", ".zip"),
}
MOST = 500  # files that are listed


def listed(folders: Sequence[Path]) -> dict[str, Path]:
    """What looks like a cube below these folders, by a name that says where it lies."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in _images(folder):
            found.setdefault(str(path.relative_to(folder.parent)), path)
            if len(found) == MOST:
                return found
    return found


def checked(path: Path, folders: Sequence[Path]) -> Path:
    """The same path; BadValue where it leads elsewhere, through a link too."""
    real = path.resolve()
    if not any(real.is_relative_to(folder.resolve()) for folder in folders):
        raise BadValue(
            f"{path.name} does not lie below a folder that was named at the start; start the "
            "viewer with `hydiff view FILE --folder FOLDER`"
        )
    return path


def _images(folder: Path) -> Iterator[Path]:
    """In the order of their names; companions of fills and headers of listed files are left out."""
    for place, below, names in os.walk(folder):
        stores = [name for name in below if name.lower().endswith(".zarr")]
        below[:] = sorted(set(below) - set(stores))
        here = [Path(place, name) for name in sorted([*names, *stores])]
        images = [path for path in here if path.suffix.lower() in SUFFIXES]
        known = {beside for path in images for beside in provenance.beside(path)}
        stems = {path.with_suffix("") for path in images if path.suffix.lower() != ".hdr"}
        for path in images:
            header = path.suffix.lower() == ".hdr" and path.with_suffix("") in stems
            if path not in known and not header:
                yield path
