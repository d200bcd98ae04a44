"""`hydiff bench`: the tables and figures of the comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hydiff.terminal import err, out


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
