"""Figures of the benchmark: one style, print quality, told apart with any colour vision.

FOLDER/figures/NAME.png and .pdf; the filled cubes they show are kept in FOLDER/figures/cells, so
that a run which was stopped goes on.  Curves are drawn from the tables' rows in FOLDER: a figure
whose table has not been run yet is left out, and named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import ndimage

from hydiff import metrics
from hydiff.bench import cells, records, scenes
from hydiff.bench.cells import BAND, INPUT, Cell
from hydiff.bench.records import Row
from hydiff.bench.suites import PEERS, Plan, row_name, seeded
from hydiff.bench.tables import cell_of
from hydiff.cube import Bools, Floats
from hydiff.io.staging import staged
from hydiff.methods import STAND_IN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours; markers and dashes differ too, for print in black
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
MARKERS = "osD^vP*X"
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
SHOWN = ("smooth", *PEERS, "hydiff-ei")
CASES = {
    "noiseless": ("published-2", 0.0),
    "noisy": ("published-2", 0.1),
    "frames": ("frames", 0.0),
}
DPI = 300
WIDTH = 7.2  # inches: two columns of a journal


class Case(NamedTuple):
    """One damaged scene and what the methods made of it; arrays (bands, rows, cols)."""

    truth: Floats
    observed: Bools
    y: Floats  # 0 where missing
    results: dict[str, Floats]


def write_figures(
    folder: Path,
    plan: Plan,
    *,
    given: Mapping[str, Path] | None = None,
    device: str = "auto",
    told: Callable[[str], Any] = lambda text: None,
) -> list[Path]:
    """Draw all figures for the first scene of a plan, and the curves of the tables at hand."""
    place = folder / "figures"
    (place / "cells").mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    for name, (mask, sigma) in CASES.items():
        if plan.masks is not None and mask not in plan.masks:
            continue
        case = fill_case(place / "cells", plan, mask, sigma, given, device)
        made += _save(panels(case), place / f"{name}-panels")
        made += _save(spectra(case), place / f"{name}-spectra")
        made += _save(distances(case), place / f"{name}-distance")
    names = ("noiseless", "noisy", "widths", "best")
    rows = {n: records.read(folder / f"{n}.csv") for n in names}
    curves = {
        "time": (rows["noiseless"], quality_against_time),
        "best": ([r for r in rows["best"] if r["sigma_y"] == "0.0"], quality_against_time),
        "noise": ([*rows["noiseless"], *rows["noisy"]] if rows["noisy"] else [], against_noise),
        "widths": (rows["widths"], against_width),
    }
    for name, (found, draw) in curves.items():
        if found:
            made += _save(draw(found), place / f"quality-{name}")
        else:
            told(f"no figure quality-{name}: run its table first")
    return made


def fill_case(
    cache: Path,
    plan: Plan,
    mask: str,
    sigma: float,
    given: Mapping[str, Path] | None,
    device: str,
) -> Case:
    """The results of the shown methods on the plan's first scene; those in the cache are read."""
    scene = plan.scenes[0]
    truth = scenes.load(scene, given)
    observed = np.broadcast_to(scenes.observed_of(mask, truth.shape), truth.shape)
    results = {}
    for method in SHOWN:
        if plan.methods is not None and method not in plan.methods:
            continue
        (cell,) = seeded(replace(plan, seeds=1), Cell(method, scene, mask, sigma))
        key = hashlib.sha256(repr((cell, cells.settings_hash(cell))).encode()).hexdigest()[:16]
        path = cache / f"{key}.npz"
        if not path.exists():
            _, x = cells.run(cell, device=device, given=given)
            with staged(path) as temporary:
                np.savez_compressed(temporary / path.name, x=x.astype(np.float32))
        results[_name(method)] = np.load(path)["x"].astype(np.float64)
    y = np.nan_to_num(cells.measure(truth, observed, sigma, 0))
    return Case(truth, observed, y, results)


def _name(method: str) -> str:
    return STAND_IN if method == "hir-diff" else method


def panels(case: Case) -> Figure:
    """Truth, input and every method in colour, one stretch for all; RMSE of the gaps in titles."""
    from hydiff import plots

    bands = plots.rgb_bands(None, len(case.truth))
    everywhere = np.ones(case.truth.shape, bool)
    limits = plots.stretch(case.truth, bands, everywhere)
    images = {"truth": plots.composite(case.truth, bands, everywhere, limits)}
    images[INPUT] = plots.composite(case.y, bands, case.observed, limits)
    for name, x in case.results.items():
        images[name] = plots.composite(x, bands, everywhere, limits)
    columns = 4
    lines = -(-len(images) // columns)
    rows, cols = case.truth.shape[1:]
    figure = _figure(WIDTH, lines * (WIDTH / columns * rows / cols + 0.35))
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for axis in axes:
        axis.set_axis_off()
    missing = ~case.observed
    for axis, (name, image) in zip(axes, images.items(), strict=False):
        axis.imshow(image, interpolation="nearest")
        score = ""
        if name in case.results:
            score = f"\n{metrics.mpsnr(case.results[name], case.truth, missing):.1f} dB in the gaps"
        axis.set_title(name + score, fontsize=7)
    return figure


def spectra(case: Case) -> Figure:
    """Spectra at the pixel deepest in a gap and at one on its rim, with a part enlarged."""
    from hydiff.plots import deepest

    known = case.observed.any(axis=0)
    gap: Bools = np.asarray(~(known if not known.all() else case.observed.all(axis=0)))
    rim: Bools = gap & ndimage.binary_dilation(np.asarray(~gap))
    places = {"centre of a gap": deepest(gap), "rim of a gap": deepest(rim)}
    figure = _figure(WIDTH, 3.0)
    bands = np.arange(1, len(case.truth) + 1)
    for axis, (where, (row, col)) in zip(figure.subplots(1, 2), places.items(), strict=True):
        truth = case.truth[:, row, col]
        zoom = _roughest(truth)
        inset = axis.inset_axes((0.55, 0.62, 0.43, 0.36))
        for part in (axis, inset):
            part.plot(bands, truth, color="black", lw=1.6, label="truth")
            for i, (name, x) in enumerate(case.results.items()):
                part.plot(bands, x[:, row, col], color=COLOURS[i], ls=DASHES[i], lw=0.9, label=name)
        shown = np.stack([truth, *(x[:, row, col] for x in case.results.values())])[:, zoom]
        inset.set_xlim(bands[zoom][0], bands[zoom][-1])
        low, high = float(shown.min()), float(shown.max())
        inset.set_ylim(low - 0.05 * (high - low) - 1e-6, high + 0.05 * (high - low) + 1e-6)
        inset.tick_params(labelsize=5)
        axis.indicate_inset_zoom(inset, edgecolor="grey")
        axis.set_title(f"{where}: row {row}, column {col}", fontsize=8)
        _label(axis, "Band", "Value, unit range")
    figure.legend(
        *axis.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7
    )
    return figure


def _roughest(spectrum: Floats) -> slice:
    """The sixth of the bands in which a spectrum moves most: a rule, not a choice by eye."""
    n = max(len(spectrum) // 6, min(3, len(spectrum)))
    moves = np.abs(np.diff(spectrum, prepend=spectrum[0]))
    start = int(np.argmax(np.convolve(moves, np.ones(n), mode="valid")))
    return slice(start, start + n)


def distances(case: Case) -> Figure:
    """RMSE against the distance to the nearest observed pixel."""
    figure = _figure(WIDTH / 2, 2.6)
    axis = figure.subplots()
    missing = ~case.observed
    for i, (name, x) in enumerate(case.results.items()):
        bins = [b for b in metrics.by_distance(x, case.truth, missing) if b.entries]
        _curve(axis, i, name, [b.low for b in bins], [b.rmse for b in bins])
    axis.set_yscale("log")
    _label(axis, "Distance to the nearest observed pixel", "RMSE, unit range")
    axis.legend(fontsize=6, frameon=False)
    return figure


def quality_against_time(rows: Sequence[Row]) -> Figure:
    """MPSNR of the gaps against seconds, one point a method."""
    figure = _figure(WIDTH / 2, 2.8)
    axis = figure.subplots()
    for i, (name, mine) in enumerate(_by_name(rows).items()):
        seconds = max(fmean(float(r["seconds"]) for r in mine), 1e-2)
        quality = fmean(float(r["missing_mpsnr"]) for r in mine)
        axis.plot(seconds, quality, MARKERS[i % 8], color=COLOURS[i % 8], ms=5)
        axis.annotate(name, (seconds, quality), (3, 3), textcoords="offset points", fontsize=5)
    axis.set_xscale("log")
    _label(axis, "Seconds for one cube", "MPSNR of the gaps (dB)")
    return figure


def against_noise(rows: Sequence[Row]) -> Figure:
    rows = [r for r in rows if r["sigma_y"] != BAND]
    return _against(rows, lambda r: float(r["sigma_y"]), "σ_y, share of the range", "all_mpsnr")


def against_width(rows: Sequence[Row]) -> Figure:
    def width(row: Row) -> float:
        return float(row["mask"].removeprefix("width-"))

    return _against(rows, width, "Width of the gaps (pixels)", "missing_mpsnr")


def _against(rows: Sequence[Row], at: Callable[[Row], float], label: str, column: str) -> Figure:
    """A score against something else, one curve a method, mean over all other things."""
    figure = _figure(WIDTH / 2, 2.8)
    axis = figure.subplots()
    i = 0
    for name, mine in _by_name(rows).items():
        x = sorted({at(r) for r in mine})
        if len(x) > 1:
            y = [fmean(float(r[column]) for r in mine if at(r) == v) for v in x]
            _curve(axis, i, name, x, y)
            i += 1
    _label(axis, label, "MPSNR (dB)")
    axis.legend(fontsize=6, frameon=False)
    return figure


def _by_name(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["method"] != INPUT:
            found.setdefault(_name(row_name(cell_of(row))), []).append(row)
    return found


def _curve(axis: Axes, i: int, name: str, x: Sequence[float], y: Sequence[float]) -> None:
    i %= 8
    axis.plot(x, y, color=COLOURS[i], ls=DASHES[i], marker=MARKERS[i], ms=3, lw=1, label=name)


def _label(axis: Axes, x: str, y: str) -> None:
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.grid(alpha=0.3, lw=0.5)
    axis.spines[["top", "right"]].set_visible(False)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def _save(figure: Figure, path: Path) -> list[Path]:
    """As PNG and PDF, both or none, without the date."""
    made = [path.with_name(path.name + suffix) for suffix in (".pdf", ".png")]
    with staged(made[-1], overwrite=True) as folder:
        figure.savefig(folder / made[0].name, metadata={"CreationDate": None})
        figure.savefig(folder / made[1].name)
    return made
