"""Quality of `anchored` compared with its anchor, and the contribution of each of its parts.

    python benchmarks/anchored.py scenes           dev scenes × two masks, without and with noise
    python benchmarks/anchored.py parts            one setting changed at a time, three cases
    python benchmarks/anchored.py time             144×144×200 by preset
    python benchmarks/anchored.py memory           MB on a GPU, 144×144×200 by share missing

`memory` prints its table.  Each of the others writes benchmarks/results/anchored_NAME.csv; if the
file exists, only its missing rows are computed.
Scenes come from HYDIFF_DATA, scaled by their minimum and maximum.  With a GPU (--device cuda),
`--beside N` fits N cubes at a time.
"""

import argparse
import itertools
import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from hydiff import metrics
from hydiff.bench import records
from hydiff.gaps.mask import make_mask
from hydiff.learn.engine import side_by_side
from hydiff.methods import METHODS, choose

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("HYDIFF_DATA", ROOT.parent / "shared" / "data"))


@dataclass(frozen=True)
class Cell:
    """One run: everything that decides its result."""

    scene: str
    mask: str
    sigma_y: float = 0.0  # on the unit range
    seed: int = 0
    method: str = "anchored"
    settings: str = "{}"  # JSON, on top of the preset `fast`

    def chosen(self):
        preset = "fast" if self.method == "anchored" else None
        return choose(self.method, preset, json.loads(self.settings))


CASES = [
    ("chikusei_36", "stripes"), ("paris_hyperion_72", "stripes"),
    ("enmap_potsdam_64x96", "blobs"), ("jasper_96", "stripes_96_s3"),
    ("abu_urban-1_96", "stripes_96_s3"), ("chikusei_36", "blobs"),
    ("paris_hyperion_72", "published-3"), ("enmap_potsdam_64x96", "stripes"),
    ("jasper_96", "blobs_96_s3"), ("abu_urban-1_96", "blobs_96_s3"),
]  # fmt: skip
FIXED = {"s": 1.5, "ei_weight": 0.1}  # around which the first half was explored
CHANGES = [
    {}, {"s": 1.0}, {"s": 1.5}, {"s": 2.0}, {"split_weight": 0.0, "ei_weight": 1.0},
    *(FIXED | change for change in (
        {}, {"s": 1.0}, {"s": 2.0}, {"split_weight": 0.0, "ei_weight": 1.0}, {"ei_weight": 1.0},
        {"components": 4}, {"components": 8}, {"components": 32}, {"channels": 16},
        {"channels": 64},
    )),
    {"channels": 64}, {"steps": 100}, {"scales": 2}, {"symmetries": False}, {"scales": 5},
    {"steps": 500}, {"steps": 500, "channels": 64}, {"lr": 0.003}, {"lr": 0.0003},
]  # fmt: skip


def scenes():
    for seed, sigma in itertools.product(range(3), (0.0, 0.1, 0.3)):
        for scene, mask in CASES if sigma == 0 else CASES[:5]:
            for method in ("anchored", "smooth", "harmonic", "biharmonic"):
                fixed = method != "anchored" and sigma == 0
                if not (fixed and seed) and (sigma == 0 or METHODS[method].uses_sigma):
                    yield Cell(scene, mask, sigma, seed, method)


def parts():
    for seed, change, (scene, mask) in itertools.product(range(3), CHANGES, CASES[:3]):
        yield Cell(scene, mask, seed=seed, settings=json.dumps(change))


def time_():
    full = choose("anchored").settings
    for change in ({}, {"steps": full.steps, "channels": full.channels}):
        for sigma in (0.0, 0.1):
            yield Cell("indian_pines_144", "stripes_144_s3", sigma, settings=json.dumps(change))


def memory(device):
    """The most that `anchored` holds on a GPU: while it is set up, and in 20 steps."""
    from hydiff.methods.anchor import prepare
    from hydiff.methods.anchored import Learner

    settings, rng = choose("anchored").settings, np.random.default_rng(0)
    for missing, sigma in itertools.product((0.2, 0.33, 0.5, 0.6), (0.0, 0.1)):
        truth = rng.random((200, 144, 144))
        seen = make_mask("stripes", truth.shape, missing, np.random.default_rng(0))
        dice = torch.Generator(device).manual_seed(0)
        y = torch.as_tensor(truth * seen, dtype=torch.float32, device=device)
        noise = torch.full((200,), sigma, device=device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        mask, how = torch.as_tensor(seen, device=device), (settings.components, settings.s)
        problem = prepare(y, mask, noise, *how, 0)
        set_up = torch.cuda.max_memory_allocated()
        learner = Learner(problem, settings, (1, 2), dice)
        for i in range(1, 21):
            learner.step(i)
        gaps = int((~problem.complete).sum())
        print(f"{gaps} pixels in gaps, sigma {sigma:g}: {set_up / 1e6:.0f} MB to set up, "
              f"{torch.cuda.max_memory_allocated() / 1e6:.0f} MB in all; "
              f"{problem.anchor.how}", flush=True)  # fmt: skip
        del problem, learner


SUITES = {"scenes": scenes, "parts": parts, "time": time_}


def inputs(cell):
    """(truth, observed, y, sigma_y) on the unit range."""
    cube = np.load(DATA / "dev" / f"{cell.scene}.npz")["cube"].transpose(2, 0, 1).astype(float)
    truth = (cube - cube.min()) / (cube.max() - cube.min())
    stored = np.load(DATA / "masks.npz")
    if cell.mask in stored:
        observed = stored[cell.mask]
    else:
        missing = None if cell.mask.startswith("published") else 0.3
        observed = make_mask(cell.mask, truth.shape, missing, np.random.default_rng(0))
    noise = np.random.default_rng(cell.seed).standard_normal(truth.shape)
    y = (truth + cell.sigma_y * noise) * observed
    return truth, observed, y, np.full(len(truth), cell.sigma_y)


def run(cells, device):
    """The rows of cells run side by side; each is charged its share of the time."""
    given = [inputs(cell) for cell in cells]
    start = time.perf_counter()
    steps = [_steps(c, y, seen, s, device) for c, (_, seen, y, s) in zip(cells, given, strict=True)]
    for last in side_by_side(steps):  # noqa: B007  # the last alone is kept
        pass
    found = [np.asarray(step.x.cpu() if hasattr(step.x, "cpu") else step.x) for step in last]
    seconds = (time.perf_counter() - start) / len(cells)
    return [row(*each, seconds, device) for each in zip(cells, given, found, strict=True)]


def _steps(cell, y, observed, sigma, device):
    chosen = cell.chosen()
    if not chosen.facts.learned:
        rng = np.random.default_rng(cell.seed)
        return chosen.inpaint(y, observed, sigma, chosen.settings, rng=rng)
    rng = torch.Generator(device).manual_seed(cell.seed)
    y, sigma = (torch.as_tensor(v, dtype=torch.float32, device=device) for v in (y, sigma))
    seen = torch.as_tensor(observed, device=device)
    return chosen.inpaint(y, seen, sigma, chosen.settings, rng=rng)


def row(cell, given, x, seconds, device):
    truth, observed, y, _ = given
    result = np.where(observed, y, x) if cell.sigma_y == 0 else x.astype(float)
    missing = np.broadcast_to(~observed, truth.shape)
    chosen = cell.chosen()
    on_gpu = chosen.facts.learned and device != "cpu"
    return asdict(cell) | {
        "mpsnr": round(metrics.mpsnr(result, truth), 3),
        "mpsnr_missing": round(metrics.mpsnr(result, truth, missing), 3),
        "sam": round(metrics.sam(result, truth), 3),
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if on_gpu else f"CPU {platform.machine()}",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "resolved": json.dumps(asdict(chosen.settings)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=[*SUITES, "memory"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--beside", type=int, default=1, help="fits side by side on one GPU")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no cell after this")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    args = parser.parse_args()
    if args.suite == "memory":
        memory(args.device)
        return
    path = args.out / f"anchored_{args.suite}.csv"
    have = records.known(path, Cell)
    todo = [cell for cell in SUITES[args.suite]() if cell not in have and cell.seed < args.seeds]
    print(f"{len(todo)} cells to do, {len(have)} done", flush=True)
    deadline = time.monotonic() + 60 * args.minutes
    size = args.beside if args.device != "cpu" else 1
    for (backend, _), alike in itertools.groupby(
        todo, key=lambda c: (METHODS[c.method].backend, c.settings)
    ):
        cells = list(alike)
        many = size if backend == "torch" else 1
        for i in range(0, len(cells), many):
            if time.monotonic() > deadline:
                return
            for found in run(cells[i : i + many], args.device):
                records.append(path, found, list(found))
                print(*list(found.values())[:10], flush=True)


if __name__ == "__main__":
    main()
