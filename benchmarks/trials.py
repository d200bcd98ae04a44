"""Errors of the candidates as the default fill estimates them, stored with their true errors.

    python benchmarks/trials.py FOLDER [--part 0 --of 4] [--seconds 300]

Uses every scene of `hydiff bench best` (the first of overlapping ones) and every mask that all
bands share, without noise.  FOLDER/SCENE.MASK.npz contains, for some of the entries, the errors of
the candidates on the folds and in the gaps themselves, and features of the surroundings of both.
Existing files are not computed again.  On a GPU, the networks of the budget `normal` are among the
candidates, fitted on NETWORKS folds.  `foresight.py` reads the files, to compare ways of blending
and of predicting errors.  The prior is left out; for its share see `prior_shares.py`.
"""

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

from hydiff.auto.candidates import BUDGETS, budget_of
from hydiff.auto.classes import EDGES, around, band_spread, class_counts, groups
from hydiff.auto.fits import crossfit, own_fits
from hydiff.auto.folds import TrialWindow, folds_of
from hydiff.auto.trials import BareWindow, hidden_pixels, trial_of, with_costly
from hydiff.bench import scenes
from hydiff.bench.suites import BEST_MASKS
from hydiff.cube import as_cube
from hydiff.methods.estimate import Job

MASKS = tuple(m for m in BEST_MASKS if m not in ("columns", "pixels"))
NETWORKS = 4
HIDDEN, FILLED = 2500, 12_000  # number of entries that are stored of a fold, and of the gaps
JOB = Job(0, "auto")


def some(n, most):
    """Of n entries, at most so many, spread evenly."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))


def kept(scene, mask, pool):
    truth = np.asarray(scenes.load(scene), dtype=np.float64)
    observed = np.broadcast_to(scenes.observed_of(mask, truth.shape), truth.shape)
    cube, seen, target = as_cube(np.where(observed, truth, np.nan)), observed, ~observed
    budget = budget_of("normal", JOB, prior=False)
    plain = [c for c in budget.candidates if not c.crossfit]
    networks = [c for c in budget.candidates if c.crossfit]
    folds = folds_of(cube, seen, BUDGETS["fast"].folds, 0)
    waiting = [pool.submit(trial_of, BareWindow(cube, seen), f, plain, 0.0, JOB) for f in folds]
    own = pool.submit(own_fits, plain, cube, seen, 0.0, JOB)
    parts = [(cube, seen & ~fold) for fold in folds[:NETWORKS]]
    fits = [crossfit(c, parts, 0.0, JOB) for c in networks] if parts else []
    kinds, out = class_counts([(cube, seen, target)]), {}
    for i, (one, fold) in enumerate(zip(waiting, folds, strict=True)):
        trial = one.result()
        unknown = np.full((len(fits), len(trial.band)), np.nan)
        residual = np.vstack([trial.residual, unknown])
        if i < NETWORKS:
            estimates = {len(plain) + m: fit[i] for m, fit in enumerate(fits)}
            wide = trial._replace(residual=residual)
            found = {m: fit.values[:, hidden_pixels(fold)] for m, fit in estimates.items()}
            residual = with_costly(wide, found, TrialWindow(cube, seen, target), fold).residual
        at = some(len(trial.band), HIDDEN)
        out |= {
            f"residual{i}": residual[:, at].astype(np.float16),
            f"around{i}": trial.around[:, at].astype(np.float16),
            f"band{i}": trial.band[at].astype(np.int16),
            f"distance{i}": trial.distance[at].astype(np.int8),
            f"pixels{i}": np.array(trial.angle.shape[1]),
        }
    pixels = target.any(axis=0)
    values = [e.values for e in own.result()]
    lies = around(cube, seen, [v[:, pixels] for v in values], pixels, target[:, pixels])
    at = some(int(target.sum()), FILLED)
    band, row, col = (index[at] for index in np.nonzero(target))
    number = (np.cumsum(pixels).reshape(pixels.shape) - 1)[row, col]
    estimates = values + [fit.values for several in fits for fit in several]
    spread = band_spread(cube, seen)
    off = [(v - truth)[band, row, col] / spread[band] for v in estimates]
    full = [np.sqrt(((v - truth) ** 2).mean(axis=(1, 2), where=target)) / spread for v in estimates]
    return out | {
        "filled_residual": np.float16(off),
        "filled_around": np.float16([f[number] for f in lies.logs()]),
        "filled_band": band.astype(np.int16),
        "filled_distance": np.digitize(lies.distance[number], EDGES).astype(np.int8),
        "filled_rmse": np.float32(full),  # (candidates and fits, bands), of all entries
        "group": groups(cube.bands),
        "varies": truth.std(axis=(1, 2)) / spread,
        "kinds": kinds.number,
        "edges": kinds.edges,
        "names": np.array([c.name for c in plain] + [c.name for c in networks for _ in parts]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    cells = [(scene, mask) for mask in MASKS for scene in scenes.available() if "_img" not in scene]
    cells = [(s, m) for s, m in cells if not (args.folder / f"{s}.{m}.npz").exists()]
    began = time.perf_counter()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.processes, mp_context=spawn) as pool:
        for scene, mask in cells[args.part :: args.of]:
            start, path = time.perf_counter(), args.folder / f"{scene}.{mask}.npz"
            if start - began > args.seconds:
                break
            np.savez_compressed(path, **kept(scene, mask, pool))
            if torch.cuda.is_available():
                torch.cuda.empty_cache()  # free the memory of the fits for other processes
            print(f"{path.name} {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
