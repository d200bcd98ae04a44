"""Narrow absorptions that a reference must preserve, and shifts between reference and cube.

python benchmarks/reference_limits.py narrow     an absorption that the reference does not show
python benchmarks/reference_limits.py shifts     shifts put into the references of real pairs
python benchmarks/reference_limits.py implanted --rule TEXT     the same absorption, to choose rules

Writes benchmarks/results/reference_narrow.csv and reference_shifts.csv, and prints a summary;
`implanted` adds a row to reference_implanted.csv.

narrow  patches with an absorption three bands wide are put into a scene, but not into its
        reference; depth: one minus the ratio of the middle band to the line between the bands on
        either side.  RMSE of the depth over filled pixels, without and with the reference.  Ten
        broad bands of Indian Pines (simulated), and Hyperion with ALI at Paris.  Budget `fast`,
        without a prior.
shifts  the other image of a pair is moved by a known amount.  The shift found for it, minus that
        found for the original pair, is compared with this amount.  Pairs and gaps as in `hydiff
        bench reference`, at 96 pixels.
implanted   an absorption of one band, 0.2 deep, in places at two dates that are not used for
        evaluation: the mean of three models from the other date, compared with `smooth`.  Ratios to
        `smooth`, mean over cells: the error of the depth, and the part of it that the absorption
        adds.
"""

import argparse
from itertools import product
from pathlib import Path

import numpy as np
from scipy import ndimage

import hydiff
import reference_places
from hydiff.bench import records, scenes
from hydiff.cube import Cube
from hydiff.errors import BadValue
from hydiff.methods import choose
from hydiff.methods.estimate import Job, estimate_each
from hydiff.reference.planes import prepare
from hydiff.request import MAX_SHIFT

RESULTS = Path(__file__).parent / "results"
FILL = {"device": "cpu", "budget": "fast", "no_prior": True}
DEPTHS, WIDTH, PATCHES = (0.05, 0.2), 3, 0.3  # depths; width in bands; share of the area
MASKS = ("frames", scenes.CLOUDS)
SIDE, SHIFTS, FARTHEST = 96, 8, 3.0
TOLERATED = 0.15  # px
IMPLANTED_BY = ({"steps": True}, {"robust": True, "similar": 20}, {"robust": True})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("narrow", "shifts", "implanted"))
    parser.add_argument("--rule", default="as it is", help="what the row of `implanted` is called")
    options = parser.parse_args()
    part = options.part
    if part == "implanted":
        row = {"rule": options.rule} | implanted()
        records.append(RESULTS / "reference_implanted.csv", row, list(row))
        print(row)
        return
    rows: list[dict[str, object]] = []
    for row in narrow() if part == "narrow" else shifts():
        rows.append(row)
        records.write(RESULTS / f"reference_{part}.csv", rows)
        if part == "narrow":
            print(row, flush=True)
    if part == "shifts":
        _say(rows)


def narrow():
    """A row for each scene, mask and depth."""
    for mask, depth, name in product(MASKS, DEPTHS, (scenes.SAME_MOMENT, scenes.PICTURED)):
        truth, other = scenes.pair(name)
        if (
            name == scenes.PICTURED
        ):  # its reference has ten broad bands, each the mean of about 20 bands
            other = np.stack([part.mean(axis=0) for part in np.array_split(truth, 10)])
        middle = int(0.72 * len(truth))
        rng = np.random.default_rng(0)
        patches = ndimage.gaussian_filter(rng.standard_normal(truth.shape[1:]), 3)
        patches = patches > np.quantile(patches, 1 - PATCHES)
        cube = truth.copy()
        for band in range(middle - WIDTH // 2, middle + WIDTH // 2 + 1):
            cube[band] *= 1 - depth * patches / (1 + abs(band - middle))
        observed = scenes.observed_of(mask, cube.shape)
        fills = [hydiff.fill(cube, observed, **FILL, **more) for more in ({}, {"reference": other})]
        right = _depth(cube, middle)[~observed]
        off = [np.sqrt(np.mean((_depth(f.values, middle)[~observed] - right) ** 2)) for f in fills]
        rmse = [np.sqrt(np.mean((f.values - cube)[f.filled] ** 2)) for f in fills]
        yield {
            "scene": name,
            "mask": mask,
            "depth": depth,
            "depth_rmse_without": f"{off[0]:.5f}",
            "depth_rmse_with": f"{off[1]:.5f}",
            "gain_db": f"{20 * np.log10(rmse[0] / rmse[1]):.3f}",
            "share": fills[1].references[0]["share"],
        }


def _depth(cube, middle, width=WIDTH):
    """(rows, cols) of the absorption around a band."""
    beside = 0.5 * (cube[middle - width] + cube[middle + width])
    return 1 - cube[middle] / beside


def implanted():
    """The means over all places, masks and bands."""
    cells = [
        cell
        for place, mask in product(reference_places.places(), MASKS)
        for cell in _implanted_in(place, mask)
    ]
    off, added, gain = np.array(cells).T
    return {
        "depth_error": f"{off.mean():.4f}",
        "added_by_the_absorption": f"{added.mean():.4f}",
        "cells_with_a_larger_error": int((off > 1).sum()),
        "cells": len(cells),
        "gain_db": f"{gain.mean():.3f}",
    }


def _implanted_in(place, mask):
    """Error of the depth and what the absorption adds to it, with the other date ÷ without; dB that
    this gains where nothing was implanted.  For two bands."""
    truth, other = reference_places.pair(place, SIDE)
    observed = scenes.observed_of(mask, truth.shape)
    entries, rng = np.broadcast_to(observed, truth.shape), np.random.default_rng(len(place))
    planes = prepare(Cube(other), Cube(truth), entries, place, MAX_SHIFT).planes
    job = Job(0, "cpu", references=(planes,))
    several = [choose("smooth"), *(choose("reference", None, how) for how in IMPLANTED_BY)]

    def fills(cube):
        found = estimate_each(Cube(cube), entries, several, 0.0, job, at=~observed)
        plain, *others = (one.values[:, 0] for one in found)
        return plain, np.mean([np.where(np.isnan(x), plain, x) for x in others], axis=0)

    def rms(x):
        return np.sqrt(np.mean(x**2))

    before = fills(truth)
    plain, own = (np.mean((x - truth[:, ~observed]) ** 2, axis=1) for x in before)
    for band in rng.choice(np.arange(1, len(truth) - 1), 2, replace=False):
        patches = ndimage.gaussian_filter(rng.standard_normal(truth.shape[1:]), 3)
        cube = truth.copy()
        cube[band] *= 1 - DEPTHS[-1] * (patches > np.quantile(patches, 1 - PATCHES))
        errors = [
            [_depth(x, band, 1) - _depth(right[:, ~observed], band, 1) for x in both]
            for right, both in ((truth, before), (cube, fills(cube)))
        ]
        off = [rms(after) for after in errors[1]]
        added = [rms(after - first) for first, after in zip(*errors, strict=True)]
        yield off[1] / off[0], added[1] / added[0], np.mean(10 * np.log10(plain / own))


def shifts():
    """A row for each pair, mask and shift; the first of each has none."""
    for name, mask in product(scenes.PAIRS, ("slc-off", scenes.CLOUDS)):
        truth, other = (v[:, :SIDE, :SIDE] for v in scenes.pair(name))
        observed = scenes.observed_of(mask, truth.shape)
        rng, start = np.random.default_rng(1), None
        for number in range(2 * SHIFTS + 1):
            far = number > SHIFTS
            size = rng.uniform(*((MAX_SHIFT + 2, 2 * MAX_SHIFT) if far else (0, FARTHEST)))
            angle = rng.uniform(0, 2 * np.pi)
            put = np.zeros(2) if number == 0 else size * np.array([np.cos(angle), np.sin(angle)])
            found, refused = _found(truth, observed, _put(other, put))
            start = found if number == 0 else start
            off = None if found is None or start is None else np.hypot(*(found - start - put))
            yield {
                "pair": name,
                "mask": mask,
                "down": f"{put[0]:.3f}",
                "right": f"{put[1]:.3f}",
                "off": "" if off is None else f"{off:.3f}",
                "refused": int(refused),
            }


def _put(planes, by):
    """(R, rows, cols) moved; what comes in from beyond its border is missing."""
    moved = np.stack([ndimage.shift(p, by, order=3, mode="nearest") for p in planes])
    there = ndimage.shift(np.ones(planes.shape[1:]), by, order=0, mode="constant") > 0
    return np.where(there, moved, np.nan)


def _found(truth, observed, other):
    """The shift that was found, or None; and whether the reference was refused for it."""
    entries = np.broadcast_to(observed, truth.shape)
    try:
        facts = prepare(Cube(other), Cube(truth), entries, "other", MAX_SHIFT).facts
    except BadValue:
        return None, True
    return (None if facts["shift"] is None else np.array(facts["shift"])), False


def _say(rows):
    size = [np.hypot(float(r["down"]), float(r["right"])) for r in rows]
    near = [r for r, s in zip(rows, size, strict=True) if 0 < s <= FARTHEST]
    off = np.array([float(r["off"]) if r["off"] else np.inf for r in near])
    far = [r for r, s in zip(rows, size, strict=True) if s > FARTHEST]
    print(f"found to {TOLERATED} px in {100 * np.mean(off <= TOLERATED):.1f} % of {len(off)}")
    print(f"beyond the bound, refused {sum(r['refused'] for r in far)} of {len(far)}")


if __name__ == "__main__":
    main()
