"""`report.html`: one file that tells a fill to a person, made from the files of the fill alone.

It holds its pictures and its style; it needs no script, no server and no network.  It can be made
right after a fill or years later, of a plain fill or one by tiles.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import io, metrics, provenance
from hydiff.cube import Cube
from hydiff.errors import CubeFormatError, ShapeMismatch
from hydiff.report.page import Judged, Story, html
from hydiff.report.survey import close_view, look

SCORED = 2**30  # bytes of a cube up to which it is loaded to be scored


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
    truth: a cube without the gaps, to hold the fill against.
    var: the variable to read, in files that hold several.
    """
    cube = io.read(filled, var=var)
    path = cube.path or Path(filled)
    output = provenance.report_path(path) if output is None else Path(output)
    io.staging.refuse_existing(output, overwrite)
    record = read_record(path)
    given = source_of(record, path) if source is None else Path(source)
    told = provenance.beside(path)
    told.remove(provenance.report_path(path))
    read = [path, given, None if truth is None else Path(truth), *told]
    io.staging.refuse_inputs([output], read)
    before = cube if given is None else same_shape(io.read(given, var=var), cube)
    found = look(cube, before, path)
    clean = None if truth is None else same_shape(io.read(truth, var=var), cube)
    story = Story(
        name=path.name,
        record=record,
        shape=cube.shape,
        wavelengths=cube.wavelengths,
        units=cube.wavelength_units,
        survey=found,
        close=close_view(cube, before, path, found),
        spectra=[spectrum_at(cube, pixel) for pixel in found.pixels],
        truths=None if clean is None else [spectrum_at(clean, pixel) for pixel in found.pixels],
        judged=None if clean is None else judge(cube, clean, path),
        input_state=input_state(record, given),
    )
    with io.staged(output, overwrite=overwrite) as folder:
        (folder / output.name).write_text(html(story), encoding="utf-8")
    return output


def read_record(path: Path) -> dict[str, Any]:
    """The record beside a fill."""
    beside = provenance.record_path(path)
    try:
        record = json.loads(beside.read_text(encoding="utf-8"))
        complete = {"method", "settings", "entries", "notes", "versions"} <= set(record)
    except FileNotFoundError:
        raise CubeFormatError(
            f"{beside}: no such file; a report needs the record that `hydiff fill` writes beside "
            "the filled cube: name the output of a fill, and keep its companions with it"
        ) from None
    except (ValueError, TypeError):
        complete = False
    if not complete:
        raise CubeFormatError(f"{beside} is no record of a fill; expected what `hydiff fill` wrote")
    return dict(record)


def source_of(record: dict[str, Any], path: Path) -> Path | None:
    """The file that was filled, where the record says or beside the fill; None when it is gone."""
    told = Path((record.get("input") or {}).get("path") or "")
    places = (told, path.parent / told.name) if told.name else ()
    return next((place for place in places if place.exists() and place != path), None)


def input_state(record: dict[str, Any], given: Path | None) -> str:
    """In words, whether the input is still the one that was filled."""
    told = (record.get("input") or {}).get("sha256")
    if given is None:
        return "not found; its picture is the fill with the gaps cut out again"
    if told is None:
        return "there, but the record names no input to compare it with"
    same = provenance.sha256(given) == told
    return "unchanged since the fill" if same else "CHANGED since the fill: another hash"


def same_shape(other: Cube, cube: Cube) -> Cube:
    if other.shape != cube.shape:
        raise ShapeMismatch(
            f"{other.path} is (bands, rows, cols) = {other.shape}, but the fill is {cube.shape}; "
            "name the file that belongs to it"
        )
    return other


def spectrum_at(cube: Cube, pixel: tuple[int, int]) -> Any:
    """(bands,) float64, NaN where the file holds no value."""
    row, col = pixel
    block = slice(row, row + 1), slice(col, col + 1)
    values = np.asarray(cube.values[:, block[0], block[1]])
    valid = cube.observed_in(values, None, *block)
    return np.where(valid, values, np.nan).astype(np.float64)[:, 0, 0]


def judge(cube: Cube, truth: Cube, path: Path) -> Judged | None:
    """Scores of the fill and of its error bars; None for a cube too large to be loaded here."""
    if cube.nbytes > SCORED:
        return None
    filled = provenance.companions(path, cube.shape)["filled"] > 0
    bars = provenance.calibrated(path, np.asarray(cube.values), np.asarray(truth.values))
    return Judged(metrics.score(cube, truth, filled).table(), bars)
