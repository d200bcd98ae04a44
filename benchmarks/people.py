"""The tools that people use to fill gaps, compared with our methods: same cubes, gaps and run.

    python benchmarks/people.py            writes benchmarks/results/people.csv and docs/people.png
    python benchmarks/people.py --scene jasper_96 --mask blobs --repeat 1
    python benchmarks/people.py --draw     only the figure, from the rows

rioxarray and verde are not among our extras: `pip install -c constraints.txt rioxarray verde`.
A filler gets a cube (bands, rows, cols) in memory, NaN where it is missing, and the mask.  The
fillers take turns, the fast ones --repeat times, so that other load affects all of them alike.  CPU
seconds are the least of the repeats, of this process and its children, with one thread.  Our
methods are complete calls of `hydiff.fill`.  Entries that a filler leaves missing get the value of
the nearest observed pixel before the scores are taken; their share is the column `left`.
`gdal_fillnodata` calls the same function as rasterio.  Its search distance of 100 px makes no
difference here: `idw` searches the whole image, and has the same scores.
"""

import argparse
import csv
import os
import platform
import resource
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import interpolate, ndimage

import hydiff
from hydiff import metrics
from hydiff.bench import figures, panels, scenes

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "people.csv"
FIGURE = ROOT / "docs" / "people.png"
SCENES = ("indian_pines", "enmap_potsdam_64x96", "cave_toys_144")  # airborne, in orbit, laboratory
BANDS = 50  # scenes with more bands are subsampled, as some fillers are slow
MASKS = ("stripes", "blobs")
OURS = ("linear", "idw", "harmonic", "tension", "smooth", "auto")
ONCE = ("rioxarray", "verde", "auto")  # these take seconds, and run once


def fillnodata(y, observed):
    """GDAL's, band by band, with its default search distance."""
    from rasterio.fill import fillnodata

    return np.stack([fillnodata(band.copy(), observed) for band in y])


def interpolate_na(method):
    def fill(y, observed):
        import rioxarray  # noqa: F401  (adds .rio to xarray)
        import xarray

        C, H, W = y.shape
        axes = {"band": np.arange(C), "y": np.arange(H), "x": np.arange(W)}
        raster = xarray.DataArray(y, axes).rio.write_nodata(np.nan).rio.write_crs(32633)
        return raster.rio.interpolate_na(method).values

    return fill


def biharmonic(split):
    def fill(y, observed):
        from skimage.restoration import inpaint_biharmonic

        y = np.where(observed, y, 0)
        return inpaint_biharmonic(y, ~observed, split_into_regions=split, channel_axis=0)

    return fill


def griddata(method):
    def fill(y, observed):
        """All bands in one call: the triangles are made once."""
        x, at = y.copy(), np.argwhere(observed)
        x[:, ~observed] = interpolate.griddata(
            at, y[:, observed].T, np.argwhere(~observed), method
        ).T
        return x

    return fill


def verde(name):
    def fill(y, observed):
        """Band by band, as its gridders take one variable."""
        import verde

        x, here, there = y.copy(), np.nonzero(observed), np.nonzero(~observed)
        for band in x:
            band[there] = getattr(verde, name)().fit(here, band[here]).predict(there)
        return x

    return fill


def ours(method):
    return lambda y, observed: hydiff.fill(y, observed, method=method, device="cpu").values


# name → distribution, function
PEOPLE = {
    "rasterio fillnodata": ("rasterio", fillnodata),
    "rioxarray interpolate_na, nearest": ("rioxarray", interpolate_na("nearest")),
    "rioxarray interpolate_na, linear": ("rioxarray", interpolate_na("linear")),
    "scikit-image biharmonic": ("scikit-image", biharmonic(False)),
    "scikit-image biharmonic, by region": ("scikit-image", biharmonic(True)),
    "scipy griddata, linear": ("scipy", griddata("linear")),
    "verde KNeighbors": ("verde", verde("KNeighbors")),
    "verde Linear": ("verde", verde("Linear")),
} | {name: ("hydiff", ours(name)) for name in OURS}
MODULES = {"scikit-image": "skimage"}


def cpu_seconds():
    usages = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in usages)


def scored(x, truth, observed):
    """Figures of the missing entries, and the share that was left missing, in percent."""
    missing = np.broadcast_to(~observed, truth.shape)
    left = missing & ~np.isfinite(x)
    rows, cols = ndimage.distance_transform_edt(
        ~observed, return_distances=False, return_indices=True
    )
    x = np.where(left, truth[:, rows, cols], x).astype(float)
    found = metrics.score(np.where(missing, x, truth), truth, missing).missing
    figures = {k: round(found[k], 4) for k in ("mpsnr", "sam", "nrmse")}
    return figures | {"left": round(100 * left.sum() / missing.sum(), 3)}


def rows(scene, mask, people, repeat):
    truth = scenes.load(scene)
    truth = truth[:: max(len(truth) // BANDS, 1)]
    observed = scenes.observed_of(mask, truth.shape)
    y = np.where(observed, truth, np.nan).astype(np.float32)
    seconds, fills = {name: [] for name in people}, {}
    for turn in range(repeat):
        for name in people:
            if turn and (PEOPLE[name][0] in ONCE or name in ONCE):
                continue
            began = cpu_seconds()
            fills[name] = PEOPLE[name][1](y, observed)
            seconds[name].append(cpu_seconds() - began)
    for name in people:
        yield {
            "scene": scene,
            "mask": mask,
            "method": name,
            **scored(fills[name], truth, observed),
            "cpu_seconds": round(min(seconds[name]), 4),
            "bands_rows_cols": "x".join(map(str, truth.shape)),
            "version": f"{PEOPLE[name][0]} {version(PEOPLE[name][0])}",
            "device": f"{os.cpu_count()} CPU cores, {platform.machine()}, one thread",
            "command": "python benchmarks/people.py",
        }


def draw():
    """Seconds across, dB up: each filler's mean over the cells, relative to `harmonic` there."""
    with RESULTS.open(newline="") as file:
        found = list(csv.DictReader(file))
    base = {(r["scene"], r["mask"]): r for r in found if r["method"] == "harmonic"}
    figure = panels.new_figure(panels.WIDTH, 4.2)
    axes, places = figure.subplots(), []
    for number, name in enumerate(dict.fromkeys(r["method"] for r in found), 1):
        pairs = [(r, base[r["scene"], r["mask"]]) for r in found if r["method"] == name]
        ratio = np.exp(
            fmean(np.log(float(r["cpu_seconds"]) / float(b["cpu_seconds"])) for r, b in pairs)
        )
        gain = fmean(float(r["mpsnr"]) - float(b["mpsnr"]) for r, b in pairs)
        mine = name in OURS
        look = {"color": figures.COLOURS[0 if mine else 6], "marker": "os"[not mine]}
        look |= {"s": 26, "edgecolor": "white", "linewidth": 0.6}
        axes.scatter(ratio, gain, **look, label=f"{number} {name}")
        places.append((ratio, gain))
    axes.set(xscale="log", xlabel="CPU seconds / those of harmonic", ylabel="dB over harmonic")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(0.1, 0.15)
    figure.legend(loc="outside lower center", ncols=3, fontsize=7, frameon=False)
    figure.canvas.draw()  # drawn, so that positions in points are known
    for number, (place, offset) in enumerate(zip(places, free(axes, places), strict=True), 1):
        how = {"fontsize": 8, "ha": "center", "va": "center", "textcoords": "offset points"}
        if np.hypot(*offset) > 10:  # a line leads to the label
            how["arrowprops"] = {"arrowstyle": "-", "lw": 0.6, "shrinkA": 1, "shrinkB": 3}
        axes.annotate(f"{number}", place, xytext=tuple(offset), **how)
    figure.savefig(FIGURE)


def free(axes, places):
    """For each place the offset of its label, in points: the nearest that keeps off all else."""
    turns = np.pi / 4 * np.array([2, 6, 0, 4, 1, 3, 5, 7])  # in order of preference, above first
    around = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    around = np.concatenate([distance * around for distance in (9.5, 19, 28)])
    points = axes.transData.transform(places) * 72 / axes.figure.dpi
    labels = []
    for i, point in enumerate(points):
        taken = np.concatenate([np.delete(points, i, axis=0), *labels])
        off = taken - point
        gaps = [  # of the label, and of the middle of the line that leads to it
            min(np.linalg.norm(off - part * offset, axis=1).min() / part for part in (0.5, 1))
            for offset in around
        ]
        best = around[np.argmax(np.minimum(gaps, 14.0))]  # the first that is 14 points from all
        labels.append((point + best)[None])
        yield best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scene", nargs="*", default=SCENES)
    parser.add_argument("--mask", nargs="*", default=MASKS)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--draw", action="store_true", help="only the figure, from the rows")
    args = parser.parse_args()
    if args.draw:
        draw()
        return
    people = [n for n, (d, _) in PEOPLE.items() if find_spec(MODULES.get(d, d))]
    if absent := sorted({PEOPLE[n][0] for n in PEOPLE if n not in people}):
        parser.error(f"not installed: {', '.join(absent)}; see the top of this file")
    warnings.filterwarnings("ignore", category=FutureWarning)
    observed = np.arange(400).reshape(20, 20) % 7 > 0
    small = np.where(observed, np.ones((2, 20, 20)), np.nan).astype(np.float32)
    for name in people:  # imports are not a part of a fill
        PEOPLE[name][1](small, observed)
    with RESULTS.open("w", newline="") as file:
        writer = None
        for scene in args.scene:
            for mask in args.mask:
                for row in rows(scene, mask, people, args.repeat):
                    if writer is None:
                        writer = csv.DictWriter(file, row, lineterminator="\n")
                        writer.writeheader()
                    writer.writerow(row)
                    shown = (row[k] for k in ("scene", "mask", "method", "mpsnr", "cpu_seconds"))
                    print(*(f"{v!s:>20}" for v in shown), flush=True)
    draw()


if __name__ == "__main__":
    main()
