"""Files that the page may open: only those below the folders named when it was started."""

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
MOST = 500  # most files that are listed


def listed(folders: Sequence[Path]) -> dict[str, Path]:
    """Return at most `MOST` cube files below the folders, by path from the folder's parent."""
    files: dict[str, Path] = {}
    for folder in folders:
        for path in _images(folder):
            files.setdefault(str(path.relative_to(folder.parent)), path)
            if len(files) == MOST:
                return files
    return files


def checked(path: Path, folders: Sequence[Path]) -> Path:
    """Return the path; BadValue if it, with links resolved, lies outside the folders."""
    real = path.resolve()
    if not any(real.is_relative_to(folder.resolve()) for folder in folders):
        raise BadValue(
            f"{path.name} does not lie below a folder that was named at the start; start the "
            "viewer with `hydiff view FILE --folder FOLDER`"
        )
    return path


def _images(folder: Path) -> Iterator[Path]:
    """Yield cube files by name, without companion files of fills and headers of listed files."""
    for parent, subfolders, names in os.walk(folder):
        stores = [name for name in subfolders if name.lower().endswith(".zarr")]
        subfolders[:] = sorted(set(subfolders) - set(stores))
        paths = [Path(parent, name) for name in sorted([*names, *stores])]
        images = [path for path in paths if path.suffix.lower() in SUFFIXES]
        companions = {companion for path in images for companion in provenance.beside(path)}
        stems = {path.with_suffix("") for path in images if path.suffix.lower() != ".hdr"}
        for path in images:
            header = path.suffix.lower() == ".hdr" and path.with_suffix("") in stems
            if path not in companions and not header:
                yield path
