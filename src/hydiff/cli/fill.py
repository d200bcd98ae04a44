"""`hydiff fill`: the gaps of a file, filled."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hydiff import errors
from hydiff.cli.options import (
    Flags,
    Json,
    Nodata,
    NodataIn,
    Overwrite,
    Quality,
    Seed,
    Unmarked,
    Var,
    interrupted,
    key_values,
    sigma_of,
)
from hydiff.cli.terminal import err, out, print_json, print_summary, progress_bar

if TYPE_CHECKING:
    from hydiff.request import Request
    from hydiff.scale.scene import Limits
    from hydiff.workers.remote import Run


def fill(
    inputs: Annotated[list[str], typer.Argument(help="A file; or several, or 'granules/*.nc'.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write; a folder for several inputs.")
    ],
    method: Annotated[str | None, typer.Option(help="See `hydiff methods`.")] = None,
    budget: Annotated[str, typer.Option(help="fast | normal | best, for auto.")] = "normal",
    recipe: Annotated[
        Path | None, typer.Option(help="Repeat what an earlier fill decided (its .fill.json).")
    ] = None,
    max_error: Annotated[
        float | None, typer.Option(help="Leave what is expected to be off by more band stds.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="A named set of settings.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, key=value (repeatable).")
    ] = None,
    observed: Annotated[Path | None, typer.Option(help="Mask file, non-zero = measured.")] = None,
    missing: Annotated[Path | None, typer.Option(help="Mask file, non-zero = missing.")] = None,
    quality: Quality = None,
    flags: Flags = None,
    detect: Annotated[bool, typer.Option("--detect", help="Also fill suspected damage.")] = False,
    nodata: Nodata = None,
    nodata_in: NodataIn = None,
    var: Var = None,
    bad_bands: Annotated[str, typer.Option(help="fill | keep gaps in bad bands.")] = "fill",
    max_gap: Annotated[float | None, typer.Option(help="Leave gaps wider than N pixels.")] = None,
    outside: Annotated[str, typer.Option(help="keep | fill what lies outside the data.")] = "keep",
    fill_clouds: Annotated[
        bool, typer.Option("--fill-clouds", help="Also fill frames screened for clouds (EMIT).")
    ] = False,
    sigma_y: Annotated[
        str, typer.Option(help="Noise std in the cube's unit, 5%, VNIR=3,SWIR=8, or auto.")
    ] = "0",
    denoise: Annotated[bool, typer.Option("--denoise", help="Replace noisy entries too.")] = False,
    clip: Annotated[
        str, typer.Option(help="Filled values: none | observed | physical limits.")
    ] = "none",
    weights: Annotated[Path | None, typer.Option(help="Trained network, by `train`.")] = None,
    refine: Annotated[int, typer.Option(help="Test-time steps from those weights.")] = 0,
    prior: Annotated[
        int, typer.Option(help="By tiles: first train on the scene, N updates; see --refine.")
    ] = 0,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="auto | cpu | cuda, for learned methods.")] = "auto",
    engine: Annotated[
        str | None, typer.Option(help="auto | eager | graph | fused, for learned methods.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="auto | fp32 | tf32 | bf16, for learned methods.")
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="The same bytes again on a GPU too.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after an interruption.")] = False,
    memory: Annotated[
        str | None, typer.Option(help="Fill by tiles within this, e.g. 2GB.  [half the machine's]")
    ] = None,
    tile: Annotated[
        int | None, typer.Option(help="Fill by tiles with cores of this many pixels.")
    ] = None,
    overlap: Annotated[int | None, typer.Option(help="Pixels that tiles blend over.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Fill with this many processes (Dask, one thread each).")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Fill with a Dask cluster's workers, tcp://HOST:PORT.")
    ] = None,
    band_mask: Annotated[
        Path | None, typer.Option(help="Also write what was filled as EMIT's band_mask (.nc).")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Also write OUTPUT.report.html.")
    ] = False,
    unmarked: Unmarked = False,
    overwrite: Overwrite = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    json_: Json = False,
) -> None:
    """Fill the gaps of INPUTS and write OUTPUT with its companions."""
    from hydiff import auto
    from hydiff.request import Request
    from hydiff.scale import batch, execute, scene
    from hydiff.workers import remote

    ways = {"engine": engine, "precision": precision}
    method, settings = _settings(method, preset, set_, ways, weights, refine, prior)
    order = Request(
        method=method,
        preset=preset,
        settings=settings,
        budget=budget,
        recipe=None if recipe is None else auto.read_recipe(recipe),
        max_error=max_error,
        sigma_y=sigma_of(sigma_y),
        nodata=tuple(nodata) if nodata else None,
        nodata_in=nodata_in,
        bad_bands=bad_bands,
        max_gap=max_gap,
        outside=outside,
        fill_clouds=fill_clouds,
        denoise=denoise,
        clip=clip,
        seed=seed,
        device=device,
        deterministic=deterministic,
        var=var,
        observed=observed,
        missing=missing,
        quality=quality,
        flags=flags,
        detect=detect,
        report=report,
        unmarked=unmarked,
        prior=prior,
    )
    order.chosen  # noqa: B018 - refuses unknown names before any file is read
    bounds = scene.limits(memory, tile, overlap, workers or 1)
    paths = batch.inputs_of(inputs)
    many = len(paths) > 1 or batch.is_pattern(inputs[0]) or execute.is_plain_folder(output)
    call = Call(paths, output, order, bounds, band_mask, resume, overwrite, json_)
    if dry_run:
        _preview(call, many, by_tiles=workers is not None or scheduler is not None)
        return
    if many:  # before workers are started for nothing
        _check_many(call)
    elif not resume or execute.finished(paths[0], output, order, bounds, band_mask) is None:
        execute.checked(paths[0], output, order, overwrite, band_mask, bounds)
    with remote.crew(workers, scheduler, gpu=order.learned, say=_say) as run:
        (_fill_many if many else _fill_one)(call, run)


class Call(NamedTuple):
    """An order, with where it reads and writes, how it goes about it, and how the end is told."""

    inputs: list[Path]
    output: Path  # a folder for several inputs
    order: Request
    bounds: Limits
    band_mask: Path | None
    resume: bool
    overwrite: bool
    json: bool

    @property
    def asked(self) -> dict[str, Any]:
        """What a fill of one file and one of many are told by the same names."""
        return {"resume": self.resume, "overwrite": self.overwrite, "command": sys.argv}


def _preview(call: Call, many: bool, *, by_tiles: bool) -> None:
    from hydiff.scale import execute

    if many:
        _check_many(call)
        print_json({"method": call.order.method, "inputs": [str(path) for path in call.inputs]})
        return
    (path,) = call.inputs
    told = execute.preview(
        path,
        call.output,
        call.order,
        call.bounds,
        by_tiles=by_tiles,
        overwrite=call.overwrite,
        band_mask=call.band_mask,
        say=_say,
    )
    print_json(told)


def _check_many(call: Call) -> None:
    from hydiff.scale import batch

    if call.band_mask is not None:
        raise errors.BadValue("--band-mask belongs to one cube: fill that one by itself")
    batch.check(call.inputs, call.output, call.order)


def _fill_one(call: Call, run: Run | None) -> None:
    from hydiff.io import provenance
    from hydiff.scale import execute

    (path,) = call.inputs
    kept = (provenance.checkpoint_path(call.output), provenance.tiles_path(call.output))
    with interrupted(*kept), progress_bar("tiles" if run else "") as progress:
        made, record = execute.fill_file(
            path,
            call.output,
            call.order,
            call.bounds,
            run=run,
            band_mask=call.band_mask,
            say=_say,
            progress=progress,
            **call.asked,
        )
    if call.json:
        print_json(record | {"outputs": [str(path) for path in made]})
    elif not made:
        out.print(f"{path} has nothing to fill: no file was written or replaced", markup=False)
    elif "method" not in record:
        out.print(f"{path} has no gaps: {call.output} is a verbatim copy", markup=False)
        for note in record.get("notes", ()):
            out.print(f"warning: {errors.shell(note)}", markup=False, style="bold red")
    else:
        print_summary(record, made)


def _fill_many(call: Call, run: Run | None) -> None:
    """Ends with exit code 1 if some could not be filled."""
    from hydiff.scale import batch
    from hydiff.workers.remote import in_turn

    with progress_bar("granules") as progress:
        rows = batch.fill_all(
            call.inputs,
            call.output,
            call.order,
            call.bounds,
            run=run or in_turn,
            progress=progress,
            say=_say,
            **call.asked,
        )
    failed = [row for row in rows if row.status == "failed"]
    if call.json:
        print_json([row._asdict() for row in rows])
    else:
        table = call.output / batch.MARKDOWN
        out.print(f"{len(rows) - len(failed)} of {len(rows)} done: {table}")
        for row in rows:
            if row.status == "failed":
                out.print(f"failed: {row.input}: {row.error}", markup=False)
            elif row.note:
                out.print(f"note: {row.input}: {row.note}", markup=False)
    if failed:
        raise typer.Exit(1)


def _settings(
    method: str | None,
    preset: str | None,
    pairs: list[str] | None,
    ways: dict[str, str | None],
    weights: Path | None,
    refine: int,
    prior: int,
) -> tuple[str, dict[str, Any]]:
    """The method and the settings that several options make up together."""
    from hydiff.api import with_network
    from hydiff.auto import NAME
    from hydiff.methods import DEFAULT, WITH_WEIGHTS

    settings: dict[str, Any] = dict(key_values(pairs or []))
    settings |= {name: way for name, way in ways.items() if way is not None}
    if weights is not None:
        if method not in (None, *WITH_WEIGHTS):
            names = " or ".join(WITH_WEIGHTS)
            raise errors.BadValue(f"--weights goes with --method {names}, not with {method}")
        settings = with_network({"weights": str(weights), "refine": refine} | settings)
    elif prior:
        settings["refine"] = refine
    elif refine:
        raise errors.BadValue(
            "--refine goes with trained --weights or --prior; without them set steps instead"
        )
    method = method or (WITH_WEIGHTS[0] if weights is not None or prior else DEFAULT)
    if method == NAME and (settings or preset is not None):
        named = [f"--{name}" for name, way in ways.items() if way is not None]
        named += ["--set"] * bool(pairs) + ["--preset"] * (preset is not None)
        raise errors.BadValue(
            f"{', '.join(named)}: settings belong to one method; name it with --method"
        )
    return method, settings


def _say(text: str) -> None:
    loud = "bold red" if text.startswith("warning: ") else None
    err.print(errors.shell(text), markup=False, style=loud)
