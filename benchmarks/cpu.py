"""A step of hydiff-ei on the CPU: effect of memory format, precision and optimiser.

    python benchmarks/cpu.py [--rounds 6] [--threads 2]

The variants take turns, one step each, so that other load on the machine slows all of them alike.
The result is the median over the rounds of the ratio to eager float32.  Writes
benchmarks/results/cpu.csv.
"""

import argparse
import platform
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import torch

from hydiff.bench import records
from hydiff.learn import losses, network
from hydiff.learn.transforms import Transform

SIDE, BANDS = 144, 128
LAST = torch.channels_last


def stepper(channels, *, last=False, fused=False, bf16=False, no_bias=False):
    """A function that takes one step."""
    rng = torch.Generator().manual_seed(0)
    net = network.build(BANDS, channels=channels, seed=0)
    y = torch.rand(1, BANDS, SIDE, SIDE, generator=rng)
    observed = (torch.arange(SIDE) % 24 >= 8).expand(1, 1, SIDE, SIDE)
    y = y * observed
    if last:
        net, y = net.to(memory_format=LAST), y.contiguous(memory_format=LAST)
    if no_bias:
        for module in net.levels.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.bias = None
    adam = torch.optim.Adam(net.parameters(), lr=0.01, fused=fused)
    turn = Transform("rotation", (1,))

    def step():
        adam.zero_grad()
        with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
            x = net(y)
            data = losses.mean_square(y - x, observed)
            ei = losses.equivariance(net, x, observed, None, [turn], None, rng)
        (data + ei).backward()
        adam.step()

    return step


VARIANTS = {
    "eager fp32": {},
    "channels last": {"last": True},
    "fused Adam": {"fused": True},
    "no redundant biases": {"no_bias": True},
    "bf16 autocast": {"bf16": True},
    "channels last, fused Adam": {"last": True, "fused": True},
    "channels last, fused Adam, no biases": {"last": True, "fused": True, "no_bias": True},
}


LARGE = ("eager fp32", "channels last, fused Adam", "channels last, fused Adam, no biases")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    args = parser.parse_args()
    path = Path(__file__).parent / "results" / "cpu.csv"
    rows = []
    for channels in (32, 128):
        for threads in args.threads:
            torch.set_num_threads(threads)
            few = VARIANTS if channels == 32 else {n: VARIANTS[n] for n in LARGE}
            steps = {name: stepper(channels, **options) for name, options in few.items()}
            times = {name: [] for name in steps}
            for i in range(args.rounds + 1):
                for name, step in steps.items():
                    start = time.perf_counter()
                    step()
                    if i > 0:  # the first round allocates memory and is not timed
                        times[name].append(time.perf_counter() - start)
            for name, mine in times.items():
                ratios = [a / b for a, b in zip(times["eager fp32"], mine, strict=True)]
                rows.append({
                    "channels": channels, "threads": threads, "variant": name,
                    "seconds_per_step": round(median(mine), 3),
                    "times_faster": round(median(ratios), 2),
                    "device": f"CPU {platform.machine()}", "torch": torch.__version__,
                    "command": "python benchmarks/cpu.py",
                })  # fmt: skip
                print(*rows[-1].values(), flush=True)
    records.write(path, rows)


if __name__ == "__main__":
    main()
