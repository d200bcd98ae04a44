"""Measure the speed of the learned fill on this machine, by engine, number of fits, and size.

Each measurement is a row: what was run, milliseconds per step, seconds per cube, peak memory.  The
cube is smooth noise with a third of its columns missing: time does not depend on its content.
"""

from __future__ import annotations

import itertools
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from hydiff.bench import records
from hydiff.learn.engine import side_by_side
from hydiff.methods import choose
from hydiff.methods.hydiff_ei import hydiff_ei
from hydiff.result import Step

BANDS, SIDE, STEPS = 128, 144, 1000  # those of the paper
WARM = 5  # steps before the clock starts, in which kernels are chosen and a graph is recorded

Row = dict[str, Any]


def run(
    folder: Path, device: str, *, quick: bool = False, report: Callable[[str], Any] = print
) -> list[Path]:
    """Measure, write FOLDER/speed.csv and, on a GPU, FOLDER/speed.png; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    table, figure = folder / "speed.csv", folder / "speed.png"
    for row in write(table, measure(device, quick=quick), device, "hydiff bench speed"):
        report(
            f"{row['what']}: {row['engine']}, {row['precision']}, {row['side']} × {row['side']} × "
            f"{row['bands']}, {row['beside']} side by side: {row['ms_per_step']} ms a step, "
            f"{row['seconds_per_cube']} s a cube of {STEPS} steps"
        )
    if torch.device(device).type != "cuda":
        return [table]
    plot(table, figure)
    return [table, figure]


def measure(device: str, *, quick: bool = False) -> Iterator[Row]:
    """Yield all measurements, one after the other.  quick: a small cube and few steps."""
    place = torch.device(device)
    size: Row = {"bands": 16, "side": 40, "steps": 20} if quick else {}
    gpu = place.type == "cuda"
    engines = [("eager", "fp32")]
    if gpu:
        engines += [("graph", "tf32"), ("fused", "tf32"), ("fused", "bf16")]
    for engine, precision in engines:
        fewer_steps: Row = {} if quick or engine != "eager" else {"steps": 100}
        yield time_of(place, "engine", engine=engine, precision=precision, **size | fewer_steps)
    if not gpu:
        return
    for beside in (1, 2, 4, 8):
        yield time_of(place, "side by side", beside=beside, **size)
    fewer_steps = {} if quick else {"steps": 200}
    for steps in (100, 200, 400, 800):
        yield time_of(place, "steps", **size | {"steps": steps})
    for side in (36, 72, 96, 144, 216, 288):
        yield time_of(place, "pixels", **size | fewer_steps | {"side": side})
    for bands in (16, 32, 64, 128, 200, 242, 285):
        yield time_of(place, "bands", **size | fewer_steps | {"bands": bands})


def time_of(
    place: torch.device,
    what: str,
    *,
    bands: int = BANDS,
    side: int = SIDE,
    steps: int = STEPS,
    beside: int = 1,
    engine: str = "auto",
    precision: str = "auto",
) -> Row:
    """Time `beside` fits side by side over `steps` steps, after a few that are not counted."""
    settings = {"engine": engine, "precision": precision, "steps": steps + WARM}
    if place.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    runs = side_by_side([_fit(place, bands, side, i, settings) for i in range(beside)])
    began = time.perf_counter()
    _take(runs, WARM)
    ready = time.perf_counter()
    _take(runs, steps)
    seconds = time.perf_counter() - ready
    peak = torch.cuda.max_memory_allocated() / 2**30 if place.type == "cuda" else float("nan")
    return {
        "what": what, "engine": engine, "precision": precision,
        "bands": bands, "side": side, "steps": steps, "beside": beside,
        "ms_per_step": round(1e3 * seconds / steps / beside, 3),
        "seconds_per_cube": round(seconds * STEPS / steps / beside, 3),
        "warm_up_seconds": round(ready - began, 3), "peak_gib": round(peak, 3),
    }  # fmt: skip


def _fit(
    place: torch.device, bands: int, side: int, seed: int, settings: Mapping[str, Any]
) -> Iterator[Step]:
    """Return the steps of a fit of smooth noise with a third of the columns missing."""
    rng = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, bands, 9, 9, generator=rng)
    cube = torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear")[0]
    observed = torch.arange(side) % 24 >= 8
    chosen = choose("hydiff-ei", None, settings)
    return hydiff_ei(
        (cube * observed).to(place),
        observed.expand(side, side).to(place),
        torch.zeros(bands, device=place),
        chosen.settings,
        rng=torch.Generator(place).manual_seed(seed),
    )


def _take(runs: Iterator[Any], n: int) -> None:
    """Run n steps, and wait until the GPU has done them."""
    for _ in itertools.islice(runs, n):
        pass
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def write(path: Path, rows: Iterator[Row], device: str, command: str) -> Iterator[Row]:
    """Write each row when it is measured, with device, torch version and command, and yield it."""
    gpu = torch.device(device).type == "cuda"
    metadata = {
        "device": torch.cuda.get_device_name() if gpu else f"CPU {platform.machine()}",
        "torch": torch.__version__,
        "command": command,
    }
    path.unlink(missing_ok=True)
    for row in rows:
        row |= metadata
        records.append(path, row, list(row))
        yield row


def plot(path: Path, output: Path) -> None:
    """Draw the sweeps in a file of rows as a figure of four panels."""
    import matplotlib.pyplot as plt

    rows = records.read(path)
    panels: list[tuple[str, Callable[[Row], float], str, Callable[[Row], float]]] = [
        ("steps", lambda r: r["steps"], "time, s", lambda r: r["ms_per_step"] * r["steps"] / 1e3),
        ("pixels", lambda r: r["side"] ** 2, "a step, ms", lambda r: r["ms_per_step"]),
        ("bands", lambda r: r["bands"], "a step, ms", lambda r: r["ms_per_step"]),
        ("bands", lambda r: r["bands"], "peak memory, GiB", lambda r: r["peak_gib"]),
    ]
    figures = ("steps", "side", "bands", "ms_per_step", "peak_gib")
    with plt.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(1, 4, figsize=(11, 2.6), layout="constrained")
        for axis, (name, x, label, y) in zip(axes, panels, strict=True):
            sweep = [{k: float(r[k]) for k in figures} for r in rows if r["what"] == name]
            xs, ys = [x(r) for r in sweep], [y(r) for r in sweep]
            axis.plot(xs, ys, "o-", color="#0072b2")
            axis.set(xlabel=name, ylabel=label, ylim=(0, 1.1 * max(ys)), xlim=(0, 1.1 * max(xs)))
        figure.savefig(output, dpi=150)
        plt.close(figure)
