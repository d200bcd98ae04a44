"""The first picture of the README: input, the usual tool, our default, truth.

    python benchmarks/opening.py            writes docs/opening.png and results/opening.csv

AVIRIS Indian Pines with two kinds of gaps: slanted stripes that are missing in all bands, and dead
columns that differ from band to band.  The usual tool is GDAL's `fillnodata` on every band (`idw`),
ours is the default (`auto`).  Scores are those of the missing entries, of all and of each kind.
"""

import csv
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import hydiff
from hydiff.gaps import mask
from hydiff.report import plots

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "opening.csv"
PICTURE = ROOT / "docs" / "opening.png"
METHODS = {"idw": "GDAL fillnodata", "auto": "hydiff"}
SHARES = {"stripes": 0.15, "columns": 0.15}
KEYS = ("nrmse", "sam", "derivative_rmse", "mpsnr")


def main():
    truth = hydiff.sample()
    observed = np.ones(truth.shape, bool)
    for seed, (kind, share) in enumerate(SHARES.items()):
        observed &= mask.make_mask(kind, truth.shape, share, np.random.default_rng(seed))
    lost = np.broadcast_to(~observed.any(axis=0), truth.shape)
    kinds = {"all": ~observed, "stripes": lost, "columns": ~observed & ~lost}
    fills = {name: hydiff.fill(truth, observed, method=name, device="cpu") for name in METHODS}
    scores = {
        (name, kind): hydiff.metrics.score(fill.values, truth, missing).missing
        for name, fill in fills.items()
        for kind, missing in kinds.items()
    }
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("gaps", "entries", "tool", "method", *KEYS, "command"))
        for kind, missing in kinds.items():
            for name, tool in METHODS.items():
                figures = (f"{scores[name, kind][key]:.4g}" for key in KEYS)
                about = (kind, int(missing.sum()), tool, name)
                writer.writerow((*about, *figures, "python benchmarks/opening.py"))
    draw(truth, observed, fills, scores).savefig(PICTURE, dpi=100)
    Image.open(PICTURE).convert("RGB").quantize(256).save(PICTURE, optimize=True)


def draw(truth, observed, fills, scores):
    values = np.asarray(truth.values, float)
    rgb = plots.rgb_shown(truth.wavelengths, observed, "nm")
    limits = plots.stretch(values, rgb, observed)
    shown = [(f"Input: {100 * (~observed).mean():.0f} % missing", values, observed)]
    whole = np.ones(observed.shape, bool)
    for name, fill in fills.items():
        error, angle = (scores[name, "all"][key] for key in ("nrmse", "sam"))
        title = f"{METHODS[name]}: NRMSE {error:.2f}, SAM {angle:.1f}°"
        shown.append((title, fill.values, whole))
    shown.append(("Truth", values, whole))
    figure = Figure(figsize=(13, 5.6), layout="constrained")
    axes = figure.subplot_mosaic([list("abcd"), list("ssss")], height_ratios=(3.1, 2))
    pixel = plots.deepest(~observed.any(axis=0))
    for axis, (title, cube, valid) in zip((axes[k] for k in "abcd"), shown, strict=True):
        axis.imshow(plots.composite(cube, rgb, valid, limits), interpolation="nearest")
        axis.plot(pixel[1], pixel[0], "o", ms=9, mfc="none", mec="black", mew=2.5)
        axis.plot(pixel[1], pixel[0], "o", ms=9, mfc="none", mec="white", mew=1.2)
        axis.set_title(title, fontsize=11)
        axis.axis("off")
    spectra(axes["s"], truth, fills, pixel)
    return figure


def spectra(axis, truth, fills, pixel):
    """The spectrum of one pixel by all; lines break where the sensor has no bands."""
    nm = truth.wavelengths
    breaks = np.flatnonzero(np.diff(nm) > 50) + 1

    def line(curve):
        return np.insert(np.asarray(curve, float), breaks, np.nan)

    ours, at = fills["auto"], (slice(None), *pixel)
    x, y, bar = line(nm), line(ours.values[at]), line(ours.sigma[at])
    axis.plot(x, line(np.asarray(truth.values)[at]), color="black", lw=1.4, label="truth")
    axis.plot(x, line(fills["idw"].values[at]), color="#D55E00", lw=1.4, label=METHODS["idw"])
    axis.plot(x, y, color="#0072B2", lw=1.4, label=f"{METHODS['auto']} ± 1 σ")
    axis.fill_between(x, y - bar, y + bar, color="#0072B2", alpha=0.2, lw=0)
    axis.set_xlabel("Wavelength (nm)")
    axis.set_ylabel("Value of the marked pixel")
    axis.legend(frameon=False)


if __name__ == "__main__":
    main()
