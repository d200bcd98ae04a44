"""Offline training of f_θ on damaged cubes alone (the paper's supplement); no clean cube is needed.

Each update takes a batch of measurements y = M x + n, draws one step t of the diffusion, and takes
one gradient step on Eq. 9.  Its data term covers the observed entries only: y is 0 in the gaps, and
a term over all entries would train the network to return 0 there.

The paper trains for 20000 epochs over 300 samples in batches of 5: 1.2 million updates.  Here the
caller decides when to stop (`train_files`: by a time budget); the model card reports the updates.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hydiff.cube import Array, Bools, Cube, Nodata, unit_scale
from hydiff.errors import BadValue, NothingObserved, ShapeMismatch, UnknownName
from hydiff.gaps import mask
from hydiff.learn import losses, network, transforms
from hydiff.learn.diffusion import linear_alpha_bar
from hydiff.learn.engine import Fit, Tensors
from hydiff.learn.transforms import Warp
from hydiff.result import Step

REST = 0.1  # share of a crop's side that may stay unused at the edge of a cube
GPU_SHARE = 0.1  # share of the GPU's free memory that the crops may take


@dataclass(frozen=True)
class Training:
    """Settings of a training, by default those of the paper's supplement."""

    batch: int = 5
    lr: float = 1e-4  # of Adam
    steps: int = 1000  # T
    beta_start: float = 1e-4
    beta_end: float = 0.02
    ei_weight: float = 1.0  # α_EI
    transform: str = "rotation"
    n_transforms: int | None = None  # drawn for each crop; None: 7 with noise, else 1
    channels: int = 128  # of the Skip-Net
    scales: int = 5
    norm: str = "batch"  # statistics that normalise the layers of the Skip-Net: batch | image
    crop: int = 144  # pixels; smaller cubes are taken whole
    sigma_y: float = 0.0  # noise std of the cubes, a share of the unit range
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"batch": 1, "steps": 1, "channels": 1, "scales": 1, "crop": 1}
        if self.n_transforms is not None:
            least["n_transforms"] = 1
        for name, low in (least | {"ei_weight": 0, "sigma_y": 0, "seed": 0}).items():
            if not low <= getattr(self, name) < math.inf:
                raise BadValue(f"{name} = {getattr(self, name)}: expected {low} or more")
        for name in ("lr", "beta_start", "beta_end"):
            if not 0 < getattr(self, name) < 1:
                raise BadValue(f"{name} = {getattr(self, name)}: expected a number from 0 to 1")
        if self.transform not in transforms.TRANSFORMS:
            raise UnknownName("transform", self.transform, transforms.TRANSFORMS)
        if self.norm not in network.NORMS:
            raise UnknownName("norm", self.norm, network.NORMS)
        if self.norm == "batch" and self.batch == 1:
            raise BadValue("norm = 'batch' and batch = 1: take more, or norm = 'image'")


class Item(NamedTuple):
    """One crop of a measurement, padded to a square, on the unit range."""

    y: Tensor  # (1, C, S, S), 0 where not observed
    observed: Tensor  # bool, (1, C, S, S), or (1, 1, S, S) when all bands share it
    inside: Tensor | None  # bool (1, 1, S, S), False in the padding; None when the crop is square
    sigma_y: Tensor | None  # (1, C, 1, 1); None without noise


def train(
    cubes: Sequence[Cube],
    settings: Training | None = None,
    *,
    observed: Sequence[Bools] | None = None,
    nodata: Nodata = None,
    device: torch.device | str = "cpu",
    resume: Tensors | None = None,
) -> Iterator[Step]:
    """Train, and yield a `Step` after every update, without end: the caller decides when to stop.

    observed: a mask for each cube; entries missing in it or in the cube are not used.
    resume: the tensors that `Step.state` returned in an earlier training.
    `Step.total` is the number of updates in an epoch; `Step.x` is the estimate for one crop of the
    batch, valid until the next update; `weights_of(step.state())` are the current weights.
    """
    settings = settings or Training()
    items = measurements(cubes, settings, observed=observed, nodata=nodata)
    return updates(items, settings, torch.device(device), resume)


def measurements(
    cubes: Sequence[Cube],
    settings: Training,
    *,
    observed: Sequence[Bools] | None = None,
    nodata: Nodata = None,
) -> list[Item]:
    """Return crops of the good bands of all cubes; only observed values are used."""
    items: list[Item] = []
    first: tuple[str, Bools] | None = None
    for i, cube in enumerate(cubes):
        name = f"cube {i + 1}" if cube.path is None else str(cube.path)
        cube = cube.load()
        measured = cube.observed(nodata)
        if observed is not None:
            measured &= _checked(observed[i], cube, name)
        used = cube.good_bands & measured.any(axis=(1, 2))
        first = first or (name, used)
        _check_bands(name, used, *first)
        values, measured = np.asarray(cube.values, dtype=np.float64)[used], measured[used]
        y = np.zeros(values.shape, np.float32)
        y[measured] = unit_scale(values, measured, np.ones(len(y), bool)).to_unit(values[measured])
        items += [
            item(y[at], measured[at], settings.sigma_y) for at in _crops(measured, settings.crop)
        ]
    if not items:
        raise BadValue("no cube to train on: give at least one")
    return items


def _checked(observed: Bools, cube: Cube, name: str) -> Bools:
    """Return the mask of a cube, after a check of its type and shape."""
    if observed.dtype != bool or observed.shape not in (cube.shape, cube.shape[1:]):
        raise ShapeMismatch(
            f"the mask of {name} is {observed.dtype} {observed.shape}; expected booleans of "
            f"{cube.shape[1:]} or {cube.shape}, True = measured"
        )
    return observed


def _check_bands(name: str, used: Bools, first: str, expected: Bools) -> None:
    """Refuse a cube without usable bands, or with other usable bands than the first cube."""
    if not used.any():
        raise NothingObserved(
            f"{name}: no observed entry in any good band; check `nodata=`, or leave it out"
        )
    if len(used) != len(expected):
        raise ShapeMismatch(
            f"{name} has {len(used)} bands, but {first} has {len(expected)}; "
            "train one model per sensor"
        )
    if (used != expected).any():
        bands = ", ".join(str(b + 1) for b in np.flatnonzero(used != expected)[:5])
        raise ShapeMismatch(
            f"{name} and {first} differ in their usable bands (band {bands}): a band must be good "
            "and measured in all cubes or in none; correct the bad-band lists or leave a cube out"
        )


def _crops(observed: Bools, size: int) -> list[tuple[slice, slice, slice]]:
    """Return windows (bands, rows, cols) of `size` pixels that cover a cube, without empty ones.

    Neighbours overlap where the side is no multiple of the size; a small remainder is not covered.
    """
    sides = []
    for side in observed.shape[1:]:
        n = max(1, math.ceil(side / size - REST))
        starts = np.linspace(0, max(side - size, 0), n).astype(int)
        sides.append([slice(start, start + size) for start in starts.tolist()])
    windows = [(slice(None), rows, cols) for rows in sides[0] for cols in sides[1]]
    return [at for at in windows if observed[at].any()]


def item(y: Array, observed: Bools, sigma_y: float | Array) -> Item:
    """Pad a crop y (C, H, W), 0 where not observed, to a square `Item`.

    sigma_y: one value for all bands, or (C,).
    """
    square, _ = transforms.to_square(torch.from_numpy(y)[None])
    shared = np.ascontiguousarray(mask.shared(observed)).reshape(1, -1, *observed.shape[1:])
    square_mask, _ = transforms.to_square(torch.from_numpy(shared))
    inside, _ = transforms.to_square(torch.ones(1, 1, *observed.shape[1:], dtype=torch.bool))
    noise = np.broadcast_to(np.asarray(sigma_y, np.float32), len(y))
    sigma = torch.tensor(noise).view(1, -1, 1, 1) if noise.any() else None
    return Item(square, square_mask, None if bool(inside.all()) else inside, sigma)


def updates(
    items: list[Item], settings: Training, device: torch.device, resume: Tensors | None
) -> Iterator[Step]:
    """Yield a `Step` after every update, like `train`, for crops that are already prepared."""
    bands, per_epoch = items[0].y.shape[1], math.ceil(len(items) / settings.batch)
    channels, scales, norm = settings.channels, settings.scales, settings.norm
    f = network.build(bands, channels=channels, scales=scales, norm=norm, seed=settings.seed)
    rng = torch.Generator(device).manual_seed(settings.seed)
    fit = Fit(f.to(device), lr=settings.lr, rng=rng)
    alpha_bar = linear_alpha_bar(settings.steps, settings.beta_start, settings.beta_end)
    places: dict[Place, Slot] = {}
    weight, parts = torch.zeros((), device=device), torch.zeros(2, device=device)
    if device.type == "cuda":
        items = _near(items, device)

    def objective(variant: tuple[tuple[Place, int], ...]) -> tuple[Tensor, Tensor]:
        """Return the terms of the loss (2,) and the estimate of the last image of a batch."""
        results = [
            _sums(fit.f, [(places[place], n) for place, n in group], rng)
            for group in _by_shape(variant)
        ]
        mean = torch.stack([sums for sums, _ in results]).sum(0) / len(variant)
        parts.copy_(mean.detach())
        return torch.stack([weight * mean[0], settings.ei_weight * mean[1]]), results[-1][1]

    done = 0
    if resume is not None:
        fit.load(dict(resume))
        done = int(resume["done"])
    while True:
        batch = _batch(items, settings, *divmod(done, per_epoch))
        t = int(torch.randint(1, settings.steps + 1, (), generator=fit.dice))
        weight.fill_(alpha_bar[t].item())
        variant = tuple(_load(places, i, item, settings, fit) for i, item in enumerate(batch))
        terms, x = fit.step(objective, variant)
        log = {"loss": terms.sum()} | dict(zip(("data", "ei"), parts.clone(), strict=True))
        done += 1

        def state(done: int = done) -> Tensors:
            return fit.state() | {"done": torch.tensor(done)}

        yield Step(done, per_epoch, x[0], log, state)


def _near(items: list[Item], device: torch.device) -> list[Item]:
    """Return the crops on the GPU if its free memory is ample, else in pinned memory.

    From pinned memory they are copied to the GPU while the previous update runs.
    """
    size = sum(v.nbytes for crop in items for v in crop if v is not None)
    fits = size <= GPU_SHARE * torch.cuda.mem_get_info(device)[0]

    def moved(v: Tensor) -> Tensor:
        return v.to(device) if fits else v.pin_memory()

    return [Item._make(None if v is None else moved(v) for v in crop) for crop in items]


Place = tuple[Hashable, ...]  # key of a slot: number in the batch, shapes, padding or not


class Slot(NamedTuple):
    """An item and its transforms in fixed tensors, which a recorded update reads."""

    item: Item
    warps: list[Warp]


def _by_shape(variant: Sequence[tuple[Place, int]]) -> list[list[tuple[Place, int]]]:
    """Group the places of a batch by image shape; the network takes each group in one pass."""
    groups: dict[Hashable, list[tuple[Place, int]]] = {}
    for place, n in variant:
        groups.setdefault(place[1], []).append((place, n))
    return list(groups.values())


def _sums(
    f: losses.Network, slots: Sequence[tuple[Slot, int]], rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the data and EI terms of Eq. 9, (2,), summed over images of one shape.

    Also returns the estimate of the last image.

    With the implied ε_0 and target y the data term is ᾱ_t mean (y - f(y))², here without ᾱ_t.
    """
    items = [slot.item for slot, _ in slots]
    estimates = _at_once(f, [item.y for item in items])
    data = [
        losses.mean_square(item.y - x, item.observed)
        for item, x in zip(items, estimates, strict=True)
    ]
    transformed = [
        losses.turned(g, x, slot.item.observed, slot.item.sigma_y, slot.item.inside, rng)
        for (slot, n), x in zip(slots, estimates, strict=True)
        for g in slot.warps[:n]
    ]
    answers = _at_once(f, [copy.again for copy in transformed])
    ei = [copy.miss(x) for copy, x in zip(transformed, answers, strict=True)]
    return torch.stack([torch.stack(data).sum(), torch.stack(ei).sum()]), estimates[-1]


def _at_once(f: losses.Network, images: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Evaluate f on images (1, C, S, S) in one pass, so that norm = "batch" sees a batch."""
    return f(torch.cat(list(images))).chunk(len(images))


def _load(
    places: dict[Place, Slot], i: int, item: Item, settings: Training, fit: Fit
) -> tuple[Place, int]:
    """Copy an item and new transforms to a slot; return its key and the number of transforms."""
    place: Place = (i, item.y.shape, item.observed.shape, item.inside is None)
    device, noisy = fit.rng.device, item.sigma_y is not None
    n = transforms.copies(settings.n_transforms, noisy)
    if place not in places:
        warps = [Warp(settings.transform, item.y.shape, device) for _ in range(n)]
        tensors = [None if v is None else v.to(device, copy=True) for v in item]
        places[place] = Slot(Item._make(tensors), warps)
    slot = places[place]
    for target, source in zip(slot.item, item, strict=True):
        if target is not None and source is not None:
            target.copy_(source, non_blocking=True)
    drawn = transforms.draw(settings.transform, item.y.shape, fit.dice, n, merge=not noisy)
    for warp, g in zip(slot.warps, drawn, strict=False):
        warp.load(g)
    return place, len(drawn)


def _batch(items: list[Item], settings: Training, epoch: int, i: int) -> list[Item]:
    """Return batch i of an epoch; its order depends on the seed, so a resumed run repeats it."""
    order = np.random.default_rng([settings.seed, epoch]).permutation(len(items))
    return [items[k] for k in order[i * settings.batch : (i + 1) * settings.batch]]
