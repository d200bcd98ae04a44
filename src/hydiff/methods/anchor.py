"""The anchor of `anchored`: the cube in the subspace of its spectra, and the smoothest field there.

Letters: z (1, K, H, W) coordinates in the spectral subspace, x = μ + r V z, where r is the
roughness of the bands; ν the noise of z; τ the strength of its fields, κ = ν² / τ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from hydiff.cube import Array, Bools, Floats
from hydiff.errors import BadValue
from hydiff.learn.field import Field, Fields, strength
from hydiff.learn.motions import motions, moved, sources
from hydiff.maths import subspace
from hydiff.maths.variogram import fit_covariances
from hydiff.methods import classical
from hydiff.methods.remainder import remainder
from hydiff.methods.smooth import Smooth, smooth

TRUSTED = 0.9  # a pixel is complete if its observed bands explain this share of its variance
ORDERS = (1.0, 1.25, 1.5, 1.75, 2.0)  # of the Laplacian: from harmonic to biharmonic
USUAL_ORDER = 1.5
ORDER_TRIALS = 8  # motions on which the best order is chosen
ORDER_COMPONENTS = 2  # strongest components used for that
KAPPAS = (1e-4, 1e3)  # smallest and largest κ
SMOOTHEST = 0.05  # of the median roughness: lower limit of a band's roughness


class AnchoredProblem(NamedTuple):
    """The cube in its subspace, with everything that the fit of the network needs."""

    z: Tensor  # (1, K, H, W) coordinates; outside the complete pixels the anchor's estimate
    complete: Tensor  # (H, W) bool
    anchor: Field | Fields  # (1, K, H, W) → the same
    spread: Tensor  # (1, K, 1, 1) std of z
    texture: Tensor  # (1, K, 1, 1) std of the part of z not shared by neighbouring pixels
    noise: Tensor | None  # (K, K) turns white noise into the noise of z; None without noise
    spectra: Tensor  # (C, K) maps z to bands
    base: Tensor  # (C, H, W) the anchor as a cube


def prepare(
    y: Tensor, observed: Tensor, sigma_y: Tensor, components: int, s: float, seed: int
) -> AnchoredProblem:
    """Return the problem for a cube y (C, H, W); observed (H, W) or (C, H, W); sigma_y (C,).

    s: order of the anchor's Laplacian; 0: the best of ORDERS, or USUAL_ORDER with noise.
    """
    C, H, W = y.shape
    flags, sigma = observed.cpu().numpy(), sigma_y.double().cpu().numpy()
    noisy = bool(sigma.any())
    values = np.where(flags, y.double().cpu().numpy(), 0.0)
    if not np.isfinite(values).all():
        raise BadValue("y has NaN or Inf in observed entries; mark those as missing")
    entries = np.broadcast_to(flags, values.shape)
    r = roughness(values, entries)[:, None]
    flat, entries = values.reshape(C, -1) / r, entries.reshape(C, -1)
    space = subspace.fit(flat, entries, components)
    if noisy:
        s = s or USUAL_ORDER
        space, kappa = _with_signal(flat, entries, space, sigma[:, None] / r, (H, W), s)
    coordinates, pixels = _coordinates(flat, entries, space)
    pixels = pixels.reshape(H, W)

    def tensor(x: Array) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(x), dtype=torch.float32, device=y.device)

    z = tensor(coordinates.reshape(1, -1, H, W))
    complete = torch.as_tensor(pixels, device=y.device)
    spectra, mean = tensor(r * space.basis), tensor(r * space.mean[:, None]).view(C, 1, 1)
    noise: Tensor | None = None
    anchor: Field | Fields
    if noisy:
        noise = tensor(np.linalg.cholesky(_noise_of(space, sigma[:, None] / r)))
        anchor = Fields(complete, s, kappa)
    else:
        s = s or best_order(z, complete, torch.Generator().manual_seed(seed))
        anchor = Field(complete, s)
    filled = anchor(z)
    if flags.ndim == 3 and not noisy:  # bands differ: `smooth` uses observed bands better
        *_, step = smooth(values, flags, sigma, Smooth(s=s), rng=np.random.default_rng(seed))
        base = tensor(step.x)
    else:  # the network fills the components; the remainder is filled separately
        rest = _remainder(flat.reshape(C, H, W), entries, space, (sigma / r[:, 0]) ** 2)
        base = mean + tensor(r * rest).view(C, H, W)
        base = base + torch.einsum("ck,khw->chw", spectra, filled[0])
    nugget = [c.nugget for c in fit_covariances(coordinates.reshape(-1, H, W), pixels)]
    spread, texture = (
        tensor(np.sqrt(variance) + 1e-9).view(1, -1, 1, 1)
        for variance in (space.variance, np.array(nugget))
    )
    z = torch.where(complete, z, filled)
    return AnchoredProblem(z, complete, anchor, spread, texture, noise, spectra, base)


def _remainder(y: Floats, observed: Bools, space: subspace.Subspace, noise_var: Floats) -> Floats:
    """Return what the components leave of a cube y (C, H, W), filled, as (C, H · W)."""
    whole = np.asarray(observed.all(axis=0)).reshape(y.shape[1:])
    _, rest = remainder(y, whole, np.ones(len(y)), space, noise_var, {}, everywhere=True)
    return rest.rest


def best_order(z: Tensor, complete: Tensor, dice: Generator) -> float:
    """Return the s with the least error on moved images; z (1, K, H, W), complete (H, W)."""
    if bool(complete.all()) or not bool(complete.any()):
        return USUAL_ORDER
    filled = _plain_field(z[:, :ORDER_COMPONENTS], complete, USUAL_ORDER)
    source = sources(motions(ORDER_TRIALS, complete.shape, dice).to(z.device), complete.shape)
    x = moved(filled, source)
    hidden = moved(complete[None, None], source) & ~complete
    errors = [((_plain_field(x, complete, s) - x).square() * hidden).sum().item() for s in ORDERS]
    return ORDERS[int(np.argmin(errors))]


def _plain_field(z: Tensor, complete: Tensor, s: float) -> Tensor:
    """Fill z once: with the dense matrix of `Field` on a GPU, with a sparse solver on a CPU."""
    if z.is_cuda:
        return Field(complete, s, often=False)(z)
    filled = classical.field(z.double().flatten(0, 1).numpy(), complete.numpy(), s)
    return torch.as_tensor(filled).view_as(z)


def _noise_of(space: subspace.Subspace, sigma: Floats) -> Floats:
    """Return the covariance (K, K) of the noise of the coordinates; sigma (C, 1) of the bands."""
    V = sigma * space.basis
    covariance: Floats = V.T @ V + 1e-12 * np.eye(V.shape[1])
    return covariance


def _with_signal(
    y: Floats,
    observed: Bools,
    space: subspace.Subspace,
    sigma: Floats,
    shape: tuple[int, int],
    s: float,
) -> tuple[subspace.Subspace, Floats]:
    """Return the components above the noise, least noisy first, and their κ = ν² / τ."""
    z, complete = _coordinates(y, observed, space)
    tau = strength(z.reshape(-1, *shape), complete.reshape(shape), s)
    nu2 = np.diag(_noise_of(space, sigma))
    kappa = np.clip(nu2 / np.maximum(tau, 1e-30), *KAPPAS)
    order = np.argsort(kappa, kind="stable")
    order = order[: max(int((kappa < KAPPAS[1]).sum()), 1)]
    signal = space._replace(basis=space.basis[:, order], variance=space.variance[order])
    return signal, kappa[order]


def _coordinates(y: Floats, observed: Bools, space: subspace.Subspace) -> tuple[Floats, Bools]:
    """Return z (K, N) and a mask (N,) of complete pixels, whose observed bands fix the others."""
    complete: Bools = np.array(observed.all(axis=0))
    z = np.where(complete, space.project(y), 0.0)
    partial = observed.any(axis=0) & ~complete
    if partial.any():
        z[:, partial], explained = subspace.regress(y[:, partial], observed[:, partial], space)
        complete[partial] = explained >= TRUSTED
        if not complete.any():  # no pixel has enough bands: take the better half rather than none
            complete[partial] = explained >= np.median(explained)
    return z, complete


def roughness(values: Floats, observed: Bools) -> Floats:
    """Return the RMS difference (C,) between neighbouring observed pixels of each band.

    It measures how hard a band is to fill.  In units of it, all bands count alike, and a noisy band
    has little signal.
    """
    total, pairs = np.zeros(len(values)), np.zeros(len(values))
    for axis in (1, 2):
        n = observed.shape[axis]
        both = observed.take(range(n - 1), axis) & observed.take(range(1, n), axis)
        total += (np.diff(values, axis=axis) ** 2 * both).sum(axis=(1, 2))
        pairs += both.sum(axis=(1, 2))
    r: Floats = np.sqrt(total / np.maximum(pairs, 1))
    return np.maximum(r, SMOOTHEST * np.median(r) + 1e-6)
