"""`hydiff demo`: damage the bundled scene, fill it, score the fill, draw and report it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from hydiff.cli.options import Seed
from hydiff.cli.terminal import err, number, out, progress_bar, size
from hydiff.errors import shell

if TYPE_CHECKING:
    from hydiff.cube import Bools, Cube
    from hydiff.result import Result


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results.")] = Path(
        "hydiff-demo"
    ),
    method: Annotated[str | None, typer.Option(help="Method to fill with.")] = None,
    seed: Seed = 0,
) -> None:
    """Damage the bundled scene, fill it, score the fill against the truth, draw and report it."""
    from hydiff import api, io, report
    from hydiff.gaps import simulate
    from hydiff.io import bundled, fill_layers, provenance
    from hydiff.methods import DEFAULT
    from hydiff.report import plots
    from hydiff.request import Request

    Request(method=method or DEFAULT, seed=seed).check()
    truth = bundled.sample()
    err.print(f"scene: AVIRIS Indian Pines, {size(truth.shape)} ({bundled.CREDIT})")
    damaged, observed = simulate.simulate(truth, "stripes", 1 / 3, seed=seed)
    missing = ~observed
    err.print(f"damage: slanted stripes, {100 * missing.mean():.1f} % of the pixels in all bands")
    with io.staging.explained(output, output):
        output.mkdir(parents=True, exist_ok=True)
    for name, version in (("truth", truth), ("damaged", damaged)):  # may fail: before the fill
        io.write(version, output / f"{name}.tif", overwrite=True)
    with progress_bar() as progress:
        result = api.fill(damaged, method=method or DEFAULT, seed=seed, progress=progress)
    floor = api.fill(damaged, method="bandmean")
    err.print(f"filled with {result.method} in {result.seconds:.1f} s")
    err.print(shell("\n".join(result.notes)), "\n", markup=False)

    _print_scores({result.method: result, "band mean": floor}, truth, missing)

    cube, picture = output / "filled.tif", output / "before-after.png"
    paths = provenance.save(result, cube, command=sys.argv, overwrite=True)
    unfilled, clean = np.asarray(damaged.values), np.asarray(truth.values)
    layers: dict[str, Any] = {"observed": observed, "truth": clean, "sigma": result.sigma}
    layers |= {"wavelengths": truth.wavelengths, "wavelength_units": truth.wavelength_units}
    plots.before_after(unfilled, result.values, picture, **layers)
    sources: dict[str, Any] = {"source": output / "damaged.tif", "truth": output / "truth.tif"}
    page = report.write(cube, output / "report.html", overwrite=True, **sources)
    out.print(f"\npicture   {picture}\nreport    {page}\ndamaged   {sources['source']}")
    out.print(f"filled    {paths[0]}\nrecord    {paths[-1]}")
    for path in paths:
        if (layer := fill_layers.layer_named(path)) is not None:
            out.print(f"{layer:9} {path}")


def _print_scores(results: dict[str, Result], truth: Cube, missing: Bools) -> None:
    """Print the scores of several results, by name, over all entries and in the gaps."""
    from hydiff import metrics

    scores = [metrics.score(result.values, truth, missing).table() for result in results.values()]
    table = Table("", *(f"{name}, {part}" for name in results for part in ("all", "gaps")))
    for rows in zip(*scores, strict=True):
        table.add_row(rows[0][0], *(number(v) for _, *pair in rows for v in pair))
    out.print(table)
