"""Figures of the benchmark, in one style, for print, and distinct for any colour vision.

They are FOLDER/figures/NAME.png and .pdf.  The filled cubes that they show are stored in
FOLDER/figures/cells, so that an interrupted run can continue.  Curves are drawn from the rows of
the tables in FOLDER; a figure whose table has not been run yet is left out and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

from hydiff import metrics
from hydiff.bench import records, scenes, suites
from hydiff.bench.cells import BAND, INPUT
from hydiff.bench.choice import SuiteChoice
from hydiff.bench.panels import (
    BANDS,
    CASES,
    TRAINED,
    TRAINED_MASK,
    WIDTH,
    Case,
    FillCache,
    band_panels,
    fill_case,
    new_figure,
    panels,
    trained_case,
)
from hydiff.bench.records import Row, Rows
from hydiff.bench.suites import row_name
from hydiff.bench.tables import cell_of, untimed
from hydiff.cube import Bools, Floats
from hydiff.io.staging import staged
from hydiff.methods import labelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of Okabe and Ito, with grey for their yellow, which is hard to see on white; markers and
# dashes differ too, for print in black
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#666666", "#D55E00", "#000000")
MARKERS = "osD^vP*X"
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))


def write_figures(
    folder: Path,
    choice: SuiteChoice,
    *,
    files: scenes.Files | None = None,
    device: str = "auto",
    report: Callable[[str], Any] = lambda text: None,
) -> list[Path]:
    """Draw all figures for the first scene of a choice, and the curves of the tables in FOLDER.

    The fills are stored: they can be computed on one machine and drawn on another.
    report: called with a line before each fill, and about each figure that is left out.
    """
    target = folder / "figures"
    cache = FillCache(target / "cells", files, device, report)
    cache.folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    cases = dict(_cases(cache, choice, report))
    # fill all cases first: the packages for drawing may be absent from a machine with a GPU
    for case in cases.values():
        case()
    for name, case in cases.items():
        paths += _pictures(case(), target, name, report)
    names = ("noiseless", "noisy", "widths", "best", "time")
    rows = {n: [r for r in records.read(folder / f"{n}.csv") if r["missing_mpsnr"]] for n in names}
    curves: dict[str, tuple[Rows, Callable[[Rows], Figure]]] = {
        "time": (rows["noiseless"], partial(quality_against_time, alone=rows["time"])),
        "best": (
            same_masks([r for r in rows["best"] if r["sigma_y"] == "0.0"]),
            quality_against_time,
        ),
        "noise": ([*rows["noiseless"], *rows["noisy"]] if rows["noisy"] else [], against_noise),
        "widths": (rows["widths"], against_width),
    }
    for name, (curve_rows, curve) in curves.items():
        if curve_rows:
            paths += _save(curve(curve_rows), target / f"quality-{name}")
        else:
            report(f"no figure quality-{name}: run its table first")
    return paths


def _cases(
    cache: FillCache, choice: SuiteChoice, report: Callable[[str], Any]
) -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yield the name of each case to show, and a function that fills it or reads its fills."""
    for name, (mask, sigma) in CASES.items():
        if mask not in (choice.masks or (mask,)) or not suites.levels(choice, (sigma,)):
            continue
        if choice.fits(choice.scenes[0], mask):
            yield name, partial(fill_case, cache, choice, mask, sigma)
        else:
            report(f"no figure {name}: {choice.scenes[0]} is too narrow for {mask}")
    if TRAINED_MASK in (choice.masks or (TRAINED_MASK,)) and suites.levels(choice, (0.0,)):
        wanted = suites.offline(replace(choice, masks=(TRAINED_MASK,)))
        if offline := [c for c in wanted if c.method != INPUT and c.seed == 0]:
            yield TRAINED, partial(trained_case, cache, offline)


def _pictures(case: Case, folder: Path, name: str, report: Callable[[str], Any]) -> list[Path]:
    """Draw single bands of a case and, unless it is about training, all other figures."""
    paths: list[Path] = []
    for band in BANDS:
        if band <= len(case.truth):
            paths += _save(band_panels(case, band), folder / f"{name}-band-{band}")
        else:
            report(f"no figure {name}-band-{band}: the scene has {len(case.truth)} bands")
    if name != TRAINED:
        for kind, draw in (("panels", panels), ("spectra", spectra), ("distance", distances)):
            paths += _save(draw(case), folder / f"{name}-{kind}")
    return paths


def spectra(case: Case) -> Figure:
    """Draw spectra at the pixel deepest in a gap and at one on a rim, with a part enlarged."""
    from hydiff.report.plots import deepest

    known = case.observed.any(axis=0)
    gap: Bools = np.asarray(~(known if not known.all() else case.observed.all(axis=0)))
    rim: Bools = gap & ndimage.binary_dilation(np.asarray(~gap))
    pixels = {"centre of a gap": deepest(gap), "rim of a gap": deepest(rim)}
    figure = new_figure(WIDTH, 4.6)
    bands = np.arange(1, len(case.truth) + 1)
    grid = figure.subplots(2, 2, height_ratios=(3, 2))
    for (whole, part), (where, (row, col)) in zip(grid.T, pixels.items(), strict=True):
        truth = case.truth[:, row, col]
        zoom = _roughest(truth)
        for axis, shown in ((whole, slice(None)), (part, zoom)):
            axis.plot(bands[shown], truth[shown], color="black", lw=1.6, label="truth")
            for i, (name, x) in enumerate(case.results.items()):
                axis.plot(bands[shown], x[shown, row, col], lw=0.9, label=name, **_style(i))
        whole.axvspan(bands[zoom][0], bands[zoom][-1], color="grey", alpha=0.15, lw=0)
        whole.set_title(f"{where}: row {row}, column {col}", fontsize=8)
        _label(whole, "", "Value, unit range")
        _label(part, "Band (shaded above)", "Value, unit range")
        _whole(part)
    handles = whole.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=7)
    return figure


def _roughest(spectrum: Floats) -> slice:
    """Return the sixth of the bands in which a spectrum varies most."""
    n = max(len(spectrum) // 6, min(3, len(spectrum)))
    moves = np.abs(np.diff(spectrum, prepend=spectrum[0]))
    start = int(np.argmax(np.convolve(moves, np.ones(n), mode="valid")))
    return slice(start, start + n)


def distances(case: Case) -> Figure:
    """Draw the RMSE against the distance to the nearest observed pixel."""
    figure = new_figure(WIDTH / 2, 3.2)
    axis = figure.subplots()
    missing = ~case.observed
    for i, (name, x) in enumerate(case.results.items()):
        bins = [b for b in metrics.by_distance(x, case.truth, missing) if b.entries]
        _curve(axis, i, name, [b.low for b in bins], [b.rmse for b in bins])
    axis.set_yscale("log")
    _plain_log(axis.yaxis)
    _whole(axis)
    _label(axis, "Distance to the nearest observed pixel", "RMSE, unit range")
    _legend(figure, axis)
    return figure


def quality_against_time(rows: Rows, alone: Rows = ()) -> Figure:
    """Draw the gain in MPSNR of the gaps over `smooth` against seconds, one point for each method.

    Methods were not all run on the same cells: each is compared with `smooth` on its own cells.
    alone: rows of runs that had the machine to themselves, from which seconds are preferably taken.
    """
    timed = _by_name(alone)
    slow = untimed(rows)
    rows = [r for r in rows if r["missing_mpsnr"] and r not in slow]
    methods, (gain, label) = _by_name(rows), _above_smooth(rows, ("scene", "mask"))
    figure = new_figure(WIDTH / 2, 2.8 + 0.13 * -(-len(methods) // 2))
    axis = figure.subplots()
    for i, (name, method_rows) in enumerate(methods.items()):
        gains = [g for g in map(gain, method_rows) if g is not None]
        if gains:
            method_rows = [r for r in method_rows if gain(r) is not None]
            seconds = max(median(float(r["seconds"]) for r in timed.get(name, method_rows)), 1e-2)
            _curve(axis, i, name, [seconds], [fmean(gains)], size=5)
    axis.set_xscale("log")
    _plain_log(axis.xaxis)
    _label(axis, "Seconds for one cube", label)
    _legend(figure, axis)
    return figure


def same_masks(rows: Rows) -> Rows:
    """Return the rows of the masks that every method has, so that their means can be compared."""
    masks = [{r["mask"] for r in method_rows} for method_rows in _by_name(rows).values()]
    shared = set.intersection(*masks) if masks else set()
    return [r for r in rows if r["mask"] in shared]


def _above_smooth(rows: Rows, same: Sequence[str]) -> tuple[Callable[[Row], float | None], str]:
    """Return a function that gives the gain of a row over `smooth`, and a label for this gain.

    The gain is the MPSNR of the gaps minus the mean over the rows of `smooth` with the same values
    in the columns `same`; None if there are none.  Without any row of `smooth` it is the MPSNR.
    """

    def key(row: Row) -> tuple[str, ...]:
        """Return the values of the columns `same`."""
        return tuple(row[column] for column in same)

    seeds: dict[tuple[str, ...], list[float]] = {}
    for row in _by_name(rows).get("smooth", []):
        seeds.setdefault(key(row), []).append(float(row["missing_mpsnr"]))
    smooth = {case: fmean(scores) for case, scores in seeds.items()}

    def gain(row: Row) -> float | None:
        """Return the gain of a row over `smooth` in dB."""
        if smooth and key(row) not in smooth:
            return None
        return float(row["missing_mpsnr"]) - smooth.get(key(row), 0.0)

    return gain, "MPSNR of the gaps" + (", above smooth (dB)" if smooth else " (dB)")


def against_noise(rows: Rows) -> Figure:
    """Draw the gain over `smooth` on the same cells, since methods were run on different ones."""
    rows = [r for r in rows if r["sigma_y"] != BAND and r["missing_mpsnr"]]
    gain, label = _above_smooth(rows, ("scene", "mask", "sigma_y"))
    labels = ("σ_y, share of the range", label)
    return _against(rows, lambda row: float(row["sigma_y"]), ("scene", "mask"), labels, gain)


def against_width(rows: Rows) -> Figure:
    """Draw the MPSNR of the gaps against their width."""
    return _against(
        [r for r in rows if r["missing_mpsnr"]],
        lambda row: float(row["mask"].removeprefix("width-")),
        ("scene",),
        ("Width of the gaps (pixels)", "MPSNR of the gaps (dB)"),
        lambda row: float(row["missing_mpsnr"]),
    )


def _against(
    rows: Rows,
    at: Callable[[Row], float],
    same: Sequence[str],
    labels: tuple[str, str],
    score: Callable[[Row], float | None],
) -> Figure:
    """Draw a score against the quantity `at`, one curve for each method.

    A point is the mean over the cases (values of the columns `same`) that the method has at every
    point of its curve.  Rows without a score are left out.
    """
    figure = new_figure(WIDTH / 2, 3.8)
    axis = figure.subplots()
    i = 0
    for name, method_rows in _by_name([r for r in rows if score(r) is not None]).items():
        values = sorted({at(r) for r in method_rows})
        cases = [{tuple(r[k] for k in same) for r in method_rows if at(r) == v} for v in values]
        shared = set.intersection(*cases)
        if len(values) > 1 and shared:
            case_rows = [r for r in method_rows if tuple(r[k] for k in same) in shared]
            means = [fmean(score(r) or 0.0 for r in case_rows if at(r) == v) for v in values]
            _curve(axis, i, name, values, means)
            i += 1
    _label(axis, *labels)
    _legend(figure, axis)
    return figure


def _by_name(rows: Rows) -> dict[str, list[Row]]:
    """Return the rows of each method by its label, without those of the input."""
    methods: dict[str, list[Row]] = {}
    for row in rows:
        if row["method"] != INPUT:
            methods.setdefault(labelled(row_name(cell_of(row))), []).append(row)
    return methods


def _style(i: int) -> dict[str, Any]:
    """Colour and dashes of curve i: 64 distinct pairs."""
    return {"color": COLOURS[i % 8], "ls": DASHES[(i + i // 8) % 8]}


def _curve(
    axis: Axes, i: int, name: str, x: Sequence[float], y: Sequence[float], size: float = 3
) -> None:
    """Draw a curve, or a single point, with the marker, colour and dashes of curve i."""
    marker, width = MARKERS[(i + i // 8) % 8], 1 if len(x) > 1 else 0
    axis.plot(x, y, ms=size, lw=width, label=name, marker=marker, **_style(i))


def _legend(figure: Figure, axis: Axes) -> None:
    """Draw the legend below the axes, where it hides nothing."""
    handles = axis.get_legend_handles_labels()
    look: dict[str, Any] = {"fontsize": 6, "frameon": False}
    look["handlelength"] = 4  # long enough to show the dashes
    figure.legend(*handles, loc="outside lower center", ncols=2, **look)


def _whole(axis: Axes) -> None:
    """Put ticks at whole numbers only (of bands or pixels)."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _plain_log(axis: Any) -> None:
    """Label powers of ten with plain numbers and, on a short axis, also 2 and 5 times them."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1000 else (1,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _label(axis: Axes, x: str, y: str) -> None:
    """Label the axes, and give them the common style of all figures."""
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.grid(alpha=0.3, lw=0.5)
    axis.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, path: Path) -> list[Path]:
    """Save a figure as PDF and PNG, both or none, without the date."""
    paths = [path.with_name(path.name + suffix) for suffix in (".pdf", ".png")]
    with staged(paths[-1], overwrite=True) as folder:
        figure.savefig(folder / paths[0].name, metadata={"CreationDate": None})
        figure.savefig(folder / paths[1].name)
    return paths
