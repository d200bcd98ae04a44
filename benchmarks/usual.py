"""Learn how large errors in gaps usually are, and judge that on scenes that had no part in it.

    python benchmarks/usual_cells.py train TRAIN       simulated gaps in Sentinel-2 crops
    python benchmarks/usual_cells.py dev DEV           and in the development scenes
    python benchmarks/usual.py learn TRAIN             writes results/usual.csv: `auto.usual`
    python benchmarks/usual.py judge DEV               writes results/foresight_unseen.csv

`learn` fits the usual size of errors to entries in the gaps, then, by cell, how far the folds are
to be believed.  Tails are those of places left out of the fit.  `judge` compares with the constants
that were fitted to the development scenes themselves.
"""

import csv
import math
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
from scipy.optimize import minimize

from hydiff.auto import blend, intervals, usual
from hydiff.auto.candidates import CLASSICAL, SPECTRAL
from hydiff.auto.classes import Around, Kinds
from hydiff.auto.trials import Trial

RESULTS = Path(__file__).parent / "results"
BY_VALUE = ("brightest", "darkest", "saturated")
WITHIN, RIDGE, EVERY = 0.15, 1.0, 6
# fitted to the development scenes
OLD_SLOPES, OLD_LEVEL, OLD_LEVELS = np.array((0.8, 1.0, 0.4, 0.2)), -0.2, 0.5
OLD_SHAPE = (0.48, 1.11, 2.07)
NAMES = ("SCENES", "NOISY", "FOLDS", "BETWEEN", "DROWNED", "DOUBT", "GAPS", "ONE_GAP")
START = np.array((0.0, -1.4, -1, -4, -0.5, -5, -3, -5, -1))  # BIAS, and logarithms of those


class UsualCase:
    """What was kept of one cell."""

    def __init__(self, path):
        self.scene, self.mask, noise = path.stem.split(".", 2)
        self.place = self.scene.split("_")[0]
        self.estimated, self.sigma_y = noise.endswith("e"), float(noise.rstrip("e"))
        kept = np.load(path)
        self.group, self.varies, self.whole = kept["group"], kept["varies"], bool(kept["whole"])
        self.kinds, self.trials = Kinds(kept["kinds"], kept["edges"]), []
        while f"band{len(self.trials)}" in kept:
            self.trials.append(self._trial(kept, len(self.trials)))
        self.around = kept["filled_around"].astype(float)
        self.band, self.distance = (kept[f"filled_{k}"].astype(int) for k in ("band", "distance"))
        self.residual = kept["filled_residual"].astype(float)
        if len(self.trials) > 1:
            candidates = list(CLASSICAL if self.whole else SPECTRAL)
            self.weights = blend.weights_of(self.trials, self.kinds, candidates, 0)
            used = self.weights.all[:, self.distance, self.group[self.band]]
            self.x = (used * self.residual).sum(axis=0)

    def _trial(self, kept, i):
        band = kept[f"band{i}"].astype(int)
        residual, around, noise = (
            kept[f"{k}{i}"].astype(float) for k in ("residual", "around", "noise")
        )
        angle, distance = np.ones((2, int(kept[f"pixels{i}"]))), kept[f"distance{i}"].astype(int)
        gap = kept[f"gap{i}"].astype(int)
        return Trial(
            residual, band, self.group[band], distance, around, noise, angle, None, gap
        )  # fmt: skip

    @property
    def noise(self):
        """(bands,) share of the variance."""
        band = np.concatenate([t.band for t in self.trials])
        noise = np.concatenate([t.noise for t in self.trials])
        count = np.bincount(band, minlength=len(self.group))
        mean = np.bincount(band, noise, len(self.group)) / np.maximum(count, 1)
        return np.minimum(mean, 1.0)

    def nrmse(self, square):
        count = np.bincount(self.band, minlength=len(self.group))
        mean = np.bincount(self.band, square, len(self.group)) / np.maximum(count, 1)
        return float(np.mean((np.sqrt(mean) / self.varies)[count > 0]))

    def expected(self, level, slopes, by_band):
        square = np.array(by_band)[self.band] * np.exp(level + np.array(slopes) @ self.around)
        return np.minimum(square, intervals.MOST)

    def hidden(self):
        residuals = [blend.mixed(t, self.weights.all) for t in self.trials]
        return intervals.Hidden.of(self.trials, residuals, self.kinds)

    def fitted(self):
        """Hidden entries, their expected squares by the folds alone, and the model of these."""
        hidden, pixels = self.hidden(), sum(t.angle.shape[1] for t in self.trials)
        model = intervals._fitted(hidden, len(self.group), pixels)
        return hidden, hidden.expected(*model), model


def cases(folder):
    every = [UsualCase(p) for p in sorted(Path(folder).glob("*.npz")) if ".part" not in p.name]
    return [c for c in every if len(c.trials) > 1 and len(c.band)]


# ── learn ────────────────────────────────────────────────────────────────────────────────────────


def usual_of(some):
    """Coefficients of `usual.design`: a gamma law for the squares in the gaps, cells alike."""
    X = np.concatenate(
        [usual.design(c.around[:, ::EVERY], c.noise[c.band[::EVERY]]) for c in some], axis=1
    )
    square = np.concatenate([c.residual[0, ::EVERY] ** 2 for c in some])
    weight = np.concatenate([np.full(-(-len(c.band) // EVERY), EVERY / len(c.band)) for c in some])
    ridge = np.r_[0.0, np.full(len(X) - 1, RIDGE)]

    def loss(b):
        level = b @ X
        value = weight @ (level + square * np.exp(-level)) + 0.5 * ridge @ b**2
        return value, X @ (weight * (1 - square * np.exp(-level))) + ridge * b

    start = np.r_[np.log(np.average(square, weights=weight)), np.zeros(len(X) - 1)]
    return minimize(loss, start, jac=True, method="BFGS").x


def evidence_of(some):
    """Off, apart, drowned, copies and r, the logarithm of the true square error over that which
    the folds show, of each cell."""
    rows = []
    for case in some:
        hidden, expected, model = case.fitted()
        r = 2 * math.log(case.nrmse(case.x**2) / case.nrmse(case.expected(*model)))
        rows.append((*hidden.evidence(expected), r))
    return np.array(rows).T


def foreseen(q, evidence):
    """Mean and variance of r, as `usual.foresee` has them."""
    off, apart, drowned, copies, _ = evidence
    scenes, noisy, folds, between, noise, doubt, gaps, one = np.exp(q[1:])
    hidden = drowned / (1 + drowned)
    own = folds + between * apart + noise * drowned**2 + doubt * hidden * off**2
    share = own / (own + scenes + noisy * hidden)
    return q[0] - share * off, (1 - share) * own + gaps + one / copies


def believed(evidence, start=START):
    """The numbers of `foreseen` that suit r best, which has heavy tails: Student's t."""

    def loss(q):
        mean, variance = foreseen(q, evidence)
        square = (evidence[-1] - mean) ** 2 / variance
        return np.sum(0.5 * np.log(variance) + 2.5 * np.log1p(square / 4)) + 0.01 * np.sum(q**2)

    return minimize(loss, start, bounds=[(-1, 1), *[(-9, 3)] * (len(START) - 1)]).x


def learn(folder):
    every = [c for c in cases(folder) if c.mask not in BY_VALUE]
    whole, partial = [c for c in every if c.whole], [c for c in every if not c.whole]
    coefficients = np.round(usual_of(whole), 2)
    with patch.object(usual, "USUAL", tuple(coefficients)):
        evidence, rest = evidence_of(whole), evidence_of(partial)[-1]
        q = believed(evidence)
        places, z = np.array([c.place for c in whole]), np.empty(len(whole))
        for place in np.unique(places):
            other = places != place
            mean, variance = foreseen(believed(evidence[:, other], q), evidence[:, ~other])
            z[~other] = (evidence[-1, ~other] - mean) / np.sqrt(variance)
        tails, mean = np.quantile(z, (0.1, 0.9)), foreseen(q, evidence)[0]
        ratio = [
            np.abs(c.x[::EVERY]) / np.sqrt(c.expected(*c.fitted()[2])[::EVERY] * math.exp(m))
            for c, m in zip(whole, mean, strict=True)
            if not c.sigma_y
        ]
    # of the gaps of pixels with some bands, the same tails
    width = np.quantile(np.abs(rest), 0.8) / np.mean(np.abs(tails))
    shape = np.quantile(np.concatenate(ratio), (0.5, 0.8, 0.95))
    names = ("level", *Around._fields)
    found = [(f"USUAL {n}", b) for n, b in zip(names, coefficients, strict=False)]
    found += [(f"USUAL noise × {n}", b) for n, b in zip(names, coefficients[5:], strict=False)]
    found += [("USUAL signal", coefficients[-1]), ("BIAS", q[0])]
    found += [*zip(NAMES, np.exp(q[1:]), strict=True), ("PARTIAL", width**2)]
    found += [(f"TAILS {p}", t) for p, t in zip((10, 90), tails, strict=True)]
    found += [(f"SHAPE {p}", s) for p, s in zip((50, 80, 95), shape, strict=True)]
    write("usual.csv", [{"constant": n, "value": f"{v:.4g}"} for n, v in found])
    print(len(whole), "cells with gaps of whole pixels,", len(partial), "with gaps by band")


# ── judge ────────────────────────────────────────────────────────────────────────────────────────


def now(case):
    """Expected squares, half widths of the intervals and bounds, as `auto` has them."""
    errors = intervals.errors_of(
        case.trials, case.weights, case.kinds, len(case.group), case.whole
    )  # fmt: skip
    square = case.expected(errors.level, errors.slopes, errors.by_band)
    widths = np.array(errors.intervals) * errors.widening
    return square, widths, errors.bounds


def before(case):
    """The same by the constants that were fitted to the development scenes."""
    with patch.object(usual, "slopes", lambda noise: OLD_SLOPES):
        hidden, expected, (level, slopes, by_band) = case.fitted()
    drawn = 0.0
    if case.whole and not hidden.noise.any():
        usually = hidden.expected(OLD_LEVEL, OLD_SLOPES, np.ones(len(case.group)))
        off = math.log(hidden.weight @ expected / (hidden.weight @ usually))
        levels = np.log(hidden.by_fold(usually))
        drawn = intervals._drawn(levels - levels.mean() + off, 0.0, OLD_LEVELS) - off
    with patch.object(usual, "SHAPE", OLD_SHAPE):
        widths = hidden.shape(expected, 1e9)
    return case.expected(level + drawn, slopes, by_band), widths, (1.0, 1.0)


def judged(name, some, way):
    """A row: how well the NRMSE of some cells is foreseen, and what intervals cover."""
    off, inside, held = [], [], []
    for case in some:
        square, widths, (low, high) = way(case)
        ratio = case.nrmse(case.x**2) / case.nrmse(square)
        off.append(-math.log(ratio))
        held.append(low <= ratio <= high)
        inside.append([np.mean(np.abs(case.x) <= w * np.sqrt(square)) for w in widths])
    off, inside = np.array(off), 100 * np.array(inside)
    row = {"cells of": name, "constants": way.__name__, "cells": len(some)}
    row |= {"within_15_percent": 100 * np.mean(np.abs(np.exp(off) - 1) <= WITHIN)}
    row |= {"log_scatter": np.std(off), "lowest": np.exp(off.min()), "highest": np.exp(off.max())}
    row["inside_bounds"] = 100 * np.mean(held) if way is now else ""
    row |= {f"inside_{p}": v for p, v in zip((50, 80, 95), inside.mean(axis=0), strict=True)}
    low, high = np.quantile(inside[:, 1], (0.1, 0.9))
    return row | {"inside_80_low": low, "inside_80_high": high}


def judge(folder):
    every = cases(folder)
    clean = [c for c in every if not c.sigma_y]
    groups = {
        "whole pixels": [c for c in clean if c.whole and c.mask not in BY_VALUE],
        "bands": [c for c in clean if not c.whole and c.mask not in BY_VALUE],
        "σ_y 0.1, given": [c for c in every if c.sigma_y == 0.1 and not c.estimated],
        "σ_y 0.3, given": [c for c in every if c.sigma_y == 0.3 and not c.estimated],
        "σ_y 0.1, estimated": [c for c in every if c.sigma_y == 0.1 and c.estimated],
        "σ_y 0.3, estimated": [c for c in every if c.sigma_y == 0.3 and c.estimated],
        **{name: [c for c in clean if c.mask == name] for name in BY_VALUE},
    }
    rows = [judged(n, some, way) for n, some in groups.items() if some for way in (before, now)]
    write("foresight_unseen.csv", rows)


def write(name, rows):
    with (RESULTS / name).open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0], lineterminator="\n")
        table.writeheader()
        for row in rows:
            row = {
                k: f"{v:.2f}" if isinstance(v, float | np.floating) else v for k, v in row.items()
            }
            table.writerow(row)
            print(*row.values())


if __name__ == "__main__":
    {"learn": learn, "judge": judge}[sys.argv[1]](sys.argv[2])
