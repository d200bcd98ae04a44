"""Propagation from files: the fill from its cube and companions, a function from a Python file."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import io
from hydiff.cube import Array
from hydiff.errors import BadValue, CubeFormatError
from hydiff.io import provenance, record, sample_files
from hydiff.result import Result
from hydiff.uncertainty.propagation import Function, fill_values

LARGEST = 4 << 30  # bytes of a cube in float64: samples of it are held in memory
IN_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")


def result_of(path: str | Path, var: str | None = None) -> Result:
    """A fill as its files hold it: cube, filled entries, error bars and record.

    Samples need no more than these, so that those of the files are those of the fill, but for what
    the file's type and the compact error bars round.
    """
    cube = io.read(path, var=var)
    base = provenance.base_of(cube.path or Path(path))
    note = record.read(provenance.record_path(base))
    if 8 * int(np.prod(cube.shape)) > LARGEST:
        raise BadValue(
            f"{path}: (bands, rows, cols) = {cube.shape} takes more than the {LARGEST >> 30} GB "
            "that are loaded here; cut out a part of the input, fill it, and take that"
        )
    layers = provenance.companions(base, cube.shape, cube.mark)
    if "filled" not in layers:
        raise CubeFormatError(
            f"{base}: no flags beside it or in it; expected those of the filled entries, which "
            "`hydiff fill` writes: keep the companions with the cube"
        )
    cube = cube.load()
    values = fill_values(cube)
    return Result(
        cube=cube,
        values=values,
        raw=values,
        filled=layers["filled"] > 0,
        flags=layers["flags"],
        why=layers.get("why", np.zeros(cube.shape, np.uint8)),
        left=note.entries.left,
        method=note.method,
        settings=note.settings,
        sigma_y=np.broadcast_to(np.asarray(note.sigma_y, np.float64), (cube.bands,)),
        history=[],
        seed=note.seed or 0,
        seconds=note.seconds,
        notes=list(note.notes),
        sigma=layers.get("sigma"),
        expected=None,
        recipe=None,
    )


def stored_samples(result: Result) -> Iterator[Array] | None:
    """The samples that were written with a fill that was read, one at a time; None without any."""
    path = result.cube.path
    if path is None or not sample_files.existing(path):
        return None
    return sample_files.stored(path, result.cube.shape)


def function_of(text: str) -> str | Function:
    """What `of` names: a function `my.py:name` as such, any other text as it is.

    The file is run, as `python my.py` would.
    """
    match = IN_FILE.fullmatch(text.strip())
    if match is None:
        return text
    path, name = Path(match["path"]), match["name"]
    if not io.regular.is_there(path):
        raise BadValue(f"{path}: no such file; check the path")
    found: Any = vars(_module(path)).get(name)
    if not callable(found):
        raise BadValue(f"{path}: no function {name} in it; define one, of an array x")
    function: Function = found
    return function


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"hydiff_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BadValue(f"{path}: cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever it may raise
        raise BadValue(
            f"{path} does not run: {type(error).__name__}: {error}; correct it"
        ) from error
    return module
