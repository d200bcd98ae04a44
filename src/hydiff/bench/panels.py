"""Pictures of fills beside the truth: three bands as colours, or, as in the paper, one band with
its errors.

A case is a damaged scene with the fills of several methods; fills are stored, and not repeated.
"""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hydiff import metrics
from hydiff.auto import NAME as AUTO
from hydiff.bench import cell_rows, cells, scenes
from hydiff.bench.cells import INPUT, Cell
from hydiff.bench.choice import SuiteChoice
from hydiff.bench.suites import PEERS, seeded
from hydiff.cube import Array, Bools, Floats
from hydiff.io.staging import staged
from hydiff.methods import labelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = ("harmonic", "smooth", *PEERS, "hydiff-ei", AUTO)
CASES = {
    "noiseless": ("published-3", 0.0),
    "noisy": ("published-3", 0.1),
    "frames": ("frames", 0.0),
}
# name and mask of the case with networks trained offline, and one that is not
TRAINED, TRAINED_MASK = "trained", "published-3"
BANDS = (100, 150)  # shown in the paper, counted from 1
DPI = 300
WIDTH = 7.2  # inches: two columns of a journal


class Case(NamedTuple):
    """One damaged scene and its fills by several methods; arrays (bands, rows, cols)."""

    truth: Floats
    observed: Bools
    y: Floats  # 0 where missing
    results: dict[str, Floats]


class FillCache(NamedTuple):
    """The fills of cells, each made once and stored in a folder."""

    folder: Path
    files: scenes.Files | None = None
    device: str = "auto"
    report: Callable[[str], Any] = lambda text: None  # called with a line before a fill

    def case(self, scene: str, mask: str, sigma: float, by_name: dict[str, Cell]) -> Case:
        """Return a case: a scene, damaged by a mask and noise, and its fills by the named cells."""
        truth = scenes.load(scene, self.files)
        observed = np.broadcast_to(scenes.observed_of(mask, truth.shape), truth.shape)
        y = np.nan_to_num(cells.measure(truth, observed, sigma, 0))
        return Case(truth, observed, y, {name: self.of(cell) for name, cell in by_name.items()})

    def of(self, cell: Cell) -> Floats:
        """Return the result of a cell, (bands, rows, cols), from the cache if it is there.

        It is stored in half precision, which is enough for a picture.
        """
        key = hashlib.sha256(repr((cell, cell_rows.settings_hash(cell))).encode()).hexdigest()[:16]
        path = self.folder / f"{key}.npz"
        if not path.exists():
            self.report(f"fills {cell.scene}, {cell.mask}, σ_y {cell.sigma_y} with {cell.method}")
            [(_, x)] = cell_rows.run([cell], device=self.device, files=self.files)
            with staged(path) as temporary:
                np.savez_compressed(temporary / path.name, x=x.astype(np.float16))
        return np.asarray(np.load(path)["x"], np.float64)


def fill_case(cache: FillCache, choice: SuiteChoice, mask: str, sigma: float) -> Case:
    """Return the first scene of a choice with its fills by all methods shown."""
    by_name = {}
    for method in filter(choice.wants, SHOWN):
        settings = json.dumps({"budget": choice.budget} if method == AUTO else {})
        wanted = Cell(method, choice.scenes[0], mask, sigma, 0, settings)
        (by_name[labelled(method)],) = seeded(replace(choice, seeds=1), wanted)
    return cache.case(choice.scenes[0], mask, sigma, by_name)


def trained_case(cache: FillCache, offline: Sequence[Cell]) -> Case:
    """Return the case of trained networks, on the scene and mask of the first of these cells.

    offline: cells of the table `offline`: networks trained on other places, and the network that is
    fitted to the scene itself.
    """
    first = offline[0]
    by_name = {}
    for cell in (c for c in offline if (c.scene, c.mask) == (first.scene, first.mask)):
        training = cell.own("offline")
        by_name["untrained" if training is None else f"trained on {training['crops']} crops"] = cell
    return cache.case(first.scene, first.mask, 0.0, by_name)


def panels(case: Case) -> Figure:
    """Draw truth, input and fills in colour, with one stretch; titles give the MPSNR of gaps."""
    from hydiff.report import plots

    bands = plots.rgb_bands(None, len(case.truth))
    everywhere = np.ones(case.truth.shape, bool)
    limits = plots.stretch(case.truth, bands, everywhere)
    images = {"truth": plots.composite(case.truth, bands, everywhere, limits)}
    images[INPUT] = plots.composite(case.y, bands, case.observed, limits)
    for name, x in case.results.items():
        images[name] = plots.composite(x, bands, everywhere, limits)
    columns = 5 if len(images) > 8 else 4 if len(images) > 6 else 3
    lines = -(-len(images) // columns)
    rows, cols = case.truth.shape[1:]
    figure = new_figure(WIDTH, lines * (WIDTH / columns * rows / cols + 0.35))
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for axis in axes:
        axis.set_axis_off()
    for axis, (name, image) in zip(axes, images.items(), strict=False):
        axis.imshow(image, interpolation="nearest")
        axis.set_title(_title(case, name, slice(None), columns), fontsize=7)
    return figure


def band_panels(case: Case, band: int) -> Figure:
    """Draw one band (counted from 1): truth, input and fills in one grey scale, with their errors.

    The size of the error is drawn below each fill.  Scenes much taller than wide are laid on their
    side.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    from hydiff.report import plots

    at, everywhere = (band - 1,) * 3, np.ones(case.truth.shape, bool)
    limits = plots.stretch(case.truth, at, everywhere)
    images = {"truth": plots.composite(case.truth, at, everywhere, limits)}
    images[INPUT] = plots.composite(case.y, at, case.observed, limits)
    errors = {n: np.abs(x[at[0]] - case.truth[at[0]]) for n, x in case.results.items()}
    images |= {n: plots.composite(x, at, everywhere, limits) for n, x in case.results.items()}
    gaps = [e[~case.observed[at[0]]] for e in errors.values()]
    top = float(np.percentile(gaps, 99)) if gaps else 1.0
    rows, cols = case.truth.shape[1:]
    rotated = rows > 1.5 * cols
    aspect = cols / rows if rotated else rows / cols  # height of a picture over its width
    blocks = -(-len(images) // (3 if aspect < 0.7 else 5))
    columns = -(-len(images) // blocks)  # the last line has as many, or nearly so
    figure = new_figure(WIDTH, 2 * blocks * (0.85 * WIDTH / columns * aspect + 0.15) + 0.3)
    grid = figure.subplots(2 * blocks, columns, squeeze=False)
    for axis in grid.ravel():
        axis.set_axis_off()
    for i, (name, image) in enumerate(images.items()):
        line, column = divmod(i, columns)
        _show(grid[2 * line, column], image, rotated)
        title = _title(case, name, slice(band - 1, band), columns)
        grid[2 * line, column].set_title(title, fontsize=7)
        if name in errors:
            _show(grid[2 * line + 1, column], errors[name], rotated, top)
    scale = ScalarMappable(Normalize(0, top), "cividis")
    bar = figure.colorbar(scale, ax=grid, shrink=0.5, aspect=30, extend="max")
    bar.set_label(f"Size of the error in band {band},\nunit range", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    return figure


def _show(axis: Axes, image: Array, rotated: bool, top: float = 1.0) -> None:
    """Show a picture: colours (rows, cols, 3), or values (rows, cols) from 0 to `top`.

    rotated: exchange rows and columns.
    """
    shown = image.swapaxes(0, 1) if rotated else image
    axis.imshow(shown, interpolation="nearest", cmap="cividis", vmin=0, vmax=top)


def _title(case: Case, name: str, bands: slice, columns: int) -> str:
    """Title in a figure of `columns` columns: a name and, for a fill, the MPSNR of its gaps."""
    if name not in case.results:
        return name
    score = metrics.mpsnr(case.results[name][bands], case.truth[bands], ~case.observed[bands])
    return f"{textwrap.fill(name, 100 // columns)}\n{score:.1f} dB in the gaps"


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")
