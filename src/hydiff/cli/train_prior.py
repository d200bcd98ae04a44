"""`hydiff train-prior`: train the network that comes with hydiff, on a folder of images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hydiff.cli.options import Output, Overwrite, Seed, interrupted, key_values
from hydiff.cli.terminal import err, print_json
from hydiff.errors import BadValue, UnknownName, need_torch


def train_prior(
    output: Output,
    data: Annotated[
        Path | None, typer.Option(help="Folder of .npz with arrays (bands, rows, cols).")
    ] = None,
    more: Annotated[
        Path | None,
        typer.Option(
            help="Such a folder of your own images; continues from the weights of hydiff."
        ),
    ] = None,
    size: Annotated[str, typer.Option(help="Size of the network: small | full.")] = "full",
    steps: Annotated[int, typer.Option(help="Updates of the weights.")] = 9000,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Another setting, key=value (repeatable).")
    ] = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="auto | cpu | cuda.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Train the network that corrects planes of any sensor, on images with simulated gaps."""
    from rich.progress import Progress

    need_torch("training")
    from hydiff.learn import prior_weights
    from hydiff.learn.plane_network import WIDTHS
    from hydiff.learn.prior_training import PriorTraining
    from hydiff.methods.devices import torch_device
    from hydiff.methods.settings import settings_from
    from hydiff.scale.prior_files import train_prior
    from hydiff.scale.training_files import keep_path

    if size not in WIDTHS:
        raise UnknownName("size", size, WIDTHS)
    if data is None and more is None:
        raise BadValue("no images to train on: give --data DIR, or --more DIR for your own")
    options = {"width": WIDTHS[size], "steps": steps, "seed": seed}
    settings = settings_from("train-prior", PriorTraining, None, options | key_values(set_ or []))
    progress = Progress(console=err, transient=True, disable=not err.is_terminal)
    with interrupted(keep_path(output)), progress as bar:
        task = bar.add_task("training", total=steps)
        report = train_prior(
            data,
            output,
            settings,
            more=more,
            start=None if more is None else prior_weights.packaged(size),
            device=str(torch_device(device)),
            resume=resume,
            overwrite=overwrite,
            progress=lambda step, total: bar.update(task, completed=step, total=total),
        )
    print_json(report)
