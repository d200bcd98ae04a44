"""Quality and time of the learned methods on real scenes, compared with classical fills.

    python benchmarks/learned.py required          the scores that must be reached, 3 seeds
    python benchmarks/learned.py table             dev scenes × published masks 1-4 × σ_y, one seed
    python benchmarks/learned.py presets           the loss of quality by the `fast` preset
    python benchmarks/learned.py seeds             five more seeds of one required score
    python benchmarks/learned.py product           the same, by `hydiff.fill` with its own scale
    python benchmarks/learned.py engines           the same fits by every engine and precision

Each writes benchmarks/results/learned_NAME.csv; if the file exists, only its missing rows are
computed.  Scenes come from HYDIFF_DATA.  Every row names scale, mask, network and device.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.io
import torch

from hydiff import metrics
from hydiff.bench import records, scenes
from hydiff.cube import Scale, unit_scale
from hydiff.gaps.mask import columns_needed, make_mask
from hydiff.learn.engine import side_by_side
from hydiff.methods import choose

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("HYDIFF_DATA", ROOT.parent / "shared" / "data"))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SCENES = [
    "indian_pines_144", "wdc10_144", "cave_feathers_144", "cave_toys_144", "abu_airport-1_96",
    "abu_airport-4_96", "abu_urban-1_96", "jasper_96", "enmap_potsdam_64x96", "paris_hyperion_72",
    "chikusei_36",
]  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One run: everything that decides its result."""

    method: str
    scene: str
    mask: str
    scale: str  # percentile | minmax | stored | minmax-product, the last as in `hydiff.fill`
    sigma_y: float = 0.0  # on the unit range
    seed: int = 0
    settings: str = "{}"  # JSON

    @property
    def learned(self):
        return self.method in ("hydiff-ei", "ei", "robust-ei")


def required():
    ip = {"scene": "indian_pines_144"}
    for seed in range(3):
        for method in ("hydiff-ei", "ei"):
            yield Cell(method, mask="stripes_144_s3", scale="percentile", seed=seed, **ip)
            yield Cell(method, mask="stripes_144_s0", scale="minmax", seed=seed, **ip)
        for eps0 in ("fresh", "none"):
            reading = json.dumps({"eps0": eps0})
            yield Cell("hydiff-ei", mask="stripes_144_s0", scale="minmax", seed=seed,
                       settings=reading, **ip)  # fmt: skip
        for sigma in (0.1, 0.2, 0.3):
            for method in ("hydiff-ei", "ei", "robust-ei", "smooth"):
                yield Cell(method, mask="stripes_144_s0", scale="percentile", sigma_y=sigma,
                           seed=seed, **ip)  # fmt: skip
        for method in ("hydiff-ei", "ei", "smooth", "harmonic"):
            yield Cell(method, "chikusei_36", "third_mask", "stored", seed=seed)


def table():
    masks = [f"published-{i}" for i in range(1, 5)]
    for sigma, scene, mask in itertools.product((0.0, 0.1, 0.2, 0.3), SCENES, masks):
        if scenes.columns(scene) < columns_needed(mask):
            continue
        for method in ("bandmean", "harmonic", "smooth", "hydiff-ei"):
            yield Cell(method, scene, mask, "minmax", sigma)


def presets():
    fast = choose("hydiff-ei", "fast").settings
    small = {"steps": fast.steps, "channels": fast.channels}
    for change in ({}, small, {"steps": fast.steps}, {"channels": fast.channels},
                   {"n_transforms": 7}, {"weighting": "full"}):  # fmt: skip
        for seed in range(3):
            settings = json.dumps(change)
            yield Cell("hydiff-ei", "indian_pines_144", "stripes_144_s3", "percentile",
                       seed=seed, settings=settings)  # fmt: skip


def seeds():
    for seed in range(3, 8):
        yield Cell("hydiff-ei", "indian_pines_144", "stripes_144_s0", "minmax", seed=seed)


def product():
    for seed in range(8):
        yield Cell("hydiff-ei", "indian_pines_144", "stripes_144_s0", "minmax-product", seed=seed)


def engines():
    runs = [("indian_pines_144", "stripes_144_s3", "percentile"),
            ("jasper_96", "published-3", "minmax"),
            ("chikusei_36", "third_mask", "stored")]  # fmt: skip
    ways = [("graph", "fp32"), ("fused", "tf32"), ("fused", "bf16")]
    for seed, (scene, mask, scale), (engine, precision) in itertools.product(range(6), runs, ways):
        settings = json.dumps({"engine": engine, "precision": precision})
        yield Cell("hydiff-ei", scene, mask, scale, seed=seed, settings=settings)


SUITES = {
    "required": required, "seeds": seeds, "product": product, "table": table,
    "presets": presets, "engines": engines,
}  # fmt: skip


def _find(name):
    """A data file, in the folder itself or where the development data keep it."""
    return next(p for p in (DATA / name, DATA / "dev" / name, DATA / "native" / name) if p.exists())


def truth_of(cell):
    """(bands, rows, cols) on the cell's scale."""
    cube = np.load(_find(f"{cell.scene}.npz"))["cube"].transpose(2, 0, 1).astype(float)
    if cell.scale == "stored":
        return cube
    ends = [0.01, 99.9] if cell.scale == "percentile" else [0, 100]
    low, high = np.percentile(cube, ends)
    return np.clip((cube - low) / (high - low), 0, 1)


def observed_of(cell, shape):
    if cell.mask == "third_mask":
        return scipy.io.loadmat(_find("third_mask.mat"))["msk"][0, 0].astype(bool)
    if cell.mask.startswith("published"):
        return make_mask(cell.mask, shape, None, np.random.default_rng(0))
    return np.load(DATA / "masks.npz")[cell.mask]


class Input(NamedTuple):
    """What a cell fills: (bands, rows, cols) on its scale."""

    truth: np.ndarray
    observed: np.ndarray
    y: np.ndarray
    sigma: np.ndarray
    own: Scale  # what the method is given, within the cell's scale


def input_of(cell):
    truth = truth_of(cell)
    observed = observed_of(cell, truth.shape)
    noise = np.random.default_rng(cell.seed).standard_normal(truth.shape)
    y = (truth + cell.sigma_y * noise) * observed
    own = Scale(0.0, 1.0)
    if cell.scale.endswith("-product"):
        own = unit_scale(y, observed, np.ones(len(y), bool))
    return Input(truth, observed, y, np.full(len(truth), cell.sigma_y), own)


def run_classical(cell):
    """The row of a cell."""
    given, chosen = input_of(cell), choose(cell.method, None, json.loads(cell.settings))
    start = time.perf_counter()
    rng = np.random.default_rng(cell.seed)
    *_, step = chosen.inpaint(given.y, given.observed, given.sigma, chosen.settings, rng=rng)
    return _row(cell, given, step.x, time.perf_counter() - start, chosen)


def run_learned(cells):
    """The rows of cells that are fitted side by side; each is charged its share of the time."""
    inputs = [input_of(cell) for cell in cells]
    chosen = [choose(cell.method, None, json.loads(cell.settings)) for cell in cells]
    start = time.perf_counter()
    steps = [_steps(*both, cell.seed) for *both, cell in zip(chosen, inputs, cells, strict=True)]
    for last in side_by_side(steps):  # noqa: B007  # the last alone is kept
        pass
    estimates = [
        given.own.from_unit(step.x.double().cpu().numpy())
        for step, given in zip(last, inputs, strict=True)
    ]
    seconds = (time.perf_counter() - start) / len(cells)
    return [
        _row(cell, given, x, seconds, way)
        for cell, given, x, way in zip(cells, inputs, estimates, chosen, strict=True)
    ]


def _steps(chosen, given, seed):
    def tensor(array, dtype=torch.float32):
        return torch.as_tensor(array, dtype=dtype, device=DEVICE)

    rng = torch.Generator(DEVICE).manual_seed(seed)
    return chosen.inpaint(
        tensor(np.where(given.observed, given.own.to_unit(given.y), 0.0)),
        tensor(given.observed, torch.bool), tensor(given.sigma),
        chosen.settings, rng=rng,
    )  # fmt: skip


def _row(cell, given, x, seconds, chosen):
    truth, observed = given.truth, given.observed
    result = np.where(observed, truth, x) if cell.sigma_y == 0 else x
    missing = np.broadcast_to(~observed, truth.shape)
    on_gpu = cell.learned and DEVICE == "cuda"
    return asdict(cell) | {
        "mpsnr": round(metrics.mpsnr(result, truth), 3),
        "mpsnr_missing": round(metrics.mpsnr(result, truth, missing), 3),
        "mpsnr_raw": round(metrics.mpsnr(x, truth), 3),
        "mssim": round(metrics.mssim(result, truth), 4),
        "sam": round(metrics.sam(result, truth), 3),
        "scc": round(metrics.scc(result, truth), 4),
        "input_mpsnr": round(metrics.mpsnr(given.y, truth), 3),
        "seconds": round(seconds, 2),
        "network": f"Skip-Net, {chosen.settings.channels} channels" if cell.learned else "",
        "device": torch.cuda.get_device_name() if on_gpu else f"CPU {platform.machine()}",
        "torch": torch.__version__,
        "command": "python " + " ".join(["benchmarks/learned.py", *sys.argv[1:2]]),
    }


SHOWN = ("method", "scene", "mask", "sigma_y", "seed", "settings", "mpsnr", "mpsnr_raw", "seconds")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--beside", type=int, default=1, help="fits side by side on one GPU")
    parser.add_argument("--scene", help="only this scene")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no cell after this")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    args = parser.parse_args()
    path = args.out / f"learned_{args.suite}.csv"
    have = records.known(ROOT / "benchmarks" / "results" / path.name, Cell)
    have |= records.known(path, Cell)
    todo = [cell for cell in SUITES[args.suite]() if cell not in have]
    todo = [cell for cell in todo if args.scene in (None, cell.scene)]
    deadline = time.monotonic() + 60 * args.minutes
    print(f"{len(todo)} cells to do, {len(have)} done", flush=True)

    def write(row):
        records.append(path, row, list(row))
        print(*(row[k] for k in SHOWN), flush=True)

    cores = max((os.cpu_count() or 2) // 2, 1)
    spawn = multiprocessing.get_context("spawn")  # a fork would inherit the GPU's threads
    with ProcessPoolExecutor(cores, spawn) as fills:
        jobs = [fills.submit(run_classical, c) for c in todo if not c.learned]
        learned = sorted((c for c in todo if c.learned), key=lambda c: (c.scene, c.settings))
        for _, alike in itertools.groupby(learned, key=lambda c: (c.scene, c.settings)):
            cells = list(alike)
            for i in range(0, len(cells), args.beside):
                if time.monotonic() < deadline:
                    for row in run_learned(cells[i : i + args.beside]):
                        write(row)
        for job in as_completed(jobs):
            write(job.result())


if __name__ == "__main__":
    main()
