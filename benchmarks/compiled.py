"""One step of HyDiff-EI by `torch.compile(mode="max-autotune")` and by our kernels, in one run.

    python benchmarks/compiled.py                          convolutions of cuDNN alone
    python benchmarks/compiled.py --convolutions ATEN,TRITON      all choices; over 20 minutes

The step, without noise: two passes of the Skip-Net (128 channels) at 144 × 144 × 128, bf16
products, both gradients, Adam; one rotation.  Writes benchmarks/results/compiled.csv, or
$OUT/compiled.csv: milliseconds per step, and the seconds before the first timed step.

Triton offers 17 choices for each of some 80 convolutions, and torch compiles and times them one
after the other: 20 convolutions took 157 s.  The best choice of 14 of these took 0.16 ms, cuDNN
0.23 ms.
"""

import argparse
import csv
import os
import time
from pathlib import Path

import torch
from torch._inductor import config as inductor

from hydiff.bench import speed
from hydiff.learn import network

OUT = Path(os.environ.get("OUT", Path(__file__).parent / "results"))


def compiled(place, bands, side, steps, convolutions, warm=8):
    """(seconds to get ready, seconds a step)."""
    began = time.perf_counter()
    torch.manual_seed(0)
    net = network.build(bands, seed=0).to(place, memory_format=torch.channels_last)
    observed = (torch.arange(side, device=place) % 24 >= 8).expand(side, side)
    y = torch.rand(1, bands, side, side, device=place) * observed
    on_gpu = place.type == "cuda"
    adam = torch.optim.Adam(net.parameters(), lr=0.01, capturable=on_gpu, fused=True)

    def loss(y):
        x = net(y)
        moved = torch.rot90(x, 1, (2, 3))
        return (y - x).square().mean() + (moved - net(moved * observed)).square().mean()

    inductor.max_autotune_conv_backends = convolutions
    fast = torch.compile(loss, mode="max-autotune" if on_gpu else None)

    def step():
        adam.zero_grad(set_to_none=True)
        with torch.autocast(place.type, torch.bfloat16):
            value = fast(y)
        value.backward()
        adam.step()

    def take(count):
        for _ in range(count):
            step()
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    ready = take(warm)
    return ready - began, (take(steps) - ready) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--bands", type=int, default=speed.BANDS)
    parser.add_argument("--side", type=int, default=speed.SIDE)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--convolutions", default="ATEN", help="sources of choices")
    asked = parser.parse_args()
    place = torch.device(asked.device)
    size = {"bands": asked.bands, "side": asked.side, "steps": asked.steps}
    ours = speed.time_of(place, "engine", **size)
    ready, each = compiled(place, asked.bands, asked.side, asked.steps, asked.convolutions)
    device = torch.cuda.get_device_name() if place.type == "cuda" else "CPU"
    name = f"torch.compile, max-autotune, {asked.convolutions}"
    rows = [
        ("kernels of hydiff", ours["ms_per_step"], ours["warm_up_seconds"]),
        (name, round(1e3 * each, 3), round(ready, 1)),
    ]
    with (OUT / "compiled.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("step", "ms_per_step", "seconds_until_ready", "device", "torch"))
        writer.writerows((*row, device, torch.__version__) for row in rows)
    for row in rows:
        print(*row)


if __name__ == "__main__":
    main()
