"""`hydiff fill`: the gaps of a file, filled."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hydiff import errors
from hydiff.cli.options import (
    Flags,
    Json,
    Output,
    Overwrite,
    Quality,
    Seed,
    Var,
    detected,
    given_mask,
    key_values,
    quality_layer,
    refuse_input_as_output,
    sigma_of,
)
from hydiff.terminal import (
    err,
    out,
    print_json,
    print_left,
    print_summary,
    progress_bar,
    share,
    size,
)


def fill(
    input: Path,
    output: Output,
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
    nodata: Annotated[float | None, typer.Option(help="Value that means missing.")] = None,
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
    weights: Annotated[Path | None, typer.Option(help="Trained network, by `train`.")] = None,
    refine: Annotated[int, typer.Option(help="Test-time steps from those weights.")] = 0,
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
    band_mask: Annotated[
        Path | None, typer.Option(help="Also write what was filled as EMIT's band_mask (.nc).")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Also write OUTPUT.report.html.")
    ] = False,
    overwrite: Overwrite = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    json_: Json = False,
) -> None:
    """Fill the gaps of INPUT and write OUTPUT with its companions."""
    from hydiff import api, auto, io, problem, provenance, scene
    from hydiff.methods import DEFAULT, choose, settings_dict

    _check_outputs(input, output, overwrite, report)
    if band_mask is not None:
        io.staging.refuse_existing(band_mask, overwrite)
    overrides: dict[str, Any] = dict(key_values(set_ or []))
    ways = {"engine": engine, "precision": precision}
    overrides |= {name: way for name, way in ways.items() if way is not None}
    if weights is not None:
        if method not in (None, "hydiff-ei"):
            raise errors.BadValue(f"--weights goes with --method hydiff-ei, not with {method}")
        from hydiff.weights import network_of

        overrides = {**network_of(weights), "weights": str(weights), "refine": refine} | overrides
    elif refine:
        raise errors.BadValue(
            "--refine goes with trained --weights; without them set steps instead"
        )
    method = method or ("hydiff-ei" if weights is not None else DEFAULT)
    shown: dict[str, Any] = {"budget": budget} if recipe is None else {"recipe": str(recipe)}
    replayed = None if recipe is None else auto.read_recipe(recipe)
    if method != auto.NAME:
        shown = settings_dict(choose(method, preset, overrides).settings)
    elif overrides or preset is not None:
        raise errors.BadValue("--set and --preset belong to one method: name it with --method")
    cube = io.read(input, var=var)
    bounds = scene.limits(memory, tile, overlap)
    by_tiles = scene.wanted(cube, method, bounds)
    cube = cube if by_tiles else cube.load()
    given = given_mask(cube.shape, observed, missing)
    if (layer := quality_layer(cube.shape, quality, flags)) is not None:
        told = ", ".join(f"{flag} {count:,}" for flag, count in layer.counts.items())
        err.print(f"taken as missing by {quality}: {told} entries", markup=False)
        given = layer.observed if given is None else layer.observed & given
    if by_tiles:
        unable = {"--detect": detect, "--denoise": denoise, "--band-mask": band_mask is not None}
        _refuse_by_tiles([*(option for option, on in unable.items() if on)])
        order = scene.Order(
            method=method,
            preset=preset,
            settings=overrides,
            budget=budget,
            recipe=replayed,
            max_error=max_error,
            sigma_y=sigma_of(sigma_y),
            nodata=nodata,
            bad_bands=bad_bands,
            max_gap=max_gap,
            outside=outside,
            fill_clouds=fill_clouds,
            seed=seed,
            device=device,
            deterministic=deterministic,
        )
        told = f"by tiles, within {bounds.memory / 1e9:.3g} GB"
        err.print(f"{input}: {size(cube.shape)} {cube.dtype}, {told}, with {method}", markup=False)
        if dry_run:
            print_json(scene.preview(input, order, bounds, observed=given, var=var))
            return
        work = provenance.tiles_path(output)
        if work.exists() and not resume:
            err.print(f"starting anew; --resume would go on with {work}", markup=False)
        with progress_bar() as progress:
            tiled = scene.fill(
                input,
                output,
                order,
                bounds,
                observed=given,
                var=var,
                resume=resume,
                overwrite=overwrite,
                command=sys.argv,
                progress=progress,
            )
        made = tiled.made + _reported(report, output, input, var, overwrite)
        if json_:
            print_json(tiled.record | {"outputs": [str(p) for p in made]})
        else:
            print_summary(tiled.record, made)
        return
    seen = problem.observed_entries(cube, given, nodata)
    if detect:
        for suggestion in detected(cube, seen, None):
            err.print(f"taken as missing: {suggestion.message}", markup=False)
            seen = seen & ~suggestion.missing
    sigma = sigma_of(sigma_y)
    if seen.all() and sigma == 0:
        made = [] if dry_run else io.write(cube, output, overwrite=overwrite)
        if not dry_run and band_mask is not None:
            made += io.write_band_mask(~seen, band_mask, overwrite=overwrite)
        if json_:
            print_json({"entries": {"missing_before": 0}, "outputs": [str(p) for p in made]})
        else:
            out.print(f"{input} has no gaps: {output} is a verbatim copy", markup=False)
        return
    choices: dict[str, Any] = {
        "bad_bands": bad_bands,
        "max_gap": max_gap,
        "outside": outside,
        "fill_clouds": fill_clouds,
    }
    target, left = problem.targets(cube, seen, **choices)
    err.print(f"{input}: {size(cube.shape)} {cube.dtype}, {share(~seen)} missing", markup=False)
    settings = ", ".join(f"{k}={v}" for k, v in shown.items())
    told = f" ({settings})" if settings else ""
    err.print(f"will fill {int(target.sum()):,} entries with {method}{told}", markup=False)
    print_left(left, err)
    if dry_run:
        plan = {"method": method, "settings": shown, "left": left}
        print_json(plan | {"entries_to_fill": int(target.sum()), "output": str(output)})
        return
    checkpoint = provenance.checkpoint_path(output)
    if checkpoint.exists() and not resume:
        err.print(f"starting anew; --resume would go on from {checkpoint}", markup=False)
    elif resume and not checkpoint.exists():
        err.print(f"nothing to resume: there is no {checkpoint}; starting anew", markup=False)
    with progress_bar() as progress:
        result = api.fill(
            cube,
            seen,
            method=method,
            preset=preset,
            sigma_y=sigma,
            nodata=nodata,
            denoise=denoise,
            budget=budget,
            recipe=replayed,
            max_error=max_error,
            seed=seed,
            device=device,
            deterministic=deterministic,
            checkpoint=checkpoint,
            resume=resume,
            progress=progress,
            **choices,
            **overrides,
        )
    made = provenance.save(result, output, command=sys.argv, overwrite=overwrite)
    made += _reported(report, output, input, var, overwrite)
    if band_mask is not None:
        io.write_band_mask(result.filled, band_mask, overwrite=overwrite)
    record = provenance.record(result, sys.argv)
    if json_:
        print_json(record | {"outputs": [str(p) for p in made]})
        return
    print_summary(record, made)


def _refuse_by_tiles(options: list[str]) -> None:
    if options:
        raise errors.BadValue(
            f"{', '.join(options)}: needs the whole cube in memory, and this one is filled by "
            "tiles; leave it out, or give more --memory (for --detect: `hydiff mask IN -o M.npz` "
            "elsewhere, then --missing M.npz)"
        )


def _reported(
    wanted: bool, output: Path, input: Path, var: str | None, overwrite: bool
) -> list[Path]:
    """The page about the fill, if it was asked for."""
    if not wanted:
        return []
    from hydiff.report import write

    source = None if input == output else input
    return [write(output, source=source, var=var, overwrite=overwrite)]


def _check_outputs(input: Path, output: Path, overwrite: bool, report: bool) -> None:
    """Refuse before the work what would be refused after it."""
    from hydiff.io.staging import refuse_existing
    from hydiff.provenance import filled_mask_path, record_path, report_path, sigma_path

    refuse_input_as_output(input, output, overwrite)
    made = [output, filled_mask_path(output), sigma_path(output), record_path(output)]
    for path in made + [report_path(output)] * report:
        refuse_existing(path, overwrite)
    if not output.parent.is_dir():
        raise errors.OutputError(f"{output.parent} is not a folder; create it first")
