"""Time from the start of a process to the first learned step, stage by stage.

    python benchmarks/startup.py

Each row is a stage of a new process.  `bare` imports torch and puts one number on the GPU.  The
others take the first steps of HyDiff-EI (144 × 144 × 128): `cold` without cached kernels, `warm`
with all kernels cached.  Seconds are from the start of the process to the end of a stage, of the
fastest of --repeat runs; `cold` runs once.  Writes benchmarks/results/startup.csv, or
$OUT/startup.csv.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OUT = Path(os.environ.get("OUT", Path(__file__).parent / "results"))
BARE = """
import json, os, time
began = float(os.environ["BEGAN"])
import torch
stages = {"torch imported": time.time() - began}
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
stages["GPU ready"] = time.time() - began
print(json.dumps(stages))
"""
STEPS = """
import json, os, time
began = float(os.environ["BEGAN"])
stages = {}

def ends(name):
    stages[name] = time.time() - began

import torch
ends("torch imported")
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
ends("GPU ready")
import numpy as np
import hydiff
cube = np.random.default_rng(0).random((128, 144, 144), np.float32)
observed = np.broadcast_to(np.arange(144) % 24 >= 8, (144, 144))

def taken(step):
    torch.cuda.synchronize()
    ends(f"step {step.done}")
    return step.done == 5

hydiff.fill(cube, observed, method="hydiff-ei", device="cuda", progress=taken)
print(json.dumps(stages))
"""


def process(code: str, cache: str) -> dict[str, float]:
    """Stages of one process, with the kernels that are kept in a folder."""
    kept = {"TRITON_CACHE_DIR": f"{cache}/triton", "CUDA_CACHE_PATH": f"{cache}/cuda"}
    env = os.environ | kept | {"BEGAN": str(time.time())}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=env, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    stages: dict[str, float] = json.loads(printed.splitlines()[-1])
    return stages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        process(BARE, cache)  # reads the files of torch from the disk, so that no later run has to
        cold = process(STEPS, cache)
        runs = {"bare": BARE, "warm": STEPS}
        for name, code in runs.items():
            found = [process(code, cache) for _ in range(repeat)]
            best = min(found, key=lambda stages: list(stages.values())[-1])
            rows += [(name, stage, f"{seconds:.3f}") for stage, seconds in best.items()]
        rows += [("cold", stage, f"{seconds:.3f}") for stage, seconds in cold.items()]
    with (OUT / "startup.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("process", "stage", "seconds"), *rows])
    for row in rows:
        print(*row)


if __name__ == "__main__":
    main()
