"""`hydiff bench`: the tables and figures of the comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import Annotated, Any

import typer

from hydiff.cli.terminal import err, out
from hydiff.errors import BadValue, need_torch

ALL = "all"  # as the name of a table: all tables, for --missing
QUICK_NOTE = "quick: tiny cubes and networks, a few steps; these numbers mean nothing"


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
    sigma: Annotated[
        list[str] | None, typer.Option(help="Only this noise level, or band (repeatable).")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only this method, or your own, FILE.py:FUNCTION (repeatable)."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of each random cell; by default those of the table.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Preset of the learned methods: paper | fast.")
    ] = None,
    tuned: Annotated[
        bool,
        typer.Option("--tuned", help="Also run the peers with settings tuned on hidden pixels."),
    ] = False,
    budget: Annotated[str, typer.Option(help="Budget of auto: fast | normal | best.")] = "normal",
    no_prior: Annotated[
        bool,
        typer.Option("--no-prior", help="Run auto without the network trained on other images."),
    ] = False,
    offline_minutes: Annotated[float, typer.Option(help="Minutes of each offline training.")] = 2.0,
    minutes: Annotated[
        float, typer.Option("--limit-minutes", "--minutes", help="Start no run after this.")
    ] = float("inf"),
    workers: Annotated[int, typer.Option(help="Processes for the classical methods.")] = 0,
    beside: Annotated[
        int | None, typer.Option(help="Learned runs fitted side by side.  [8 on a GPU, 1 on a CPU]")
    ] = None,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Also the rows as NAME.parquet (needs pyarrow).")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only say how many runs are left and how long they take."),
    ] = False,
    missing: Annotated[
        bool,
        typer.Option("--missing", help="List the cells of a table, or of all, without a row."),
    ] = False,
    device: Annotated[str, typer.Option(help="auto | cpu | cuda, for learned methods.")] = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="A trial run of a few minutes; ignore its numbers.")
    ] = False,
) -> None:
    """Run a benchmark, or continue one: noiseless, noisy, emit, ei-ablation, time, alpha,
    transforms, offline, readings, precision, epsilon, use, widths, dead-columns, best, reference,
    figures, speed."""
    from hydiff import bench as benchmark

    files, names = _scenes(scene or [])
    choices: dict[str, Any] = {"masks": mask or [], "noise": sigma or [], "methods": method or []}
    choices |= {"seeds": seeds, "preset": preset, "tuned": tuned, "budget": budget}
    choices |= {"no_prior": no_prior, "offline_minutes": offline_minutes, "quick": quick}
    choice = benchmark.choice_of(files, names=names, **choices)
    if quick:
        output = output / "quick"  # separate from real results
        err.print(QUICK_NOTE)
    if missing:
        _list_missing(name, output, choice)
        return
    if name in benchmark.SUITES:
        _print_left_out(benchmark.SUITES[name], choice)
    if dry_run:
        if name in ("figures", "speed"):
            raise BadValue(f"--dry-run counts the runs of a table; {name} is none")
        for line in _outlook(benchmark.outlook(name, output, choice, device)):
            out.print(line, markup=False)
        return
    if name == "speed":
        need_torch("the table of speeds")
        from hydiff.bench import speed
        from hydiff.methods.devices import torch_device

        paths = speed.run(output, str(torch_device(device)), quick=quick, report=err.print)
    elif name == "figures":
        from hydiff.bench.figures import write_figures

        paths = write_figures(output, choice, files=files, device=device, report=err.print)
    else:
        options: dict[str, Any] = {"workers": workers, "beside": beside, "parquet": parquet}
        options |= {"files": files, "device": device, "minutes": minutes}
        paths = _run(name, output, choice, **options)
    out.print("\n".join(str(path) for path in paths), markup=False)
    if quick:
        out.print(QUICK_NOTE)


def _run(name: str, output: Path, choice: Any, **options: Any) -> list[Path]:
    """Run the cells of a table, with a line for each; say so if there was none to run."""
    from hydiff import bench as benchmark

    lines = 0

    def report(*finished: Any) -> None:
        nonlocal lines
        lines += 1
        _print_cell(*finished)

    paths = benchmark.run(name, output, choice, report=report, **options)
    if not lines:
        err.print("no cell was run: the tables are those of the rows that exist")
    return paths


def _print_left_out(suite: Any, choice: Any) -> None:
    """Name the scenes that are too narrow for a mask, unless that leaves nothing: an error."""
    from hydiff.bench.suites import left_out

    if any(choice.fits(cell.scene, cell.mask) for cell in suite.cells(choice)):
        for line in left_out(suite, choice):
            err.print(f"left out: {line}", markup=False)


def _scenes(texts: list[str]) -> tuple[dict[str, Path], list[str]]:
    """Return the user's own scenes (name → path), and the names of all chosen scenes."""
    from hydiff.bench import scenes

    pairs = [text.partition("=") for text in texts]
    for name, equals, _ in pairs:
        if not equals and Path(name).is_file():
            raise BadValue(
                f"--scene {name}: expected a known name, or name=path of a cube: "
                f"--scene {Path(name).stem}={name}"
            )
    if twice := [name for name, count in Counter(p[0] for p in pairs).items() if count > 1]:
        raise BadValue(f"--scene {twice[0]} is given more than once; give each scene its own name")
    user_scenes = scenes.distinct({name: Path(path) for name, equals, path in pairs if equals})
    return user_scenes, [*(name for name, equals, _ in pairs if not equals), *user_scenes]


def _list_missing(name: str, output: Path, choice: Any) -> None:
    """Print a line for each row of a table with missing cells; exit with 1 if there are any."""
    from hydiff import bench as benchmark

    left = 0
    for table in benchmark.SUITES if name == ALL else (name,):
        rows = benchmark.lacking(table, output, choice)
        for row in rows:
            by_scene = ", ".join(f"{scene} {n}" for scene, n in row.scenes.items())
            label = f"{table}: {row.name}, σ_y {row.sigma_y}"
            out.print(f"{label}: {row.left} of {row.cells} missing: {by_scene}", markup=False)
        left += sum(row.left for row in rows)
    out.print(f"{left} cells have no row")
    if left:
        raise typer.Exit(1)


def _print_cell(done: int, total: int, cell: Any, row: Any) -> None:
    """Print a line for a finished cell."""
    names = [cell.method, cell.settings if cell.settings != "{}" else ""]
    case = f"{cell.scene}, {cell.mask}, σ_y {cell.sigma_y}, seed {cell.seed}"
    beside = f", {row['beside']} side by side" if row["beside"] > 1 else ""
    err.print(
        f"{done}/{total} {' '.join(filter(None, names))}: {case}: "
        f"MPSNR {row['all_mpsnr']:.2f} dB (all), {row['seconds']:.1f} s{beside}",
        markup=False,
    )


def _outlook(rows: list[Any]) -> Iterator[str]:
    """Yield a line about the remaining work for each row of the table, and one for the total."""
    for row in rows:
        left = row.cells - row.done
        time = "time unknown" if isnan(row.seconds) else f"{row.seconds:.0f} s"
        yield f"{row.name}: {row.cells} cells, {row.done} done, {left} left: {time}"
    known = sum(row.seconds for row in rows if not isnan(row.seconds))
    unknown = sum(row.cells - row.done for row in rows if isnan(row.seconds))
    cells, done = sum(row.cells for row in rows), sum(row.done for row in rows)
    times = [f"{known / 60:.1f} min"] if known or not unknown else []
    times += [f"no time is known of {unknown} (none like them has run here)"] if unknown else []
    yield f"in all: {cells} cells, {done} done, {cells - done} left: {' and '.join(times)}"
