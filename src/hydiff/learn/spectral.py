"""Transforms along the bands, which the paper leaves to later work, as families of T_g.

T_g must turn a scene into a scene.  Three families do so nearly, each with a quarter turn, since
along the bands alone no gap that all bands share is carried to a measured place:

shifted-bands  the bands moved by one or a few, as a shift of wavelengths does; the end is repeated
scaled-bands   each band dimmed along a smooth curve, as illumination does.  Never brightened: a
               value above 1 is out of the network's reach
hidden-bands   T_g is the turn alone; of the turned cube a random subset of the bands is measured
               again, and the network must give back all of them

Two mixed families came first.  Much of what they draw is no scene: bands moved all around, scaled
by up to a fifth either way, or a subset of the bands kept and the others 0, in the target too.  A
network that learns to answer 0 with 0 leaves gaps empty.

Parameters: (bands, quarter turns, kind, three numbers of that kind).
"""

from __future__ import annotations

from math import cos, exp, pi

import torch
from torch import Generator, Tensor

ALONE, TURNED = "spectral", "spectral-rotation"
SHIFTED, SCALED, HIDDEN = "shifted-bands", "scaled-bands", "hidden-bands"
SHIFT, SCALE, SUBSET, MOVE, DIM, HIDE = range(6)
KINDS = {  # of a draw
    ALONE: (SHIFT, SCALE, SUBSET),
    TURNED: (SHIFT, SCALE, SUBSET),
    SHIFTED: (MOVE,),
    SCALED: (DIM,),
    HIDDEN: (HIDE,),
}
NAMES = tuple(KINDS)
FARTHEST = {SHIFT: 16, MOVE: 64}  # a shift is at most the bands over this, or 1
STRONGEST = {SCALE: 0.2, DIM: 0.1}  # of a scaling, in the logarithm
LEAST = 0.5  # share of the bands that a subset keeps

Parameters = tuple[float, ...]


def reaching(observed: Tensor, name: str) -> Tensor:
    """Which entries a transform along the bands, without its turn, carries to a measured one:
    (H, W) as it is, (C, H, W) by the bands that are near enough."""
    if observed.ndim < 3 or name in (SCALED, HIDDEN):
        return observed
    if name != SHIFTED:
        return observed.any(-3, keepdim=True).expand_as(observed)
    bands = torch.arange(observed.shape[-3])
    far = _farthest(MOVE, len(bands))
    near = [(bands + by).clamp(0, len(bands) - 1) for by in range(-far, far + 1)]
    return torch.stack([observed.index_select(-3, i.to(observed.device)) for i in near]).any(0)


def draws(name: str, bands: int, rng: Generator, n: int) -> list[Parameters]:
    """Parameters of n transforms of a family, for images with so many bands."""
    return [_draw(name, bands, rng) for _ in range(n)]


def _draw(name: str, bands: int, rng: Generator) -> Parameters:
    turns = 0 if name == ALONE else _whole(rng, 1, 4)
    kinds = KINDS[name]
    kind = kinds[_whole(rng, 0, len(kinds))] if len(kinds) > 1 else kinds[0]
    if kind in FARTHEST:
        by = _whole(rng, 1, _farthest(kind, bands) + 1) * (1 if _whole(rng, 0, 2) else -1)
        return (bands, turns, kind, by, 0, 0)
    if kind in STRONGEST:
        strength = STRONGEST[kind] * (_share(rng) if kind == DIM else 2 * _share(rng) - 1)
        return (bands, turns, kind, strength, 0.5 + 1.5 * _share(rng), 2 * pi * _share(rng))
    return (bands, turns, kind, LEAST + (1 - LEAST) * _share(rng), _whole(rng, 0, 2**31), 0)


def _farthest(kind: int, bands: int) -> int:
    return max(bands // FARTHEST[kind], 1)


def along_bands(parameters: Parameters) -> tuple[Tensor, Tensor]:
    """(bands,) which band each comes from, and what it is multiplied with."""
    bands, kind = int(parameters[0]), int(parameters[2])
    one, two, three = parameters[3:]
    index, gain = torch.arange(bands), torch.ones(bands)
    if kind == SHIFT:
        return index.roll(int(one)), gain
    if kind == MOVE:
        return (index - int(one)).clamp(0, bands - 1), gain
    if kind in STRONGEST:
        places = (index / max(bands - 1, 1)).tolist()
        top = 1 if kind == DIM else 0  # of the curve, which then lies below 1
        return index, torch.tensor([exp(one * (cos(pi * two * u + three) - top)) for u in places])
    return index, gain * _subset(parameters) if kind == SUBSET else gain


def measured_bands(parameters: Parameters) -> Tensor:
    """(bands,) bool: which bands of a transformed image are measured again."""
    if parameters[2] == HIDE:
        return _subset(parameters)
    return torch.ones(int(parameters[0]), dtype=torch.bool)


def _subset(parameters: Parameters) -> Tensor:
    """(bands,) bool: a random subset, one band at least, the same for the same parameters."""
    bands, share, seed = int(parameters[0]), parameters[3], int(parameters[4])
    order = torch.randperm(bands, generator=torch.Generator().manual_seed(seed))
    kept = torch.zeros(bands, dtype=torch.bool)
    kept[order[: max(round(share * bands), 1)]] = True
    return kept


def inverse(parameters: Parameters) -> Parameters:
    """Exact for shifts, but for a repeated end, and scalings; a subset is a projection, and stands
    for itself."""
    bands, turns, kind, one, two, three = parameters
    return (bands, -turns, kind, one if kind in (SUBSET, HIDE) else -one, two, three)


def applied(x: Tensor, parameters: Parameters) -> Tensor:
    """x (..., bands, H, W) without its turn; an image that all bands share stays as it is."""
    if x.ndim < 3 or x.shape[-3] != parameters[0]:
        return x
    index, gain = (v.to(x.device) for v in along_bands(parameters))
    return x.index_select(x.ndim - 3, index) * gain.to(x.dtype).view(-1, 1, 1)


def _whole(rng: Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high, (), generator=rng, device=rng.device))


def _share(rng: Generator) -> float:
    return float(torch.rand((), generator=rng, device=rng.device, dtype=torch.float64))
