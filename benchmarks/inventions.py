"""Details that the prior must not invent: each rule, and the measured value.

    python benchmarks/inventions.py               on a CPU, some minutes

Writes benchmarks/results/inventions.csv.  The scenes: synthetic pictures
without anything to learn from, such as a constant or noise; bright objects at the rim of gaps and
inside them; a real scene, for structures that the truth does not have and spectra unlike all
observed ones; and kinds of ground that no training image shows.
tests/test_prior_weights.py requires the same limits.
"""

import csv
import os
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

import hydiff
from hydiff.gaps.mask import make_mask

RESULTS = Path(__file__).parent / "results" / "inventions.csv"
SIDE, BANDS = 64, 6
ROWS, COLS = np.mgrid[:SIDE, :SIDE] / SIDE
MOST = {
    "auto": 1.012,
    "prior": 1.035,
}  # upper limits: RMSE, less LITTLE of the range, relative to `smooth`
LITTLE = 1e-4
SEED = 0  # the seed of the tests


def filled(truth, observed, method, **how):
    """(bands, rows, cols) by one method, on the CPU."""
    device = {} if method == "smooth" else {"device": "cpu"}
    return hydiff.fill(truth, observed, method=method, **device, **how).values


# ── scenes without anything to learn from ────────────────────────────────────────────────────────


def lettering(rng):
    picture = Image.new("L", (SIDE, SIDE))
    draw = ImageDraw.Draw(picture)
    for row in range(0, SIDE, 11):
        draw.text((1, row), "".join(rng.choice([*"HYDIFFEI0123"], 10)), fill=255)
    return np.asarray(picture) / 255.0


def blocks(rng):
    """Half of it saturated."""
    coarse = ndimage.zoom(rng.standard_normal((8, 8)), SIDE // 8, order=0)
    return np.clip(coarse, -0.3, 0.0) / 0.3 + 1


PICTURES = {
    "constant": lambda rng: np.full((SIDE, SIDE), 0.5),
    "linear": lambda rng: 0.7 * ROWS + 0.3 * COLS,
    "periodic": lambda rng: 0.5 + 0.5 * np.sin(2 * np.pi * (8 * ROWS + 5 * COLS)),
    "text": lettering,
    "noise": lambda rng: rng.uniform(size=(SIDE, SIDE)),
    "saturated": blocks,
}


def scene_of(name, rng):
    """A picture in all bands, each with a gain and an offset of its own, in all from 0 to 1."""
    picture = PICTURES[name](rng)
    gain = rng.uniform(0.3, 0.7, (BANDS, 1, 1))
    return rng.uniform(0, 0.3, (BANDS, 1, 1)) + gain * picture


def rmse(values, truth, observed):
    return float(np.sqrt(((values - truth)[:, ~observed] ** 2).mean()))


def beside_smooth(name, mask, rng):
    """RMSE of `auto` and of `prior`, less a little, as a multiple of that of `smooth`."""
    truth = scene_of(name, rng)
    observed = make_mask(mask, truth.shape, 0.25, rng)
    error = {m: rmse(filled(truth, observed, m), truth, observed) for m in ("smooth", *MOST)}
    return {m: max(error[m] - LITTLE, 0) / max(error["smooth"], LITTLE) for m in MOST}


# ── bright objects ───────────────────────────────────────────────────────────────────────────────


def with_objects(rng):
    """A mild background and bright squares of 1 to 3 px in a grid, one at the middle of each 16."""
    ground = ndimage.gaussian_filter(rng.standard_normal((96, 96)), 4)
    ground = 0.2 + 0.05 * ground / ground.std()
    objects = np.zeros_like(ground)
    for n, (row, col) in enumerate((r, c) for r in range(8, 96, 16) for c in range(8, 96, 16)):
        side = 1 + n % 3
        objects[row : row + side, col : col + side] = 0.6
    spectrum = rng.uniform(0.5, 1.0, (BANDS, 1, 1))
    return spectrum * ground, spectrum * objects


def half_hidden(rng):
    """The error of the flux of objects whose right part is missing, as a multiple of `smooth`'s."""
    ground, objects = with_objects(rng)
    observed = np.ones(ground.shape[1:], bool)
    for col in range(9, 96, 16):  # hides the right part of objects of 2 and 3 px
        observed[:, col : col + 4] = False
    errors = {}
    for method in ("smooth", "prior"):
        off = filled(ground + objects, observed, method)
        off = np.where(observed, 0.0, off - ground - objects).sum(axis=0)
        errors[method] = np.abs(off.reshape(6, 16, 6, 16).sum(axis=(1, 3))).mean()
    return errors["prior"] / errors["smooth"]


def wholly_hidden(rng):
    """Entries that look like an object where one lies wholly in a gap."""
    ground, objects = with_objects(rng)
    observed = ~ndimage.binary_dilation(objects[0] > 0, np.ones((5, 5), bool))
    off = (filled(ground + objects, observed, "prior") - ground)[:, ~observed]
    return int((off > 0.3 * objects.max()).sum())


# ── a real scene that no training has seen ───────────────────────────────────────────────────────


def pines():
    cube = np.asarray(hydiff.sample().values)[::8, :96, :96].astype(float)
    return cube, make_mask("blobs", cube.shape, 0.25, np.random.default_rng(0))


def false_structures(truth, observed):
    """Of |fill − smooth| above three standard errors where the truth does not go that way, in a
    thousand entries of the gaps."""
    smooth = hydiff.fill(truth, observed, method="smooth", error_bars=True)
    prior = filled(truth, observed, "prior")
    sigma, false = np.where(observed, np.inf, smooth.sigma), 0
    for b in range(len(truth)):
        change, real = prior[b] - smooth.values[b], truth[b] - smooth.values[b]
        labels, count = ndimage.label(np.abs(change) > 3 * sigma[b])
        if count:
            along = ndimage.sum_labels(change * real, labels, np.arange(1, count + 1))
            false += int((along <= 0).sum())
    return 1000 * false / ((~observed).sum() * len(truth))


def like_observed(truth, observed):
    """Share of the filled spectra no farther from the mean, by Mahalanobis distance, than all but
    one in a thousand of the observed ones."""
    spectra = filled(truth, observed, "prior")[:, ~observed]
    seen = truth[:, observed]
    mean, inverse = seen.mean(axis=1, keepdims=True), np.linalg.inv(np.cov(seen))

    def distance(x):
        return np.einsum("cn,cd,dn->n", x - mean, inverse, x - mean)

    return float((distance(spectra) <= np.quantile(distance(seen), 0.999)).mean())


# ── kinds of ground that no training image shows ─────────────────────────────────────────────────

# kind: file of the development data, rows and columns that show it, step between its bands; there
# are no files of snow, desert or other planets
ABSENT = {
    "water (Jasper Ridge, AVIRIS)": ("dev/jasper_96.npz", np.s_[56:, 14:50], 8),
    "savanna (NEON, 1 m)": ("native/neon_sjer_subset.h5", np.s_[:, :], 16),
    "radiance (AVIRIS-NG)": ("native/ang20160910t185702_2rdn_img.hdr", np.s_[:, :], 16),
    "laboratory, feathers (CAVE)": ("dev/cave_feathers_144.npz", np.s_[:72, :72], 3),
    "laboratory, grain": ("native/corn-kernel-hyperspectral.hdr", np.s_[:, :], 24),
}


def kind_of_ground(file, part, every):
    """(bands, rows, cols) of a kind, without bands that are constant or incomplete."""
    path = Path(os.environ.get("HYDIFF_DATA", "../shared/data")) / file
    if path.suffix == ".npz":
        values = np.moveaxis(np.load(path)["cube"], 2, 0)
    else:
        values = np.asarray(hydiff.read(path).values)
    values = values[:, *part].astype(float)
    whole = np.isfinite(values).all(axis=(1, 2)) & (values.std(axis=(1, 2)) > 0)
    return values[whole][::every]


def gain_on(truth, mask, seed):
    """dB over `smooth` of `auto` and of `prior`, in the mean over bands."""
    observed = make_mask(mask, truth.shape, 0.2, np.random.default_rng(seed))
    level = {
        m: np.log10(((filled(truth, observed, m) - truth)[:, ~observed] ** 2).mean(axis=1)).mean()
        for m in ("smooth", *MOST)
    }
    return {m: 10 * (level["smooth"] - level[m]) for m in MOST}


def rows():
    """Law, scene, what was found, the limit, whether it holds."""
    for name in PICTURES:
        each = [beside_smooth(name, m, np.random.default_rng(SEED)) for m in ("stripes", "blobs")]
        for method, most in MOST.items():
            worst = max(one[method] for one in each)
            yield f"RMSE of `{method}` / `smooth`", name, worst, f"≤ {most}", worst <= most
    flux = half_hidden(np.random.default_rng(SEED))
    yield "flux error / `smooth`", "objects of 1–3 px, half hidden", flux, "≤ 1.001", flux <= 1.001
    false = wholly_hidden(np.random.default_rng(SEED))
    yield "false objects", "objects of 1–3 px, wholly hidden", false, "0", false == 0
    found = false_structures(*pines())
    yield "false structures per 1,000 gap entries", "Indian Pines", found, "≤ 1", found <= 1
    share = 100 * like_observed(*pines())
    yield "% of spectra within the 99.9 % quantile", "Indian Pines", share, "≥ 99", share >= 99
    for name, where in ABSENT.items():
        truth = kind_of_ground(*where)
        each = [gain_on(truth, mask, i) for i, mask in enumerate(("stripes", "blobs"))]
        for method in MOST:
            mean = float(np.mean([one[method] for one in each]))
            yield f"dB of `{method}` over `smooth`", name, mean, "≥ -0.1", mean >= -0.1


def main():
    with RESULTS.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["law", "scene", "found", "limit", "holds"])
        for law, scene, found, limit, holds in rows():
            table.writerow([law, scene, f"{found:.3f}", limit, "yes" if holds else "no"])
            print(law, scene, f"{found:.3f}", limit, flush=True)
            file.flush()


if __name__ == "__main__":
    main()
