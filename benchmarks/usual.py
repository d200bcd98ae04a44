"""Learn the usual size of errors in gaps, and evaluate it on scenes that were not used for this.

    python benchmarks/usual_cells.py train TRAIN       simulated gaps in Sentinel-2 crops
    python benchmarks/usual_cells.py dev DEV           and in the development scenes
    python benchmarks/usual.py learn TRAIN             writes results/usual.csv: `auto.usual`
    python benchmarks/usual_cells.py dev SMALL --side 72         and in crops of these
    python benchmarks/usual.py judge DEV SMALL         writes results/foresight_unseen.csv

`learn` fits the usual size of errors to entries in the gaps.  Then it fits to whole cells how much
the slopes of this model, the folds, and the hidden copies of the gaps should weigh.  Tails are
those of places left out of the fit, widened until they hold in four of five places.
"""

import math
import sys
from pathlib import Path
from statistics import NormalDist
from unittest.mock import patch

import numpy as np
from scipy.optimize import minimize

from hydiff.auto import blend, intervals, usual
from hydiff.auto.candidates import CLASSICAL, FAST_PRIOR, SPECTRAL
from hydiff.auto.classes import Around, ClassCounts
from hydiff.auto.hidden import MOST, Hidden
from hydiff.auto.trials import Trial
from hydiff.bench import records
from hydiff.bench.statistics import bootstrap
from hydiff.maths.scoring import LEVELS, NORMAL_QUANTILES, interval_score, repeated_inside

RESULTS = Path(__file__).parent / "results"
BY_VALUE = ("brightest", "darkest", "saturated")
WITHIN, RIDGE, EVERY = 0.15, 1.0, 6
NAMES = (
    *("SCENES", "NOISY", "FOLDS", "BETWEEN", "DROWNED", "DOUBT"),
    *("GAPS", "ONE_GAP", "UNEVEN"),
)
START = np.array(
    (0.0, -1.4, -1, -4, -0.5, -5, -3, -5, -1, 0)
)  # start of the fit: BIAS, and the logarithms of NAMES
ONE_MORE, COPIES = np.linspace(0, 1, 11), (0, 2, 5, 10, 20, 50)  # values that are compared
TRUST, UNSURE = (150.0, 500.0, 1500.0, 5000.0, 15_000.0), 2.0


class UsualCase:
    """What was kept of one cell."""

    def __init__(self, path):
        self.scene, self.mask, noise = path.stem.split(".", 2)
        self.place = self.scene.split("_")[0]
        self.estimated, self.many = "e" in noise, "m" in noise
        self.sigma_y = float(noise.rstrip("em"))
        kept = np.load(path)
        self.group, self.varies, self.whole = kept["group"], kept["varies"], bool(kept["whole"])
        self.less, self.share = float(kept["less"]), float(kept["missing"])
        self.fill_variance = kept["fill_variance"] if self.sigma_y else None
        self.kinds, self.trials = ClassCounts(kept["kinds"], kept["edges"]), []
        while f"band{len(self.trials)}" in kept:
            self.trials.append(self._trial(kept, len(self.trials)))
        self.hidden_block = [kept[f"block{i}"] for i in range(len(self.trials))]
        self.block, self.around = kept["filled_block"], kept["filled_around"].astype(float)
        self.band, self.distance = (kept[f"filled_{k}"].astype(int) for k in ("band", "distance"))
        self.residual = kept["filled_residual"].astype(float)
        if len(self.trials) > 1:
            plain = CLASSICAL if self.whole else SPECTRAL
            candidates = [*plain, FAST_PRIOR][: len(self.residual)]
            self.weights = blend.weights_of(self.trials, self.kinds, candidates, 0)
            self.x, self.plain = map(self.blended, (self.weights.all, self.weights.plain))

    def blended(self, weights):
        used = weights[:, self.distance, self.group[self.band]]
        return (used * self.residual).sum(axis=0)

    def _trial(self, kept, i):
        band = kept[f"band{i}"].astype(int)
        residual, around, noise, signal = (
            kept[f"{k}{i}"].astype(float) for k in ("residual", "around", "noise", "signal")
        )
        noise *= usual.subtracted(len(self.group)) if self.estimated else 1.0
        angle, distance = np.ones((2, int(kept[f"pixels{i}"]))), kept[f"distance{i}"].astype(int)
        gap = kept[f"gap{i}"].astype(int)
        return Trial(
            residual, band, self.group[band], distance, around, noise, signal, angle,
            np.zeros_like(residual), gap,
        )  # fmt: skip

    @property
    def noise(self):
        """(bands,) share of the variance."""
        return np.minimum(self.by_band([t.noise for t in self.trials]), 1.0)

    @property
    def signal(self):
        """(bands,) variance without noise, as a share of the variance."""
        return np.maximum(self.by_band([t.signal for t in self.trials]), usual.LEAST_SIGNAL)

    def by_band(self, shares):
        band, count = np.concatenate([t.band for t in self.trials]), len(self.group)
        total = np.bincount(band, np.concatenate(shares), count)
        return total / np.maximum(np.bincount(band, minlength=count), 1)

    def design(self):
        """Variables of every EVERY-th entry of the gaps."""
        band, noise, signal = self.band[::EVERY], self.noise, self.signal
        pooled = usual.pooled_noise(noise[np.unique(band)], signal[np.unique(band)])
        return usual.design(self.around[:, ::EVERY], noise[band], signal[band], pooled)

    def nrmse(self, square):
        count = np.bincount(self.band, minlength=len(self.group))
        mean = np.bincount(self.band, square, len(self.group)) / np.maximum(count, 1)
        return float(np.mean((np.sqrt(mean) / self.varies)[count > 0]))

    def foreseen(self, square):
        """The NRMSE to expect, as `intervals.expected_of`: a fill does not know how far the truth
        varies."""
        count = np.bincount(self.band, minlength=len(self.group))
        mean = (np.bincount(self.band, square, len(self.group)) / np.maximum(count, 1))[count > 0]
        if not self.sigma_y:
            return float(np.mean(np.sqrt(mean)))
        varies = np.maximum(self.fill_variance[count > 0] + self.share * mean, mean)
        return float(np.mean(np.sqrt(mean / varies)))

    def nrmse_bounds(self, square, bounds):
        count = np.bincount(self.band, minlength=len(self.group))
        mean = np.bincount(self.band, square, len(self.group)) / np.maximum(count, 1)
        return usual.nrmse_bounds(bounds, mean[count > 0], self.noise[count > 0])

    def expected(self, level, slopes, by_band):
        square = np.array(by_band)[self.band] * np.exp(level + np.array(slopes) @ self.around)
        return np.minimum(square, MOST)

    def hidden(self):
        """Without the network of the prior, as `auto` first sees them."""
        residuals = [blend.mixed(t.residual, t, self.weights.plain) for t in self.trials]
        return Hidden.of(self.trials, residuals, self.kinds)

    def fitted(self):
        """Hidden entries, their expected squares by the folds alone, and the model of these."""
        hidden, pixels = self.hidden(), sum(t.angle.shape[1] for t in self.trials)
        model = intervals._fitted(hidden, len(self.group), pixels, None)
        return hidden, hidden.expected(*model), model


def cases(folder):
    every = [UsualCase(p) for p in sorted(Path(folder).glob("*.npz")) if ".part" not in p.name]
    return [c for c in every if len(c.trials) > 1 and len(c.band)]


# ── learn ────────────────────────────────────────────────────────────────────────────────────────


def usual_of(some):
    """Coefficients of `usual.design`: a gamma law for the squares in the gaps, cells alike."""
    X = np.concatenate([c.design() for c in some], axis=1)
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
    """Off, apart, drowned, copies, uneven and r of each cell: r is the logarithm of the true square
    error over that which the folds show."""
    rows = []
    for case in some:
        hidden, expected, model = case.fitted()
        r = 2 * math.log(case.nrmse(case.plain**2) / case.nrmse(case.expected(*model)))
        rows.append((*hidden.evidence(expected), r))
    return np.array(rows).T


def foreseen(q, evidence):
    """Mean and variance of r, as `usual.foresee` has them."""
    off, apart, drowned, copies, uneven, _ = evidence
    scenes, noisy, folds, between, noise, doubt, gaps, one, jackknife = np.exp(q[1:])
    hidden = drowned / (1 + drowned)
    own = folds + between * apart + noise * drowned**2 + doubt * hidden * off**2
    share = own / (own + scenes + noisy * hidden)
    return q[0] - share * off, (1 - share) * own + gaps + one / copies + jackknife * uneven


def believed(evidence, start=START):
    """The numbers of `foreseen` that suit r best, which has heavy tails: Student's t."""

    def loss(q):
        mean, variance = foreseen(q, evidence)
        square = (evidence[-1] - mean) ** 2 / variance
        return np.sum(0.5 * np.log(variance) + 2.5 * np.log1p(square / 4)) + 0.01 * np.sum(q**2)

    return minimize(loss, start, bounds=[(-1, 1), *[(-9, 3)] * (len(START) - 1)]).x


def left_out(whole, evidence, q):
    """(cells,) r in standard deviations, and these, by the numbers that suit the other places."""
    places, z, spread = np.array([c.place for c in whole]), *np.empty((2, len(whole)))
    for place in np.unique(places):
        other = places != place
        mean, variance = foreseen(believed(evidence[:, other], q), evidence[:, ~other])
        spread[~other] = np.sqrt(variance)
        z[~other] = (evidence[-1, ~other] - mean) / spread[~other]
    return z, spread


def trusted(whole):
    """How much the usual slopes weigh: the least of TRUST that foresees other places as well as
    any, but for UNSURE in the logarithm of the likelihood.  Other sensors have slopes of their own.
    """
    losses = []
    for trust in TRUST:
        with patch.object(usual, "TRUST", trust):
            evidence = evidence_of(whole)
        z, spread = left_out(whole, evidence, believed(evidence))
        losses.append(np.sum(np.log(spread) + 2.5 * np.log1p(z**2 / 4)))
        print("TRUST", trust, "loss", round(losses[-1], 2))
    return next(t for t, loss in zip(TRUST, losses, strict=True) if loss <= min(losses) + UNSURE)


def widened(tails, whole, z):
    """How many times the tails, for four places in five to have 80 % of their cells inside.

    Places differ, and scenes of another sensor are no nearer than one more place.
    """
    places = np.array([c.place for c in whole])
    factor = 1.0
    while True:
        inside = (factor * tails[0] <= z) & (z <= factor * tails[1])
        if np.mean([inside[places == p].mean() >= 0.8 for p in np.unique(places)]) >= 0.8:
            return factor
        factor += 0.01


def together(whole, mean, variance, tails):
    """TOGETHER, at which bounds hold the NRMSE of cells with noise as often as that of others."""
    squares = [c.expected(*c.fitted()[2]) * math.exp(m) for c, m in zip(whole, mean, strict=True)]
    bounds = np.exp(np.sqrt(variance)[:, None] / 2 * tails)
    cells = [*zip(whole, squares, bounds, strict=True)]
    ratio = np.array([c.nrmse(c.plain**2) / c.foreseen(square) for c, square, _ in cells])
    noisy = np.array([c.sigma_y > 0 for c in whole])

    def inside(power):
        with patch.object(usual, "TOGETHER", power):
            low, high = np.array([c.nrmse_bounds(square, own) for c, square, own in cells]).T
        return (low <= ratio) & (ratio <= high)

    others = inside(0.0)[~noisy].mean()
    return max(p for p in np.linspace(0, 1, 41) if p == 0 or inside(p)[noisy].mean() >= others)


def ratios(some, mean):
    """|error| / expected in the gaps of each cell, given the means of r."""
    return [
        np.abs(c.plain[::EVERY]) / np.sqrt(c.expected(*c.fitted()[2])[::EVERY] * math.exp(m))
        for c, m in zip(some, mean, strict=True)
    ]


def one_more(clean, ratio, shape):
    """ONE_MORE and COPIES whose intervals cover what they should, cell by cell."""
    hidden = [case.fitted()[:2] for case in clean]

    def off(more, copies):
        with patch.multiple(usual, ONE_MORE=more, COPIES=copies, SHAPE=tuple(shape)):
            widths = [h.shape(expected, h.copies()) for h, expected in hidden]
        inside = [[np.mean(r <= w) for w in own] for r, own in zip(ratio, widths, strict=True)]
        inside = np.array(inside) - LEVELS
        return np.abs(inside).mean() + np.abs(inside.mean(axis=0)).mean()

    return min(((more, copies) for more in ONE_MORE for copies in COPIES), key=lambda p: off(*p))


def learn(folder):
    less = [(1 - c.less) * len(c.group) for c in cases(folder) if c.estimated and c.whole]
    estimated = np.quantile(less, 0.75)
    with patch.object(usual, "ESTIMATED", estimated):
        found = learned(folder)
    found += [("ESTIMATED", estimated)]
    write("usual.csv", [{"constant": n, "value": f"{v:.4g}"} for n, v in found])


def learned(folder):
    every = [c for c in cases(folder) if c.mask not in BY_VALUE]
    whole, partial = [c for c in every if c.whole], [c for c in every if not c.whole]
    coefficients = np.round(usual_of(whole), 2)
    with patch.object(usual, "USUAL", tuple(coefficients)):
        trust = trusted(whole)
    with patch.multiple(usual, USUAL=tuple(coefficients), TRUST=trust):
        evidence, rest = evidence_of(whole), evidence_of(partial)
        q = believed(evidence)
        z, mean = left_out(whole, evidence, q)[0], foreseen(q, evidence)[0]
        tails = np.quantile(z, (0.1, 0.9))
        quiet = [i for i, c in enumerate(whole) if not c.sigma_y]
        clean = [whole[i] for i in quiet]
        ratio = ratios(clean, mean[quiet])
        shape = np.quantile(np.concatenate(ratio), LEVELS)
        more, copies = one_more(clean, ratio, shape)
        tails *= widened(tails, whole, z)
        power = together(whole, *foreseen(q, evidence), tails)
    # pixels with some bands get the same tails; in four places of five they hold for all cells
    square = (rest[-1] / np.mean(np.abs(tails))) ** 2 - np.exp(q[-1]) * rest[-2]
    places = np.array([c.place for c in partial])
    width = max(np.quantile([square[places == p].max() for p in np.unique(places)], 0.8), 1e-3)
    with_prior = [c for c in whole if len(c.residual) > len(CLASSICAL)]
    gains = [2 * math.log(c.nrmse(c.x**2) / c.nrmse(c.plain**2)) for c in with_prior]
    apart = [
        np.mean(c.residual[0] ** 2) / np.exp(2 * c.around[intervals.UNLIKE]).mean() for c in clean
    ]
    names = ("level", *Around._fields)
    found = [(f"USUAL {n}", b) for n, b in zip(names, coefficients, strict=False)]
    found += [(f"USUAL noise × {n}", b) for n, b in zip(names, coefficients[5:], strict=False)]
    found += [(f"USUAL pooled × {n}", b) for n, b in zip(names, coefficients[10:], strict=False)]
    found += [("USUAL signal", coefficients[-1]), ("TRUST", trust), ("BIAS", q[0])]
    found += [*zip(NAMES, np.exp(q[1:]), strict=True), ("PARTIAL", width)]
    found += [("TOGETHER", power)]
    found += [(f"TAILS {p}", t) for p, t in zip(("low", "high"), tails, strict=True)]
    found += [(f"SHAPE {p}", s) for p, s in zip((50, 80, 95), shape, strict=True)]
    found += [("ONE_MORE", more), ("COPIES", copies), ("APART", np.quantile(apart, 0.05))]
    found += [("GAIN mean", np.mean(gains)), ("GAIN scatter", np.std(gains))]
    print(
        len(whole), "cells with gaps of whole pixels,", len(with_prior), "of them with the prior,",
        len(partial), "with gaps by band",
    )  # fmt: skip
    return found


# ── judge ────────────────────────────────────────────────────────────────────────────────────────


def now(case):
    """Expected squares, half widths of the intervals and bounds, as `auto` has them."""
    errors = intervals.errors_of(
        case.trials, case.weights, case.kinds, len(case.group), whole_pixels=case.whole
    )
    square = case.expected(errors.level, errors.slopes, errors.by_band)
    widths = np.array(errors.intervals) * errors.widening
    return square, widths, errors.bounds


def by_chance(case, square):
    """Standard deviation of the logarithm of the expected RMS error over the true one, were the
    squares expected right everywhere: what is left is which squares of the ground the gaps hit, and
    which the folds.  By jackknife over these."""
    hidden, expected, _ = case.fitted()
    ratios = (case.x**2 / square, hidden.weight * hidden.square / expected)
    blocks = (case.block, np.concatenate(case.hidden_block))
    weights = (np.ones(len(case.x)), hidden.weight)
    variance = 0.0
    for ratio, block, weight in zip(ratios, blocks, weights, strict=True):
        own = np.unique(block, return_inverse=True)[1]
        total, n = np.bincount(own, ratio), np.bincount(own, weight)
        rest = (total.sum() - total + 1e-12) / (n.sum() - n + 1e-12)
        variance += (len(n) - 1) * np.log(rest).var() / 4
    return math.sqrt(variance)


def tenths(inside, feature):
    """(10,) share of the entries inside their intervals, by tenths of a feature."""
    order = np.array_split(np.argsort(feature, kind="stable"), 10)
    return [inside[part].mean() if len(part) else np.nan for part in order]


def judged(name, some):
    """A row: how well the NRMSE of some cells is foreseen, and what intervals cover."""
    off, inside, held, scores, by_tenth, repeated, attainable = [], [], [], [], [], [], []
    for case in some:
        square, widths, bounds = now(case)
        ratio, (low, high) = (
            case.nrmse(case.x**2) / case.foreseen(square),
            case.nrmse_bounds(square, bounds),
        )
        off.append(-math.log(ratio))
        held.append(low <= ratio <= high)
        scatter = NormalDist(0, max(by_chance(case, square), 1e-9))
        attainable.append(scatter.cdf(math.log(1 + WITHIN)) - scatter.cdf(math.log(1 - WITHIN)))
        within = np.abs(case.x) <= widths[:, None] * np.sqrt(square)
        inside.append(within.mean(axis=1))
        noise = np.sqrt(case.noise)[case.band]
        if noise.all():
            repeated.append(repeated_inside(case.x, np.sqrt(square), noise, widths)[1])
        by_tenth.append([tenths(within[1], case.around[k]) for k in (0, 1)])
        rms = (np.sqrt(np.mean(case.x**2)), np.sqrt(np.mean(square)))
        constant = (np.full_like(case.x, NORMAL_QUANTILES[1] * one) for one in rms)
        halves = (widths[1] * np.sqrt(square), *constant)
        scores.append([interval_score(case.x, half, LEVELS[1]).mean() for half in halves])
    off, inside = np.array(off), 100 * np.array(inside)
    row, near = {"cells of": name, "cells": len(some)}, np.abs(np.exp(off) - 1) <= WITHIN
    row |= {"within_15_percent": 100 * np.mean(near)} | by_scene("within", some, 100.0 * near)[0]
    row["attainable"] = 100 * np.mean(attainable)
    row |= {"log_scatter": np.std(off), "lowest": np.exp(off.min()), "highest": np.exp(off.max())}
    row["inside_bounds"] = 100 * np.mean(held)
    row |= {f"inside_{p}": v for p, v in zip((50, 80, 95), inside.mean(axis=0), strict=True)}
    bounds, means = by_scene("inside_80", some, inside[:, 1])
    row |= bounds | {"scenes_80_lowest": min(means), "scenes_80_highest": max(means)}
    low, high = np.quantile(inside[:, 1], (0.1, 0.9))
    worst = 100 * np.nanmin(np.nanmean(by_tenth, axis=0), axis=1)
    row |= {"inside_80_low": low, "inside_80_high": high}
    row |= {"worst_tenth_by_distance": worst[0], "worst_tenth_by_texture": worst[1]}
    row["repeated_inside_80"] = 100 * np.mean(repeated) if repeated else ""
    own, *others = np.array(scores).T
    names = ("interval_score_ratio", "over_expected_sigma")
    return row | {n: np.mean(own / other) for n, other in zip(names, others, strict=True)}


def by_scene(name, some, values):
    """The 95 % interval of the mean over scenes, as two columns; and the means of these."""
    scenes = np.array([c.scene for c in some])
    own = [values[scenes == scene] for scene in np.unique(scenes)]
    low, high = bootstrap(own, np.random.default_rng(0))
    return {f"{name}_from": low, f"{name}_to": high}, [v.mean() for v in own]


def judge(folder, small):
    every = cases(folder)
    few, small = [c for c in every if not c.many], cases(small)
    groups = {
        "whole pixels": without_noise(few, whole=True),
        "whole pixels, all bands": without_noise([c for c in every if c.many], whole=True),
        "whole pixels, 72 × 72": without_noise(small, whole=True),
        "bands": without_noise(few, whole=False),
    }
    for many, bands in ((False, ""), (True, ", all bands")):
        for estimated, known in ((False, "given"), (True, "estimated")):
            for sigma_y in (0.1, 0.3):
                kind = (sigma_y, estimated, many)
                groups[f"σ_y {sigma_y}, {known}{bands}"] = [
                    c for c in every if (c.sigma_y, c.estimated, c.many) == kind
                ]
    groups |= {name: [c for c in few if c.mask == name] for name in BY_VALUE}
    write("foresight_unseen.csv", [judged(n, some) for n, some in groups.items() if some])


def without_noise(some, whole):
    return [c for c in some if not c.sigma_y and c.whole == whole and c.mask not in BY_VALUE]


def write(name, rows):
    floats = (float, np.floating)
    shown = [{k: f"{v:.2f}" if isinstance(v, floats) else v for k, v in r.items()} for r in rows]
    records.write(RESULTS / name, shown)
    for row in shown:
        print(*row.values())


if __name__ == "__main__":
    {"learn": learn, "judge": judge}[sys.argv[1]](*sys.argv[2:])
