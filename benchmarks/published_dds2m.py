"""DDS2M by its published code on a cell of `hydiff bench`, compared with our `dds2m`.

    python benchmarks/published_dds2m.py --code FOLDER --check
    python benchmarks/published_dds2m.py --code FOLDER --scene NAME --mask NAME --sigma 0

FOLDER holds a checkout of github.com/miaoyuchun/DDS2M, whose networks, loss and sampler are
imported unchanged; it has no licence, and none of it is part of hydiff.  Data, mask and noise are
those of the cell.  A call adds one row to results/published_dds2m.csv, or does nothing if the row
exists; a cell takes minutes on a GPU.

--check copies one set of weights, inputs and noise into both codes and compares the networks, the
schedule, the first state and a short chain.  --draws shared does the same in a whole cell.

`last` is the final state of the published sampler, as in ours.  `best` is the estimate that its
code selects by comparison with the truth, which no method here may do.  The code needs squares
whose side is a multiple of 64: cells are extended by reflection and cropped, as in ours.

Its program adds noise of 0.1 to every image, and its sampler assumes this noise.  Here y is that of
the cell; with --sigma-0 0.1 both samplers assume noise of 0.1.
"""

import argparse
import contextlib
import hashlib
import importlib
import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import scipy.io
import torch
from torch import nn

from hydiff.bench import cell_rows, cells, machine, records, scenes
from hydiff.bench.cells import Cell, CellEstimate, Damaged
from hydiff.cube import Scale, unit_scale
from hydiff.learn.diffusion import linear_alpha_bar
from hydiff.learn.layers import built, reflect_to_multiple
from hydiff.methods import choose, dds2m
from hydiff.methods.devices import torch_device

RESULTS = Path(__file__).parent / "results" / "published_dds2m.csv"
MULTIPLE, LEAST = (
    64,
    128,
)  # of the side: it is halved six times, and needs a border of one pixel then
NOT_USED = (
    "torchvision",
    "torchvision.utils",
    "tqdm",
    "utils.imresize",
)  # imported by the code, but not used by its sampler
KEY = ("scene", "mask", "sigma_y", "seed", "range", "draws", "chain", "steps", "sigma_0")
SCORES = tuple(f"{who}_{k}" for who in ("last", "best", "ours") for k in ("mpsnr", "missing"))
COLUMNS = (*KEY, *SCORES, "seconds", "ours_seconds", "code", "ours_hash", "device", "versions")
SILENT = logging.getLogger("published")
SHORT = {
    "rank": 2,
    "chain": 6,
    "steps": 2,
    "beta_start": 0.05,
    "beta_end": 0.6,
}  # settings of the check
LARGEST = 1e-5  # largest difference that passes; the published schedule has single precision


class Draws(NamedTuple):
    """All that is random in a fill by `dds2m`, in the order in which it draws."""

    network: dds2m.Factors
    spatial: torch.Tensor  # (1, 1, side, side)
    spectral: torch.Tensor  # (1, 1, C)
    first: torch.Tensor  # (1, C, side, side), the noise of x_T
    noises: object  # of the steps, an iterator over the same shape


# The published code


def published(folder, device):
    """Its modules, with empty ones in the place of packages that the sampler does not use."""
    if not (folder / "runners" / "VS2M.py").exists():
        sys.exit(f"{folder}: no runners/VS2M.py there; give --code a checkout of DDS2M")
    for name in NOT_USED:
        sys.modules.setdefault(name, ModuleType(name))
    sys.modules["torchvision"].utils = sys.modules["torchvision.utils"]
    sys.modules["tqdm"].tqdm = progress
    sys.modules["utils.imresize"].imresize = None
    if device.type == "cpu":  # the code requires a GPU: replace its calls
        torch.cuda.FloatTensor = torch.zeros(0).type()
        torch.cuda.set_device = lambda _: None
        torch.Tensor.cuda = lambda self: self
    sys.path.insert(0, str(folder))
    names = {"runner": "runners.diffusion", "mask": "functions.svd_replacement"}
    for name in (
        "functions.denoising",
        "runners.VS2M",
    ):  # replace its score, which takes most of the time, by a faster one
        importlib.import_module(name).quality = mean_psnr
    return SimpleNamespace(**{k: importlib.import_module(v) for k, v in names.items()})


def progress(steps):
    """A line now and then, of a chain that takes minutes."""
    began = time.perf_counter()
    for i, step in enumerate(steps):
        if i and i % 250 == 0:
            print(f"{i} steps of the chain, {time.perf_counter() - began:.0f} s", file=sys.stderr)
        yield step


def mean_psnr(a, b):
    """The score by which the code knows its best estimate; a, b (side, side, C) on [0, 1]."""
    return float(np.mean(-10 * np.log10(np.square(a - b).mean(axis=(0, 1)))))


def fingerprint(folder):
    """Of the published sources."""
    used = sorted(
        p for part in ("functions", "models", "runners") for p in folder.glob(f"{part}/*.py")
    )
    return hashlib.sha256(b"".join(p.read_bytes() for p in used)).hexdigest()[:12]


def sample(code, y, observed, truth, sigma_y, settings, device, draws=None):
    """Its last state and its best estimate (C, side, side), from y on [0, 1]; all are tensors."""
    bands, side = y.shape[0], y.shape[-1]
    data = SimpleNamespace(channels=bands, image_size=side, rescaled=True, logit_transform=False)
    schedule = SimpleNamespace(
        beta_schedule="linear",
        beta_start=settings.beta_start,
        beta_end=settings.beta_end,
        num_diffusion_timesteps=settings.chain,
    )
    fit = SimpleNamespace(var_type="fixedsmall", iter_number=[0] * settings.chain, lr=settings.lr)
    config = SimpleNamespace(data=data, diffusion=schedule, model=fit)
    args = SimpleNamespace(
        timesteps=settings.chain, start_point=settings.chain - settings.steps + 1,
        eta=settings.eta, etaB=settings.eta_b, beta=0, rank=settings.rank,
    )  # fmt: skip
    runner = code.runner.Diffusion(args, config, device)
    ones = np.ones((side, side, bands))
    model = code.runner.VS2M(settings.rank, ones, ones, 0, fit.iter_number, settings.lr)
    by_pixel = observed.permute(1, 2, 0).flatten()
    kept, missing = torch.nonzero(by_pixel).flatten(), torch.nonzero(~by_pixel).flatten()
    mask = code.mask.Inpainting(bands, side, missing, kept, device)
    y_0 = mask.H(2 * y[None] - 1)
    x = (
        torch.randn((1, *y.shape), device=device)
        if draws is None
        else _in_its_order(mask, draws.first)
    )
    if draws is not None:
        load(model, draws)
    noise = contextlib.nullcontext() if draws is None else _noise_of(draws, mask)
    with tempfile.TemporaryDirectory() as folder, noise:
        runner.sample_image(
            y_0[0].cpu().numpy(), x, model, mask, y_0, 2 * sigma_y,
            img_clean=truth[None].cpu(), logger=SILENT, image_folder=folder,
        )  # fmt: skip
        (path,) = Path(folder).glob("*.mat")
        saved = scipy.io.loadmat(path)
    return tuple(saved[k].transpose(2, 0, 1) for k in ("x_recon", "x_best"))


def _in_its_order(mask, noise):
    """Noise (1, C, side, side) so that its sampler, which sorts entries, sees it at its place."""
    return mask.Vt(noise).reshape(noise.shape)


@contextlib.contextmanager
def _noise_of(draws, mask):
    """Its sampler draws for all entries at each step, then again for the measured ones."""
    original, now = torch.randn_like, []

    def given(like):
        n = like.shape[-1]
        if like.dim() == 2 and n == mask.kept_indices.numel() + mask.missing_indices.numel():
            now[:] = [mask.Vt(next(draws.noises))]
        return now[0][:, :n]

    torch.randn_like = given
    try:
        yield
    finally:
        torch.randn_like = original


# One set of draws for both


def drawn(bands, side, settings, seed, device):
    """What `dds2m` draws from a generator with this seed, in its order."""
    rng = torch.Generator(device).manual_seed(seed)
    network = built(lambda: dds2m.Factors(bands, settings), rng)
    torch.randint(2**62, (), generator=rng, device=device)  # our fit draws a seed here
    spatial = torch.rand((1, 1, side, side), generator=rng, device=device)
    spectral = torch.rand((1, 1, bands), generator=rng, device=device)

    def noise():
        return torch.randn((1, bands, side, side), generator=rng, device=device)

    return Draws(network, spatial, spectral, noise(), iter(noise, None))


def load(model, draws):
    """Weights and inputs of `dds2m` into the published networks.

    These see the image with rows and columns exchanged: kernels and input are too.
    """
    rank = len(model.image_net)
    ours = [*_layers(draws.network.spatial.levels), draws.network.spatial.head]
    with torch.no_grad():
        for r, net in enumerate(model.image_net):
            theirs = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d)]
            for a, b in zip(theirs, ours, strict=True):
                for name, into in a.named_parameters():
                    whole = getattr(b, name)
                    part = whole.unflatten(0, (rank, -1))[r]
                    into.copy_(part.transpose(-1, -2) if into.dim() == 4 else part)
        spectral = draws.network.spectral
        for r, net in enumerate(model.mask_net):
            linear = [m for m in net.modules() if isinstance(m, nn.Linear)]
            for layer, weight, bias in zip(linear, spectral.weights, spectral.biases, strict=True):
                layer.weight.copy_(weight[r].T)
                layer.bias.copy_(bias[r, 0])
    model.image_net_inputs = draws.spatial.transpose(-1, -2).contiguous()
    model.mask_net_inputs = draws.spectral.clone()


def _layers(level):
    """Convolutions and norms of our spatial networks in the order of the published ones."""
    if not isinstance(level, dds2m.SpatialLevel):
        return
    for part in (level.skip, level.down, level.deep):
        if part is not None:
            yield from _of(part)
    yield from _layers(level.below)
    yield level.norm
    yield from _of(level.attention)
    yield from _of(level.up)


def _of(module):
    return (m for m in module.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d))


def check(code):
    """Differences between the two with the same draws, in double precision on the CPU."""
    device, settings = torch.device("cpu"), choose("dds2m", None, SHORT).settings
    truth = torch.as_tensor(scenes.load(scenes.BUNDLED)[:48:24, :128, :128])
    observed = torch.as_tensor(scenes.observed_of("published-3", truth.shape)).expand(truth.shape)
    bands, side = truth.shape[0], truth.shape[-1]
    differences = {"schedule": _schedules(code), "networks": _networks(code, bands, side, settings)}
    for sigma in (0.0, 0.1):
        noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(1))
        y = torch.where(observed, truth + sigma * noise, 0.0)
        draws = drawn(bands, side, settings, 0, device)
        last, _ = sample(code, y, observed, truth, sigma, settings, device, draws)
        rng = torch.Generator().manual_seed(0)
        *_, step = dds2m.dds2m(y, observed, torch.full((bands,), sigma), settings, rng=rng)
        # without noise, measured pixels differ: the code keeps its estimate there, ours keeps y
        counted = ~observed if sigma == 0 else torch.ones_like(observed)
        far = (torch.as_tensor(last) - step.x).abs()[counted]
        differences[f"chain at sigma {sigma}"] = float(far.max())
    for name, value in differences.items():
        print(f"{name}: largest difference {value:.2g}, {'fine' if value <= LARGEST else 'WRONG'}")
    return int(max(differences.values()) > LARGEST)


def _schedules(code):
    """Largest relative difference of ᾱ_t."""
    plain = dds2m.DDS2M()
    ends = {"beta_start": plain.beta_start, "beta_end": plain.beta_end}
    beta = code.runner.get_beta_schedule("linear", num_diffusion_timesteps=plain.chain, **ends)
    theirs = (1 - torch.from_numpy(beta).float()).cumprod(0)
    return float((theirs / linear_alpha_bar(plain.chain, **ends)[1:] - 1).abs().max())


def _networks(code, bands, side, settings):
    """Largest difference of the untrained networks' outputs."""
    draws, ones = drawn(bands, side, settings, 0, torch.device("cpu")), np.ones((side, side, bands))
    model = code.runner.VS2M(settings.rank, ones, ones, 0, [0], settings.lr)
    load(model, draws)
    model.optimize(ones, ones, torch.ones(1, 1, 1, 1), None, 0, SILENT, 0.0, update=False)
    ours = draws.network(draws.spatial, draws.spectral)[0].detach().numpy()
    return float(np.abs(model.image_com_np.transpose(2, 0, 1) - ours).max())


# A cell


def run(code, how, device):
    """The row of a cell."""
    settings = choose("dds2m", None, changes(how)).settings
    cell = Cell("dds2m", how.scene, how.mask, how.sigma, how.seed, json.dumps(changes(how)))
    truth = scenes.load(cell.scene)
    observed = np.broadcast_to(scenes.observed_of(cell.mask, truth.shape), truth.shape)
    damaged = Damaged(cell, cells.measure(truth, observed, cell.sigma_y, cell.seed), observed)
    scale = Scale(0.0, 1.0)
    if how.range == "observed":
        scale = unit_scale(damaged.y, observed, np.ones(len(truth), bool))
    span = scale.high - scale.low
    y, clean = (
        np.where(a, (v - scale.low) / span, 0.0) for v, a in ((damaged.y, observed), (truth, True))
    )
    least = max(LEAST, *truth.shape[1:])
    squares = [
        reflect_to_multiple(torch.as_tensor(a).to(device, kind), MULTIPLE, least)
        for a, kind in ((y, torch.float32), (observed.copy(), torch.bool), (clean, torch.float32))
    ]
    draws = None
    if how.draws == "shared":
        draws = drawn(len(truth), squares[0].shape[-1], settings, how.seed, device)
    torch.manual_seed(how.seed)
    began = time.perf_counter()
    assumed = max(how.sigma / span, settings.sigma_0)
    results = sample(code, *squares, assumed, settings, device, draws)
    row = {k: vars(how).get(k) for k in KEY} | {"sigma_y": how.sigma, "chain": settings.chain}
    row |= {
        "steps": settings.steps,
        "sigma_0": settings.sigma_0,
        "seconds": time.perf_counter() - began,
    }
    rows, cols = truth.shape[1:]
    for who, result in zip(("last", "best"), results, strict=True):
        estimate = CellEstimate(result[:, :rows, :cols].astype(float) * span + scale.low)
        scored, _ = cell_rows.score(damaged, truth, estimate)
        row |= {f"{who}_mpsnr": scored["all_mpsnr"], f"{who}_missing": scored["missing_mpsnr"]}
    ((ours, _),) = cell_rows.run([cell], device=str(device))
    row |= {"ours_mpsnr": ours["all_mpsnr"], "ours_missing": ours["missing_mpsnr"]}
    row |= {"ours_seconds": ours["seconds"], "ours_hash": ours["settings_hash"]}
    facts = machine.facts("dds2m", str(device))
    return row | {"code": fingerprint(how.code), **{k: facts[k] for k in ("device", "versions")}}


def changes(how):
    """Settings of both that differ from the published ones."""
    return {
        k: v for k in ("chain", "steps", "rank", "sigma_0") if (v := getattr(how, k)) is not None
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--code", type=Path, required=True, help="a checkout of DDS2M")
    parser.add_argument("--check", action="store_true", help="compare the two part by part")
    parser.add_argument("--scene", default=scenes.BUNDLED)
    parser.add_argument("--mask", default="published-3")
    parser.add_argument("--sigma", type=float, default=0.0, help="σ_y on the truth's [0, 1]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--range", choices=("truth", "observed"), default="truth",
                        help="what the published code gets as [0, 1]")  # fmt: skip
    parser.add_argument("--draws", choices=("own", "shared"), default="own",
                        help="its own weights and noise, or those of ours")  # fmt: skip
    parser.add_argument("--chain", type=int, help="T, of both; for a trial")
    parser.add_argument("--steps", type=int, help="of them with a fit; for a trial")
    parser.add_argument("--rank", type=int, help="of both; for a trial")
    parser.add_argument("--sigma-0", type=float, help="least noise that both assume")
    parser.add_argument("--device", default="auto")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    how = parser.parse_args()
    device = torch_device("cpu" if how.check else how.device)
    if how.check:
        torch.set_default_dtype(torch.float64)
    code = published(how.code, device)
    if how.check:
        return check(code)
    settings = choose("dds2m", None, changes(how)).settings
    ident = vars(how) | {"sigma_y": how.sigma, "chain": settings.chain, "steps": settings.steps}
    ident |= {"sigma_0": settings.sigma_0}
    for row in records.read(how.output):
        if all(row[k] == str(ident[k]) for k in KEY):
            print("already there:", row)
            return 0
    row = run(code, how, device)
    records.append(how.output, row, COLUMNS)
    for who in ("last", "best", "ours"):
        print(f"{who}: {row[f'{who}_mpsnr']:.2f} dB, gaps {row[f'{who}_missing']:.2f} dB")
    print(f"{row['seconds']:.0f} s published, {row['ours_seconds']:.0f} s ours")
    return 0


if __name__ == "__main__":
    sys.exit(main())
