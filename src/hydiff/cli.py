"""The command line: parse, call the library, print.

Progress and messages go to stderr, results to stdout (`--json` for machines).
Exit codes: 0 done, 1 an error of ours, 2 something to correct in the input, 130 interrupted.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from hydiff import errors
from hydiff.terminal import (
    err,
    number,
    out,
    print_json,
    print_left,
    print_summary,
    progress_bar,
    share,
    size,
)

app = typer.Typer(
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
INTERRUPTED = 130

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Var = Annotated[str | None, typer.Option(help="Variable to read in .mat and .npz files.")]
Quality = Annotated[
    Path | None, typer.Option(help="Quality layer of the product; what it flags is missing too.")
]
Flags = Annotated[str | None, typer.Option(help="Flags of it to take, between commas.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output files.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="File to write.")]


def main() -> None:
    """Run `hydiff`; errors that a user can act on become one line and exit code 2."""
    try:
        app()
    except errors.HydiffError as error:
        err.print(f"hydiff: {error}", style="red", markup=False)
        sys.exit(2)
    except SystemExit as done:
        if done.code == INTERRUPTED:  # typer's own way to end on Ctrl-C says nothing
            err.print("hydiff: interrupted, no output was written; --resume goes on with a fit")
        raise


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Fill missing pixels and bands in a hyperspectral cube, from that cube alone."""
    if version:
        import hydiff

        out.print(f"hydiff {hydiff.__version__}")
        raise typer.Exit


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results.")] = Path(
        "hydiff-demo"
    ),
    method: Annotated[str | None, typer.Option(help="Method to fill with.")] = None,
    seed: Seed = 0,
) -> None:
    """Damage the bundled scene, fill it, score the fill against the truth, and draw it."""
    from hydiff import api, bundled, io, metrics, plots, provenance, simulate
    from hydiff.methods import DEFAULT

    truth = bundled.sample()
    err.print(f"scene: AVIRIS Indian Pines, {size(truth.shape)} ({bundled.CREDIT})")
    damaged, observed = simulate.simulate(truth, "stripes", 1 / 3, seed=seed)
    missing = ~observed
    err.print(f"damage: slanted stripes, {100 * missing.mean():.1f} % of the pixels in all bands")
    with progress_bar() as progress:
        result = api.fill(damaged, method=method or DEFAULT, seed=seed, progress=progress)
    floor = api.fill(damaged, method="bandmean")
    err.print(f"filled with {result.method} in {result.seconds:.1f} s")
    err.print("\n".join(result.notes), "\n", markup=False)

    columns = {result.method: result, "band mean": floor}
    scores = {name: metrics.score(r.values, truth, missing) for name, r in columns.items()}
    table = Table("", *(f"{name}, {part}" for name in columns for part in ("all", "gaps")))
    for rows in zip(*(s.table() for s in scores.values()), strict=True):
        table.add_row(rows[0][0], *(number(v) for _, *pair in rows for v in pair))
    out.print(table)

    with io.staging.explained(output, output):
        output.mkdir(parents=True, exist_ok=True)
    cube, picture = output / "filled.tif", output / "before-after.png"
    io.write(damaged, output / "damaged.tif", overwrite=True)
    made = provenance.save(result, cube, command=sys.argv, overwrite=True)
    before, clean = np.asarray(damaged.values), np.asarray(truth.values)
    plots.before_after(before, result.values, picture, observed=observed, truth=clean)
    out.print(f"\npicture   {picture}\ndamaged   {output / 'damaged.tif'}")
    out.print(f"filled    {made[0]}\nwhich     {made[-2]}\nhow       {made[-1]}")
    if result.sigma is not None:
        out.print(f"how sure  {provenance.sigma_path(cube)}")


@app.command()
def info(
    file: Path,
    var: Var = None,
    quality: Quality = None,
    flags: Flags = None,
    json_: Json = False,
) -> None:
    """Show what a cube is: size, wavelengths, nodata, gaps at a glance.  Reads little."""
    from hydiff import io
    from hydiff.info import facts, flagged, lines

    cube = io.read(file, var=var)
    found = facts(cube)
    if (layer := _quality(cube.shape, quality, flags)) is not None:
        found["flagged"] = flagged(cube, layer)
    if json_:
        print_json(found)
        return
    for label, text in lines(found):
        out.print(f"{label:12} {text}", markup=False)


@app.command()
def mask(
    file: Path,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write a mask: gaps and suggestions.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Take only suggestions of this kind (repeatable).")
    ] = None,
    nodata: Annotated[float | None, typer.Option(help="Value that means missing.")] = None,
    quality: Quality = None,
    flags: Flags = None,
    var: Var = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> None:
    """Take a census of the gaps, and suggest damage that the file does not declare."""
    from hydiff import io
    from hydiff.census import census
    from hydiff.mask import shared
    from hydiff.problem import observed_entries

    if output is not None:
        io.staging.refuse_existing(output, overwrite)
    cube = io.read(file, var=var).load()
    layer = _quality(cube.shape, quality, flags)
    observed = observed_entries(cube, layer and layer.observed, nodata)
    found = census(observed, cube.good)
    suggestions = _detected(cube, observed, only)
    for suggestion in suggestions:
        observed = observed & ~suggestion.missing
    if output is not None:
        io.write_mask(~shared(observed), output, "missing", overwrite=overwrite)
    if json_:
        advice = {s.kind: int(s.missing.sum()) for s in suggestions}
        print_json({**found.to_dict(), "suggestions": advice, "mask": output and str(output)})
        return
    for line in found.describe():
        out.print(line, markup=False)
    for s in suggestions:
        out.print(f"suspect: {s.message}", markup=False)
    if output is not None:
        out.print(f"mask of {share(~observed)} written to {output}; use --missing {output}")
    elif suggestions:
        out.print("write them to a mask with -o MASK.npz, or let `hydiff fill --detect` take them")


@app.command()
def simulate(
    input: Path,
    output: Output,
    mask: Annotated[
        str, typer.Option(help="Kind of gaps; see the list in the README.")
    ] = "stripes",
    missing: Annotated[float | None, typer.Option(help="Share of entries to remove.")] = None,
    noise: Annotated[float, typer.Option(help="Noise std, a share of the cube's range.")] = 0.0,
    seed: Seed = 0,
    var: Var = None,
    overwrite: Overwrite = False,
) -> None:
    """Damage a clean cube: remove entries, add noise.  The mask is written beside it."""
    from hydiff import io
    from hydiff.simulate import simulate as damage

    mask_file = output.with_name(output.name + ".missing.npz")
    for path in (output, mask_file):
        io.staging.refuse_existing(path, overwrite)
    source = io.read(input, var=var)
    cube, observed = damage(source, mask, missing, noise=noise, seed=seed)
    with io.staged(output, overwrite=overwrite) as folder:
        io.write_into(replace(cube, path=source.path), folder / output.name)
        io.masks.write(~observed, folder / mask_file.name, "missing")
    out.print(f"{output}: {share(~observed)} removed ({mask}), nodata {cube.nodata:g}")
    out.print(f"{mask_file}: the mask, for `hydiff score FILLED {input} --missing {mask_file}`")


@app.command()
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
    overwrite: Overwrite = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    json_: Json = False,
) -> None:
    """Fill the gaps of INPUT and write OUTPUT with its companions."""
    from hydiff import api, auto, io, problem, provenance, scene
    from hydiff.methods import DEFAULT, choose, settings_dict

    _check_outputs(input, output, overwrite)
    if band_mask is not None:
        io.staging.refuse_existing(band_mask, overwrite)
    overrides: dict[str, Any] = dict(_key_values(set_ or []))
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
    given = _given_mask(cube.shape, observed, missing)
    if (layer := _quality(cube.shape, quality, flags)) is not None:
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
            sigma_y=_sigma(sigma_y),
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
        if json_:
            print_json(tiled.record | {"outputs": [str(p) for p in tiled.made]})
        else:
            print_summary(tiled.record, tiled.made)
        return
    seen = problem.observed_entries(cube, given, nodata)
    if detect:
        for suggestion in _detected(cube, seen, None):
            err.print(f"taken as missing: {suggestion.message}", markup=False)
            seen = seen & ~suggestion.missing
    sigma = _sigma(sigma_y)
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
    if band_mask is not None:
        io.write_band_mask(result.filled, band_mask, overwrite=overwrite)
    record = provenance.record(result, sys.argv)
    if json_:
        print_json(record | {"outputs": [str(p) for p in made]})
        return
    print_summary(record, made)


@app.command()
def score(
    filled: Path,
    truth: Path,
    missing: Annotated[
        Path | None, typer.Option(help="Mask of the entries that were missing.")
    ] = None,
    observed: Annotated[Path | None, typer.Option(help="The same, non-zero = measured.")] = None,
    var: Var = None,
    json_: Json = False,
) -> None:
    """Score a filled cube against the truth, everywhere and on the missing entries alone."""
    from hydiff import io, metrics, provenance

    cube, reference = io.read(filled, var=var), io.read(truth, var=var)
    companion = provenance.filled_mask_path(filled)
    if missing is None and observed is None and companion.exists():
        err.print(f"missing entries as told by {companion}")
        missing = companion
    seen = _given_mask(cube.shape, observed, missing)
    scores = metrics.score(cube, reference, None if seen is None else ~seen)
    bars = None
    if provenance.sigma_path(filled).exists() and companion.exists():
        which = ~io.read_mask(companion, "missing", cube.shape)
        sigma = provenance.read_sigma(
            provenance.sigma_path(filled), np.broadcast_to(which, cube.shape)
        )
        pair = np.asarray(cube.values), np.asarray(reference.values)
        bars = metrics.calibration(*pair, sigma, provenance.intervals_of(filled))
    if json_:
        print_json(scores.to_dict() | ({} if bars is None else {"calibration": bars._asdict()}))
        return
    table = Table("", "all", *(["gaps"] if seen is not None else []))
    for label, *values in scores.table():
        table.add_row(label, *(number(v) for v in values[: len(table.columns) - 1]))
    out.print(table)
    if bars is not None:
        covered = (f"{100 * c:.0f} %" for c in bars[:3])
        out.print(f"error bars: 50, 80 and 95 % intervals cover {', '.join(covered)};", end=" ")
        out.print(f"CRPS {number(bars.crps)} (constant σ: {number(bars.crps_constant)})")
    if scores.unfilled:
        out.print(f"{scores.unfilled:,} entries are still missing in {filled} and were not scored")


@app.command()
def convert(
    input: Path,
    output: Path,
    ortho: Annotated[bool, typer.Option("--ortho", help="Onto the map, by its GLT.")] = False,
    glt: Annotated[Path | None, typer.Option(help="File that holds the GLT.  [INPUT]")] = None,
    cog: Annotated[bool, typer.Option("--cog", help="A cloud-optimised GeoTIFF.")] = False,
    var: Var = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a cube in another format, chosen by the suffix of OUTPUT, with what lies beside it."""
    from hydiff.handoff import convert as hand_over

    _refuse_input_as_output(input, output, overwrite)
    made = hand_over(input, output, ortho=ortho, glt=glt, cog=cog, var=var, overwrite=overwrite)
    out.print("\n".join(str(path) for path in made), markup=False)


@app.command()
def train(
    cubes: Annotated[list[Path], typer.Argument(help="Damaged cubes of one sensor.")],
    output: Output,
    minutes: Annotated[
        float | None, typer.Option(help="Train this long.  [10 unless --epochs is given]")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Or: go through all cubes N times.")] = None,
    batch: Annotated[int, typer.Option(help="Crops in an update.")] = 5,
    crop: Annotated[int, typer.Option(help="Side of the crops, in pixels.")] = 144,
    channels: Annotated[int, typer.Option(help="Of the network; 32 for a CPU.")] = 128,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Another setting, key=value (repeatable).")
    ] = None,
    nodata: Annotated[float | None, typer.Option(help="Value that means missing.")] = None,
    var: Var = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="auto | cpu | cuda.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on after an interruption.")] = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> None:
    """Train a network on damaged cubes alone, for `fill --weights`; by default for 10 minutes."""
    from rich.progress import Progress

    from hydiff.api import torch_device
    from hydiff.methods import settings_from
    from hydiff.train import Training, train_files

    named = {"batch": batch, "crop": crop, "channels": channels, "seed": seed}
    settings = settings_from("train", Training, None, named | _key_values(set_ or []))
    with Progress(console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("training", total=1.0)
        report = train_files(
            cubes,
            output,
            settings,
            minutes=minutes,
            epochs=epochs,
            nodata=nodata,
            var=var,
            device=torch_device(device),
            resume=resume,
            overwrite=overwrite,
            progress=lambda step, share: bar.update(task, completed=share),
        )
    if json_:
        print_json(report)
        return
    out.print(f"{report['updates']:,} updates, {report['epochs']:g} epochs over", end=" ")
    out.print(f"{report['crops']} crops of {len(cubes)} cubes in {report['seconds']:.1f} s")
    first, last = report["losses"]["first"], report["losses"]["last"]
    for term, name in (("data", "data"), ("ei", "equivariance")):
        out.print(f"{name:13}{number(first[term])} → {number(last[term])}  mean square")
    for label, path in zip(("weights", "card", "curve"), report["outputs"], strict=True):
        out.print(f"{label:8} {path}", markup=False)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="A table, or figures; see the help text.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the results.")] = Path(
        "hydiff-bench"
    ),
    scene: Annotated[
        list[str] | None,
        typer.Option(help="A scene: a known name, or name=path of your own cube (repeatable)."),
    ] = None,
    mask: Annotated[list[str] | None, typer.Option(help="Only this mask (repeatable).")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this method (repeatable).")] = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds of random cells.  [3]")] = None,
    preset: Annotated[str | None, typer.Option(help="Of learned methods: paper | fast.")] = None,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Peers once more, set on hidden pixels.")
    ] = False,
    offline_minutes: Annotated[float, typer.Option(help="Of each offline training.")] = 2.0,
    minutes: Annotated[float, typer.Option(help="Start no run after this.")] = float("inf"),
    workers: Annotated[int, typer.Option(help="Processes for the classical methods.")] = 0,
    device: Annotated[str, typer.Option(help="auto | cpu | cuda, for learned methods.")] = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="A trial of minutes; its numbers mean nothing.")
    ] = False,
) -> None:
    """Run a benchmark, or go on with one: noiseless, noisy, emit, ei-ablation, time, alpha,
    transforms, offline, epsilon, use, widths, dead-columns, figures, speed."""
    from hydiff import bench as benchmark

    pairs = [text.split("=", 1) for text in scene or []]
    given = {pair[0]: Path(pair[1]) for pair in pairs if len(pair) == 2}
    plan = benchmark.plan_of(
        given,
        names=[pair[0] for pair in pairs],
        masks=mask or [],
        methods=method or [],
        seeds=seeds,
        preset=preset,
        tuned=tuned,
        offline_minutes=offline_minutes,
        quick=quick,
    )
    if quick:
        output = output / "quick"  # never among real results
        err.print(benchmark.QUICK_NOTE)

    def told(done: int, total: int, cell: Any, row: Any) -> None:
        place = f"{cell.scene}, {cell.mask}, σ_y {cell.sigma_y:g}, seed {cell.seed}"
        err.print(
            f"{done}/{total} {cell.method} {cell.settings}: {place}: "
            f"{row['all_mpsnr']:.2f} dB, {row['seconds']:.1f} s",
            markup=False,
        )

    if name == "speed":
        from hydiff.bench import speed
        from hydiff.run import torch_device

        made = speed.run(output, str(torch_device(device)), quick=quick, told=err.print)
    elif name == "figures":
        from hydiff.bench.figures import write_figures

        made = write_figures(output, plan, given=given, device=device, told=err.print)
    else:
        made = benchmark.run(
            name,
            output,
            plan,
            given=given,
            device=device,
            minutes=minutes,
            workers=workers,
            told=told,
        )
    out.print("\n".join(str(path) for path in made), markup=False)
    if quick:
        out.print(benchmark.QUICK_NOTE)


@app.command()
def methods(json_: Json = False) -> None:
    """List the methods with their settings and defaults."""
    from hydiff.methods import DEFAULT, METHODS, choose, settings_dict

    settings = {name: settings_dict(choose(name).settings) for name in METHODS}
    summary = (
        "tries several on hidden copies of the gaps, blends them, gives error bars; the default"
    )
    if json_:
        rows = {n: {"summary": m.summary, "settings": settings[n]} for n, m in METHODS.items()}
        rows[DEFAULT] = {"summary": summary, "settings": {"budget": "normal"}}
        print_json({"default": DEFAULT, "methods": rows})
        return
    out.print(f"{DEFAULT:12} {summary}  (--budget fast | normal | best)", markup=False)
    for name, method in METHODS.items():
        defaults = ", ".join(f"{k}={v}" for k, v in settings[name].items())
        text = f"{name:12} {method.summary}"
        out.print(text + (f"  [{defaults}]" if defaults else ""), markup=False)


# ── parsing ──────────────────────────────────────────────────────────────────────────────────────


def _key_values(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise errors.BadValue(f"--set {pair}: expected key=value, e.g. --set s=1.25")
    return dict(pair.split("=", 1) for pair in pairs)


def _sigma(text: str) -> float | str | list[float] | dict[str, float]:
    """A number, a share with a percent sign, one number per band between commas, one per detector
    as NAME=NUMBER, or auto."""
    if text == "auto":
        return text
    try:
        if "=" in text:
            pairs = (part.split("=", 1) for part in text.split(","))
            return {name.strip(): float(value) for name, value in pairs}
        if "," in text:
            return [float(part) for part in text.split(",")]
        return text if text.endswith("%") and float(text[:-1]) else float(text.rstrip("%"))
    except ValueError:
        raise errors.BadValue(
            f"--sigma-y {text}: expected a number in the cube's unit, a share such as 5%, or auto"
        ) from None


def _given_mask(shape: tuple[int, int, int], observed: Path | None, missing: Path | None) -> Any:
    """True = measured, from whichever mask file was named; None when none was."""
    from hydiff import io

    if observed is not None and missing is not None:
        raise errors.BadValue("--observed and --missing say the same thing twice: give one of them")
    if observed is not None:
        return io.read_mask(observed, "observed", shape)
    return None if missing is None else io.read_mask(missing, "missing", shape)


def _quality(shape: tuple[int, int, int], layer: Path | None, flags: str | None) -> Any:
    """The quality layer that was named, or None."""
    from hydiff import io

    if layer is None:
        if flags is not None:
            raise errors.BadValue("--flags goes with --quality FILE: name the layer they stand in")
        return None
    wanted = [flag.strip() for flag in (flags or "").split(",") if flag.strip()]
    return io.read_quality(layer, shape, wanted)


def _detected(cube: Any, observed: Any, only: list[str] | None) -> list[Any]:
    from hydiff.detect import KINDS, detect

    for kind in only or []:
        if kind not in KINDS:
            raise errors.UnknownName("kind of damage", kind, KINDS)
    found = detect(cube.values, observed, cube.good)
    return [s for s in found if not only or s.kind in only]


def _refuse_by_tiles(options: list[str]) -> None:
    if options:
        raise errors.BadValue(
            f"{', '.join(options)}: needs the whole cube in memory, and this one is filled by "
            "tiles; leave it out, or give more --memory (for --detect: `hydiff mask IN -o M.npz` "
            "elsewhere, then --missing M.npz)"
        )


def _refuse_input_as_output(input: Path, output: Path, overwrite: bool) -> None:
    if not overwrite and output.exists() and input.exists() and input.samefile(output):
        raise errors.OutputError(
            f"{output} is the input itself; choose another name, or pass --overwrite to replace it"
        )


def _check_outputs(input: Path, output: Path, overwrite: bool) -> None:
    """Refuse before the work what would be refused after it."""
    from hydiff.io.staging import refuse_existing
    from hydiff.provenance import filled_mask_path, record_path, sigma_path

    _refuse_input_as_output(input, output, overwrite)
    for path in (output, filled_mask_path(output), sigma_path(output), record_path(output)):
        refuse_existing(path, overwrite)
    if not output.parent.is_dir():
        raise errors.OutputError(f"{output.parent} is not a folder; create it first")
