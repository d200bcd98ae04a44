"""Train the denoiser that stands in for that of HIR-Diff, and write it into the package.

HYDIFF_TRAIN=FOLDER python benchmarks/denoiser.py --minutes 10 [--channels 64]

FOLDER holds .npz files of images (bands, rows, cols).  Without HYDIFF_TRAIN, the denoiser is
trained on the bundled scene only, and Indian Pines cannot be used to test it.  Uses a GPU if there
is one.
"""

import argparse
import os
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch

from hydiff.io import bundled
from hydiff.learn.layers import built
from hydiff.methods.hir_diff import Denoiser, save_denoiser

PLACE = Path(__file__).parents[1] / "src" / "hydiff" / "data" / "hir_diff.safetensors"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def images():
    """What is learned from: every image of the folder with three bands or more."""
    folder = os.environ.get("HYDIFF_TRAIN")
    if folder is None:
        return [np.asarray(bundled.sample().values)]
    files = [np.load(path) for path in sorted(Path(folder).glob("*.npz"))]
    return [file[key] for file in files for key in file.files if file[key].shape[0] >= 3]


def trained(images, *, rng, device="cpu", lr=2e-3, batch=8, crop=48, channels=32):
    """The averaged network and the loss after each step, without end.

    images (C, H, W).  rng: on the CPU, where crops are drawn; device: of the network.
    """
    network = built(lambda: Denoiser(channels), rng).to(device)
    adam = torch.optim.Adam(network.parameters(), lr=lr)
    average = {k: v.clone() for k, v in network.state_dict().items()}
    step = 0
    while True:
        step += 1
        x0 = torch.stack([example(images, crop, rng) for _ in range(batch)]).to(device)
        alpha_bar = torch.exp(-6 * torch.rand(batch, generator=rng) ** 1.5).clamp(max=0.9995)
        alpha_bar = alpha_bar.to(device)
        a = alpha_bar.view(-1, 1, 1, 1)
        noise = torch.randn(x0.shape, generator=rng).to(device)
        error = network(a.sqrt() * x0 + (1 - a).sqrt() * noise, alpha_bar) - x0
        loss = (error.square() / (1 - a)).mean()  # equals the mean squared error of v
        adam.zero_grad()
        loss.backward()
        adam.step()
        keep = min(0.995, step / (step + 10))
        with torch.no_grad():
            average = {k: torch.lerp(v, average[k], keep) for k, v in network.state_dict().items()}
        smooth = deepcopy(network)
        smooth.load_state_dict(average)
        yield smooth, loss.item()


def example(images, crop, rng):
    """A crop (3, crop, crop) of three bands, from -1 to 1.

    The bands are rotated and mirrored together, and each gets a random contrast and brightness, so
    that the denoiser learns shapes and not the sensor.
    """

    def draw(high, n=1):
        """n whole numbers from 0 to high - 1."""
        return torch.randint(high, (n,), generator=rng).tolist()

    bands = images[draw(len(images))[0]] if len(images) > 1 else images[0]
    rows, cols = draw(bands.shape[1] - crop + 1)[0], draw(bands.shape[2] - crop + 1)[0]
    x = bands[draw(len(bands), 3), rows : rows + crop, cols : cols + crop]
    x = torch.rot90(x, draw(4)[0], (1, 2))
    x = x.flip(2) if draw(2)[0] else x
    low, high = x.amin((1, 2), keepdim=True), x.amax((1, 2), keepdim=True)
    x = (x - low) / (high - low).clamp_min(1e-6)
    span = 0.1 + 0.9 * torch.rand((3, 1, 1), generator=rng)
    return 2 * (span * x + (1 - span) * torch.rand((3, 1, 1), generator=rng)) - 1


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
    for network, loss in trained(learned, **given):
        losses.append(loss)
        if len(losses) % 50 == 0:
            print(len(losses), f"{np.mean(losses[-50:]):.4f}", flush=True)
        if time.monotonic() > end:
            save_denoiser(network, args.output, args.learned_from)
            break
    print(f"{len(losses)} updates, {args.output.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
