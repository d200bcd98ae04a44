"""The hidden entries of all trials: the errors there, and how they compare with expected ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hydiff.auto import recipe as recipes
from hydiff.auto import usual
from hydiff.auto.classes import ClassCounts, D
from hydiff.auto.trials import Trial
from hydiff.auto.usual import Evidence
from hydiff.cube import Floats, Ints

LEAST = 0.02  # lower bound of a squared error, as a share of the usual one
MOST = 4.0  # σ_b²: largest expected squared error of an entry


def importance(trial: Trial, counts: ClassCounts) -> Floats:
    """(n,) weights of the hidden entries, so that they count like the entries to fill."""
    return counts.importance(trial.distance, np.exp(trial.around[1]))


class Hidden(NamedTuple):
    """Hidden entries of several trials, with the squared errors of a blend; all (n,)."""

    square: Floats
    noise: Floats  # variance of the entry's own noise, which is part of `square`
    signal: Floats  # variance of the entry's band without noise
    weight: Floats  # `importance`: hidden entries count like the entries to fill
    band: Ints
    distance: Ints
    around: Floats  # (F, n)
    fold: Ints
    gap: Ints  # number of the hidden piece

    @classmethod
    def of(
        cls, trials: Sequence[Trial], residuals: Sequence[Floats], counts: ClassCounts
    ) -> Hidden:
        """Join the entries of the trials, with the residuals (n,) of a blend on each of them."""
        parts, pieces = [], 0
        for i, (t, r) in enumerate(zip(trials, residuals, strict=True)):
            fold, gap = np.full(len(r), i), pieces + np.unique(t.gap, return_inverse=True)[1]
            pieces = int(gap.max(initial=pieces - 1)) + 1
            weight = importance(t, counts)
            features = (t.band, t.distance, t.around)
            parts.append((r**2, t.noise, t.signal, weight, *features, fold, gap))
        return cls(*(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)))

    def expected(self, level: float, slopes: Floats, by_band: Floats) -> Floats:
        """(n,) expected squared errors under the model, at most MOST."""
        square: Floats = np.minimum(by_band[self.band] * np.exp(level + slopes @ self.around), MOST)
        return square

    def relative_to(
        self, expected: Floats, kind: Ints, count: int, borrowed: float, least: float = LEAST
    ) -> Floats:
        """(count,) mean ratio of squared to expected errors by kind (n,), at least `least`, drawn
        towards 1 as if by `borrowed` more entries.

        The noise is subtracted from means: single squares would fall below 0, and clipping them
        would count half of the noise as error.  Entries with noise above their error count little.
        """
        counts = self.weight * (expected / (expected + self.noise)) ** 2
        n = np.bincount(kind, counts, count)
        ratio = np.bincount(kind, counts * (self.square - self.noise) / expected, count)
        ratio = np.maximum(ratio / np.maximum(n, 1e-300), least)
        factor: Floats = (n * ratio + borrowed) / np.maximum(n + borrowed, 1e-300)
        return factor

    def by_fold(self, expected: Floats) -> Floats:
        """(folds,) mean ratio of squared to expected errors, by fold."""
        least = LEAST if self.noise.any() else 1e-12  # means minus noise may be < 0
        return self.relative_to(expected, self.fold, int(self.fold.max()) + 1, 0.0, least)

    def shape(self, expected: Floats, copies: float) -> Floats:
        """(3,) |error| / expected that 50, 80 and 95 % of the entries of a gap do not exceed.

        The gap to fill is one more copy, which may have larger errors than the others, so higher
        quantiles of their entries are taken (`usual.ONE_MORE`).  The fewer copies, the more the
        usual quantiles weigh; they alone count where the copies are too few for an interval.
        """
        ratio = np.sqrt(self.square / (expected + self.noise))
        order = np.argsort(ratio)
        weight = self.weight[order]
        share = (np.cumsum(weight) - weight / 2) / weight.sum()
        levels = np.array(recipes.LEVELS) * (1 + usual.ONE_MORE / copies)
        measured = np.interp(levels, share, ratio[order])
        # the larger the noise, the less the ratios show of the errors themselves
        visible = float(np.average(expected / (expected + self.noise), weights=self.weight))
        trust = np.where(recipes.can_say(copies), visible / (1 + usual.COPIES / copies), 0.0)
        shape: Floats = trust * measured + (1 - trust) * np.array(usual.SHAPE)
        # usual and measured quantiles are mixed: none may exceed that of a higher level
        return np.maximum.accumulate(shape)

    def copies(self) -> float:
        """Return the effective number of hidden pieces: (Σ weight)² / Σ weight²."""
        pieces = np.bincount(self.gap, self.weight)
        return float(pieces.sum() ** 2 / (pieces**2).sum())

    def evidence(self, expected: Floats) -> Evidence:
        """Return how the expected squared errors (n,), fitted to folds, compare with usual ones."""
        noise = np.minimum(self.noise, 1.0)
        pooled = usual.pooled_noise(*self.shares()[1:])
        log_square = usual.log_square(self.around, noise, self.signal, pooled)
        typical = np.minimum(np.exp(log_square), MOST)
        log_ratio = math.log(self.weight @ expected / (self.weight @ typical))
        visible = float(np.average(typical / (typical + self.noise), weights=self.weight))
        apart = float(np.log(self.by_fold(typical)).var(ddof=1))
        uneven = visible * self.uneven(expected)
        return Evidence(log_ratio, visible * apart, 1 / visible - 1, self.copies(), uneven)

    def shares(self) -> tuple[Ints, Floats, Floats]:
        """Return the numbers of the bands with hidden entries, and their noise and signal."""
        number, band, count = np.unique(self.band, return_inverse=True, return_counts=True)
        noise, signal = (np.bincount(band, share) / count for share in (self.noise, self.signal))
        return number, noise, signal

    def uneven(self, expected: Floats) -> float:
        """Return the jackknife variance, over the hidden pieces, of the logarithm of the mean ratio
        of squared to expected errors."""
        ratio = self.weight * self.square / (expected + self.noise)
        square, weight = (np.bincount(self.gap, part) for part in (ratio, self.weight))
        mean_without = np.maximum(square.sum() - square, 1e-300) / (weight.sum() - weight + 1e-300)
        log_ratios = np.log(mean_without[weight > 0])
        return float((len(log_ratios) - 1) * log_ratios.var()) if len(log_ratios) > 1 else 0.0

    def by_distance(self) -> list[float | None]:
        """(D,) mean squared errors by distance class, minus the noise; None without entries."""
        n = np.bincount(self.distance, self.weight, D)
        clean = np.bincount(self.distance, self.weight * (self.square - self.noise), D)
        return [max(float(c / m), 0.0) if m > 0 else None for c, m in zip(clean, n, strict=True)]
