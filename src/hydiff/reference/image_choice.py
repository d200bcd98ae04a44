"""Choose the references among the given images: all of them, or the best few of many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from hydiff import io
from hydiff.cube import Bools, Cube
from hydiff.errors import BadValue, HydiffError
from hydiff.reference.planes import Reference, prepare

TIMES = ("time", "date", "t")  # dimensions of a stack of dates
STACKS = (".nc", ".nc4", ".zarr")  # files that may hold one; xarray opens them
MOST_REFERENCES = 4  # each combination of references that observe a pixel needs its own models


class GivenImage(NamedTuple):
    """A given image: a single one, or one of a folder or stack."""

    name: str
    cube: Cube  # on disk
    listed: bool  # in a folder or stack: if unusable, it is left out, not refused
    measured: Bools | None = None  # from a mask given with it


class Place(NamedTuple):
    """The cube and scene for which references are prepared."""

    cube: Cube  # in memory: the scene, or a part of it on which references are aligned
    observed: Bools  # (bands, rows, cols) of `cube`
    scene: Cube
    at: tuple[slice, slice]  # rows and columns of the part
    gaps: Bools  # (rows, cols) of the scene: pixels with something to fill


class Taken(NamedTuple):
    """The references to use."""

    references: tuple[Reference, ...]
    notes: list[str]  # about images that are not used


def files_of(given: Sequence[Any]) -> list[Path]:
    """Return the given files; a folder that is not a product counts as the images in it."""
    paths = [Path(item) for item in given if isinstance(item, str | Path)]
    return [path for item in paths for path in (io.images_in(item) if _is_folder(item) else [item])]


class Opened(Protocol):
    """Function that converts given data to a cube, and its mask to one with True = measured."""

    def __call__(self, data: Any, /, *, missing: Any = None) -> tuple[Cube, Bools | None]: ...


def sources(given: Sequence[Any], missing: Sequence[Any], opened: Opened) -> Iterator[GivenImage]:
    """Yield the given images.  missing: a mask for each item of `given`, in order, or empty."""
    if missing and len(missing) != len(given):
        raise BadValue(
            f"`reference_missing=` has {len(missing)} masks for {len(given)} references; expected "
            "one for each, in their order"
        )
    masks = missing or [None] * len(given)
    for number, (item, mask) in enumerate(zip(given, masks, strict=True), start=1):
        images = list(_several(item, opened))
        if images and mask is not None:
            raise BadValue(f"`reference_missing=`: reference {number} is several images, name one")
        if not images:
            cube, measured = opened(item, missing=mask)
            name = f"{number}" if cube.path is None else cube.path.name
            images = [GivenImage(name, cube, False, measured)]
        yield from images


def _several(item: Any, opened: Opened) -> Iterator[GivenImage]:
    """Yield the images of a folder, or along a time axis; nothing for a single image."""
    if isinstance(item, str | Path) and _is_folder(Path(item)):
        images = io.images_in(Path(item))
        if not images:
            raise BadValue(f"reference {item}: a folder without an image that can be read")
        yield from (GivenImage(path.name, io.read(path), True) for path in images)
        return
    path = Path(item) if isinstance(item, str | Path) else None
    stack = item if path is None else _stack_in(path)
    if (axis := _time_axis(stack)) is None:
        return
    for i in range(stack.sizes[axis]):
        cube, measured = opened(stack.isel({axis: i}))
        when = str(stack[axis].values[i])[:10] if axis in stack.coords else f"{axis} {i}"
        named = replace(cube, path=path, attrs={**cube.attrs, "date": when})
        yield GivenImage(when, named, True, measured)


def _time_axis(stack: Any) -> Any:
    """Return the time dimension of a 4-D DataArray; None for anything else."""
    dims = getattr(stack, "dims", ())
    times = [d for d in dims if str(d).lower() in TIMES]
    return times[0] if len(dims) == 4 and times else None


def _stack_in(path: Path) -> Any:
    """Return the only variable of a file with a time axis; None without one or xarray."""
    if path.suffix not in STACKS or not io.regular.is_there(path) or find_spec("xarray") is None:
        return None
    import xarray

    try:
        dataset = (
            xarray.open_zarr(path, consolidated=False)
            if path.is_dir()
            else xarray.open_dataset(path)
        )
    except (OSError, ValueError):  # another layout: its own reader opens or refuses it
        return None
    stacks = [name for name, variable in dataset.data_vars.items() if _time_axis(variable)]
    if len(stacks) > 1:
        raise BadValue(
            f"reference {path}: {', '.join(map(str, stacks))} have a time axis; keep one"
        )
    return dataset[stacks[0]] if stacks else None


def taken(
    given: Sequence[GivenImage], place: Place, max_shift: float, max_days: float | None = None
) -> Taken:
    """Return the references to use: all usable, or the best MOST_REFERENCES, best first."""
    usable, notes = list[Reference](), list[str]()
    for name, cube, listed, measured in given:
        try:
            reference = prepare(
                cube.load(),
                place.cube,
                place.observed,
                name,
                max_shift,
                max_days,
                scene=place.scene,
                at=place.at,
                mask=measured,
            )
        except HydiffError as error:
            if not listed:
                raise
            notes.append(f"left out: {error}")
            continue
        usable.append(reference)
    if given and not usable:
        raise BadValue(f"none of {len(given)} images can be a reference; the first {notes[0]}")
    if len(usable) <= MOST_REFERENCES:
        return Taken(tuple(usable), notes)
    covered = [reference.planes.observed[place.gaps] for reference in usable]
    best = best_few(covered, [reference.likeness for reference in usable], MOST_REFERENCES)
    names = ", ".join(usable[i].name for i in best)
    notes.append(f"of {len(usable)} references those that see most of the gaps, best: {names}")
    return Taken(tuple(usable[i] for i in best), notes)


def best_few(covered: Sequence[Bools], likeness: Sequence[float], most: int) -> list[int]:
    """Return the indices of at most `most` references, best first.

    They are chosen greedily, to maximise the sum over gap pixels of the likeness of the best chosen
    reference that observes the pixel.  References that add nothing to it follow by their own sum.
    covered: for each reference a mask (pixels,) of the gap pixels that it observes.
    """
    worth = np.array([s * max(r, 0.0) for s, r in zip(covered, likeness, strict=True)])
    chosen, reached = list[int](), np.zeros(worth.shape[1:])
    while len(chosen) < min(most, len(worth)):
        gain = (np.maximum(worth, reached) - reached).sum(axis=1)
        own_worth = 1e-6 * worth.sum(axis=1)  # decides if no reference adds anything
        best = max(set(range(len(worth))) - set(chosen), key=lambda i: (gain[i] + own_worth[i], -i))
        chosen.append(best)
        reached = np.maximum(reached, worth[best])
    return chosen


def _is_folder(path: Path) -> bool:
    """Whether a path is a folder but not a product that consists of a folder."""
    return io.regular.is_there(path) and path.is_dir() and not io.staging.is_product(path)
