"""`hydiff train`: train a network on damaged cubes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from hydiff.cli.options import Json, Nodata, Output, Overwrite, Seed, Var, interrupted, key_values
from hydiff.cli.terminal import err, number, out, print_json
from hydiff.errors import need_torch


def train(
    cubes: Annotated[list[Path], typer.Argument(help="Damaged cubes of one sensor.")],
    output: Output,
    minutes: Annotated[
        float | None, typer.Option(help="Train this long.  [10 unless --epochs is given]")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Instead of minutes: pass through all cubes N times.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Crops in an update.")] = 5,
    crop: Annotated[int, typer.Option(help="Side of the crops, in pixels.")] = 144,
    channels: Annotated[int, typer.Option(help="Channels of the network; 32 suits a CPU.")] = 128,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Another setting, key=value (repeatable).")
    ] = None,
    nodata: Nodata = None,
    var: Var = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="auto | cpu | cuda.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> None:
    """Train a network on damaged cubes alone, for `fill --weights`; by default for 10 minutes."""
    from rich.progress import Progress

    need_torch("training")
    from hydiff.learn.training import Training
    from hydiff.methods.devices import torch_device
    from hydiff.methods.settings import settings_from
    from hydiff.scale.training_files import keep_path, train_files

    options = {"batch": batch, "crop": crop, "channels": channels, "seed": seed}
    settings = settings_from("train", Training, None, options | key_values(set_ or []))
    progress = Progress(console=err, transient=True, disable=not err.is_terminal)
    with interrupted(keep_path(output)), progress as bar:
        task = bar.add_task("training", total=1.0)
        how: dict[str, Any] = {"minutes": minutes, "epochs": epochs, "nodata": nodata, "var": var}
        how |= {"device": torch_device(device), "resume": resume, "overwrite": overwrite}
        how["progress"] = lambda step, share: bar.update(task, completed=share)
        report = train_files(cubes, output, settings, **how)
    if json_:
        print_json(report)
    else:
        _print_report(report, len(cubes))


def _print_report(report: Mapping[str, Any], cubes: int) -> None:
    """Print a summary of a training: updates, losses at the start and the end, and files."""
    out.print(f"{report['updates']:,} updates, {report['epochs']:g} epochs over", end=" ")
    out.print(f"{report['crops']} crops of {cubes} cubes in {report['seconds']:.1f} s")
    first, last = report["losses"]["first"], report["losses"]["last"]
    for term, name in (("data", "data"), ("ei", "equivariance")):
        out.print(f"{name:13}{number(first[term])} → {number(last[term])}  mean square")
    for label, path in zip(("weights", "card", "curve"), report["outputs"], strict=True):
        out.print(f"{label:8} {path}", markup=False)
