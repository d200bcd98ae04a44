"""Offline training on damaged squares only: the score over data and updates (Table VIII).

    HYDIFF_DATA=DATA python benchmarks/offline.py train --crops 300 --out rows.csv [--states FOLDER]
    HYDIFF_DATA=DATA python benchmarks/offline.py beside --out beside.csv
    python benchmarks/offline.py gather rows.csv beside.csv

`train` adds a row whenever the updates reach 1, 2 or 5 times a power of ten, and one at the end.
With --states an interrupted run continues where it stopped.  `beside` runs the same tests without
training.  `gather` puts rows into results/offline_curve.csv and draws docs/offline.png.

DATA/train holds .npz files with images PLACE_DATE_20m.  Every fifth place is held back for tests.
A crop is a square of 144 pixels at a random position of the other places, under a whole published
mask.  There are three tests, each on squares of this size on [0, 1]: squares of the training, with
the same gaps (`in_sample`); one square of each image of the held-back places (`out_of_sample`); and
DATA/dev scenes of other sensors, with evenly spaced bands (`elsewhere`).
"""

import argparse
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import hydiff
from hydiff import metrics
from hydiff.bench import records, scenes
from hydiff.bench.figures import COLOURS
from hydiff.cube import Bools, Cube, Floats, Scale, unit_scale
from hydiff.gaps.mask import PUBLISHED, PUBLISHED_COLUMNS, make_mask
from hydiff.learn import network
from hydiff.learn.training import Training, train
from hydiff.learn.weights import weights_of
from hydiff.methods import choose

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "offline_curve.csv"
FIGURE = ROOT / "docs" / "offline.png"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LEFT = 5  # every fifth place is held back for tests
SAME = 8  # number of training squares that are also tested
KINDS = ("in_sample", "out_of_sample", "elsewhere")
SAMPLED = 50  # updates between two samples of the weights, which are averaged
POWER = 3  # the n-th sample is weighted by n to this power: mostly the last third counts
FEWEST = 100  # number of updates before the first row
KEY = ("way", "weights", "crops", "seed", "updates", "channels", "side", "lr", "norm")
CLASSICAL = ("bandmean", "harmonic", "smooth")
STEPS = (100, 1000)  # numbers of steps of fits at test time

Row = dict[str, Any]
Weights = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Square:
    """A truth (bands, S, S) on [0, 1], and what of it is measured (S, S)."""

    truth: Floats
    observed: Bools

    @property
    def damaged(self) -> Floats:
        return np.where(self.observed, self.truth, np.nan)

    @cached_property
    def scale(self) -> Scale:
        """Of the measured entries, as `hydiff train` and `hydiff fill` have it."""
        return unit_scale(self.truth, self.observed, np.ones(len(self.truth), bool))

    @cached_property
    def y(self) -> Tensor:
        unit = np.where(self.observed, self.scale.to_unit(self.truth), 0)
        return torch.as_tensor(unit, dtype=torch.float32, device=DEVICE)


Tests = dict[str, list[Square]]


def images_by_place(folder: Path, side: int) -> dict[str, list[Floats]]:
    """Images (bands, rows, cols) of at least `side` pixels, by their place."""
    found: dict[str, list[Floats]] = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as images:
            for key in (k for k in images.files if "_20m" in k):
                if min(images[key].shape[1:]) >= side:
                    found.setdefault(key.split("_")[0], []).append(images[key].astype(float))
    return dict(sorted(found.items()))


def square(image: Floats, i: int, side: int, rng: np.random.Generator) -> Square:
    """A square at a random place of an image, under the left part of the i-th published mask."""
    row, col = (int(rng.integers(n - side + 1)) for n in image.shape[1:])
    truth = scenes.unit(image[:, row : row + side, col : col + side])
    whole = (1, side, max(side, PUBLISHED_COLUMNS))
    mask = make_mask(list(PUBLISHED)[i % len(PUBLISHED)], whole, None, rng)
    return Square(truth, mask[:, :side])


def split(crops: int, side: int, seed: int) -> tuple[list[Square], Tests, int]:
    """Squares to train on, of which the first are those of fewer crops; tests, which are the same
    for every number of crops; and of how many images the squares are."""
    places = images_by_place(scenes.data_folder() / "train", side)
    left = list(places)[::LEFT]
    here = [image for place in places if place not in left for image in places[place]]
    there = [image for place in left for image in places[place]]
    rng, numbers = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    chosen = [int(numbers.integers(len(here))) for _ in range(crops)]
    squares = [square(here[k], i, side, rng) for i, k in enumerate(chosen)]
    rng = np.random.default_rng(0)
    unseen = [square(image, i, side, rng) for i, image in enumerate(there)]
    other = list(elsewhere(len(here[0]), side))
    return squares, dict(zip(KINDS, (squares[:SAME], unseen, other), strict=True)), len({*chosen})


def elsewhere(bands: int, side: int) -> Iterator[Square]:
    """Development scenes of this size, each by as many bands, evenly spaced; every mask on each."""
    rng = np.random.default_rng(0)
    for name in scenes.available():
        scene = scenes.load(name)
        if min(scene.shape[1:]) >= side and len(scene) >= bands:
            picked = np.linspace(0, len(scene) - 1, bands).round().astype(int)
            yield from (square(scene[picked], i, side, rng) for i in range(len(PUBLISHED)))


def scores(fills: Mapping[str, Sequence[Floats]], tests: Tests) -> Row:
    """MPSNR of each kind of test, measured entries restored: of all entries, and of the gaps."""
    row: Row = {}
    for kind, squares in tests.items():
        pairs = list(zip(fills.get(kind, ()), squares, strict=False))
        restored = [(np.where(s.observed, s.truth, x), s) for x, s in pairs]
        every = [metrics.mpsnr(x, s.truth) for x, s in restored]
        gaps = [metrics.mpsnr(x, s.truth, ~s.observed) for x, s in restored]
        row[kind] = round(mean(every), 3) if every else ""
        row[f"{kind}_gaps"] = round(mean(gaps), 3) if gaps else ""
    return row


@torch.no_grad()
def one_pass(weights: Weights, tests: Tests, channels: int) -> dict[str, list[Floats]]:
    """f(y) of every test."""
    bands = len(tests[KINDS[0]][0].truth)
    f = network.build(bands, channels=channels, norm=network.norm_of(weights), seed=0)
    f.load_state_dict(dict(weights))
    f.to(DEVICE).eval()
    return {
        kind: [s.scale.from_unit(f(s.y[None])[0].double().cpu().numpy()) for s in squares]
        for kind, squares in tests.items()
    }


def refined(weights: Weights, squares: Sequence[Square], steps: int, channels: int) -> list[Floats]:
    """Each square after so many steps at test time from trained weights."""
    chosen = choose("hydiff-ei", None, {"refine": steps, "channels": channels})
    fills = []
    for s in squares:
        rng = torch.Generator(DEVICE).manual_seed(0)
        observed, sigma_y = (
            torch.as_tensor(v, device=DEVICE) for v in (s.observed, np.zeros(len(s.truth)))
        )
        given = {"rng": rng, "initial": weights}
        *_, step = chosen.inpaint(s.y, observed, sigma_y.float(), chosen.settings, **given)
        fills.append(s.scale.from_unit(step.x.double().cpu().numpy()))
    return fills


def filled(squares: Sequence[Square], method: str, **settings: Any) -> list[Floats]:
    """Each square by a method that has learned nothing before."""
    return [hydiff.fill(s.damaged, method=method, **settings).values for s in squares]


def is_mark(updates: int) -> bool:
    """1, 2 and 5 times a power of ten."""
    return updates >= FEWEST and str(updates).rstrip("0") in ("1", "2", "5")


class Progress(NamedTuple):
    """A training: what it goes on from, the mean of its weights so far, the seconds it took."""

    state: Weights
    mean: dict[str, Tensor]
    seconds: float


def trained(
    cubes: Sequence[Cube], settings: Training, minutes: float, before: Progress | None
) -> Iterator[tuple[int, bool, Progress]]:
    """Updates, whether these are the last, and how far it is: at every mark and at the end."""
    start, spent = time.monotonic(), before.seconds if before else 0.0
    average = dict(before.mean) if before else {}
    for step in train(cubes, settings, device=DEVICE, resume=before.state if before else None):
        due = is_mark(step.done)
        if step.done % SAMPLED and not due:
            continue
        state = step.state()  # waits for the GPU, so that the time is right
        seconds = time.monotonic() - start
        if step.done % SAMPLED == 0:
            k = step.done // SAMPLED
            share = (POWER + 1) / (k + POWER)
            for name, weight in weights_of(state).items():
                if weight.is_floating_point():  # not the count of batches
                    weight = weight + (1 - share) * (average.get(name, weight) - weight)
                average[name] = weight
        over = seconds > 60 * minutes
        if due or over:
            yield step.done, over, Progress(state, dict(average), spent + seconds)
        if over:
            return


def kept(path: Path | None) -> Progress | None:
    if path is None or not path.exists():
        return None
    found = torch.load(path, weights_only=True)
    return Progress(found["state"], found["mean"], found["seconds"])


def keep(path: Path | None, progress: Progress) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(progress._asdict(), path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)


def training_rows(args: argparse.Namespace) -> Iterator[Row]:
    """A row for each mark: the last weights, and the mean of the later ones."""
    squares, tests, images = split(args.crops, args.side, args.seed)
    cubes = [Cube(s.damaged.astype(np.float32)) for s in squares]
    named = {"lr": args.lr, "norm": args.norm, "seed": args.seed}
    settings = Training(channels=args.channels, crop=args.side, **named)
    name = f"{args.crops}-{args.side}-{args.channels}-{args.seed}-{args.lr:g}-{args.norm}.pt"
    path = args.states and args.states / name
    about = {"crops": args.crops, "images": images, "batch": settings.batch} | named
    for updates, over, progress in trained(cubes, settings, args.minutes, kept(path)):
        keep(path, progress)
        about |= {"updates": updates, "seconds": round(progress.seconds, 1)}
        of = {"last": weights_of(progress.state), "mean": progress.mean}
        for name, weights in of.items():
            found = scores(one_pass(weights, tests, args.channels), tests)
            yield {"way": "trained", "weights": name} | about | found
        if over:
            steps = STEPS[0]
            unseen = {KINDS[1]: refined(progress.mean, tests[KINDS[1]], steps, args.channels)}
            way = {"way": f"trained, then {steps} steps", "weights": "mean"}
            yield way | about | scores(unseen, tests)


def rows_beside(args: argparse.Namespace) -> Iterator[Row]:
    """What the same tests give without training."""
    _, tests, _ = split(SAME, args.side, args.seed)
    yield {"way": "input"} | scores({k: [0 * s.truth for s in v] for k, v in tests.items()}, tests)
    for method in CLASSICAL:
        fills = {kind: filled(squares, method) for kind, squares in tests.items()}
        yield {"way": method} | scores(fills, tests)
    for steps in STEPS:
        given = {"channels": args.channels, "steps": steps, "device": DEVICE}
        fills = {kind: filled(tests[kind], "hydiff-ei", **given) for kind in KINDS[:2]}
        yield {"way": f"test time, {steps} steps", "seed": 0} | scores(fills, tests)


FIELDS = (
    *("way", "weights", "crops", "images", "updates", "seconds"),
    *KINDS,
    *(f"{kind}_gaps" for kind in KINDS),
    *("bands", "side", "channels", "batch", "lr", "norm", "seed", "device", "command"),
)


def add(path: Path, rows: Iterator[Row], about: Row) -> None:
    """Each row as soon as it is known, at the end of a file that others may be writing to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), path.open("x") as file:  # only one process writes the header
        file.write(",".join(FIELDS) + "\n")
    for row in rows:
        records.append(path, row | about, FIELDS)
        print(*row.values(), flush=True)


def gather(paths: Sequence[Path]) -> None:
    """Rows of several files beside those that are there: of one cell the last."""
    found = {}
    for path in (RESULTS, *paths):
        found |= {tuple(r[k] for k in KEY): r for r in records.read(path)}
    order = sorted(found.values(), key=lambda r: (int(r["crops"] or 0), int(r["updates"] or 0)))
    records.write(RESULTS, order, FIELDS)
    draw(order, FIGURE)


def draw(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """The score over updates, in and out of sample: a colour for each number of crops."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    colours: dict[str, str] = {}
    trained = [r for r in rows if r["way"] == "trained" and r["weights"] == "mean"]
    curves = dict.fromkeys((r["crops"], r["lr"], r["norm"]) for r in trained)
    for crops, lr, norm in curves:
        colour = colours.setdefault(crops, COLOURS[len(colours)])
        mine = [r for r in trained if (r["crops"], r["lr"], r["norm"]) == (crops, lr, norm)]
        updates = [int(r["updates"]) for r in mine]
        for kind, style in zip(KINDS, ("--", "-"), strict=False):
            label = f"{crops} crops, norm {norm}" if style == "-" else None
            look = {"color": colour, "ls": style, "marker": "o" if norm == "batch" else "x"}
            axes.plot(updates, [float(r[kind]) for r in mine], **look, ms=5, label=label)
    for way, style in (("smooth", ":"), ("test time, 1000 steps", "-.")):
        for r in (r for r in rows if r["way"] == way):
            axes.axhline(float(r[KINDS[1]]), color="grey", linestyle=style, label=way)
    axes.set(xscale="log", xlabel="updates", ylabel="MPSNR (dB)")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.margins(y=0.08)
    axes.set_title(
        "Solid: places left out of the training; dashed: squares of the training", fontsize=10
    )
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("train", "beside", "gather"))
    parser.add_argument("files", type=Path, nargs="*", help="of rows, to gather")
    parser.add_argument("--minutes", type=float, default=8.0, help="of training")
    parser.add_argument("--crops", type=int, default=300)
    parser.add_argument("--side", type=int, default=144, help="pixels of a square")
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-3, help="the paper's is 1e-4")
    parser.add_argument("--norm", choices=network.NORMS, default=Training.norm)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--states", type=Path, help="folder to go on from")
    args = parser.parse_args()
    if args.part == "gather":
        gather(args.files)
        return
    about = {"bands": 10, "side": args.side, "channels": args.channels}
    about["device"] = torch.cuda.get_device_name() if DEVICE == "cuda" else platform.machine()
    about["command"] = f"benchmarks/offline.py {args.part}"
    if args.part == "train":
        about["command"] += f" --crops {args.crops} --minutes {args.minutes:g} --lr {args.lr:g}"
        about["command"] += f" --norm {args.norm}"
    add(args.out, {"train": training_rows, "beside": rows_beside}[args.part](args), about)


if __name__ == "__main__":
    main()
