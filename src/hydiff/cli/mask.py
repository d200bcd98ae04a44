"""`hydiff mask`: describe the gaps of a cube, and write a mask of gaps and suspected damage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from hydiff import errors
from hydiff.cli import doubts
from hydiff.cli.options import AS_FILE, Flags, Json, Nodata, NodataIn, Overwrite, Quality, Var
from hydiff.cli.terminal import out, print_json, share

if TYPE_CHECKING:
    from hydiff.cube import Bools, Cube
    from hydiff.gaps.detect import Suggestion


def mask(
    file: Path,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Mask to write: .npz or .tif.", **AS_FILE),
    ] = None,
    stripes: Annotated[
        bool, typer.Option("--stripes", help="Only list columns and lines that are offset.")
    ] = False,
    bands: Annotated[
        bool,
        typer.Option("--bands", help="Only suggest a bad-band list; -o COPY writes it there."),
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Take only suggestions of this kind (repeatable).")
    ] = None,
    nodata: Nodata = None,
    nodata_in: NodataIn = None,
    quality: Quality = None,
    flags: Flags = None,
    var: Var = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> None:
    """Take a census of the gaps, and suggest damage that the file does not declare."""
    from hydiff import io
    from hydiff.gaps.census import census
    from hydiff.gaps.detect import KINDS
    from hydiff.gaps.mask import shared
    from hydiff.gaps.rule import measured_entries

    doubts.check(stripes, bands, output)
    if output is not None:
        _check_output(output, bands, overwrite)
    cube = io.read(file, var=var)
    if output is not None:
        io.staging.refuse_inputs([output], [file, cube.path, quality])
    cube = cube.load()
    layer = io.quality_layer(cube, quality, flags)
    observed, notes = measured_entries(cube, layer and layer.observed, nodata, nodata_in)
    if stripes or bands:
        doubts.report(cube, observed, stripes, output, overwrite, json_)
        return
    gaps = census(observed, cube.good, detectors=cube.detectors)
    suggestions = _suggestions(cube, observed, only or KINDS)
    for suggestion in suggestions:
        observed = observed & ~suggestion.missing
    if output is not None:
        _write(~shared(observed), cube, output, overwrite)
    if json_:
        advice = {s.kind: int(s.missing.sum()) for s in suggestions}
        print_json({**gaps.to_dict(), "suggestions": advice, "mask": output and str(output)})
        return
    lines = [*gaps.describe(), *(f"note: {errors.shell(note)}" for note in notes)]
    for line in (*lines, *(f"suspect: {errors.shell(s.message)}" for s in suggestions)):
        out.print(line, markup=False)
    if output is not None:
        out.print(_written(output, ~observed), markup=False)
    elif suggestions:
        out.print("write them to a mask with -o MASK.npz, or let `hydiff fill --detect` take them")


def _written(output: Path, missing: Bools) -> str:
    """Return the line about a mask that was written."""
    if not missing.any():
        return f"nothing is missing and nothing looks damaged: the mask {output} is empty"
    return f"mask of {share(missing)} written to {output}; use --missing {output}"


def _check_output(output: Path, bands: bool, overwrite: bool) -> None:
    """Raise an error if the mask, or the copy with bad bands, cannot be written."""
    from hydiff import io

    io.staging.refuse_existing(output, overwrite)
    suffixes = (*io.npz.SUFFIXES, *io.geotiff.SUFFIXES)
    if not bands and output.suffix.lower() not in suffixes:  # a copy with bad bands is any cube
        raise errors.UnknownName("mask format", output.suffix, suffixes, "; name it NAME.npz")


def _write(missing: Bools, cube: Cube, output: Path, overwrite: bool) -> None:
    """Write a mask: a GeoTIFF with the map coordinates of the cube, or a file of arrays."""
    from hydiff import io
    from hydiff.cube import Cube as Layer

    if output.suffix.lower() not in io.geotiff.SUFFIXES:
        io.write_mask(missing, output, "missing", overwrite=overwrite, source=cube.path)
        return
    values = missing.reshape(-1, *cube.shape[1:]).astype(np.uint8)
    layer = Layer(values, crs=cube.crs, transform=cube.transform)
    with io.staged(output, overwrite=overwrite, source=cube.path) as folder:
        io.write_into(layer, folder / output.name)


def _suggestions(cube: Cube, observed: Bools, kinds: Sequence[str]) -> list[Suggestion]:
    """Return suspected damage of the given kinds."""
    from hydiff.gaps.detect import KINDS, detect

    for kind in kinds:
        if kind not in KINDS:
            raise errors.UnknownName("kind of damage", kind, KINDS)
    if not observed.any():
        return []
    suggestions = detect(np.asarray(cube.values), observed, cube.good)
    return [suggestion for suggestion in suggestions if suggestion.kind in kinds]
