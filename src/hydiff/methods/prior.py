"""Prior: smooth fields through the components of a cube, corrected by a network trained once.

The network (`learn.plane_network`) has seen other images with simulated gaps and nothing of this
cube.  It corrects the strongest components, each a plane of its own; what it cannot have learned,
how far the bands of this cube vary together, is the cube's own, as in `smooth`.

Letters: z (K, H, W) coordinates of the spectra; complete (H, W), True where z is; p = A z the same
turned to the principal components of bands in units of their roughness; a plane is one of them with
mean 0, in units of its own RMS neighbour difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor, nn

from hydiff.cube import Bools, Floats
from hydiff.errors import BadValue, UnknownName
from hydiff.io.threads import cores
from hydiff.learn import prior_weights
from hydiff.learn.engine import SETTINGS, arithmetic
from hydiff.learn.field import MOST_MISSING, Field
from hydiff.learn.motions import symmetric
from hydiff.learn.plane_crop import box_of, correction_within
from hydiff.learn.plane_network import ORDERS, PlaneNetwork, corrected, roughness, turn
from hydiff.maths.subspace import Subspace
from hydiff.maths.variogram import Covariance, fit_covariances
from hydiff.methods import components
from hydiff.methods.membranes import Membrane
from hydiff.methods.smooth import Coordinates, coordinates, cube_step, fitted_fields, plain_field
from hydiff.result import Step

# px from the nearest complete pixel: the widest gaps of its training are frames and blocks whose
# middle is twice as far from data.  Up to here the network is taken whole, there nothing of it: in
# wide gaps the field that it corrects runs away, and kriging returns to the mean
TRAINED_DISTANCE = 8.0
# of the roughest plane, and on the unit range: planes below one of them are rounding
SMOOTHEST, ROUNDING = 1e-9, 1e-12
FLATTEST = 0.05  # of the median roughness of the bands: what a band counts for at least
# times the variance of the strongest component of mere noise: below that a component is left to
# kriging, which is better there on places held back from the training (benchmarks/prior_noise.py)
SIGNAL = 1.2
WHITE = 0.5**0.5  # σ of a plane that is nothing but noise; more than that was never seen
AT_ONCE = 1 << 22  # pixels of all planes that a GPU corrects in one call
BANDS_AT_ONCE = 8  # whose roughness is measured together: they stay in the cache


@dataclass(frozen=True)
class Prior:
    """The small network takes a sixth of the time of the full one on a CPU, and gains half."""

    size: str = "full"  # | small
    weights: str | None = None  # a file of `hydiff train-prior`, instead of the size
    symmetries: int = 1  # the mean over so many symmetries of the square: 1, 2, 4 or 8
    planes: int = 8  # components that the network corrects at most, the strongest ones
    components: int = 24  # principal components kept
    error_bars: bool = False  # also work out the posterior variance of the fields
    space: Subspace | None = None  # of the scene that this is a part of; None = fitted

    def __post_init__(self) -> None:
        if self.size not in prior_weights.SIZES:
            raise UnknownName("size", self.size, prior_weights.SIZES)
        if self.symmetries not in (1, 2, 4, 8):
            raise BadValue(f"symmetries = {self.symmetries}: expected 1, 2, 4 or 8")
        if self.planes < 1:
            raise BadValue(f"planes = {self.planes}: at least one is needed; 8 is usual")
        components.check(self.components, 24)

    def decisive(self, noisy: bool) -> dict[str, Any]:
        """What a benchmark knows a row by."""
        return asdict(self) | ({"signal": SIGNAL} if noisy else {})

    def file(self) -> Path:
        """Of the weights."""
        return prior_weights.packaged(self.size) if self.weights is None else Path(self.weights)


def prior(
    y: Floats,
    observed: Bools,
    sigma_y: Floats,
    settings: Prior,
    *,
    rng: np.random.Generator,
    device: torch.device | str = "cpu",
    given: Coordinates | None = None,
    network: Callable[[], nn.Module] | None = None,
    at: Bools | None = None,
) -> Iterator[Step]:
    """y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).

    The bands that a pixel keeps come first, and what the components leave of the spectra is filled
    band by band, both as in `smooth`.  The weaker components, and those without structure, are
    filled as there.
    given: the coordinates, if they are at hand.  network: gives one that began with these weights
    and has been tuned since, when the planes are ready for it.  at: as of `smooth.cube_step`.
    """
    device = torch.device(device)
    c = given or coordinates(y, observed, sigma_y, settings.components, settings.space)
    short: list[str] = []
    f, covariances = corrected_fields(c, settings, device, short, network, at)
    step = cube_step(c, f, covariances, settings.error_bars, rng, at)
    ran = f"network {named(settings.file())}, on {device.type}"
    yield step._replace(how="; ".join([ran, *short]))


def corrected_fields(
    c: Coordinates,
    settings: Prior,
    device: torch.device,
    short: list[str] | None = None,
    network: Callable[[], nn.Module] | None = None,
    at: Bools | None = None,
) -> tuple[Floats, list[Covariance]]:
    """The filled components (K, H, W), and their covariances; short: as of `fields_through`.

    at: the pixels (H, W) that are wanted; others may come back without the correction.
    """
    key = str(device), settings.planes
    if key not in c.shown:
        c.shown[key] = shown_of(parts_of(c, settings.planes), c, device, short)
    shown: Shown = c.shown[key]
    own = network() if network else prior_weights.network_of(settings.file(), str(device))
    planes = corrected_planes(shown, Symmetric(own, settings.symmetries, at))
    return shown.parts.with_planes(planes), shown.parts.covariances


def named(file: Path) -> str:
    """A file of weights, for people."""
    return f"{file.name}, sha256 {prior_weights.digest(file)[:12]}"


class Parts(NamedTuple):
    """Components p = A z (K, H, W): those that the network corrects, and all of z, filled."""

    axes: Floats  # (K, K) A
    some: Bools  # (K,) the network's
    p: Floats  # (k, H, W) those, 0 elsewhere than at the complete pixels
    sigma: Floats  # (k,) std of their noise
    f: Floats  # (K, H, W) z filled as in `smooth`
    covariances: list[Covariance]  # of z

    @property
    def kriged(self) -> Floats:
        """(k, H, W) the network's components as `smooth` fills them."""
        return np.tensordot(self.axes[self.some], self.f, 1)

    def with_planes(self, planes: Floats) -> Floats:
        """(K, H, W) z filled, with those of the network as given (k, H, W)."""
        back = np.linalg.inv(self.axes)[:, self.some]
        filled: Floats = self.f + np.tensordot(back, planes - self.kriged, 1)
        return filled


def parts_of(c: Coordinates, planes: int, axes: Floats | None = None) -> Parts:
    """planes: components that the network corrects at most, if they vary in space."""
    A = axes_of(c) if axes is None else axes
    p = np.tensordot(A[:planes], c.z, 1)
    # a component's noise: that of the whitened bands, mixed as the component mixes them
    sigma = np.sqrt(((A[: len(p)] @ c.space.basis.T) ** 2) @ c.noise)
    varies = np.array([one.sill > 0 for one in fit_covariances(p, c.complete)])
    varies &= more_than_noise(p, c, sigma)
    varies[varies] = more_than_rounding(p[varies], c.complete)
    some = np.r_[varies, np.zeros(len(A) - len(p), bool)]
    f, covariances = fitted_fields(c)
    return Parts(A, some, p[varies], sigma[varies], f, covariances)


def axes_of(c: Coordinates) -> Floats:
    """(K, K) A, strongest first: A z are the principal components, within those of z, of the bands
    in units of their roughness.

    So a dark band counts as much as a bright one, and a band of mere noise little.  With noise the
    bands are in units of it already, and A is the identity.
    """
    where = torch.as_tensor(c.complete)
    some = (c.y[i : i + BANDS_AT_ONCE] for i in range(0, len(c.y), BANDS_AT_ONCE))
    rough = np.concatenate([roughness(torch.as_tensor(y), where).numpy() for y in some])
    unit = np.maximum(rough, FLATTEST * np.median(rough))
    if c.noisy or not unit.all():
        return np.eye(len(c.z))
    spectra = c.space.basis / unit[:, None]
    lower = np.linalg.cholesky(spectra.T @ spectra)
    z = c.z[:, c.complete]
    _, turned = np.linalg.eigh(lower.T @ (z @ z.T) @ lower)
    axes: Floats = turned[:, ::-1].T @ lower.T
    return axes


class Shown(NamedTuple):
    """What a network sees of components; k planes."""

    parts: Parts
    complete: Bools  # (H, W)
    unit: UnitPlanes
    noise: Floats  # (k,) std, in the units of the planes
    fields: Tensor  # (k, 3, H, W) of the orders that the network sees, on its device


def shown_of(
    parts: Parts, c: Coordinates, device: torch.device, short: list[str] | None = None
) -> Shown:
    """short: as of `fields_through`."""
    if not (c.complete.any() and len(parts.p)):
        nothing = UnitPlanes(parts.p[:0], np.zeros(0), np.zeros(0))
        return Shown(parts, c.complete, nothing, np.zeros(0), torch.zeros(0, 3))
    unit = planes_of(parts.p, c.complete)
    f = fields_through(unit.planes, c.complete, device, c.membranes, short)
    return Shown(parts, c.complete, unit, noise_of(parts, unit), f)


def corrected_planes(shown: Shown, network: nn.Module) -> Floats:
    """(k, H, W) the network's components, filled; without noise, where complete they are as they
    were."""
    (parts, complete, unit, noise, f), device = shown, shown.fields.device
    p = parts.p
    if not len(f):
        return p.copy()
    flags = torch.as_tensor(complete, device=device)
    planes = torch.as_tensor(unit.planes, dtype=torch.float32, device=device)
    level = torch.as_tensor(noise, dtype=torch.float32, device=device)
    everywhere = torch.ones(1, device=device)

    def some(part: slice) -> Tensor:
        return corrected(network, planes[part], f[part], flags, level[part], everywhere)

    filled = _by_parts(some, len(p), complete.size, device).double().cpu().numpy()
    x: Floats = filled * unit.scale[:, None, None] + unit.mean[:, None, None]
    share = trust(complete)
    x = share * x + (1 - share) * parts.kriged
    # what is to stay as it was does not go through single precision
    return np.where(complete & (noise == 0)[:, None, None], p, x)


class UnitPlanes(NamedTuple):
    """Components (K, H, W) as the network sees them: p = mean + scale · planes where complete."""

    planes: Floats  # (K, H, W), 0 elsewhere than at the complete pixels
    mean: Floats  # (K,)
    scale: Floats  # (K,) the RMS difference of complete neighbours, with the sign of the long tail


def more_than_rounding(z: Floats, complete: Bools) -> Bools:
    """(K,) whether components (K, H, W) have enough texture to be magnified for the network."""
    rough = roughness(torch.as_tensor(z), torch.as_tensor(complete)).numpy()
    enough: Bools = rough > max(SMOOTHEST * rough.max(initial=0.0), ROUNDING)
    return enough


def more_than_noise(p: Floats, c: Coordinates, sigma: Floats) -> Bools:
    """(k,) whether components (k, H, W) with noise of std sigma vary more than the strongest
    component of mere noise would: of that the network would make an image."""
    variance = p[:, c.complete].var(axis=1)
    enough: Bools = variance >= SIGNAL * c.noise_edge * sigma**2
    return enough


def planes_of(z: Floats, complete: Bools) -> UnitPlanes:
    mean = z[:, complete].mean(axis=1)
    centred = np.where(complete, z - mean[:, None, None], 0.0)
    plane, where = torch.as_tensor(centred), torch.as_tensor(complete)
    scale: Floats = (roughness(plane, where) * turn(plane)).numpy()
    return UnitPlanes(centred / scale[:, None, None], mean, scale)


def noise_of(parts: Parts, unit: UnitPlanes) -> Floats:
    """(k,) std of the noise of the planes, in their units."""
    noise: Floats = np.minimum(np.abs(parts.sigma / unit.scale), WHITE)
    return noise


def fields_through(
    z: Floats,
    complete: Bools,
    device: torch.device,
    membranes: dict[float, Membrane],
    short: list[str] | None = None,
) -> Tensor:
    """(K, 3, H, W) the fields of the orders that the network sees; all planes share the factors.

    On a GPU by dense matrices, unless the gaps are too many for them or for its memory: in the
    latter case a line is added to `short`.
    """
    if device.type == "cuda" and (~complete).sum() <= MOST_MISSING:
        plane, where = (torch.as_tensor(a, device=device) for a in (z, complete))
        try:
            with SETTINGS:
                fields = (Field(where, s, often=False) for s in ORDERS)
                return torch.stack([field(plane.float()) for field in fields], dim=1)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            if short is not None:
                short.append("too little memory there: fields on the CPU")
    each = [plain_field(z, complete, s, inf, membranes) for s in ORDERS]
    return torch.as_tensor(np.stack(each, axis=1), dtype=torch.float32, device=device)


def trust(complete: Bools) -> Floats:
    """(H, W) the share of the network, beside kriging, by the distance to data."""
    distance = ndimage.distance_transform_edt(~complete)
    share: Floats = np.clip(2 - distance / TRAINED_DISTANCE, 0.0, 1.0)
    return share


class Symmetric(nn.Module):
    """The mean of a network over symmetries of the square: (N, I, H, W) to (N, H, W).

    wanted: the pixels (H, W) that are; None = all.  Beyond the box around them it is 0.
    """

    def __init__(self, network: nn.Module, count: int, wanted: Bools | None = None) -> None:
        super().__init__()
        self.network, self.count, self.wanted = network, count, wanted

    def forward(self, inputs: Tensor) -> Tensor:
        if self.wanted is None:
            return symmetric(self.network, inputs, self.count)
        where = torch.as_tensor(self.wanted, dtype=inputs.dtype, device=inputs.device)
        every = torch.cat([inputs, where.expand(len(inputs), 1, -1, -1)], dim=1)  # turned alike
        return symmetric(self._within, every, self.count)

    def _within(self, every: Tensor) -> Tensor:
        assert isinstance(self.network, PlaneNetwork)
        return correction_within(self.network, every[:, :-1], box_of(every[0, -1] > 0))


def _by_parts(
    correct: Callable[[slice], Tensor], count: int, pixels: int, device: torch.device
) -> Tensor:
    """(count, H, W) the planes that `correct` gives for slices of them.

    On a CPU each plane is the work of one thread: how many of them there are changes no bit.
    """
    if device.type == "cuda":
        each = max(1, AT_ONCE // pixels)
        with torch.inference_mode(), arithmetic("tf32"):
            return torch.cat([correct(slice(i, i + each)) for i in range(0, count, each)])

    def alone(i: int) -> Tensor:
        with torch.inference_mode():
            return correct(slice(i, i + 1))

    with _single_threads() as start, ThreadPoolExecutor(cores(), initializer=start) as pool:
        return torch.cat([*pool.map(alone, range(count))])


@contextmanager
def _single_threads() -> Iterator[Callable[[], None]]:
    """What a new thread calls so that torch starts no others from it; the setting comes back."""
    with SETTINGS:
        before = torch.get_num_threads()
        try:
            yield lambda: torch.set_num_threads(1)
        finally:
            torch.set_num_threads(before)
