"""HIR-Diff: a pretrained 3-channel diffusion in the span of three bands (Pang et al., 2024).

The three strongest right singular vectors V of the measurement span its spectra.  The three bands
that best determine the others are chosen by pivoted QR, and E = V V[bands]⁻¹ maps an image of these
three bands to the cube.  A denoiser for such images is sampled by DDIM in a few steps, with its
outputs clamped; each is corrected towards the observed entries and towards small total variation.
The result is clipped to the unit range.

Differences from the published code: the result is the last state, whereas there it is the one
closest to the truth; scipy's pivoted QR replaces MATLAB's strong RRQR; the noise that DDIM adds
again follows from the clamped x̂_0, there from the output before it is clamped.  The weights of the
published denoiser are not available (dead links).  `denoiser` names a file of weights in the layout
of `Denoiser`.  Without one, a small denoiser of ours is used, whose file states what it was trained
on, and every output is labelled "HIR-Diff (stand-in denoiser)": its scores are not those of
HIR-Diff.  The published guidance weights fit one image size and mask; ours are in units of Newton
steps (`fidelity` 1 = exactly on the observed entries), so that they hold for any size, number of
bands and mask.  `guidance` "gradient" is the published way: the gradient of both terms with respect
to x_t, through the denoiser, is subtracted from the next state; for the strongest component it is a
Newton step. `variation` is not a published value: we chose it among 0, 0.01, 0.02 and 0.05 knowing
the scores of two development scenes (Chikusei and Paris, with and without noise).

The layout of a weights file: safetensors with the tensors of `Denoiser(channels).state_dict()`, as
float16 or float32, and one metadata entry "hydiff" holding the JSON
{"layout": 1, "kind": "hir-diff denoiser", "channels": N}.  `save_denoiser` writes one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from hydiff.errors import CubeFormatError, UnknownName
from hydiff.learn import weights_file
from hydiff.learn.engine import Tensors
from hydiff.learn.layers import reflect_to_multiple
from hydiff.methods import STAND_IN, ranges
from hydiff.methods.dhp import masked
from hydiff.result import Step

LAYOUT, KIND = 1, "hir-diff denoiser"
FILES = weights_file.Kind(
    "hydiff", LAYOUT, "weights of `hydiff.methods.hir_diff.save_denoiser`", "write them again"
)
MOST_CHANNELS = 4096  # largest number of channels accepted in a weights file
FREQUENCIES = 8  # of the embedding of the noise level
GUIDANCE = ("newton", "gradient")
STAND_IN_FILE = Path(str(files("hydiff") / "data" / "hir_diff.safetensors"))


@dataclass(frozen=True)
class HIRDiff:
    steps: int = 20  # of DDIM
    decay: float = 5.0  # ᾱ = exp(-decay · t), t from 1 to 0
    fidelity: float = 1.0  # fraction of a Newton step towards the observed entries, at each step
    variation: float = 0.05  # weight of the 3-D total variation
    # newton: corrects x̂_0 | gradient: corrects x_t by the gradient through the denoiser, where a
    # fidelity above 0.3 overshoots, because the step ignores the denoiser's slope
    guidance: str = "newton"
    denoiser: str | None = None  # a weights file; None = the stand-in

    PRESETS: ClassVar[dict[str, HIRDiff]]

    def __post_init__(self) -> None:
        ranges.above_zero(self, "steps", "decay")
        ranges.shares(self, "fidelity")
        ranges.zero_or_more(self, "variation")
        if self.guidance not in GUIDANCE:
            raise UnknownName("guidance", self.guidance, GUIDANCE)

    @property
    def notes(self) -> list[str]:
        """Notes that every output must include."""
        if self.denoiser is not None:
            return [f"HIR-Diff with the denoiser {self.denoiser}"]
        return [f"{STAND_IN}: trained by us on {learned_from()}, not the published weights"]


HIRDiff.PRESETS = {"paper": HIRDiff(), "fast": HIRDiff(steps=8)}


def hir_diff(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: HIRDiff,
    *,
    rng: Generator,
    resume: Tensors | None = None,
) -> Iterator[Step]:
    """Fill a cube by HIR-Diff, yielding every step of DDIM.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    sigma_y is not used.  resume: the `Step.state()` of an interrupted run.
    """
    y, observed = (a[0] for a in masked(y, observed))
    denoise = load_denoiser(settings.denoiser).to(y.device)
    E = expansion(y)
    back, steepest = torch.linalg.pinv(E), torch.linalg.matrix_norm(E, 2) ** 2
    x = torch.randn((E.shape[1], *y.shape[1:]), generator=rng, device=y.device)
    done = 0
    if resume is not None:
        x, done = resume["x"].to(y.device), int(resume["done"])

    def cube(x0: Tensor) -> Tensor:
        return torch.einsum("ck,khw->chw", E, (x0 + 1) / 2)

    def answer(x: Tensor, now: float) -> Tensor:
        """Return x̂_0 by the denoiser, clamped, for the state x with ᾱ_t = now."""
        x0: Tensor = denoise(_three(x)[None], x.new_tensor([now]))[0, : len(x)]
        return x0.clamp(-1, 1)

    def residual_of(x0: Tensor) -> Tensor:
        return torch.where(observed, y - cube(x0), 0.0)

    def penalty(x0: Tensor) -> Tensor:
        """Return the weighted sum of squared residual and total variation."""
        data: Tensor = settings.fidelity * 2 * residual_of(x0).square().sum() / steepest
        return data + settings.variation * _variation(x0, E)

    T = settings.steps
    for i in range(done + 1, T + 1):
        now, after = (math.exp(-settings.decay * (1 - j / T)) for j in (i - 1, i))
        if settings.guidance == "newton":
            with torch.no_grad():
                x0 = answer(x, now)
            eps, pull = (x - now**0.5 * x0) / (1 - now) ** 0.5, None
            x0 = x0 - settings.variation * _variation_slope(x0, E)
            residual = residual_of(x0)
            x0 = x0 + settings.fidelity * 2 * torch.einsum("kc,chw->khw", back, residual)
        else:
            x0, pull = _guided(x, partial(answer, now=now), penalty)
            eps, residual = (x - now**0.5 * x0) / (1 - now) ** 0.5, residual_of(x0)
        x = after**0.5 * x0 + (1 - after) ** 0.5 * eps
        if pull is not None:
            x = x - pull
            x0 = x if i == T else x0

        def keep(i: int = i, x: Tensor = x) -> Tensors:
            return {"x": x, "done": torch.tensor(i)}

        log = {"data": residual.square().sum() / observed.sum().clamp_min(1)}
        yield Step(i, T, cube(x0).clamp(0, 1), log, keep)


def _guided(
    x: Tensor, answer: Callable[[Tensor], Tensor], penalty: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return x̂_0 and the gradient of its penalty with respect to x_t, through the denoiser."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        x0 = answer(x)
        (slope,) = torch.autograd.grad(penalty(x0), x)
    return x0.detach(), slope


def expansion(y: Tensor) -> Tensor:
    """Return E (C, 3), which maps three of the bands to the cube; fewer columns for fewer bands."""
    from scipy.linalg import qr

    spectra = y.flatten(1).double()
    k = min(3, len(y))
    _, vectors = torch.linalg.eigh(spectra @ spectra.T)
    V = vectors[:, -k:].flip(1)  # (C, k), strongest first
    _, _, order = qr(V.T.cpu().numpy(), pivoting=True, mode="economic")
    bands = torch.as_tensor(order[:k].copy(), device=y.device).sort().values
    E: Tensor = V @ torch.linalg.inv(V[bands])
    return E.to(y.dtype)


def _three(x: Tensor) -> Tensor:
    """Repeat the last band of a cube of one or two bands, for the denoiser: (3, H, W)."""
    return torch.cat([x, x[-1:].expand(3 - len(x), -1, -1)])


def _variation_slope(x0: Tensor, E: Tensor) -> Tensor:
    """Return the gradient in x0 of the cube's 3-D anisotropic total variation, mean over bands."""
    with torch.enable_grad():
        image = x0.detach().requires_grad_()
        (slope,) = torch.autograd.grad(_variation(image, E), image)
    return slope


def _variation(image: Tensor, E: Tensor) -> Tensor:
    """Return the 3-D anisotropic total variation of the cube, mean over bands."""
    cube = torch.einsum("ck,khw->chw", E, image)
    differences = (cube.diff(dim=axis).abs().sum() for axis in range(3))
    return torch.stack(list(differences)).sum() / len(E)


class Denoiser(nn.Module):
    """x_t (B, 3, H, W) and ᾱ_t (B,) → x̂_0, values about -1 to 1; any size.

    A U-Net of three scales that predicts v = √ᾱ ε - √(1-ᾱ) x_0, which has the same magnitude at all
    noise levels; x̂_0 = √ᾱ x_t - √(1-ᾱ) v.
    """

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        c = channels
        self.channels = c
        self.level = nn.Sequential(nn.Linear(2 * FREQUENCIES, 4 * c), nn.SiLU())
        self.enter = nn.Conv2d(3, c, 3, padding=1)
        self.down1, self.down2 = Block(c, c, 4 * c), Block(c, 2 * c, 4 * c)
        self.middle = Block(2 * c, 2 * c, 4 * c)
        self.up2, self.up1 = Block(4 * c, c, 4 * c), Block(2 * c, c, 4 * c)
        self.leave = nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x: Tensor, alpha_bar: Tensor) -> Tensor:
        rows, cols = x.shape[-2:]
        wide = reflect_to_multiple(x, 4, 8)
        log_snr = torch.log(alpha_bar / (1 - alpha_bar).clamp_min(1e-6)).clamp(-15, 15)
        angles = log_snr[:, None] * 2.0 ** torch.arange(-4, FREQUENCIES - 4, device=x.device)
        level = self.level(torch.cat([angles.sin(), angles.cos()], dim=1))
        a = self.down1(self.enter(wide), level)
        b = self.down2(F.avg_pool2d(a, 2), level)
        deep = self.middle(F.avg_pool2d(b, 2), level)
        deep = self.up2(torch.cat([b, F.interpolate(deep, scale_factor=2.0)], 1), level)
        deep = self.up1(torch.cat([a, F.interpolate(deep, scale_factor=2.0)], 1), level)
        v = self.leave(deep)[..., :rows, :cols]
        a_t = alpha_bar.view(-1, 1, 1, 1)
        x0_hat: Tensor = a_t.sqrt() * x - (1 - a_t).sqrt() * v
        return x0_hat


class Block(nn.Module):
    """Two convolutions, modulated by the noise level in between, with a residual connection."""

    def __init__(self, c_in: int, c: int, level: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(c_in, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
        self.norm = nn.GroupNorm(4, c)
        self.scale = nn.Linear(level, 2 * c)
        self.short = nn.Conv2d(c_in, c, 1)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        gain, offset = self.scale(level)[..., None, None].chunk(2, dim=1)
        inner = F.silu(self.norm(self.first(x)) * (1 + gain) + offset)
        y: Tensor = self.short(x) + self.second(inner)
        return y


def load_denoiser(path: str | Path | None = None) -> Denoiser:
    """Load the denoiser of a weights file; None: the stand-in included in the package."""
    source = Path(STAND_IN_FILE if path is None else path)
    about, tensors = weights_file.content(source, FILES)
    if about.get("kind") != KIND:
        raise CubeFormatError(
            f"{source}: of the kind {about.get('kind')!r}, expected {KIND!r}; give {FILES.wanted}"
        )
    stated_channels = about.get("channels")
    channels = weights_file.whole_number(source, FILES, "channels", stated_channels, MOST_CHANNELS)
    with torch.device("meta"):  # no random weights, which would advance torch's global generator
        network = Denoiser(channels)
    weights_file.check_tensors(source, FILES, tensors, network.state_dict())
    network.load_state_dict({name: t.float() for name, t in tensors.items()}, assign=True)
    return network.eval().requires_grad_(False)


def learned_from() -> str:
    """Return the description of the training data of the stand-in, from its file."""
    about, _ = weights_file.content(STAND_IN_FILE, FILES)
    return str(about["learned_from"])


def save_denoiser(network: Denoiser, path: Path, learned_from: str | None = None) -> None:
    """Write a weights file, in half precision."""
    from safetensors.torch import save_file

    about = {"layout": LAYOUT, "kind": KIND, "channels": network.channels}
    about |= {"learned_from": learned_from} if learned_from else {}
    tensors = {k: v.detach().cpu().half().contiguous() for k, v in network.state_dict().items()}
    save_file(tensors, path, metadata={"hydiff": json.dumps(about)})
