"""GPU memory of `anchored`, from nothing and from the prior, at 144 × 144 × 200.

    python benchmarks/anchored_memory.py

The cube of `auto_time.py`, a third missing.  Writes $OUT/anchored_memory.csv (default
benchmarks/results): the largest allocated and reserved memory, and seconds.
"""

import csv
import os
import time
from pathlib import Path

import torch

import hydiff
from auto_time import case

OUT = Path(os.environ.get("OUT", Path(__file__).parent / "results"))


def main():
    truth, observed = case()
    with (OUT / "anchored_memory.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("preset", "gap pixels", "allocated MB", "reserved MB", "seconds", "device"))
        for preset in (None, "prior"):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            began = time.perf_counter()
            hydiff.fill(truth, observed, method="anchored", device="cuda", preset=preset)
            seconds = time.perf_counter() - began
            used = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
            place = round(seconds, 1), torch.cuda.get_device_name()
            gaps = int((~observed).sum())
            rows.writerow((preset or "default", gaps, *(round(n / 1e6) for n in used), *place))


if __name__ == "__main__":
    main()
