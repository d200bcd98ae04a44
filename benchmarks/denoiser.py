"""Train the stand-in denoiser of HIR-Diff on the bundled scene, and write it into the package.

python benchmarks/denoiser.py --minutes 10
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from hydiff.io import bundled
from hydiff.methods.hir_diff import save_denoiser, train_denoiser

PLACE = Path(__file__).parents[1] / "src" / "hydiff" / "data" / "hir_diff.safetensors"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--output", type=Path, default=PLACE)
    args = parser.parse_args()
    bands = torch.as_tensor(np.asarray(bundled.sample().values).astype(np.float32))
    end, losses = time.monotonic() + 60 * args.minutes, []
    for network, loss in train_denoiser(bands, rng=torch.Generator().manual_seed(0)):
        losses.append(loss)
        if len(losses) % 50 == 0:
            print(len(losses), f"{np.mean(losses[-50:]):.4f}", flush=True)
        if time.monotonic() > end:
            save_denoiser(network, args.output)
            break
    print(f"{len(losses)} updates, {args.output.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
