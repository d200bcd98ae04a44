"""Gain by the prior where pixels keep some bands, from which the others are completed first.

    python benchmarks/prior_bands.py              places held back from its training, CPU minutes
    python benchmarks/prior_bands.py --judge      also some development scenes, used for no choice

Writes benchmarks/results/prior_bands.csv, a row for each crop of 96 × 96 px and kind of gaps:

- the share of the pixels with gaps that keep too few bands to be completed;
- the MPSNR of the missing entries by `smooth`;
- the gain over it in dB of one pass of the prior, of `auto` with hidden copies that always lack
  single bands, of `auto` without the prior, and of `auto`;
- the share of the errors within the 80 % intervals of these three versions of `auto`;
- CPU seconds.

Budget `fast`.
"""

import argparse
import csv
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

import hydiff
from hydiff.auto import split
from hydiff.bench import scenes
from hydiff.gaps.mask import make_mask
from hydiff.methods.prior import Prior, prior
from hydiff.methods.smooth import Smooth, coordinates, smooth
from prior_parts import JUDGES, held_back

RESULTS = Path(__file__).parent / "results" / "prior_bands.csv"
SIDE, MISSING = 96, 0.2
WIDTH = 1.2816  # σ, half of an 80 % interval
FIELDS = [
    *("scenes", "scene", "gaps", "poor", "smooth", "prior", "single", "without", "auto"),
    *("covered_single", "covered_without", "covered", "seconds_without", "seconds"),
]


def columns(shape, rng):
    """Dead columns in a third of the bands."""
    observed = np.ones(shape, bool)
    some = rng.permutation(shape[0])[: -(-shape[0] // 3)]
    lost = rng.random((len(some), 1, shape[2])) < MISSING
    observed[some] = ~np.broadcast_to(lost, (len(some), *shape[1:]))
    return observed


def keeping(share):
    """Stripes in which only the first bands, so large a share of them, are left."""

    def gaps(shape, rng):
        observed = np.repeat(make_mask("stripes", shape, MISSING, rng)[None], shape[0], axis=0)
        observed[: max(round(share * shape[0]), 1)] = True
        return observed

    return gaps


GAPS = {
    "columns in a third of the bands": columns,
    "stripes that keep two thirds of the bands": keeping(2 / 3),
    "stripes that keep a third": keeping(1 / 3),
    "stripes that keep a tenth": keeping(1 / 10),
}


def crops(judge):
    """Kind of scenes, name, cube on the unit range."""
    each = [("held back", name, x) for name, x in held_back()]
    if judge:
        each += [("development", name, np.asarray(scenes.load(name), float)) for name in JUDGES]
    for kind, name, x in each:
        x = x[:, :SIDE, :SIDE]
        yield kind, name, (x - x.min()) / np.ptp(x)


def mpsnr(estimate, truth, observed):
    """Of the missing entries, mean over the bands that have some."""
    error = [((e - t)[~o] ** 2).mean() for e, t, o in zip(estimate, truth, observed, strict=True)
             if not o.all()]  # fmt: skip
    return float(np.mean(-10 * np.log10(np.array(error) + 1e-12)))


def one_step(method, settings, x, observed, c):
    """What a method makes of a cube with coordinates c."""
    y, rng = np.where(observed, x, 0.0), np.random.default_rng(0)
    return next(iter(method(y, observed, np.zeros(len(x)), settings, rng=rng, given=c))).x


def by_auto(x, observed, no_prior):
    """The fill of `auto`, the share of errors within its 80 % intervals, and CPU seconds."""
    began = time.process_time()
    how = {"budget": "fast", "device": "cpu", "no_prior": no_prior}
    fill = hydiff.fill(np.where(observed, x, np.nan), **how)
    seconds = time.process_time() - began
    inside = np.abs(fill.values - x) <= WIDTH * fill.sigma
    return fill.values, float(inside[~observed].mean()), seconds


def figures(x, observed):
    c = coordinates(np.where(observed, x, 0.0), observed, np.zeros(len(x)), Prior().components)
    plain, ours = (one_step(*how, x, observed, c) for how in ((smooth, Smooth()), (prior, Prior())))
    without, covered_without, seconds_without = by_auto(x, observed, True)
    auto, covered, seconds = by_auto(x, observed, False)
    with (
        patch.object(split, "keeps_few", lambda window: False),
        patch.object(split, "lacks_runs", lambda window: False),
    ):
        single, covered_single, _ = by_auto(x, observed, False)
    base, *others = (mpsnr(e, x, observed) for e in (plain, ours, single, without, auto))
    poor = c.poor.sum() / (~observed).any(axis=0).sum()
    gains = (other - base for other in others)
    covers = covered_single, covered_without, covered
    return poor, base, *gains, *covers, seconds_without, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judge", action="store_true")
    torch.set_num_threads(1)
    with RESULTS.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(FIELDS)
        for number, (kind, name, x) in enumerate(crops(parser.parse_args().judge)):
            for gaps, made in GAPS.items():
                observed = made(x.shape, np.random.default_rng(number))
                found = (f"{value:.3f}" for value in figures(x, observed))
                table.writerow([kind, name, gaps, *found])
                file.flush()


if __name__ == "__main__":
    main()
