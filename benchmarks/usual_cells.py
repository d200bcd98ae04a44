"""Errors of simulated gaps as the default fill estimates them, stored with the true ones.

    python benchmarks/usual_cells.py train FOLDER      Sentinel-2 crops of 14 places
    python benchmarks/usual_cells.py dev FOLDER [--side 72]      the development scenes

`usual.py` learns from these cells.  Budget `fast` on a CPU; the network of the prior takes part in
a third of the cells of `train` and in four masks of `dev`.  Cells of `train` are crops of 64 to 96
pixels with 3 to 12 bands, which are bands of an image or random mixtures of them; some with noise
have 30 to 200 mixtures.  Those of `dev` have every n-th band of a scene, about 8, or all, and all
of its pixels, or at most --side rows and columns.  Masks are of all kinds; noise is known or
estimated.  Writes one file FOLDER/NAME.npz for each cell;
existing files are not computed again.
"""

import argparse
import multiprocessing
import os
import time
import zlib
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from hydiff.auto import usual
from hydiff.auto.candidates import (
    CLASSICAL,
    FAST_PRIOR,
    PRIOR_FOLDS,
    SPECTRAL,
    SPECTRAL_FOLDS,
    budget_of,
)
from hydiff.auto.classes import EDGES, around, band_spread, class_counts, groups
from hydiff.auto.fits import own_fits, pretrained_fits
from hydiff.auto.folds import TrialWindow, folds_of
from hydiff.auto.trials import BareWindow, hidden_pixels, looked_at, trial_of, with_costly
from hydiff.bench import scenes
from hydiff.cube import as_cube
from hydiff.gaps.mask import columns_needed, make_mask
from hydiff.methods.estimate import Job

JOB = Job(0, "cpu")
HIDDEN, FILLED = 2000, 8000  # number of entries that are stored of a fold, and of the gaps
WHOLE = ("stripes", "slc-off", "blobs", "frames", "tiles", "lines", "full", "dots")
WITH_PRIOR = ("stripes", "slc-off", "blobs", "frames")
PUBLISHED = tuple(f"published-{i}" for i in (1, 2, 3, 4))
BY_BAND = ("columns", "pixels")
BY_VALUE = ("brightest", "darkest", "saturated")  # 2 % of the pixels; 2 % of every band
NOISE = (0.1, 0.2, 0.3)
SIDE, BANDS = 144, 12  # side of the largest development scene; most bands of a crop for training
MANY = (30, 200)  # bands of some crops with noise, as of a hyperspectral sensor
BLOCK = 16  # px: side of the squares that the place of an entry is rounded to


class UsualCell(NamedTuple):
    scene: str
    mask: str
    sigma_y: float = 0.0
    estimated: bool = False
    side: int = SIDE  # px, at most
    many: bool = False  # bands: all of a development scene, MANY mixtures of those of a crop

    @property
    def name(self):
        noise = f"{self.sigma_y:g}{'m' if self.many else ''}{'e' if self.estimated else ''}"
        return f"{self.scene}.{self.mask}.{noise}"

    @property
    def rng(self):
        return np.random.default_rng(zlib.crc32(self.name.encode()))

    def tries_prior(self, learning):
        if learning:
            return self in list(train_cells())[::3]
        return not self.sigma_y and self.mask in WITH_PRIOR


def train_cells():
    with np.load(scenes.data_folder() / "train" / "sentinel2.npz") as images:
        places = sorted({name.split("_")[0] for name in images})
    kinds = [f"_{d}_{r}" for d in (1, 2) for r in ("20m", "10m", "20m_corner", "10m_corner")]
    for i, place in enumerate(places):
        scene = [f"{place}{kind}" for kind in kinds]
        for j, mask in enumerate((*WHOLE, *WHOLE[:4])):
            yield UsualCell(scene[(i + 3 * j + j // 8) % 8], mask if j < 8 else f"{mask}-again")
        for j, mask in enumerate(BY_BAND):
            yield UsualCell(scene[(i + 4 * j) % 8], mask)
        for j, estimated in enumerate((False, True)):
            for k in range(2):
                mask, sigma_y = WHOLE[(i + 2 * j + k) % len(WHOLE)], NOISE[(i + k + j) % 3]
                yield UsualCell(scene[(i + 3 * k) % 8], mask, sigma_y, estimated)
                yield UsualCell(scene[(i + 3 * k + 1) % 8], mask, sigma_y, estimated, many=True)
        yield UsualCell(scene[i % 8], BY_VALUE[i % 3])


def dev_cells(side=SIDE):
    names = [name for name in scenes.available() if "_img" not in name]
    for name in names:
        for mask in (*PUBLISHED, "stripes", "slc-off", "blobs", "frames", *BY_BAND, *BY_VALUE):
            if mask not in PUBLISHED or min(scenes.columns(name), side) >= columns_needed(mask):
                yield UsualCell(name, mask, side=side)
        if side == SIDE:
            yield from (UsualCell(name, mask, many=True) for mask in WITH_PRIOR)
    for i, name in enumerate(names):
        for sigma_y in (NOISE[0], NOISE[2]):
            for estimated in (False, True):
                mask = ("stripes", "blobs", "slc-off")[i % 3]
                yield UsualCell(name, mask, sigma_y, estimated, side)
                if side == SIDE:
                    yield UsualCell(name, mask, sigma_y, estimated, many=True)


def truth_of(cell, learning):
    """(bands, rows, cols) on [0, 1]."""
    if not learning:
        x = scenes.load(cell.scene)
        return x[:: 1 if cell.many else max(len(x) // 8, 1), : cell.side, : cell.side]
    rng = cell.rng
    file = "sentinel2_corners.npz" if cell.scene.endswith("corner") else "sentinel2.npz"
    with np.load(scenes.data_folder() / "train" / file) as images:
        x = images[cell.scene].astype(float)
    if "10m" in cell.scene and rng.random() < 0.5:  # another resolution
        rows, cols = (n // 2 * 2 for n in x.shape[1:])
        x = x[:, :rows, :cols].reshape(len(x), rows // 2, 2, cols // 2, 2).mean(axis=(2, 4))
    side = min(int(rng.choice((64, 64, 80, 96))), *x.shape[1:])
    row, col = (int(rng.integers(n - side + 1)) for n in x.shape[1:])
    x = x[:, row : row + side, col : col + side]
    if cell.many:
        x = spectra_like(x, rng)
    elif cell.mask not in BY_BAND and rng.random() < 0.5:
        bands = int(rng.integers(3, BANDS + 1))
        spread = x.std(axis=(1, 2))[:, None, None]
        x = np.tensordot(rng.random((bands, len(x))) ** 3, x / np.maximum(spread, 1e-9), 1)
    else:
        x = x[np.sort(rng.permutation(len(x))[: int(rng.integers(3, len(x) + 1))])]
    return scenes.unit(x)


def spectra_like(x, rng):
    """MANY bands, each a mixture of the bands of an image that lie next to it.  They vary as
    unequally as the image's: noise of one size hides some of them more than others."""
    bands = int(rng.integers(*MANY, endpoint=True))
    at, own = np.linspace(0, len(x) - 1, bands)[:, None], np.arange(len(x))
    mixture = np.exp(-0.5 * ((at - own) / rng.uniform(0.3, 1.5)) ** 2)
    mixture *= np.exp(0.5 * rng.standard_normal(mixture.shape))
    return np.tensordot(mixture / mixture.sum(axis=1, keepdims=True), x, 1)


def observed_of(cell, x, learning):
    """(bands, rows, cols)"""
    kind, shape, rng = cell.mask.removesuffix("-again"), x.shape, cell.rng
    if kind in BY_VALUE:
        return np.broadcast_to(by_value(kind, x), shape)
    if not learning:
        return np.broadcast_to(scenes.observed_of(kind, shape), shape)
    share = float(rng.uniform(0.08, 0.42))
    if kind == "dots":
        return np.broadcast_to(rng.random(shape[1:]) > share, shape)
    if kind == "full":  # stripes of full height, of one width
        width, cols = int(rng.integers(2, 12)), np.arange(shape[2])
        return np.broadcast_to((cols + int(rng.integers(40))) % int(width / share) >= width, shape)
    if kind == "frames":
        share = None
    return np.broadcast_to(make_mask(kind, shape, share, rng), shape)


def by_value(kind, x):
    if kind == "saturated":
        return x < np.quantile(x, 0.98, axis=(1, 2))[:, None, None]
    bright = (x / x.std(axis=(1, 2))[:, None, None]).mean(axis=0)
    high = np.quantile(bright, 0.98 if kind == "brightest" else 0.02)
    return bright < high if kind == "brightest" else bright > high


def damaged(cell, learning):
    """Truth, cube with gaps, observed and what a fill is given as σ_y."""
    x = truth_of(cell, learning)
    observed = observed_of(cell, x, learning)
    y = x + cell.sigma_y * cell.rng.standard_normal(x.shape)
    return (
        x,
        as_cube(np.where(observed, y, np.nan)),
        observed,
        "auto" if cell.estimated else cell.sigma_y,
    )


def some(n, most):
    """Of n entries, at most so many, spread evenly."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))


def block_of(row, col):
    """The number of the square that pixels lie in."""
    return np.int16(row // BLOCK * (SIDE // BLOCK + 1) + col // BLOCK)


def kept(cell, learning):
    truth, cube, observed, sigma_y = damaged(cell, learning)
    target = ~observed
    whole = not (observed != observed[0]).any()
    plain = CLASSICAL if whole else SPECTRAL
    with_prior = whole and cell.tries_prior(learning)
    candidates = [*plain, FAST_PRIOR] if with_prior else plain
    hidden = folds_of(cube, observed, budget_of("fast", JOB).folds if whole else SPECTRAL_FOLDS, 0)
    kinds, out = class_counts([(cube, observed, target)]), {}
    window, prior = TrialWindow(cube, observed, target), []
    if with_prior:
        first = [(0, fold) for fold in hidden[:PRIOR_FOLDS]]
        own = [FAST_PRIOR]
        prior = pretrained_fits(own, own, [window], first, sigma_y, JOB, 1)[FAST_PRIOR.name]
    for i, fold in enumerate(hidden):
        with patch.object(usual, "ESTIMATED", 0.0):  # `usual.py` applies the share that it learns
            trial = trial_of(BareWindow(cube, observed), fold, candidates, sigma_y, JOB)
        if with_prior and i < PRIOR_FOLDS:
            trial = with_costly(
                trial, {len(plain): prior[i].values[:, hidden_pixels(fold)]}, window, fold
            )
        at = some(len(trial.band), HIDDEN)
        out |= {
            f"residual{i}": np.float32(trial.residual[:, at]),
            f"around{i}": np.float32(trial.around[:, at]),
            f"band{i}": np.int16(trial.band[at]),
            f"distance{i}": np.int8(trial.distance[at]),
            f"noise{i}": np.float32(trial.noise[at]),
            f"signal{i}": np.float32(trial.signal[at]),
            f"gap{i}": np.int32(trial.gap[at]),
            f"block{i}": block_of(*looked_at(fold)[1:])[at],
            f"pixels{i}": np.array(trial.angle.shape[1]),
        }
    pixels = target.any(axis=0)
    fits = own_fits(plain, cube, observed, sigma_y, JOB)
    values = [e.values for e in fits]
    values = [np.where(np.isfinite(v), v, values[0]) for v in values]
    lies = around(cube, observed, [v[:, pixels] for v in values], pixels, target[:, pixels])
    values += [prior[-1].values] if prior else []
    at = some(int(target.sum()), FILLED)
    band, row, col = (index[at] for index in np.nonzero(target))
    number = (np.cumsum(pixels).reshape(pixels.shape) - 1)[row, col]
    spread = band_spread(cube, observed)
    less = (cell.sigma_y / fits[0].sigma_y).mean() ** 2 if cell.estimated else 1.0
    off = [(v - truth)[band, row, col] / spread[band] for v in values]
    far, *logs = (
        f[number] if f.ndim == 1 else f[band, number] for f in (lies.distance, *lies.logs())
    )
    return out | {
        "filled_residual": np.float32(off),
        "filled_around": np.float32(logs),
        "filled_band": np.int16(band),
        "filled_block": block_of(row, col),
        "filled_distance": np.int8(np.digitize(far, EDGES)),
        "group": groups(cube.bands),
        "varies": truth.std(axis=(1, 2)) / spread,
        "fill_variance": values[0].var(axis=(1, 2)) / spread**2,
        "kinds": kinds.number,
        "edges": kinds.edges,
        "whole": np.array(whole),
        "missing": np.array(target.mean()),
        "less": np.array(less),
    }


def keep(task):
    cell, folder, learning = task
    start, path = time.process_time(), folder / f"{cell.name}.npz"
    if path.exists():  # another process may have computed it, from the other end of the list
        return f"{cell.name} is there"
    part = path.with_suffix(f".part{os.getpid()}.npz")
    np.savez(part, **kept(cell, learning))
    part.rename(path)
    return f"{cell.name} {time.process_time() - start:.1f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=("train", "dev"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--side", type=int, default=SIDE, help="px of a development scene, at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--backwards", action="store_true", help="from the last cell")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    learning = args.which == "train"
    cells = train_cells() if learning else dev_cells(args.side)
    cells = [c for c in cells if not (args.folder / f"{c.name}.npz").exists()]
    cells = cells[::-1] if args.backwards else cells
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        tasks = [(c, args.folder, learning) for c in cells]
        for line in pool.imap_unordered(keep, tasks):
            print(line, flush=True)


if __name__ == "__main__":
    main()
