"""How well the default fill chooses and predicts, and the effect of its constants.

    python benchmarks/foresight.py FOLDER      the files written by `trials.py`; a few minutes

Writes benchmarks/results/foresight.csv with one row for each way of deciding: gain over `smooth` in
dB, regret against the best single candidate, how well the NRMSE is predicted, and coverage.  No
noise, one seed; scores are those of the entries in the files, not of all entries.
"""

import contextlib
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np

from hydiff.auto import blend, intervals, usual
from hydiff.auto import hidden as hidden_entries
from hydiff.auto.candidates import CLASSICAL, Candidate
from hydiff.auto.classes import ClassCounts
from hydiff.auto.trials import Trial
from hydiff.bench import records

RESULTS = Path(__file__).parent / "results"
NETWORK = Candidate("network", "anchored", {}, crossfit=True)
FOLDS = 3  # folds that networks are fitted on, as in `auto --budget normal`
ALONE = len(CLASSICAL)  # index of the network among the candidates
WITHIN = 0.15


class Case:
    """What was kept of one scene and mask."""

    def __init__(self, path, networks=FOLDS):
        self.scene, self.mask = path.stem.rsplit(".", 1)
        kept = np.load(path)
        self.group, self.varies = kept["group"], kept["varies"]
        self.kinds, self.trials = ClassCounts(kept["kinds"], kept["edges"]), []
        while f"band{len(self.trials)}" in kept:
            self.trials.append(self._trial(kept, len(self.trials), networks))
        single = kept["filled_residual"].astype(float)
        self.residual = np.vstack([single[:ALONE], single[ALONE : ALONE + networks].mean(axis=0)])
        self.around = kept["filled_around"].astype(float)
        self.band, self.distance = (kept[f"filled_{k}"].astype(int) for k in ("band", "distance"))

    def _trial(self, kept, i, networks):
        band, around, distance, residual, pixels = (
            kept[f"{k}{i}"] for k in ("band", "around", "distance", "residual", "pixels")
        )
        residual = residual.astype(float)
        if i >= networks:
            residual[ALONE:] = np.nan
        nothing, angle = np.zeros(len(band)), np.ones((2, int(pixels)))
        band = band.astype(int)
        return Trial(
            residual, band, self.group[band], distance.astype(int), around.astype(float),
            nothing, np.ones(len(band)), angle, np.zeros_like(residual), np.zeros(len(band), int),
        )  # fmt: skip

    def by_band(self, square):
        """(bands that have entries,) means, and which bands those are."""
        count = np.bincount(self.band, minlength=len(self.group))
        total = np.bincount(self.band, square, len(self.group))
        return (total / np.maximum(count, 1))[count > 0], count > 0

    def mpsnr(self, residual):
        return float(np.mean(-10 * np.log10(self.by_band(residual**2)[0] + 1e-12)))

    def nrmse(self, square):
        mean, bands = self.by_band(square)
        return float(np.mean(np.sqrt(mean) / self.varies[bands]))

    def blended(self, weights):
        used = weights[:, self.distance, self.group[self.band]]
        return (used * self.residual).sum(axis=0)

    def expected(self, errors):
        level = errors.level + np.array(errors.slopes) @ self.around
        return np.minimum(np.array(errors.by_band)[self.band] * np.exp(level), hidden_entries.MOST)


def judged(cases, share=None):
    """A row for a way of deciding; share: of the network, instead of what the folds say."""
    gain, regret, predicted, inside = [], [], [], []
    for case in cases:
        weights = blend.weights_of(case.trials, case.kinds, [*CLASSICAL, NETWORK], 0)
        if share is not None:
            fixed = (1 - share) * weights.plain
            fixed[ALONE] = share
            weights = weights._replace(all=fixed)
        errors = intervals.errors_of(case.trials, weights, case.kinds, len(case.group))
        x, square = case.blended(weights.all), case.expected(errors)
        single = [case.mpsnr(one) for one in case.residual]
        gain.append(case.mpsnr(x) - single[0])
        regret.append(max(single) - case.mpsnr(x))
        predicted.append(np.log(case.nrmse(square) / case.nrmse(x**2)))
        sigma = np.sqrt(square) * errors.widening
        inside.append([np.mean(np.abs(x) <= q * sigma) for q in errors.intervals])
    scenes = np.array([case.scene for case in cases])
    by_scene = np.array([np.mean(np.array(regret)[scenes == s]) for s in np.unique(scenes)])
    draws = np.random.default_rng(0).integers(len(by_scene), size=(2000, len(by_scene)))
    within = np.mean(np.abs(np.exp(predicted) - 1) <= WITHIN)
    return {
        "cells": len(cases),
        "gain_db": np.mean(gain),
        "regret_db": by_scene.mean(),
        "regret_bound_db": np.quantile(by_scene[draws].mean(axis=1), 0.975),
        "within_15_percent": 100 * within,
        "log_scatter": np.std(predicted),
        **{f"inside_{p}": 100 * v for p, v in zip((50, 80, 95), np.mean(inside, 0), strict=True)},
    }


def ways():
    """Name, what to change in the modules, share of the network."""
    yield "as it is", [], None
    for share in (0.0, 0.5, 0.7, 0.8, 0.9, 1.0):
        yield f"network {100 * share:.0f} %", [], share
    for share, doubt in ((0.5, 1), (0.5, 2), (0.8, 1), (0.7, 2), (0.9, 2)):
        name = f"from {100 * share:.0f} %, left for {doubt} standard errors"
        yield name, [(blend, "NETWORKS", share), (blend, "DOUBT", float(doubt))], None
    yield "level not drawn to the usual", [(usual, "SCENES", 1e6)], None
    yield "gain not drawn to the usual", [(usual, "GAIN", (0.0, 1e6))], None
    for times in (0.1, 10.0):
        name = f"usual slopes count {times:g} times"
        yield name, [(usual, "TRUST", times * usual.TRUST)], None

    def all_alike(trial, kinds):
        return np.ones(len(trial.band))

    yield "hidden entries not weighed", [(hidden_entries, "importance", all_alike)], None


def write(name, rows):
    floats = (float, np.floating)
    shown = [{k: f"{v:.3f}" if isinstance(v, floats) else v for k, v in r.items()} for r in rows]
    records.write(RESULTS / name, shown)


def main():
    cases = [Case(path) for path in sorted(Path(sys.argv[1]).glob("*.npz"))]
    found = []
    for name, changes, share in ways():
        with contextlib.ExitStack() as stack:
            for change in changes:
                stack.enter_context(patch.object(*change))
            found.append({"way": name} | judged(cases, share))
        print(
            {k: v if k == "way" else round(float(v), 3) for k, v in found[-1].items()}, flush=True
        )
    write("foresight.csv", found)


if __name__ == "__main__":
    main()
