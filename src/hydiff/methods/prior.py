"""Prior: smooth fields through the components of a cube, corrected by a network trained once.

The network (`learn.plane_network`) was trained on other images with simulated gaps; it is not
fitted to this cube.  It corrects the strongest components, each as a separate plane.  How the bands
of this cube vary together, which it cannot have learned, is taken from the cube, as in `smooth`.

Letters: z (K, H, W) coordinates of the spectra; complete (H, W), True where z is known; p = A z the
same in another basis, the principal components of the bands in units of their roughness; a plane is
one component of p with mean 0, in units of its own RMS difference between neighbouring pixels.
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
from hydiff.learn.gap_fields import GapFields
from hydiff.learn.motions import symmetric
from hydiff.learn.plane_crop import box_of, correction_within
from hydiff.learn.plane_network import ORDERS, PlaneNetwork, corrected, turn
from hydiff.maths.subspace import Subspace
from hydiff.maths.variogram import Covariance, fit_covariances, roughness
from hydiff.methods import components
from hydiff.methods.kriging import fields
from hydiff.methods.membranes import Membrane
from hydiff.methods.smooth import Coordinates, coordinates, cube_step, fitted_fields
from hydiff.result import Step

# px from the nearest complete pixel up to which the network has full weight.  The weight falls to 0
# at twice this distance, the middle of the widest gaps of its training (frames and blocks).  In
# wider gaps the field that it corrects may diverge, whereas kriging returns to the mean
TRAINED_DISTANCE = 8.0
# roughness relative to the roughest plane, and absolute on the unit range: a plane below either
# limit is rounding error
SMOOTHEST, ROUNDING = 1e-9, 1e-12
FLATTEST = 0.05  # of the median roughness of the bands: lower limit of a band's roughness
# a component is left to kriging if its variance is less than this many times that of the strongest
# component of pure noise: kriging was then better on places not used in training
# (benchmarks/prior_noise.py)
SIGNAL = 1.2
WHITE = 0.5**0.5  # σ of a plane of pure noise, in its unit; the training had no more
AT_ONCE = 1 << 22  # pixels, over all planes, that a GPU corrects in one call


@dataclass(frozen=True)
class Prior:
    """On a CPU the small network takes a sixth of the time of the full one, for half its gain."""

    size: str = "full"  # | small
    weights: str | None = None  # a file of `hydiff train-prior`, used instead of `size`
    symmetries: int = 1  # average over this many symmetries of the square: 1, 2, 4 or 8
    planes: int = 8  # the most components that the network corrects, strongest first
    components: int = 24  # principal components kept
    error_bars: bool = False  # also compute the posterior variance of the fields
    space: Subspace | None = None  # components of the whole scene; None = fitted to the cube

    def __post_init__(self) -> None:
        if self.size not in prior_weights.SIZES:
            raise UnknownName("size", self.size, prior_weights.SIZES)
        if self.symmetries not in (1, 2, 4, 8):
            raise BadValue(f"symmetries = {self.symmetries}: expected 1, 2, 4 or 8")
        if self.planes < 1:
            raise BadValue(f"planes = {self.planes}: at least one is needed; 8 is usual")
        components.check(self.components, 24)

    def decisive(self, noisy: bool) -> dict[str, Any]:
        """Return the settings that identify a benchmark row."""
        return asdict(self) | ({"signal": SIGNAL} if noisy else {})

    def file(self) -> Path:
        """Return the path of the weights file."""
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
    """Fill a cube as `smooth` does, with the strongest components corrected by a trained network.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    Regression on observed bands, the fill of the spectra's remainder, and the kriging of weak
    components and of those without structure are as in `smooth`.
    given: the coordinates, if already computed.  network: function that returns a tuned copy of the
    network to use instead; called when the planes are ready.  at: as in `smooth.cube_step`.
    """
    device = torch.device(device)
    gpu = device if device.type == "cuda" else None
    c = given or coordinates(y, observed, sigma_y, settings.components, settings.space, gpu)
    messages: list[str] = []
    f, covariances = corrected_fields(c, settings, device, messages, network, at)
    step = cube_step(c, f, covariances, settings.error_bars, rng, at)
    engine = f"network {named(settings.file())}, on {device.type}"
    yield step._replace(how="; ".join([engine, *messages]))


def corrected_fields(
    c: Coordinates,
    settings: Prior,
    device: torch.device,
    messages: list[str] | None = None,
    network: Callable[[], nn.Module] | None = None,
    at: Bools | None = None,
) -> tuple[Floats, list[Covariance]]:
    """Return the filled components (K, H, W) and their covariances.

    messages: as in `network_input`.
    at: mask (H, W) of the wanted pixels; others may come back without the correction.
    """
    key = str(device), settings.planes
    if key not in c.network_inputs:
        c.network_inputs[key] = network_input(parts_of(c, settings.planes), c, device, messages)
    inputs: NetworkInput = c.network_inputs[key]
    model = network() if network else prior_weights.network_of(settings.file(), str(device))
    planes = corrected_planes(inputs, Symmetric(model, settings.symmetries, at))
    return inputs.parts.with_planes(planes), inputs.parts.covariances


def named(file: Path) -> str:
    """Return the name of a weights file with the start of its checksum, for messages."""
    return f"{file.name}, sha256 {prior_weights.digest(file)[:12]}"


class Parts(NamedTuple):
    """The components p = A z that the network corrects, and all components z filled by kriging."""

    axes: Floats  # (K, K) A
    some: Bools  # (K,) True for the k components of p that the network corrects
    p: Floats  # (k, H, W) these components, 0 outside the complete pixels
    sigma: Floats  # (k,) std of their noise
    f: Floats  # (K, H, W) z filled as in `smooth`
    covariances: list[Covariance]  # of z

    @property
    def kriged(self) -> Floats:
        """(k, H, W) components for the network, as filled by `smooth`."""
        return np.tensordot(self.axes[self.some], self.f, 1)

    def with_planes(self, planes: Floats) -> Floats:
        """Return z filled (K, H, W), with the network's components replaced by planes (k, H, W)."""
        back = np.linalg.inv(self.axes)[:, self.some]
        filled: Floats = self.f + np.tensordot(back, planes - self.kriged, 1)
        return filled


def parts_of(c: Coordinates, planes: int) -> Parts:
    """Choose the components that the network corrects: at most `planes`, which must vary in space
    and exceed noise and rounding errors."""
    A = axes_of(c)
    p = np.tensordot(A[:planes], c.z, 1)
    # noise of a component: that of the whitened bands, combined with the weights of the component
    sigma = np.sqrt(((A[: len(p)] @ c.space.basis.T) ** 2) @ c.noise)
    varies = np.array([covariance.sill > 0 for covariance in fit_covariances(p, c.complete)])
    varies &= more_than_noise(p, c, sigma)
    varies[varies] = more_than_rounding(p[varies], c.complete)
    chosen = np.r_[varies, np.zeros(len(A) - len(p), bool)]
    f, covariances = fitted_fields(c)
    return Parts(A, chosen, p[varies], sigma[varies], f, covariances)


def axes_of(c: Coordinates) -> Floats:
    """Return A (K, K), strongest component first: A z are the principal components of the bands in
    units of their roughness, within the subspace of z.

    Thus a dark band counts as much as a bright one, and a band of pure noise little.  With noise
    the bands are already in units of the noise, and A is the identity.
    """
    if c.noisy:
        return np.eye(len(c.z))
    rough = roughness(c.y, c.complete)
    unit = np.maximum(rough, FLATTEST * np.median(rough))
    if not unit.all():
        return np.eye(len(c.z))
    spectra = c.space.basis / unit[:, None]
    lower = np.linalg.cholesky(spectra.T @ spectra)
    z = c.z[:, c.complete]
    _, turned = np.linalg.eigh(lower.T @ (z @ z.T) @ lower)
    axes: Floats = turned[:, ::-1].T @ lower.T
    return axes


class NetworkInput(NamedTuple):
    """The input of the network: k planes and their smooth fields."""

    parts: Parts
    complete: Bools  # (H, W)
    unit: UnitPlanes
    noise: Floats  # (k,) std, in the units of the planes
    fields: Tensor  # (k, 3, H, W) smooth fields of orders `ORDERS`, on the network's device


def network_input(
    parts: Parts, c: Coordinates, device: torch.device, messages: list[str] | None = None
) -> NetworkInput:
    """Return the network's input for these components.

    messages: receives what the device has too little memory for.
    """
    if not (c.complete.any() and len(parts.p)):
        nothing = UnitPlanes(parts.p[:0], np.zeros(0), np.zeros(0))
        return NetworkInput(parts, c.complete, nothing, np.zeros(0), torch.zeros(0, 3))
    unit = planes_of(parts.p, c.complete)
    gaps = c.gaps
    if gaps is None and device.type == "cuda":
        gaps = GapFields(c.complete, device)
    f = fields_through(unit.planes, c.complete, device, c.membranes, gaps)
    if gaps is not None and messages is not None:
        messages += gaps.messages
    return NetworkInput(parts, c.complete, unit, noise_of(parts, unit), f)


def corrected_planes(inputs: NetworkInput, network: nn.Module) -> Floats:
    """Return the network's components (k, H, W) filled; without noise, complete pixels are kept."""
    (parts, complete, unit, noise, f), device = inputs, inputs.fields.device
    p = parts.p
    if not len(f):
        return p.copy()
    flags = torch.as_tensor(complete, device=device)
    planes = torch.as_tensor(unit.planes, dtype=torch.float32, device=device)
    level = torch.as_tensor(noise, dtype=torch.float32, device=device)
    everywhere = torch.ones(1, device=device)

    def correct(part: slice) -> Tensor:
        """Return the corrected planes of a slice, on the device."""
        return corrected(network, planes[part], f[part], flags, level[part], everywhere)

    filled = _by_parts(correct, len(p), complete.size, device).double().cpu().numpy()
    x: Floats = filled * unit.scale[:, None, None] + unit.mean[:, None, None]
    network_weight = trust(complete)
    x = network_weight * x + (1 - network_weight) * parts.kriged
    # values to keep must not pass through single precision
    return np.where(complete & (noise == 0)[:, None, None], p, x)


class UnitPlanes(NamedTuple):
    """Components (K, H, W) normalised for the network: p = mean + scale · planes where complete."""

    planes: Floats  # (K, H, W), 0 outside the complete pixels
    mean: Floats  # (K,)
    scale: Floats  # (K,) RMS difference of complete neighbours, with the sign of the longer tail


def more_than_rounding(z: Floats, complete: Bools) -> Bools:
    """(K,) whether components (K, H, W) have more texture than rounding errors, so that they can be
    scaled to the network's unit."""
    rough = roughness(z, complete)
    rougher: Bools = rough > max(SMOOTHEST * rough.max(initial=0.0), ROUNDING)
    return rougher


def more_than_noise(p: Floats, c: Coordinates, sigma: Floats) -> Bools:
    """(k,) whether components (k, H, W) with noise of std sigma vary more than the strongest
    component of pure noise, in which the network would see structure that is not there."""
    variance = p[:, c.complete].var(axis=1)
    stronger: Bools = variance >= SIGNAL * c.noise_edge * sigma**2
    return stronger


def planes_of(z: Floats, complete: Bools) -> UnitPlanes:
    """Return components z (K, H, W) with mean 0, roughness 1 and positive skewness, all over the
    complete pixels (H, W)."""
    mean = z[:, complete].mean(axis=1)
    centred = np.where(complete, z - mean[:, None, None], 0.0)
    scale: Floats = roughness(centred, complete) * turn(torch.as_tensor(centred)).numpy()
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
    gaps: GapFields | None = None,
) -> Tensor:
    """Return the smooth fields (K, 3, H, W) of orders `ORDERS` through planes z (K, H, W).

    device: of the network, which reads them.  membranes, gaps: as in `kriging.fields`.
    """
    kinds = [(s, inf, 0.0) for s in ORDERS for _ in z]
    f = fields(np.tile(z, (len(ORDERS), 1, 1)), complete, kinds, membranes, gaps)
    by_order = f.reshape(len(ORDERS), *z.shape)
    return torch.as_tensor(by_order.swapaxes(0, 1), dtype=torch.float32, device=device)


def trust(complete: Bools) -> Floats:
    """(H, W) weight of the network against kriging, by the distance to the next complete pixel."""
    distance = ndimage.distance_transform_edt(~complete)
    share: Floats = np.clip(2 - distance / TRAINED_DISTANCE, 0.0, 1.0)
    return share


class Symmetric(nn.Module):
    """A network averaged over symmetries of the square: (N, I, H, W) to (N, H, W).

    wanted: mask (H, W) of the wanted pixels; None = all.  The output is 0 outside of their box.
    """

    def __init__(self, network: nn.Module, count: int, wanted: Bools | None = None) -> None:
        super().__init__()
        self.network, self.count, self.wanted = network, count, wanted

    def forward(self, inputs: Tensor) -> Tensor:
        if self.wanted is None:
            return symmetric(self.network, inputs, self.count)
        mask = torch.as_tensor(self.wanted, dtype=inputs.dtype, device=inputs.device)
        # the mask is transformed together with the inputs
        with_mask = torch.cat([inputs, mask.expand(len(inputs), 1, -1, -1)], dim=1)
        return symmetric(self._within, with_mask, self.count)

    def _within(self, with_mask: Tensor) -> Tensor:
        """Return the correction (N, H, W) in the box of the mask, the last channel of the input."""
        assert isinstance(self.network, PlaneNetwork)
        return correction_within(self.network, with_mask[:, :-1], box_of(with_mask[0, -1] > 0))


def _by_parts(
    correct: Callable[[slice], Tensor], count: int, pixels: int, device: torch.device
) -> Tensor:
    """Return the planes (count, H, W), computed by calling `correct` for slices of them.

    On a CPU one thread computes each plane, so that the result does not depend on the number of
    threads.
    """
    if device.type == "cuda":
        batch = max(1, AT_ONCE // pixels)
        with torch.inference_mode(), arithmetic("tf32"):
            return torch.cat([correct(slice(i, i + batch)) for i in range(0, count, batch)])

    def alone(i: int) -> Tensor:
        """Compute plane i in a thread without further threads."""
        with torch.inference_mode():
            return correct(slice(i, i + 1))

    with _single_threads() as start, ThreadPoolExecutor(cores(), initializer=start) as pool:
        return torch.cat([*pool.map(alone, range(count))])


@contextmanager
def _single_threads() -> Iterator[Callable[[], None]]:
    """Yield an initialiser for threads in which torch starts no further threads; afterwards restore
    the number of threads."""
    with SETTINGS:
        before = torch.get_num_threads()
        try:
            yield lambda: torch.set_num_threads(1)
        finally:
            torch.set_num_threads(before)
