"""Transforms T_g (Eq. 2–5), drawn at random: the six of the paper's ablation, and `spectral` ones.

Shapes: x (B, C, H, W); observed (H, W) or (C, H, W), bool, True = measured.
Rotation, shift and reflection move pixels without mixing them: they are unitary, and their
inverses are exact.  Scaling, similarity and affine interpolate: they are neither.
T_g acts on images, never on the mask: M stays where the sensor put it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import cos, radians, sin
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor
from torch.nn import functional as F

from hydiff.errors import BadValue, ShapeMismatch, UnknownName
from hydiff.learn import spectral
from hydiff.learn.resampling import Matrix, flat, grid_of, matrix_of, resample, sampled

Parameters = tuple[float, ...]
# the paper's library distinguishes 0 from -0, 90 from -270
SIGNED_TURNS = (0, 1, 2, 3, 0, -1, -2, -3)
FLIPS = ((0, 0), (1, 0), (0, 1), (1, 1))  # up-down, left-right
FACTORS = (0.75, 0.5)  # scaling
MIN_ZOOM = MIN_STRETCH = 0.5
MAX_SKEW = 50.0  # largest skew in the library's camera matrix, for a focal length of 100
FOCAL = 100.0
WITH_NOISE = 7  # transforms in a step if y is noisy: the paper's N_g
MOST_KNOWN = 16  # pixel maps that a `Warp` keeps at most
INTERPOLATION = {"scaling": "bicubic", "similarity": "bilinear", "affine": "bilinear"}


@dataclass(frozen=True)
class Transform:
    """One T_g: a differentiable function of images; spatial ones treat all bands alike.

    >>> g = Transform("shift", (0, 1))
    >>> g(torch.tensor([[[[1, 2, 3]]]]))
    tensor([[[[3, 1, 2]]]])
    >>> g.inverse()
    Transform(name='shift', parameters=(0, -1), weight=1.0)
    """

    name: str
    parameters: Parameters  # rotation: quarter turns, counter-clockwise.  shift: rows, columns.
    #                         reflection: up-down, left-right, 1 = flipped.  Bands: see `spectral`.
    #                         others: where the content goes, p ↦ A p + b as the rows of (A | b),
    #                         p = (column, row) in pixels from the centre of the image
    weight: float = 1.0  # weight in the mean over all transforms drawn with it

    def __call__(self, x: Tensor) -> Tensor:
        """Return T_g x for x (B, C, H, W), in the same shape; a quarter turn swaps unequal sides.

        Rotation, shift and reflection also take boolean masks and any leading axes.
        """
        if self.name in spectral.NAMES:
            return spectral.applied(self.turn()(x), self.parameters)
        match self.name, self.parameters:
            case "rotation", (turns,):
                return torch.rot90(x, int(turns), (-2, -1))
            case "shift", (rows, cols):
                return torch.roll(x, (int(rows), int(cols)), (-2, -1))
            case "reflection", (up_down, left_right):
                return x.flip([-2] * int(up_down) + [-1] * int(left_right))
        return resample(x, matrix_of(self.parameters), INTERPOLATION[self.name])

    def measures(self, observed: Tensor) -> Tensor:
        """Entries of T_g x that are measured again: the mask, without bands that T_g hides."""
        if self.name != spectral.HIDDEN:
            return observed
        return observed & _bands(spectral.measured_bands(self.parameters).to(observed.device))

    def inverse(self) -> Transform:
        """Return T_g⁻¹: exact for rotation, shift and reflection.

        Otherwise it is the inverse map: content that left the image is lost, and the rest returns
        up to interpolation errors, without detail finer than the shrunk grid.
        """
        if self.name == "reflection":
            return self
        if self.name in spectral.NAMES:
            return replace(self, parameters=spectral.inverse(self.parameters))
        if self.name in INTERPOLATION:
            return replace(self, parameters=flat(np.linalg.inv(matrix_of(self.parameters))))
        return replace(self, parameters=tuple(-p for p in self.parameters))

    def turn(self) -> Transform:
        """Return the quarter turn that is part of a transform along the bands."""
        return Transform("rotation", self.parameters[1:2])


class Warp:
    """One T_g of an image (..., H, W) in fixed tensors; `load` replaces it by another T_g.

    A step recorded with a Warp is replayed with the transform that was loaded last.

    >>> warp = Warp("rotation", (2, 2), torch.device("cpu"))
    >>> warp.load(Transform("rotation", (1,)))
    >>> warp(torch.tensor([[[[1, 2], [3, 4]]]]))
    tensor([[[[2, 4],
              [1, 3]]]])
    """

    def __init__(self, name: str, shape: Sequence[int], device: torch.device) -> None:
        rows, cols = shape[-2:]
        self.name, self.weight = name, torch.ones((), device=device)
        # a transform that moves pixels is stored as a permutation of their numbers
        self.pixels = torch.arange(rows * cols, device=device).view(1, 1, rows, cols)
        self.source, self.target = (torch.empty_like(self.pixels.flatten()) for _ in range(2))
        self.grid = torch.empty(1, rows, cols, 2, device=device)
        self.known: dict[Parameters, tuple[Tensor, Tensor]] = {}
        bands = shape[-3] if name in spectral.NAMES else 0
        self.index, self.gain = torch.arange(bands, device=device), torch.ones(bands, device=device)
        self.measured = self.gain.bool()

    def load(self, g: Transform) -> None:
        """Copy the transform g into the fixed tensors."""
        self.weight.fill_(g.weight)
        if g.name in INTERPOLATION:
            self.grid.copy_(grid_of(matrix_of(g.parameters), self.pixels))
            return
        if g.name in spectral.NAMES:
            places = (self.index, self.gain, self.measured)
            maps = (*spectral.along_bands(g.parameters), spectral.measured_bands(g.parameters))
            for tensor, value in zip(places, maps, strict=True):
                tensor.copy_(value)
            g = g.turn()
        source, target = self.known.get(g.parameters) or self._maps(g)
        self.source.copy_(source)
        self.target.copy_(target)

    def _maps(self, g: Transform) -> tuple[Tensor, Tensor]:
        """Return the permutations of pixels by g and by its inverse, (H · W,) each."""
        maps = g(self.pixels).flatten(), g.inverse()(self.pixels).flatten()
        if len(self.known) < MOST_KNOWN:  # all turns and flips; shifts are too many
            self.known[g.parameters] = maps
        return maps

    def __call__(self, x: Tensor) -> Tensor:
        """Return T_g x for x (B, C, H, W); differentiable."""
        if self.name in INTERPOLATION:
            return sampled(x, self.grid, INTERPOLATION[self.name])
        moved: Tensor = _Moved.apply(x, self.source, self.target)  # type: ignore[no-untyped-call]
        if x.shape[1] != len(self.gain):  # no transform along the bands, or an image of no bands
            return moved
        return moved.index_select(1, self.index) * _bands(self.gain)

    def measures(self, observed: Tensor) -> Tensor:
        """Like `Transform.measures`; observed (B, 1 or C, H, W)."""
        return observed & _bands(self.measured) if self.name == spectral.HIDDEN else observed


def _bands(values: Tensor) -> Tensor:
    """(C,) → (C, 1, 1): one value for each band."""
    return values.view(-1, 1, 1)


class _Moved(torch.autograd.Function):
    """Permute pixels: result[p] = x[source[p]]; `target` is the inverse, used for gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(target)
        return _taken(x, source)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _taken(grads[0], ctx.saved_tensors[0]), None, None


def _taken(x: Tensor, index: Tensor) -> Tensor:
    """Return x (B, C, H, W) with its pixels in the order of `index`, in the same memory format."""
    if x.is_contiguous():
        return x.flatten(2)[..., index].view_as(x)
    # channels last: spectra are copied as a whole
    pixels = x.permute(0, 2, 3, 1).flatten(1, 2)[:, index]
    return pixels.view(len(x), *x.shape[2:], x.shape[1]).permute(0, 3, 1, 2)


def draw(
    name: str, shape: Sequence[int], rng: Generator, n: int = 1, *, merge: bool = True
) -> list[Transform]:
    """Draw n transforms for an image (..., H, W); equal ones are merged, and weights sum to 1.

    merge False: equal transforms stay separate, each with weight 1/n, for copies that differ in
    their noise.

    n = 1 never gives the identity, from which nothing is learned.  n = 7 is the paper's N_g = 7 as
    its library draws it: all four rotations, weighted 2, 2, 2, 1 over 7; all four reflections, with
    the identity weighted 4/7; for the others, seven independent draws.
    """
    if name not in TRANSFORMS:
        raise UnknownName("transform", name, TRANSFORMS)
    if n < 1:
        raise BadValue(f"n must be at least 1, found {n}")
    rows, cols = shape[-2:]
    if name in spectral.NAMES:
        bands = shape[-3] if len(shape) > 2 else 1
        if name != spectral.ALONE:
            _check_square((rows, cols))
        drawn = spectral.draws(name, bands, rng, n)
    else:
        drawn = SPATIAL[name]((rows, cols), rng, n)
    if not merge:
        return [Transform(name, p, 1 / len(drawn)) for p in drawn]
    return [Transform(name, p, times / n) for p, times in Counter(drawn).items()]


def copies(n: int | None, noisy: bool) -> int:
    """Return the number of transforms in a step: n, or a default if n is None.

    The default is 1 without noise, where more teach the network the same.  With noise it is the
    paper's N_g = 7, over which the noise is averaged.
    """
    return n or (WITH_NOISE if noisy else 1)


def to_square(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Pad x (..., H, W) below and right to a square; also return the crop back to (H, W).

    Works on masks too: the padding of `observed` is False, that is, missing.  Padding must not
    count in a loss: with `real, _ = to_square(torch.ones(H, W, dtype=torch.bool))`, T_g x holds
    pixels of the cube where `g(real)` is True.
    """
    rows, cols = x.shape[-2:]
    side = max(rows, cols)

    def crop(square: Tensor) -> Tensor:
        return square[..., :rows, :cols]

    return F.pad(x, (0, side - cols, 0, side - rows)), crop


def orbit_coverage(observed: Tensor | NDArray[np.bool_], name: str) -> float:
    """Return the share of missing entries that no transform carries to an observed place.

    EI does not constrain such an entry: the content at p is constrained if some T_g carries it to a
    place that M observes (in a group, g and g⁻¹ give the same answer).  The share is 0 if nothing
    is missing and 1 if nothing is observed.  Times the missing share, it is a share of all entries.
    Computed on the image padded to a square, on which the methods work.
    """
    if name not in TRANSFORMS:
        raise UnknownName("transform", name, TRANSFORMS)
    flags = observed if isinstance(observed, Tensor) else torch.from_numpy(np.array(observed))
    if flags.dtype != torch.bool:
        raise BadValue(f"observed must be boolean, found {flags.dtype}: write observed=(mask > 0)")
    square, crop = to_square(flags)
    missing = ~flags
    unreached = missing & ~crop(_reached(square, name))
    return unreached.sum().item() / max(missing.sum().item(), 1)


def _reached(observed: Tensor, name: str) -> Tensor:
    """Mark the pixels of a square mask that some transform carries to an observed pixel."""
    match name:
        case "rotation":
            return torch.stack([torch.rot90(observed, k, (-2, -1)) for k in range(4)]).any(0)
        case "reflection":
            return torch.stack([Transform(name, flip)(observed) for flip in FLIPS]).any(0)
        case spectral.ALONE:
            return spectral.reaching(observed, name)
        case _ if name in spectral.NAMES:
            return _reached(spectral.reaching(observed, name), "rotation")
        case "scaling":
            onto = _shrunk_onto(observed.shape[-1]).to(observed.device)
            return onto @ observed.float() @ onto.T > 0
    # A shift carries any pixel anywhere.  So do similarity and affine: a quarter turn brings p into
    # the quadrant of its goal, and two pixels of a quadrant are at most half an image apart.
    return observed.any(-1, keepdim=True).any(-2, keepdim=True).expand_as(observed)


def _shrunk_onto(n: int) -> Tensor:
    """(n, n) matrix, 1 where some scaling carries line i, or its mirror image, onto line j.

    The smallest factor f is enough: f u + (1 - f) c, over all centres c, reaches every line that a
    larger factor reaches.
    """
    f = min(FACTORS)
    i, j = torch.arange(n)[:, None] + 0.5, torch.arange(n)
    onto = torch.zeros(n, n, dtype=torch.bool)
    for copy in (-i, i, 2 * n - i):  # reflection padding repeats the lines beyond both edges
        onto |= (f * copy < j + 1) & (f * copy + (1 - f) * n > j)
    return onto.float()


# Functions that draw the parameters of n transforms: (H, W), generator, n → list of n


def _rotations(shape: tuple[int, int], rng: Generator, n: int) -> list[Parameters]:
    _check_square(shape)
    if n > len(SIGNED_TURNS):
        raise BadValue(f"rotations are drawn from 8 signed angles, found n = {n}: use n ≤ 8")
    turns = _sample((1, 2, 3) if n == 1 else SIGNED_TURNS, n, rng)
    return [(k % 4,) for k in turns]


def _check_square(shape: tuple[int, int]) -> None:
    """Raise ShapeMismatch unless the image is square, as quarter turns need."""
    if shape[0] != shape[1]:
        raise ShapeMismatch(
            f"a quarter turn needs a square image, found {shape[0]} × {shape[1]}: "
            "embed it with x, crop = to_square(x)"
        )


def _shifts(shape: tuple[int, int], rng: Generator, n: int) -> list[Parameters]:
    rows, cols = shape
    # numbered from 1: number 0 is the identity
    numbers = torch.randint(1, max(rows * cols, 2), (n,), generator=rng, device=rng.device)
    return [divmod(k, cols) for k in numbers.tolist()]


def _reflections(shape: tuple[int, int], rng: Generator, n: int) -> list[Parameters]:
    if n == 1:
        return list(_sample(FLIPS[1:], 1, rng))
    # only four exist; the paper's library fills up with identities
    return [*_sample(FLIPS, n, rng), *FLIPS[:1] * (n - len(FLIPS))]


def _scalings(shape: tuple[int, int], rng: Generator, n: int) -> list[Parameters]:
    def scaling() -> Parameters:
        f = _sample(FACTORS, 1, rng)[0]
        centre = _point(shape, rng)
        return flat(np.column_stack([f * np.eye(2), (1 - f) * centre]))

    return [scaling() for _ in range(n)]


def _similarities(shape: tuple[int, int], rng: Generator, n: int) -> list[Parameters]:
    return [_shifted(_turn_and_zoom(rng), shape, rng) for _ in range(n)]


def _affines(shape: tuple[int, int], rng: Generator, n: int) -> list[Parameters]:
    def affine() -> Parameters:
        skew = _uniform(-MAX_SKEW, MAX_SKEW, rng) / FOCAL
        stretch = [_uniform(MIN_STRETCH, 1, rng) for _ in range(2)]
        turn = _turn_and_zoom(rng)
        # the camera's matrix is inverted: zoom, and both stretches, shrink the shear
        shear = skew * np.linalg.det(turn) ** 0.5 * stretch[0] * stretch[1]
        return _shifted(turn @ np.array([[stretch[0], shear], [0, stretch[1]]]), shape, rng)

    return [affine() for _ in range(n)]


SPATIAL: dict[str, Callable[[tuple[int, int], Generator, int], list[Parameters]]] = {
    "rotation": _rotations,
    "shift": _shifts,
    "scaling": _scalings,
    "reflection": _reflections,
    "similarity": _similarities,
    "affine": _affines,
}
TRANSFORMS = (*SPATIAL, *spectral.NAMES)


def _turn_and_zoom(rng: Generator) -> Matrix:
    """Draw a rotation by any angle, times a zoom: (2, 2)."""
    angle, zoom = radians(_uniform(-180, 180, rng)), _uniform(MIN_ZOOM, 1, rng)
    return zoom * np.array([[cos(angle), -sin(angle)], [sin(angle), cos(angle)]])


def _shifted(linear: Matrix, shape: tuple[int, int], rng: Generator) -> Parameters:
    """Parameters of p ↦ A (p + shift), with a random shift of up to half the image."""
    return flat(np.column_stack([linear, linear @ _point(shape, rng)]))


def _point(shape: tuple[int, int], rng: Generator) -> Matrix:
    """(column, row) of a random point of the image, from its centre."""
    return np.array([_uniform(-side / 2, side / 2, rng) for side in reversed(shape)])


def _uniform(low: float, high: float, rng: Generator) -> float:
    """Draw a number from low to high."""
    u: float = torch.rand((), generator=rng, device=rng.device, dtype=torch.float64).item()
    return low + (high - low) * u


def _sample(pool: Sequence[Any], n: int, rng: Generator) -> list[Any]:
    """Draw n of the pool in random order, without replacement; all of them if it has fewer."""
    order = torch.randperm(len(pool), generator=rng, device=rng.device)[:n]
    return [pool[i] for i in order.tolist()]


def blind_note(observed: NDArray[np.bool_], group: str) -> list[str]:
    """Return a note on the missing entries that EI does not constrain, if there are any."""
    share = orbit_coverage(observed, group)
    if share == 0:
        return []
    return [
        f"{100 * share:.2g} % of the missing entries are reached by no {group}: EI is blind there"
    ]
