"""Propagation from files: fills read from cube and companion files, functions from Python files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from hydiff import io
from hydiff.cube import Array
from hydiff.errors import BadValue, CubeFormatError
from hydiff.io import provenance, record, sample_files
from hydiff.methods.user_code import function_in
from hydiff.result import Result
from hydiff.uncertainty.propagation import Function, fill_values

LARGEST = 4 << 30  # bytes of a cube in float64, as its samples are held in memory


def result_of(path: str | Path, var: str | None = None) -> Result:
    """Return a fill from its files: cube, filled entries, error bars and record.

    Samples need no more than these, so samples drawn from files are those of the fill, except for
    rounding by the file's data type and the compact error bars.
    """
    cube = io.read(path, var=var)
    base = provenance.base_of(cube.path or Path(path))
    fill_record = record.read(provenance.record_path(base))
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
    filled = layers["filled"] > 0
    why = layers.get("why", np.zeros(cube.shape, np.uint8))
    values = fill_values(cube)
    values[(why > 0) & ~filled] = np.nan  # left missing, whatever the file has there
    return Result(
        cube=cube,
        values=values,
        raw=values,
        filled=filled,
        flags=layers["flags"],
        why=why,
        left=fill_record.entries.left,
        method=fill_record.method,
        settings=fill_record.settings,
        sigma_y=np.broadcast_to(np.asarray(fill_record.sigma_y, np.float64), (cube.bands,)),
        history=[],
        seed=fill_record.seed or 0,
        seconds=fill_record.seconds,
        notes=list(fill_record.notes),
        sigma=layers.get("sigma"),
        budget=None if fill_record.budget is None else asdict(fill_record.budget),
        expected=None,
        recipe=None,
    )


def stored_samples(result: Result) -> Iterator[Array] | None:
    """Return an iterator over the samples that were written with a fill.

    None if there are none, or if an earlier fill filled entries, which do not vary in them.
    """
    path = result.cube.path
    if path is None or not sample_files.existing(path):
        return None
    last = record.read(provenance.record_path(provenance.base_of(path)))
    if last.entries.filled < np.count_nonzero(result.filled):
        return None
    return sample_files.stored(path, result.cube.shape)


def function_of(text: str) -> str | Function:
    """Return the function that a text `my.py:name` names; any other text is returned unchanged.

    The file is executed, as by `python my.py`.
    """
    return function_in(text, "an array x") or text
