"""Duration of the default fill: budgets, devices and numbers of workers.

    python benchmarks/auto_time.py                                   fast, on the CPU, all cores
    python benchmarks/auto_time.py --budget fast normal --device cpu cuda --workers 1 2 4 16

Indian Pines, 144 × 144 × 200, a third missing in slanted stripes.  Each row is measured in a new
process, which sees as many cores as `--workers` says; with four or more, the trials run in child
processes.  To warm up, the process first fills a small cube, or on a GPU the same cube.  `seconds`
is the duration of the fill, `process` that of the whole process.  CPU seconds of the process and of
its children are the duration on idle cores, and `load` is the load of the machine at the start.
Appends the best of --repeat runs to benchmarks/results/auto_time.csv.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "auto_time.csv"


def case():
    """The truth (200, 144, 144), and what of it is observed (144, 144)."""
    from hydiff.gaps import mask
    from hydiff.io import bundled

    truth = np.asarray(bundled.sample().values)[:, :144, :144]
    return truth, mask.make_mask("stripes", truth.shape, 0.33, np.random.default_rng(3))


def one(budget, device, workers):
    """In a process of its own: fill once, tell the figures as JSON."""
    os.cpu_count, os.sched_getaffinity = (lambda: workers), (lambda _: set(range(workers)))
    import hydiff
    from hydiff import metrics

    truth, observed = case()
    if device == "cpu":
        hydiff.fill(truth[:8, :48, :48], observed[:48, :48], budget="fast", device=device)
    else:  # kernels are compiled for each size of cube
        hydiff.fill(truth, observed, budget=budget, device=device)
    before = [used(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    began = time.perf_counter()
    found = hydiff.fill(truth, observed, budget=budget, device=device)
    seconds = time.perf_counter() - began
    cpu, children = (
        used(who) - then
        for who, then in zip((resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN), before, strict=True)
    )
    score = metrics.score(found.values, truth, np.broadcast_to(~observed, truth.shape))
    row = {
        "seconds": round(seconds, 2),
        "cpu": round(cpu, 2),
        "children_cpu": round(children, 2),
        "mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
        "child_mb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000),
        "mpsnr_missing": round(score.missing["mpsnr"], 3),
    }
    print(json.dumps(row))


def used(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def device_named(device):
    if device == "cpu":
        return f"CPU {platform.machine()}"
    import torch

    return torch.cuda.get_device_name()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", nargs="*", default=["fast"])
    parser.add_argument("--device", nargs="*", default=["cpu"])
    parser.add_argument("--workers", type=int, nargs="*", default=[os.cpu_count()])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--label", default="", help="of the version that is timed")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args.one[0], args.one[1], int(args.one[2]))
        return
    from hydiff.bench import records

    cases = [(b, d, w) for b in args.budget for d in args.device for w in args.workers]
    runs = {asked: [] for asked in cases}
    for _ in range(
        args.repeat
    ):  # the cases take turns, so that other load affects all of them alike
        for asked in cases:
            load, began = os.getloadavg()[0], time.perf_counter()
            command = [sys.executable, __file__, "--one", *map(str, asked)]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            process = round(time.perf_counter() - began, 2)
            runs[asked].append(json.loads(printed) | {"process": process, "load": round(load, 1)})
    for (budget, device, workers), found in runs.items():
        best = min(found, key=lambda run: (run["cpu"] + run["children_cpu"], run["seconds"]))
        if device != "cpu" or workers <= (os.cpu_count() or 1):
            best = min(found, key=lambda run: run["seconds"])
        row = {"version": args.label, "budget": budget, "device": device_named(device),
               "cores": os.cpu_count(), "workers": workers, **best,
               "command": "python benchmarks/auto_time.py"}  # fmt: skip
        print(row, flush=True)
        records.append(args.results, row, list(row))


if __name__ == "__main__":
    main()
