"""Do samples of a fill show its errors: of entries, of means, of indices, of whole gaps?

    python benchmarks/samples.py [--samples 49] [--seeds 1]      continues an interrupted run
    python benchmarks/samples.py --cost                          of 20 samples, 144 × 144 × 200

Writes benchmarks/results/samples.csv, a row for each scene, mask, seed, method and quantity.
Scenes are those in HYDIFF_DATA (default ../shared/data), every fourth band; `auto` has the budget
`fast` on a CPU.  An 80 % interval extends from the fifth smallest to the fifth largest of 49
samples.
"""

import argparse
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np

import hydiff
from hydiff.bench import records
from hydiff.gaps.mask import make_mask

RESULTS = Path(__file__).parent / "results" / "samples.csv"
SCENES = (
    "enmap_potsdam_64x96",
    "paris_hyperion_72",
    "abu_urban-1_96",
    "jasper_96",
    "chikusei_36",
)
MASKS = {"stripes": 0.2, "blobs": 0.2, "lines": 0.1, "columns": 0.1}
METHODS = {"smooth": {"method": "smooth"}, "auto": {"budget": "fast"}}
TAIL = 0.1  # share of the samples beyond either end of an interval
SIDES = (4, 8, 16)  # px of the blocks whose means are taken
FEWEST = 3  # smallest number of filled pixels of a block that is judged
APART = 5  # distance between the two bands of a difference
BANDS = 12  # number of bands whose blocks are judged
DIRECTIONS = 20
CLASSES, ROUNDS = 4, 20  # classes and iterations of k-means
BACKGROUND = 300  # pixels measured in all bands that a matched filter and classes need
LAGS = (1, 2, 4, 8)  # px
NAMES = (
    *("scene", "mask", "seed", "method", "quantity", "value", "count", "samples"),
    *("sample_seconds", "device", "command"),
)


def load(scene):
    """(bands, rows, cols) in the scene's unit."""
    folder = Path(os.environ.get("HYDIFF_DATA", "../shared/data")) / "dev"
    values = np.load(folder / f"{scene}.npz")["cube"]
    return np.asarray(values.transpose(2, 0, 1)[::4], np.float64)


def observed_of(mask, shape, seed):
    """(bands, rows, cols), True = measured."""
    observed = make_mask(mask, shape, MASKS[mask], np.random.default_rng(seed))
    return np.broadcast_to(observed, shape)


# ── quantities of a cube, and their shares inside intervals ──────────────────────────────────────


def quantities(missing, truth):
    """Name → function of a cube (bands, rows, cols) to values (n,); missing: its filled entries.

    truth: of which what is measured serves as a background and has the classes of an area.
    """
    C, pixels = len(missing), missing.any(axis=0)
    measured = truth[:, ~pixels]
    some = np.linspace(0, C - 1, BANDS).astype(int)
    left, centre, right = (np.arange(2 * APART, C) - k * APART for k in (2, 1, 0))
    depth = missing[left] & missing[centre] & missing[right]
    pair = missing[left] & missing[right]

    def ratio(x, low, high, at):
        total = x[high] + x[low]
        return ((x[high] - x[low]) / np.where(np.abs(total) > 0, total, 1.0))[at]

    tests = {
        "entries": lambda x: x[missing],
        "band difference": lambda x: (x[centre] - x[left])[missing[left] & missing[centre]],
        "normalised difference": lambda x: ratio(x, left, right, pair),
        "band depth": lambda x: (1 - 2 * x[centre] / _sum(x[left], x[right]))[depth],
    }
    if measured.shape[1] >= BACKGROUND:
        tests["matched filter"] = _matched_filter(measured, pixels)
        tests["area of a class"] = _areas(measured, pixels)
    for side in SIDES:
        inside = {band: _blocks(missing[band], side) for band in some}
        tests[f"{side}x{side} mean"] = lambda x, inside=inside: np.concatenate(
            [mean(x[band]) for band, mean in inside.items()]
        )
    return tests


def _matched_filter(measured, pixels):
    """Scores of the filled pixels; spectra of measured ones (bands, n) are the background."""
    mean = measured.mean(axis=1)
    strength, axes = np.linalg.eigh(np.cov(measured))
    strength = np.maximum(
        strength, 1e-4 * strength[-1]
    )  # positive also with fewer pixels than bands
    brightest = measured[:, np.argmax(measured.sum(axis=0))] - mean
    weight = axes @ ((axes.T @ brightest) / strength)
    weight /= weight @ brightest
    return lambda x: weight @ (x[:, pixels] - mean[:, None])


def _areas(measured, pixels):
    """Filled pixels of each class of `CLASSES` in blocks of the largest side; classes are those
    that Lloyd's k-means finds among measured spectra (bands, n)."""
    order = np.argsort(measured.sum(axis=0))
    centres = measured[:, order[np.linspace(0, len(order) - 1, 2 * CLASSES + 1).astype(int)[1::2]]]

    def nearest(spectra):
        apart = (centres**2).sum(axis=0)[:, None] - 2 * centres.T @ spectra
        return apart.argmin(axis=0)

    for _ in range(ROUNDS):
        own = nearest(measured)
        means = [measured[:, own == k].mean(axis=1) for k in range(CLASSES) if (own == k).any()]
        centres = np.stack(means, axis=1)
    mean = _blocks(pixels, SIDES[-1])
    plane = np.zeros(pixels.shape)

    def areas(x):
        own, out = nearest(x[:, pixels]), []
        for k in range(centres.shape[1]):
            plane[pixels] = own == k
            out.append(mean(plane))
        return np.concatenate(out)

    return areas


def _sum(a, b):
    return np.where(np.abs(a + b) > 0, a + b, 1.0)


def _blocks(missing, side):
    """What gives the means over the missing pixels of the blocks that have enough of them."""
    rows, cols = (np.arange(n) // side for n in missing.shape)
    block = (rows[:, None] * (cols.max() + 1) + cols)[missing]
    count = np.bincount(block, minlength=1)
    enough = count >= FEWEST
    return lambda plane: np.bincount(block, plane[missing], len(count))[enough] / count[enough]


def inside(drawn, truth):
    """Share of the truth (n,) inside the 80 % intervals of samples (samples, n), of values about
    which there is any doubt."""
    beyond = round(TAIL * (len(drawn) + 1))
    ordered = np.sort(drawn, axis=0)
    doubt = (ordered[0] < ordered[-1]) | (ordered[0] != truth)
    within = (ordered[beyond - 1] <= truth) & (truth <= ordered[-beyond])
    return float(within[doubt].mean()) if doubt.any() else np.nan


def directions(errors, error):
    """Mean of d² along the leading directions of half the error draws (samples, n), in the
    variances that the other half has there; error (n,): the true one."""
    half = len(errors) // 2
    first, second = errors[:half], errors[half:]
    _, axes = np.linalg.eigh(first @ first.T)
    leading = first.T @ axes[:, -DIRECTIONS:]
    # on average, 1 / the mean of m squared normal deviates is m / (m - 2)
    variance = ((second @ leading) ** 2).sum(axis=0) / (len(second) - 2)
    return float(((error @ leading) ** 2 / variance).mean())


def variogram(plane, missing, lag):
    """Half the mean square step between filled pixels of a plane, and how many there are."""
    total, count = 0.0, 0
    for axis in (0, 1):
        n = plane.shape[axis] - lag
        ends = [np.take(a, range(k, k + n), axis) for a in (plane, missing) for k in (0, lag)]
        both = ends[2] & ends[3]
        total += ((ends[0] - ends[1])[both] ** 2).sum() / 2
        count += int(both.sum())
    return total, count


def variogram_ratio(cubes, truth, missing, lag):
    """That of the samples over that of the truth, both summed over some bands, each in units of
    its variance."""
    some = np.linspace(0, len(truth) - 1, BANDS).astype(int)
    drawn, scene, pairs = 0.0, 0.0, 0
    for band in some[truth[some].var(axis=(1, 2)) > 0]:
        unit = truth[band].var()
        total, count = variogram(truth[band], missing[band], lag)
        own = np.mean([variogram(cube[band], missing[band], lag)[0] for cube in cubes])
        drawn, scene, pairs = drawn + own / unit, scene + total / unit, pairs + count
    return (drawn / scene, pairs) if scene > 0 and pairs >= FEWEST else (np.nan, 0)


def judged(result, truth, count):
    """(quantity, value, count) of a fill whose truth is known, and the seconds of a sample."""
    missing = result.filled
    began = time.process_time()
    cubes = list(result.samples(count))
    seconds = (time.process_time() - began) / count
    for name, of in quantities(missing, truth).items():
        exact = of(truth)
        share = inside(np.stack([of(cube) for cube in cubes]), exact) if exact.size else np.nan
        if np.isfinite(share):
            yield name, share, exact.size, seconds
    spread = truth.std(axis=(1, 2))[:, None, None] * np.ones(truth.shape)
    errors = np.stack([((cube - result.values) / spread)[missing] for cube in cubes])
    error = ((truth - result.values) / spread)[missing]
    yield "d2 of leading directions", directions(errors, error), DIRECTIONS, seconds
    for lag in LAGS:
        value, pairs = variogram_ratio(cubes[:10], truth, missing, lag)
        if pairs:
            yield f"variogram ratio, lag {lag}", value, pairs, seconds


def rows_of(scene, mask, seed, method, count):
    truth = load(scene)
    observed = observed_of(mask, truth.shape, seed)
    gaps = np.where(observed, truth, np.nan)
    result = hydiff.fill(gaps, axis="bands first", device="cpu", seed=seed, **METHODS[method])
    for name, value, n, seconds in judged(result, truth, count):
        yield row(scene, mask, seed, method, name, value, n, count, seconds)


def cost(method, count=20, times=3):
    """CPU seconds of so many samples over those of the fill of 144 × 144 pixels and 200 bands, the
    least of some times each: the first fill of a process also loads and prepares."""
    truth = np.asarray(hydiff.sample().values)[:, :144, :144].astype(np.float64)
    gaps = np.where(observed_of("stripes", truth.shape, 0), truth, np.nan)
    fills, draws = [], []
    for _ in range(times):
        began = time.process_time()
        result = hydiff.fill(gaps, axis="bands first", device="cpu", **METHODS[method])
        filled = time.process_time()
        for _ in result.samples(count):
            pass
        fills.append(filled - began)
        draws.append(time.process_time() - filled)
    name, took = f"cost of {count} samples, in fills", min(draws)
    ratio = took / min(fills)
    return row("indian_pines", "stripes", 0, method, name, ratio, 1, count, took / count)


def row(scene, mask, seed, method, quantity, value, n, count, seconds):
    return {
        "scene": scene, "mask": mask, "seed": seed, "method": method, "quantity": quantity,
        "value": f"{value:.4f}", "count": n, "samples": count, "sample_seconds": f"{seconds:.3f}",
        "device": f"CPU {platform.machine()}", "command": " ".join(["python", *sys.argv]),
    }  # fmt: skip


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--samples", type=int, default=49)
    ask.add_argument("--seeds", type=int, default=1)
    ask.add_argument("--cost", action="store_true")
    given = ask.parse_args()
    if given.cost:
        hydiff.fill(
            np.where(np.eye(20) > 0, np.nan, 1.0 + np.ones((3, 20, 20)))
        )  # a first fill, for the imports
        for method in METHODS:
            records.append(RESULTS, cost(method), NAMES)
        return
    done = {(r["scene"], r["mask"], int(r["seed"]), r["method"]) for r in records.read(RESULTS)}
    for seed in range(given.seeds):
        for scene in SCENES:
            for mask in MASKS:
                for method in METHODS:
                    if (scene, mask, seed, method) not in done:
                        for row in list(rows_of(scene, mask, seed, method, given.samples)):
                            records.append(RESULTS, row, NAMES)
                        print(seed, scene, mask, method, flush=True)


if __name__ == "__main__":
    main()
