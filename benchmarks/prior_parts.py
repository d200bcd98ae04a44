"""Gain of one pass of the prior by its symmetries, its planes, its gate and its components.

    python benchmarks/prior_parts.py              places held back from its training, 5 CPU minutes
    python benchmarks/prior_parts.py --judge      also some development scenes, used for no choice

Writes benchmarks/results/prior_parts.csv: for each case and recipe the MPSNR of the gaps minus that
of `smooth`, in dB.  `planes` is the number of the strongest components that the network corrects,
`symmetries` the number of symmetries in the mean, and `gate` the distance in px up to which it is
trusted fully.  `components` are those of the bands divided by their roughness, as in the fill, or
those of the unscaled bands.  Crops are at most 80 × 80 px.
"""

import argparse
import csv
import os
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from scipy import ndimage

from hydiff.bench import scenes
from hydiff.gaps.mask import make_mask
from hydiff.learn import prior_weights, weights_file
from hydiff.learn.motions import SYMMETRIES
from hydiff.learn.plane_network import MIDDLE, inputs_of
from hydiff.methods import prior
from hydiff.methods.prior import fields_through, parts_of, planes_of
from hydiff.methods.smooth import Smooth as SmoothSettings
from hydiff.methods.smooth import component_fields, coordinates

RESULTS = Path(__file__).parent / "results" / "prior_parts.csv"
SIDE, MISSING, MOST = 80, 0.2, 16
MASKS = ("stripes", "blobs", "slc-off")
JUDGES = {
    "paris_hyperion_72": "stripes",
    "jasper_96": "blobs",
    "enmap_potsdam_64x96": "stripes",
    "chikusei_36": "blobs",
    "abu_urban-1_96": "stripes",
    "cave_toys_144": "blobs",
}
FIELDS = ["scenes", "scene", "mask", "size", "components", "planes", "symmetries", "gate", "gain"]


def held_back():
    """Places that no training has seen, at 20 m: name, cube (bands, rows, cols)."""
    about, _ = weights_file.content(prior_weights.packaged("full"), prior_weights.KIND)
    folder = Path(os.environ.get("HYDIFF_DATA", "../shared/data")) / "train"
    for path in sorted(folder.glob("*.npz")):
        kept = np.load(path)
        for name in kept.files:
            if name.split("_")[0] in about["held"] and "20m" in name:
                yield name, kept[name].astype(float)


def cases(judge):
    """Kind of scenes, name, mask, cube on the unit range, what of it is observed."""
    each = [("held back", name, MASKS[i % 3], x) for i, (name, x) in enumerate(held_back())]
    if judge:
        each += [
            ("development", n, m, np.asarray(scenes.load(n), float)) for n, m in JUDGES.items()
        ]
    for i, (kind, name, mask, x) in enumerate(each):
        x = x[:, :SIDE, :SIDE]
        x = (x - x.min()) / np.ptp(x)
        yield kind, name, mask, x, make_mask(mask, x.shape, MISSING, np.random.default_rng(i))


def corrections(size, inputs):
    """(k, 8, H, W) of the planes by each symmetry."""
    network = prior_weights.network_of(prior_weights.packaged(size), "cpu")
    out = []
    with torch.inference_mode():
        for transposed, axes in SYMMETRIES:
            turned = (inputs.mT if transposed else inputs).flip(axes).contiguous()
            back = torch.cat([network(one[None]) for one in turned]).flip(axes)
            out.append((back.mT if transposed else back).numpy())
    return np.stack(out, axis=1)


class Case:
    """A cube's gaps: the truth, what `smooth` says, and what the network would change of it."""

    def __init__(self, x, observed, turned, sizes, most):
        gap = ~observed
        c = coordinates(np.where(observed, x, 0.0), observed, np.zeros(len(x)), 24)
        base, _ = component_fields(c, SmoothSettings())
        unscaled = patch.object(prior, "axes_of", lambda c: np.eye(len(c.z)))
        with nullcontext() if turned else unscaled:
            parts = parts_of(c, most)
        unit = planes_of(parts.p, c.complete)
        f = fields_through(unit.planes, c.complete, torch.device("cpu"), c.membranes)
        shown = torch.as_tensor(unit.planes, dtype=torch.float32)
        inputs = inputs_of(shown, f, torch.as_tensor(c.complete), torch.zeros(len(shown)))
        scale, mean = (a[:, None, None] for a in (unit.scale, unit.mean))
        self.number = np.flatnonzero(parts.some)
        self.truth = x[:, gap]
        self.smooth = c.space.reconstruct(base[:, gap]) + c.rest[:, c.column[gap]]
        self.spectra = c.space.basis @ np.linalg.inv(parts.axes)[:, self.number]
        self.field = (f[:, MIDDLE].numpy() * scale + mean - parts.kriged)[:, gap]
        self.distance = ndimage.distance_transform_edt(gap)[gap]
        self.change = {s: (corrections(s, inputs) * scale[:, None])[:, :, gap] for s in sizes}

    def mpsnr(self, values):
        return float(np.mean(-10 * np.log10(((values - self.truth) ** 2).mean(axis=1) + 1e-12)))

    def by(self, size, planes, symmetries, gate):
        """The MPSNR of a recipe."""
        some = self.number < planes
        trust = np.clip(2 - self.distance / gate, 0.0, 1.0)
        change = self.change[size][some, :symmetries].mean(axis=1)
        return self.mpsnr(
            self.smooth + self.spectra[:, some] @ (trust * (self.field[some] + change))
        )


OWN, TURNED = "as they are", "in units of roughness"


def recipes():
    """Size, components, planes, symmetries, gate."""
    for planes in (2, 4, 8, 16):
        for symmetries in (1, 8):
            yield "full", TURNED, planes, symmetries, 8
    for symmetries in (2, 4):
        yield "full", TURNED, 8, symmetries, 8
    for gate in (16, 32):
        yield "full", TURNED, 8, 1, gate
    yield "full", OWN, 8, 1, 8
    for components in (TURNED, OWN):
        yield "small", components, 8, 1, 8


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judge", action="store_true")
    torch.set_num_threads(1)
    with RESULTS.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(FIELDS)
        for kind, name, mask, x, observed in cases(parser.parse_args().judge):
            sizes = ("full", "small")
            by = {
                OWN: Case(x, observed, False, sizes, 8),
                TURNED: Case(x, observed, True, sizes, MOST),
            }
            for size, components, *how in recipes():
                case = by[components]
                gain = case.by(size, *how) - case.mpsnr(case.smooth)
                table.writerow([kind, name, mask, size, components, *how, f"{gain:.4f}"])
            print(name, mask, flush=True)
            file.flush()


if __name__ == "__main__":
    main()
