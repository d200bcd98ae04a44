"""A granule of EMIT's size by one command: the seconds of each phase, on any device.

    python benchmarks/granule.py --options "--workers 14 --memory 40GB"         on a GPU, if any
    python benchmarks/granule.py --format envi --options "--budget fast --workers 2 --memory 2GB"
    python benchmarks/granule.py --rows 160 --options "--budget fast --workers 2"      in a minute

Appends a row to $OUT/granule.csv (default benchmarks/results) and prints it.  The scene is that of
`scene.py`, as .npy (band after band) or ENVI (BIL), filled into the same format.  Needs only torch,
numpy, scipy, h5py, typer and rich.  The events of `--json` separate the phases: `masks` is the time
before the decision, including the start of Python; `writing` is the time after the last tile.  CPU
seconds and memory as in `scene.py`.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import hydiff
from hydiff.bench import records
from hydiff.io.sidecar import sidecar_of
from scene import gaps, judged, measured, truth

OUT = Path(os.environ.get("OUT", Path(__file__).parent / "results"))
PHASES = {
    "trials": "decision",
    "tiles": "tiles",
    "writing": "writing",
}  # phase in the events: its name in the table
NODATA = -9999.0
ENVI = """ENVI
samples = {2}
lines = {1}
bands = {0}
header offset = 0
data type = 4
interleave = bil
byte order = 0
data ignore value = -9999
"""


def make(path, shape, observed):
    """The scene with its gaps, written a few lines at a time."""
    bands, rows, cols = shape
    if path.suffix == ".npy":
        stored = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        sidecar_of(path).write_text(json.dumps({"axes": "bands,rows,cols"}))
    else:
        path.with_suffix(".hdr").write_text(ENVI.format(*shape))
        stored = np.memmap(path, np.float32, "w+", shape=(rows, bands, cols)).transpose(1, 0, 2)
    for first in range(0, rows, 32):
        block = slice(first, min(first + 32, rows))
        values = np.where(observed[block, :, None], truth(block, shape), NODATA)
        stored[:, block] = values.transpose(2, 0, 1)


class Phases(threading.Thread):
    """Reads the events of a fill as they come; when each phase began."""

    def __init__(self, pipe, began):
        super().__init__()
        self.pipe, self.clock, self.other = pipe, {"masks": began}, []
        self.finished = []  # seconds after the decision at which tiles were finished

    def run(self):
        for line in self.pipe:
            try:
                phase = PHASES.get(json.loads(line).get("phase"))
            except ValueError:
                self.other.append(line)
                continue
            if phase == "tiles" and phase in self.clock:
                self.finished.append(time.perf_counter() - self.clock[phase])
            if phase is not None:
                self.clock.setdefault(phase, time.perf_counter())

    def seconds(self, end):
        names, clock = list(self.clock), [*self.clock.values(), end]
        return {n: clock[i + 1] - clock[i] for i, n in enumerate(names)}


def device():
    if find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            return torch.cuda.get_device_name()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1280)
    parser.add_argument("--cols", type=int, default=None)
    parser.add_argument("--bands", type=int, default=285)
    parser.add_argument("--format", choices=["npy", "envi"], default="npy")
    parser.add_argument("--options", default="", help="of `hydiff fill`")
    parser.add_argument("--folder", type=Path, default=None, help="for 6 GB")
    asked = parser.parse_args()
    shape = (asked.bands, asked.rows, asked.cols or asked.rows * 1242 // 1280)
    suffix = {"npy": ".npy", "envi": ".bil"}[asked.format]
    with tempfile.TemporaryDirectory(dir=asked.folder) as box:
        source, output = Path(box) / f"scene{suffix}", Path(box) / f"filled{suffix}"
        observed, load = gaps(shape), os.getloadavg()[0]
        make(source, shape, observed)
        command = [sys.executable, "-m", "hydiff", "fill", str(source), "-o", str(output)]
        command += ["--nodata", f"{NODATA:g}", "--json", *asked.options.split()]
        command += ["--unmarked"] if asked.format == "npy" else []
        read, write = os.pipe()
        with os.fdopen(read) as events, (Path(box) / "record.json").open("w+") as answer:
            phases = Phases(events, time.perf_counter())
            phases.start()
            try:
                spent = measured(command, stdout=answer, stderr=write)
            finally:
                end = time.perf_counter()
                os.close(write)
                phases.join()
                sys.stderr.writelines(phases.other)
            answer.seek(0)
            record = json.load(answer)
        tiling = record["tiles"]
        mpsnr, _ = judged(output, observed, shape, tiling)
    each = {f"{name}_s": f"{s:.1f}" for name, s in phases.seconds(end).items()}
    row = {"format": asked.format, "rows": shape[1], "cols": shape[2], "bands": shape[0],
           "options": asked.options, "device": device(), "cores": os.cpu_count(),
           "tiles": tiling["filled"], **each, "seconds": f"{spent.seconds:.1f}",
           "cpu_seconds": f"{spent.cpu:.1f}", "driver_cpu": f"{spent.driver[0]:.1f}",
           "worker_cpu": f"{spent.busiest[0]:.1f}", "driver_mb": f"{spent.driver[1]:.0f}",
           "worker_mb": f"{spent.busiest[1]:.0f}", "together_mb": f"{spent.together:.0f}",
           "mpsnr_missing": f"{mpsnr:.3f}", "load": f"{load:.1f}",
           "hydiff": hydiff.__version__}  # fmt: skip
    print(row, flush=True)
    if done := phases.finished:  # a late first tile: the workers were still starting
        first, half = done[0], done[len(done) // 2]
        print(f"first tile after {first:.1f} s, half of them after {half:.1f} s", flush=True)
    table = OUT / "granule.csv"
    records.append(table, row, list(row))


if __name__ == "__main__":
    main()
