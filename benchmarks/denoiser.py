"""Train the denoiser that stands in for that of HIR-Diff, and write it into the package.

HYDIFF_TRAIN=FOLDER python benchmarks/denoiser.py --minutes 10 [--channels 64]

FOLDER holds .npz files of images (bands, rows, cols).  Without HYDIFF_TRAIN, the denoiser is
trained on the bundled scene only, and Indian Pines cannot be used to test it.  Uses a GPU if there
is one.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch

from hydiff.io import bundled
from hydiff.methods.hir_diff import save_denoiser, train_denoiser

PLACE = Path(__file__).parents[1] / "src" / "hydiff" / "data" / "hir_diff.safetensors"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def images():
    """What is learned from: every image of the folder with three bands or more."""
    folder = os.environ.get("HYDIFF_TRAIN")
    if folder is None:
        return [np.asarray(bundled.sample().values)]
    files = [np.load(path) for path in sorted(Path(folder).glob("*.npz"))]
    return [file[key] for file in files for key in file.files if file[key].shape[0] >= 3]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--learned-from", help="in words, for the label of every output")
    parser.add_argument("--output", type=Path, default=PLACE)
    args = parser.parse_args()
    learned = [torch.as_tensor(image.astype(np.float32)) for image in images()]
    print(f"{len(learned)} images, {DEVICE}", flush=True)
    end, losses = time.monotonic() + 60 * args.minutes, []
    rng = torch.Generator().manual_seed(0)
    given = {"rng": rng, "device": DEVICE, "batch": args.batch, "channels": args.channels}
    for network, loss in train_denoiser(learned, **given):
        losses.append(loss)
        if len(losses) % 50 == 0:
            print(len(losses), f"{np.mean(losses[-50:]):.4f}", flush=True)
        if time.monotonic() > end:
            save_denoiser(network, args.output, args.learned_from)
            break
    print(f"{len(losses)} updates, {args.output.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
