"""`report.html`: one readable page about a fill, made from the files of the fill alone.

The page includes its pictures and style, and needs no script, server or network.  It can be made
right after a fill or years later, for a plain fill or one by tiles.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import io, metrics
from hydiff.cube import Cube
from hydiff.errors import ShapeMismatch
from hydiff.io import provenance
from hydiff.io.record import Record, read
from hydiff.io.regular import is_there
from hydiff.report.document import Judged, Story, html
from hydiff.report.survey import close_view, look

UNCHANGED = "unchanged since the fill"
SCORED = 2**30  # bytes; larger cubes are not scored, as this loads the whole cube


def write(
    filled: str | Path,
    output: str | Path | None = None,
    *,
    source: str | Path | None = None,
    truth: str | Path | None = None,
    var: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the report of a fill, by default to FILLED.report.html beside it; returns its path.

    source: the file that was filled, when it is no longer where the record says.
    truth: the cube without gaps, to score the fill against.
    var: the variable to read, in files that hold several.
    """
    cube = io.read(filled, var=var)
    path = provenance.base_of(cube.path or Path(filled))
    output = provenance.report_path(path) if output is None else io.staging.output_file(output)
    io.staging.refuse_existing(output, overwrite)
    record = record_of(path, cube)
    values = None if source is None else io.read(source, var=var).path  # not its ENVI header
    original, state = find_input(record, path, None if values == path else values)
    companions = [p for p in provenance.beside(path) if p != provenance.report_path(path)]
    named = [None if file is None else Path(file) for file in (source, truth)]
    inputs = [original, *named, *places_of(record, path)]
    io.staging.refuse_inputs([output], [path, *inputs, *companions])
    before = cube if original is None else same_shape(io.read(original, var=var), cube)
    survey = look(cube, before, path)
    clean = None if truth is None else same_shape(io.read(truth, var=var), cube)
    story = Story(
        name=path.name,
        record=record,
        shape=cube.shape,
        wavelengths=cube.wavelengths,
        units=cube.wavelength_units,
        survey=survey,
        close=close_view(cube, before, path, survey),
        spectra=[spectrum_at(cube, pixel) for pixel in survey.pixels],
        truths=None if clean is None else [spectrum_at(clean, pixel) for pixel in survey.pixels],
        judged=None if clean is None else judge(cube, clean, path),
        input_state=state,
    )
    with io.staged(output, overwrite=overwrite, source=path) as folder:
        # names of files and records may contain characters that UTF-8 cannot encode
        (folder / output.name).write_bytes(html(story).encode("utf-8", "backslashreplace"))
    return output


def record_of(path: Path, cube: Cube) -> Record:
    """Read the record of a fill from its companion file."""
    is_there(provenance.record_path(path))
    record = read(provenance.record_path(path))
    if record.entries.all != math.prod(cube.shape):
        raise ShapeMismatch(
            f"{provenance.record_path(path)} is of a cube of {record.entries.all} entries, but "
            f"{path} is (bands, rows, cols) = {cube.shape}; expected the record of this fill"
        )
    return record


def places_of(record: Record, path: Path) -> list[Path]:
    """Existing files that may be the input: at the path in the record, or next to the fill."""
    if record.input is None or "\0" in record.input.path:
        return []
    recorded = Path(record.input.path)
    places = dict.fromkeys((recorded, path.parent / recorded.name))
    return [p for p in places if p != path and _is_there(p)]


def _is_there(path: Path) -> bool:
    """Whether a path from a record may be opened: a readable file or a dataset folder."""
    try:
        allowed = path.is_file() or (path.is_dir() and io.staging.is_product(path))
        return allowed and os.access(path, os.R_OK)
    except OSError:  # an invalid name, or a folder without permission
        return False


def find_input(record: Record, path: Path, source: Path | None) -> tuple[Path | None, str]:
    """Return the file that was filled, None if not found, and its state in words.

    A file named only by the record is used only if its hash matches: no other file is read.
    """
    changed = "CHANGED since the fill: another hash"
    if source is not None:
        if record.input is None:
            return source, "there, but the record names no input to compare it with"
        return source, UNCHANGED if _is_input(record, source) else changed
    places = places_of(record, path)
    if (same := next((p for p in places if _is_input(record, p)), None)) is not None:
        return same, UNCHANGED
    cut_out = "its picture is the fill with the gaps cut out again"
    return None, f"{changed if places else 'not found'}; {cut_out}"


def _is_input(record: Record, path: Path) -> bool:
    """Whether a file has the hash of the input in the record."""
    return record.input is not None and provenance.sha256(path) == record.input.sha256


def same_shape(other: Cube, cube: Cube) -> Cube:
    """Return `other`; ShapeMismatch if its shape differs from that of the fill `cube`."""
    if other.shape != cube.shape:
        raise ShapeMismatch(
            f"{other.path} is (bands, rows, cols) = {other.shape}, but the fill is {cube.shape}; "
            "name the file that belongs to it"
        )
    return other


def spectrum_at(cube: Cube, pixel: tuple[int, int]) -> Any:
    """Return the spectrum of a pixel (bands,) as float64, NaN where missing."""
    row, col = pixel
    block = slice(row, row + 1), slice(col, col + 1)
    values = np.asarray(cube.values[:, block[0], block[1]])
    valid = cube.observed_in(values, None, *block)
    return np.where(valid, values, np.nan).astype(np.float64)[:, 0, 0]


def judge(cube: Cube, truth: Cube, path: Path) -> Judged | None:
    """Score the fill and its error bars; None for cubes larger than SCORED."""
    if cube.nbytes > SCORED:
        return None
    filled = provenance.companions(path, cube.shape, cube.mark)["filled"] > 0
    values, clean = np.asarray(cube.values), np.asarray(truth.values)
    bars = provenance.calibrated(path, values, clean, cube.mark)
    return Judged(metrics.score(cube, truth, filled).table(), *(bars or (None, None)))
