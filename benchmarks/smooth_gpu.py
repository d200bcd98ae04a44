"""`smooth` on a CPU (one thread) and on a GPU: seconds, parts, and the difference of the fills.

    python benchmarks/smooth_gpu.py                       all rows; less than a minute on a GPU
    python benchmarks/smooth_gpu.py --side 96 --repeat 1  small; without a GPU, torch on the CPU

Appends to $OUT/smooth_gpu.csv (default benchmarks/results), a row as soon as it is known; needs
only numpy, scipy and torch.  The scene is that of `scene.py`, Indian Pines without gaps.

cube, window  fills of a cube in memory, 144 × 144 × 200 and 176 × 176 × 285, warm: the fastest of
              --repeat.  The device goes first in one repetition, and last in the next.
prior         a fill by the network on the GPU; `GPU, components on the CPU` solves only the fields
              for the network there
tiles         a file of 240 × 288 × 285, by tiles, in one process, and by four at the same time;
              these seconds include the start of the processes

The parts of a fill are: its components (`components`), the spectra projected on them
(`projection`), what these leave, carried into the gaps (`remainder`), covariances fitted to
variograms (`covariances`), fields of the components (`kriging`), and spectra of the gaps
(`reconstruction`).  `difference` is the largest one to the fill of the CPU, in standard deviations
of a band.  The iterations of the CPU end early; `to_the_end` is the difference to a fill in which
they do not.
"""

import argparse
import functools
import os
import platform
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from granule import NODATA, make
from hydiff.bench import records
from hydiff.gaps import mask
from hydiff.learn import gap_fields
from hydiff.methods import choose, classical, kriging, remainder, smooth
from hydiff.request import Request
from hydiff.scale.execute import fill_file
from hydiff.scale.layout import limits
from hydiff.workers import in_turn
from hydiff.workers.local import Crew
from scene import gaps, truth

OUT = Path(os.environ.get("OUT", Path(__file__).parent / "results"))
GPU = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NAME = "GPU" if GPU.type == "cuda" else "torch"
SHARES = 0.12, 0.33
PARTS = {  # name in the table: functions that it is the time of, less that of other parts
    "components": (smooth, "coordinates"),
    "projection": (remainder, "_projected"),
    "remainder": (smooth, "remainder"),
    "covariances": (smooth, "fit_covariances"),
    "kriging": (smooth, "krige"),
    "reconstruction": (smooth, "cube_step"),
}
FIELDS = [
    "case", "bands", "rows", "cols", "missing_percent", "device", "seconds", *PARTS, "difference",
    "to_the_end", "iterations", "notes", "gpu", "torch",
]  # fmt: skip


def add(**row):
    """Append a row to the table, and print it."""
    gpu = torch.cuda.get_device_name() if GPU.type == "cuda" else platform.machine()
    row |= {"gpu": gpu, "torch": torch.__version__}
    row = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}
    records.append(OUT / "smooth_gpu.csv", row, FIELDS)
    print({k: v for k, v in row.items() if k not in ("gpu", "torch")}, flush=True)


class Clock:
    """Seconds of each part of a fill while the block is active; parts may contain others."""

    def __enter__(self):
        self.spent, self.before, self.inside = dict.fromkeys(PARTS, 0.0), {}, [0.0]
        for part, (module, name) in PARTS.items():
            self.before[part] = getattr(module, name)
            setattr(module, name, self._timed(part, self.before[part]))
        return self

    def __exit__(self, *_):
        for part, (module, name) in PARTS.items():
            setattr(module, name, self.before[part])

    def _timed(self, part, function):
        @functools.wraps(function)
        def timed(*own, **named):
            self.inside.append(0.0)
            began = time.perf_counter()
            try:
                return function(*own, **named)
            finally:  # results are arrays of numpy: the device has nothing left to do
                seconds = time.perf_counter() - began
                self.spent[part] += seconds - self.inside.pop()
                self.inside[-1] += seconds

        return timed


@contextmanager
def counted():
    """Yield a list that receives the numbers of iterations on the device."""
    numbers, before = [], gap_fields.conjugate_gradients

    def counting(A, right, precondition):
        calls = []
        x = before(lambda v: calls.append(1) or A(v), right, precondition)
        numbers.append(len(calls))
        return x

    gap_fields.conjugate_gradients = counting
    try:
        yield numbers
    finally:
        gap_fields.conjugate_gradients = before


def case(side, bands, share):
    """The cube (bands, side, side) on the unit range, and what of it is observed (side, side)."""
    cube = truth(slice(0, side), (bands, side, side)).transpose(2, 0, 1).astype(float)
    observed = mask.make_mask("stripes", cube.shape, share, np.random.default_rng(3))
    return (cube - cube.min()) / np.ptp(cube), observed


def step_of(chosen, cube, observed, **options):
    """The seconds of a fill and its step."""
    y, sigma = np.where(observed, cube, 0.0), np.zeros(len(cube))
    began = time.perf_counter()
    *_, step = chosen.inpaint(
        y, observed, sigma, chosen.settings, rng=np.random.default_rng(0), **options
    )
    return time.perf_counter() - began, step


def difference(a, b, cube):
    """The largest difference in standard deviations of a band."""
    return float((np.abs(a - b) / cube.std(axis=(1, 2))[:, None, None]).max())


def in_memory(name, side, bands, repeat):
    """Rows of `smooth` on a cube, by both devices."""
    chosen = choose("smooth")
    for share in SHARES:
        cube, observed = case(side, bands, share)
        least, parts, steps, devices = {}, {}, {}, {"CPU": None, NAME: GPU}
        for number in range(repeat + 1):  # the first warms up
            for label in [*devices][:: -1 if number % 2 else 1]:
                with Clock() as clock, counted() as iterations:
                    seconds, steps[label] = step_of(chosen, cube, observed, device=devices[label])
                if number and seconds <= least.get(label, seconds):
                    least[label], parts[label] = seconds, clock.spent
                if label == NAME:
                    number_of_iterations = iterations[-1]
        kriging.field = functools.partial(classical.field, tolerance=1e-10)
        _, exact = step_of(chosen, cube, observed)
        kriging.field = classical.field
        about = {
            "case": name, "bands": bands, "rows": side, "cols": side,
            "missing_percent": round(100 * float((~observed).mean())),
        }  # fmt: skip
        for label, step in steps.items():
            differences = {
                "difference": difference(step.x, steps["CPU"].x, cube) if label == NAME else "",
                "to_the_end": difference(step.x, exact.x, cube),
                "iterations": number_of_iterations if label == NAME else "",
            }
            row = about | parts[label] | differences
            add(**row, device=label, seconds=least[label], notes=step.how)


def by_prior(side, bands, repeat):
    """Rows of the network on the GPU, with its components solved there or on the CPU."""
    chosen, (cube, observed) = choose("prior"), case(side, bands, SHARES[-1])
    y, sigma = np.where(observed, cube, 0.0), np.zeros(bands)
    least, steps = {}, {}
    for number in range(repeat + 1):
        for label in (f"{NAME}, components on the CPU", NAME):
            began = time.perf_counter()
            given = smooth.coordinates(y, observed, sigma, 24) if label != NAME else None
            _, steps[label] = step_of(chosen, cube, observed, device=GPU, given=given)
            if number:
                least[label] = min(time.perf_counter() - began, least.get(label, np.inf))
    first, *_ = steps.values()
    for label, step in steps.items():
        add(
            case="prior", bands=bands, rows=side, cols=side, device=label, seconds=least[label],
            missing_percent=round(100 * float((~observed).mean())), notes=step.how,
            difference=difference(step.x, first.x, cube) if step is not first else "",
        )  # fmt: skip


def by_tiles(rows, cols, bands):
    """Rows of a file that is filled by tiles, by one process and by four."""
    shape = bands, rows, cols
    observed = gaps(shape)
    cube = truth(slice(0, rows), shape).transpose(2, 0, 1)
    with tempfile.TemporaryDirectory() as folder:
        source, filled = Path(folder) / "scene.npy", {}
        make(source, shape, observed)
        for processes in (1, 4):
            for label, device in (("CPU", "cpu"), (NAME, GPU.type)):
                output = Path(folder) / f"{label}{processes}.npy"
                request = Request(method="smooth", device=device, nodata=NODATA, unmarked=True)
                run = in_turn if processes == 1 else Crew(processes)
                within = limits("8GB", tile=96, processes=processes)
                began = time.perf_counter()
                result = fill_file(source, output, request, within, run=run)
                seconds = time.perf_counter() - began
                filled[label] = np.load(output)
                notes = [note for note in result.record["notes"] if note.startswith("engine")]
                add(
                    case="tiles" if processes == 1 else f"tiles, {processes} processes",
                    bands=bands, rows=rows, cols=cols, device=label, seconds=seconds,
                    missing_percent=round(100 * float((~observed).mean())), notes=" ".join(notes),
                    difference=difference(filled[label], filled["CPU"], cube)
                    if label == NAME else "",
                )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=0, help="px, instead of the usual sizes")
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=["cube", "window", "prior", "tiles"])
    asked = parser.parse_args()
    if "cube" in asked.only:
        in_memory("cube", asked.side or 144, 200, asked.repeat)
    if "window" in asked.only:
        in_memory("window", asked.side or 176, 285, asked.repeat)
    if "prior" in asked.only:
        by_prior(asked.side or 144, 200, asked.repeat)
    if "tiles" in asked.only:
        by_tiles(2 * asked.side or 240, 2 * asked.side or 288, 285)


if __name__ == "__main__":
    main()
