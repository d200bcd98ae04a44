"""Do faint absorptions and land cover survive a fill?

    python benchmarks/plumes.py --code now                     cells that have no row in the CSV yet
    python benchmarks/plumes.py --code now --again smooth      the rows of a method once more
    python benchmarks/plumes.py --code now --summary           only the table and the requirements

Writes benchmarks/results/plumes.csv, one row for each cell, appended as soon as it is known.
`--code` names the version of the package; others are compared with the rows of "before" on the same
kind of device.

plume      an absorption six bands wide, its depth Gaussian in space (σ = 5 px) around the middle of
           the scene, crossed by a full-height stripe of 6 px: missing in all bands (gaps = pixels),
           or in the bands of the absorption and two neighbours on each side (gaps = bands).
           recovered: the share of the plume that the fill restores.  This is the difference between
           the fills with and without the plume, projected on the true difference, over the entries
           of the gap in the six bands where the plume has at least half of its depth.  covered_80:
           share of these entries inside their 80 % interval.  rmse: of all missing entries, in
           units of the scene's range.
landcover  share of the filled pixels whose class is recognised from their spectra by a classifier
           (linear discriminant analysis, five nearest neighbours) that was trained on observed
           pixels; lda_truth, knn_truth: from the true spectra.  Labels of Indian Pines; elsewhere
           eight k-means classes of the truth.

Scenes come from HYDIFF_DATA (default ../shared/data).  On a CPU compare `cpu_seconds`, which do not
depend on other load of the machine.
"""

import argparse
import os
import platform
import shlex
import sys
import time
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist

import hydiff
from hydiff.bench import records, uses
from hydiff.gaps.mask import make_mask
from hydiff.io.bundled import sample, sample_labels
from hydiff.metrics import NORMAL_QUANTILES

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("HYDIFF_DATA", ROOT.parent / "shared" / "data"))
RESULTS = ROOT / "benchmarks" / "results" / "plumes.csv"

SCENES = (
    "indian_pines_144", "abu_airport-1_96", "abu_urban-1_96", "jasper_96", "enmap_potsdam_64x96",
    "paris_hyperion_72",
)  # fmt: skip
GAPS = ("pixels", "bands")
DEPTHS = (0.05, 0.1, 0.3)
POSITIONS = (0.15, 0.3, 0.6)  # positions of the absorption, as shares of the band axis
MASKS = ("stripes", "blobs")  # for land cover
METHODS = {"plume": ("harmonic", "smooth", "auto"),
           "landcover": ("harmonic", "biharmonic", "smooth", "auto")}  # fmt: skip
SPREAD, WIDTH, STRIPE, NEIGHBOURS = 5.0, 6, 6, 2  # px, bands, px, bands
CLASSES, NEAREST = 8, 5

KEY = ("part", "scene", "gaps", "depth", "position", "method", "code", "device")
FIGURES = (
    "recovered", "covered_80", "rmse", "lda", "knn", "lda_truth", "knn_truth", "seconds",
    "cpu_seconds",
)  # fmt: skip
COLUMNS = (*KEY, *FIGURES, "command")


@lru_cache(1)
def scene(name):
    """(bands, rows, cols) float64 in the scene's own unit."""
    if name == "indian_pines_144":
        return np.asarray(sample().values)[:, :144, :144].astype(np.float64)
    return np.load(DATA / "dev" / f"{name}.npz")["cube"].transpose(2, 0, 1).astype(np.float64)


def fill(values, observed, method, device, **settings):
    """A fill of what was observed, with its wall and CPU seconds."""
    settings |= {"budget": "fast"} if method == "auto" else {}
    began, busy = time.perf_counter(), time.process_time()
    damaged = np.where(observed, values, np.nan)
    result = hydiff.fill(damaged, method=method, device=device, outside="fill", **settings)
    return result, time.perf_counter() - began, time.process_time() - busy


# Plumes


def feature(bands, position):
    """(bands,) the absorption along the spectrum, 1 at its deepest; and the bands it has."""
    first = int(position * bands) - WIDTH // 2
    lobe = np.sin(np.pi * (np.arange(WIDTH) + 0.5) / WIDTH)
    shape = np.zeros(bands)
    shape[first : first + WIDTH] = lobe / lobe.max()
    return shape, slice(first, first + WIDTH)


def plume(rows, cols):
    """(rows, cols) 1 at the middle of the stripe."""
    down, right = np.arange(rows) - rows // 2, np.arange(cols) - (cols // 2 - 0.5)
    return np.exp(-(down[:, None] ** 2 + right**2) / (2 * SPREAD**2))


def stripe(shape, gaps, bands):
    """Observed entries (bands, rows, cols)."""
    observed = np.ones(shape, bool)
    columns = slice(shape[2] // 2 - STRIPE // 2, shape[2] // 2 + STRIPE // 2)
    near = slice(max(bands.start - NEIGHBOURS, 0), bands.stop + NEIGHBOURS)
    observed[slice(None) if gaps == "pixels" else near, :, columns] = False
    return observed


@lru_cache(2)
def without_plume(name, gaps, position, method, device):
    """The fill of the scene as it is; in all bands it does not depend on the position."""
    base = scene(name)
    bands = feature(len(base), POSITIONS[0] if position is None else position)[1]
    return fill(base, stripe(base.shape, gaps, bands), method, device)[0].values


def plume_row(cell, device):
    base = scene(cell["scene"])
    depth, position = float(cell["depth"]), float(cell["position"])
    along, bands = feature(len(base), position)
    across = plume(*base.shape[1:])
    truth = base * (1 - depth * along[:, None, None] * across)
    observed = stripe(base.shape, cell["gaps"], bands)
    result, seconds, busy = fill(truth, observed, cell["method"], device)
    bars = result
    if cell["method"] == "smooth":  # has error bars only if they are requested
        bars = fill(truth, observed, "smooth", device, error_bars=True)[0]
    where = ~observed & (along > 0)[:, None, None] & (across > 0.5)
    at = None if cell["gaps"] == "pixels" else position
    plain = without_plume(cell["scene"], cell["gaps"], at, cell["method"], device)
    found, wanted = (result.values - plain)[where], (truth - base)[where]
    square = (result.values - truth)[~observed] ** 2
    return {
        "recovered": found @ wanted / (wanted @ wanted),
        "covered_80": covered(bars, truth, where),
        "rmse": np.sqrt(square.mean()) / np.ptp(base),
        "seconds": seconds,
        "cpu_seconds": busy,
    }


def covered(result, truth, where):
    """Share of entries inside their 80 % interval; NaN without error bars."""
    if result.sigma is None:
        return np.nan
    errors = (result.recipe or {}).get("errors", {})
    half = (errors.get("intervals") or NORMAL_QUANTILES)[1] * result.sigma[where]
    return np.mean(np.abs(result.values - truth)[where] <= half)


# Land cover


@lru_cache(1)
def labels(name):
    """(rows, cols) classes from 1; 0 has none."""
    if name == "indian_pines_144":
        return sample_labels()[:144, :144].astype(int)
    truth = scene(name)
    spectra = truth.reshape(len(truth), -1).T / np.ptp(truth)
    starts = np.random.default_rng(0).choice(len(spectra), CLASSES, replace=False)
    return kmeans2(spectra, spectra[starts], minit="matrix")[1].reshape(truth.shape[1:]) + 1


def nearest_classes(training, classes, spectra):
    """The commonest class among the nearest training spectra (n, bands), bands of equal weight."""
    scale = training.std(axis=0) + 1e-12
    distance = cdist(spectra / scale, training / scale)
    near = classes[np.argpartition(distance, NEAREST, axis=1)[:, :NEAREST]]
    return np.array([np.bincount(row).argmax() for row in near])


def accuracies(values, truth, observed, classes):
    training, test = observed & (classes > 0), ~observed & (classes > 0)
    names, counts = np.unique(classes[training], return_counts=True)
    common = np.isin(classes, names[counts >= uses.FEWEST])
    training &= common
    test &= common
    known, right = truth[:, training].T, classes[test]
    model = uses.train(known, classes[training])
    out = {}
    for what, x in (("", values), ("_truth", truth)):
        asked = x[:, test].T
        out[f"lda{what}"] = np.mean(model.classify(asked) == right)
        out[f"knn{what}"] = np.mean(nearest_classes(known, classes[training], asked) == right)
    return out


def landcover_row(cell, device):
    truth = scene(cell["scene"])
    observed = make_mask(cell["gaps"], truth.shape, None, np.random.default_rng(0))
    whole = np.broadcast_to(observed, truth.shape)
    result, seconds, busy = fill(truth, whole, cell["method"], device)
    rmse = np.sqrt(np.mean((result.values - truth)[~whole] ** 2)) / np.ptp(truth)
    found = accuracies(result.values / np.ptp(truth), truth / np.ptp(truth), observed,
                       labels(cell["scene"]))  # fmt: skip
    return found | {"rmse": rmse, "seconds": seconds, "cpu_seconds": busy}


ROWS = {"plume": plume_row, "landcover": landcover_row}


# Running


def cells(asked, device):
    """Cells in an order that makes little twice."""
    for name in asked.scene or SCENES:
        for gaps in GAPS:
            for method in METHODS["plume"]:
                for position in POSITIONS:
                    for depth in DEPTHS:
                        yield ("plume", name, gaps, f"{depth}", f"{position}", method)
        for mask in MASKS:
            for method in METHODS["landcover"]:
                yield ("landcover", name, mask, "", "", method)


def device_name(device):
    import torch

    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"CPU {platform.machine()}, {os.cpu_count()} cores"


def key(row):
    return tuple(row[k] for k in KEY)


def forget(code, methods):
    """Take the rows of a state and some methods out of the file."""
    kept = [r for r in records.read(RESULTS) if r["code"] != code or r["method"] not in methods]
    records.write(RESULTS, kept, COLUMNS)


def shown(value):
    return "" if np.isnan(value) else f"{value:.4g}"


def run(asked):
    place = device_name(asked.device)
    done, end = {key(row) for row in records.read(RESULTS)}, time.monotonic() + 60 * asked.minutes
    for found in cells(asked, place):
        cell = dict(zip(KEY, (*found, asked.code, place), strict=True))
        wanted = cell["method"] in asked.method and cell["part"] in asked.part
        if not wanted or tuple(cell.values()) in done or time.monotonic() > end:
            continue
        figures = ROWS[cell["part"]](cell, asked.device)
        row = cell | {k: shown(v) for k, v in figures.items()}
        row |= {"command": shlex.join(["python", "benchmarks/plumes.py", *sys.argv[1:]])}
        records.append(RESULTS, row, COLUMNS)
        print(*(row.get(k, "") for k in (*KEY[1:6], "recovered", "covered_80", "rmse", "lda",
                                         "knn", "seconds")), sep="\t", flush=True)  # fmt: skip


# Requirements


def table_of(rows, code):
    """Cell without code and device → its figures, of one state."""
    return {key(r)[:6]: {k: float(r[k] or "nan") for k in FIGURES} for r in rows
            if r["code"] == code}  # fmt: skip


def other(cell, method):
    return (*cell[:5], method)


def summary(code):
    rows = records.read(RESULTS)
    now, known = table_of(rows, code), table_of(rows, "before")
    places = sorted({r["device"] for r in rows if r["code"] == code})
    print(f"\ncode {code}: {len(now)} cells on {', '.join(places) or 'nothing yet'}")
    print_plumes(now)
    print_landcover(now)
    print("\nMust hold")
    for method in ("smooth", "auto"):
        recovery(now, known | now, method)  # harmonic and biharmonic do not change
        coverage(now, method)
        if code != "before":
            against_before(now, known, method)
    landcover(now, known | now)


def print_plumes(now):
    print("\nRecovered, mean over positions (lowest)")
    heads = [f"{100 * d:g} %" for d in DEPTHS]
    print("scene", "gaps", "method", *heads, "covered 80 %", sep="\t")
    for name, gaps, method in product(SCENES, GAPS, METHODS["plume"]):
        mine = {c: f for c, f in now.items() if (*c[:3], c[5]) == ("plume", name, gaps, method)}
        if mine:
            depths = (by_depth(mine, d) for d in DEPTHS)
            print(name, gaps, method, *depths, average(mine, "covered_80"), sep="\t")


def print_landcover(now):
    print("\nLand cover, % of filled pixels (mean over scenes and masks)")
    for method in METHODS["landcover"]:
        mine = {c: f for c, f in now.items() if (c[0], c[5]) == ("landcover", method)}
        if mine:
            figures = ("lda", "lda_truth", "knn", "knn_truth")
            print(method, *(f"{k} {average(mine, k)}" for k in figures), sep="\t")


def by_depth(mine, depth):
    found = [f["recovered"] for c, f in mine.items() if c[3] == f"{depth}"]
    return f"{np.mean(found):.2f} ({min(found):.2f})" if found else ""


def average(mine, figure):
    return shown(100 * np.mean([f[figure] for f in mine.values()]))


def verdict(holds, text):
    print("holds " if holds else "FAILS ", text)


def recovery(now, reference, method):
    for gaps in GAPS:
        ratio = {}
        for cell, figures in now.items():
            rival = reference.get(other(cell, "harmonic"))
            if (cell[0], cell[2], cell[5]) == ("plume", gaps, method) and rival:
                ratio[cell] = figures["recovered"] / rival["recovered"]
        if ratio:
            low = min(ratio, key=ratio.get)
            good = sum(r >= 0.9 for r in ratio.values())
            text = f"{method}, {gaps}: recovery >= 0.9 x harmonic's in {good} of {len(ratio)} cells"
            text += f"; lowest {ratio[low]:.2f} at {' '.join(low[1:5])}"
            verdict(good == len(ratio), f"{text}, median {np.median(list(ratio.values())):.2f}")


def coverage(now, method):
    for gaps in GAPS:
        found = {}
        for cell, figures in now.items():
            here = (cell[0], cell[2], cell[5]) == ("plume", gaps, method)
            if here and np.isfinite(figures["covered_80"]):
                found.setdefault(cell[1], []).append(100 * figures["covered_80"])
        if found:
            every = np.concatenate(list(found.values()))
            means = {name: np.mean(shares) for name, shares in found.items()}
            low = min(means, key=means.get)
            text = f"{method}, {gaps}: 80 % intervals cover {every.mean():.0f} % inside the plume"
            text += f" (>= 60); lowest scene {low} {means[low]:.0f} %"
            verdict(every.mean() >= 60, f"{text}; {(every < 60).sum()} of {len(every)} cells below")


def against_before(now, before, method):
    for part in ROWS:
        both = [c for c in now if c in before and (c[0], c[5]) == (part, method)]
        if not both:
            continue
        ratio = np.array([now[c]["rmse"] / before[c]["rmse"] for c in both])
        worst, mean = both[int(ratio.argmax())], np.exp(np.log(ratio).mean())
        text = f"{method}, {part}: RMSE {100 * (mean - 1):+.2f} % in the mean against before"
        text += f" (<= 0.5 %), {100 * (ratio.max() - 1):+.2f} % at worst ({' '.join(worst[1:5])})"
        verdict(ratio.max() <= 1.005, text)
        for clock in ("cpu_seconds", "seconds"):
            ours, theirs = (sum(t[c][clock] for c in both) for t in (now, before))
            text = f"{method}, {part}: {clock} {ours:.1f} against {theirs:.1f} before"
            verdict(ours <= 1.5 * theirs, f"{text}, {ours / theirs:.2f} x (<= 1.5)")


def landcover(now, reference):
    for figure in ("lda", "knn"):
        gains = {}
        for cell, figures in now.items():
            rivals = [reference.get(other(cell, m)) for m in ("harmonic", "biharmonic")]
            if (cell[0], cell[5]) == ("landcover", "auto") and all(rivals):
                gains[cell] = 100 * (figures[figure] - max(r[figure] for r in rivals))
        if gains:
            low, each = min(gains, key=gains.get), np.array(list(gains.values()))
            text = f"auto, land cover by {figure}: {each.mean():+.1f} points against the better of "
            text += (
                f"harmonic and biharmonic (>= -2), lowest {gains[low]:+.1f} at {low[1]} {low[2]}"
            )
            verdict(each.min() >= -2, f"{text}, {(each < -2).sum()} of {len(each)} cells below")


def main():
    every = ("harmonic", "biharmonic", "smooth", "auto")
    parser = argparse.ArgumentParser(description="Do faint absorptions survive a fill?")
    parser.add_argument("--code", default="now", help="name of the state of the package")
    parser.add_argument("--method", nargs="+", default=every, choices=every)
    parser.add_argument("--scene", nargs="+", choices=SCENES)
    parser.add_argument("--part", nargs="+", default=tuple(ROWS), choices=tuple(ROWS))
    parser.add_argument("--again", nargs="+", default=(), help="methods whose rows are made again")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    asked = parser.parse_args()
    if asked.again and not asked.summary:
        forget(asked.code, asked.again)
    if not asked.summary:
        run(asked)
    summary(asked.code)


if __name__ == "__main__":
    main()
