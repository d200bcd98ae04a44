"""`hydiff simulate`: add gaps and noise to a clean cube."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hydiff.cli.options import Nodata, NodataIn, Output, Overwrite, Seed, Var
from hydiff.cli.terminal import out, share


def simulate(
    input: Path,
    output: Output,
    mask: Annotated[
        str, typer.Option(help="Kind of gaps; see docs/howto/simulate.md.")
    ] = "stripes",
    missing: Annotated[float | None, typer.Option(help="Share of entries to remove.")] = None,
    noise: Annotated[float, typer.Option(help="Noise std, a share of the cube's range.")] = 0.0,
    seed: Seed = 0,
    nodata: Nodata = None,
    nodata_in: NodataIn = None,
    var: Var = None,
    overwrite: Overwrite = False,
) -> None:
    """Damage a clean cube: remove entries, add noise.  The mask is written beside it."""
    from hydiff import io
    from hydiff.gaps.simulate import simulate as damage
    from hydiff.io import provenance

    mask_file = output.with_name(output.name + ".missing.npz")
    source = io.read(input, var=var)
    outputs = [output, *io.staging.partners(output, io.format_for(source, output))]
    io.staging.refuse_targets(source.path or input, outputs, overwrite, input)
    io.staging.refuse_existing(mask_file, overwrite)
    cube, observed = damage(
        source, mask, missing, noise=noise, seed=seed, nodata=nodata, nodata_in=nodata_in
    )
    stale = provenance.stale(io.values_path(source, output), source.path or input)
    with io.staged(output, overwrite=overwrite, beside=stale, source=source.path) as folder:
        io.write_into(replace(cube, path=source.path), folder / output.name)
        io.masks.write(~observed, folder / mask_file.name, "missing")
    out.print(f"{output}: {share(~observed)} removed ({mask}), nodata {cube.nodata:g}")
    truth = shlex.join([str(input), *(("--var", var) if var else ()), "--missing", str(mask_file)])
    out.print(f"{mask_file}: the mask, for `hydiff score FILLED {truth}`")
