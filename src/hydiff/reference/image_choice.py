"""Which of the images that were given are taken as references: all, or the best few of many."""

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
MOST_REFERENCES = 4  # each combination of them that sees a pixel has models of its own


class GivenImage(NamedTuple):
    """An image that was given, by itself or in a folder."""

    name: str
    cube: Cube  # on disk
    listed: bool  # in a folder: one that cannot serve is left out, and not refused
    measured: Bools | None = None  # by a mask that came with it


class Place(NamedTuple):
    """What references are prepared for."""

    cube: Cube  # in memory; the scene, or the part of it by which references are aligned
    observed: Bools  # (bands, rows, cols) of it
    scene: Cube
    at: tuple[slice, slice]  # rows and columns of the part
    gaps: Bools  # (rows, cols) of the scene: pixels with something to fill


class Taken(NamedTuple):
    references: tuple[Reference, ...]
    notes: list[str]  # about those that are not


def files_of(given: Sequence[Any]) -> list[Path]:
    """The files among what was given; of a folder that is no product, the images in it."""
    paths = [Path(one) for one in given if isinstance(one, str | Path)]
    return [path for one in paths for path in (io.images_in(one) if _is_folder(one) else [one])]


class Opened(Protocol):
    """Makes a cube of what was given, and a mask, True = measured, of its mask."""

    def __call__(self, data: Any, /, *, missing: Any = None) -> tuple[Cube, Bools | None]: ...


def sources(given: Sequence[Any], missing: Sequence[Any], opened: Opened) -> Iterator[GivenImage]:
    """missing: masks of what was given, in its order, or none."""
    if missing and len(missing) != len(given):
        raise BadValue(
            f"`reference_missing=` has {len(missing)} masks for {len(given)} references; expected "
            "one for each, in their order"
        )
    masks = missing or [None] * len(given)
    for number, (one, mask) in enumerate(zip(given, masks, strict=True), start=1):
        images = list(_several(one, opened))
        if images and mask is not None:
            raise BadValue(f"`reference_missing=`: reference {number} is several images, name one")
        if not images:
            cube, measured = opened(one, missing=mask)
            name = f"{number}" if cube.path is None else cube.path.name
            images = [GivenImage(name, cube, False, measured)]
        yield from images


def _several(one: Any, opened: Opened) -> Iterator[GivenImage]:
    """The images of a folder, or along a time axis; nothing for a single image."""
    if isinstance(one, str | Path) and _is_folder(Path(one)):
        images = io.images_in(Path(one))
        if not images:
            raise BadValue(f"reference {one}: a folder without an image that can be read")
        yield from (GivenImage(path.name, io.read(path), True) for path in images)
        return
    path = Path(one) if isinstance(one, str | Path) else None
    stack = one if path is None else _stack_in(path)
    if (axis := _time_axis(stack)) is None:
        return
    for i in range(stack.sizes[axis]):
        cube, measured = opened(stack.isel({axis: i}))
        when = str(stack[axis].values[i])[:10] if axis in stack.coords else f"{axis} {i}"
        named = replace(cube, path=path, attrs={**cube.attrs, "date": when})
        yield GivenImage(when, named, True, measured)


def _time_axis(one: Any) -> Any:
    """The dimension of a DataArray of dates; None of anything else."""
    dims = getattr(one, "dims", ())
    times = [d for d in dims if str(d).lower() in TIMES]
    return times[0] if len(dims) == 4 and times else None


def _stack_in(path: Path) -> Any:
    """The one variable of a file that has a time axis; None where there is none, or no xarray."""
    if path.suffix not in STACKS or not io.regular.is_there(path) or find_spec("xarray") is None:
        return None
    import xarray

    try:
        found = (
            xarray.open_zarr(path, consolidated=False)
            if path.is_dir()
            else xarray.open_dataset(path)
        )
    except (OSError, ValueError):  # another layout, which its own reader knows or refuses
        return None
    stacks = [name for name, variable in found.data_vars.items() if _time_axis(variable)]
    if len(stacks) > 1:
        raise BadValue(
            f"reference {path}: {', '.join(map(str, stacks))} have a time axis; keep one"
        )
    return found[stacks[0]] if stacks else None


def taken(
    given: Sequence[GivenImage], place: Place, max_shift: float, max_days: float | None = None
) -> Taken:
    """The references that are used, the best first where there are more than MOST_REFERENCES."""
    every, notes = list[Reference](), list[str]()
    for name, cube, listed, measured in given:
        try:
            one = prepare(
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
        every.append(one)
    if given and not every:
        raise BadValue(f"none of {len(given)} images can be a reference; the first {notes[0]}")
    if len(every) <= MOST_REFERENCES:
        return Taken(tuple(every), notes)
    covered = [one.planes.observed[place.gaps] for one in every]
    best = best_few(covered, [one.likeness for one in every], MOST_REFERENCES)
    names = ", ".join(every[i].name for i in best)
    notes.append(f"of {len(every)} references those that see most of the gaps, best: {names}")
    return Taken(tuple(every[i] for i in best), notes)


def best_few(covered: Sequence[Bools], likeness: Sequence[float], most: int) -> list[int]:
    """Which references to take, at most so many, the best first: those that add most to what the
    gaps are worth, a pixel being worth the likeness of the best reference that sees it.

    covered: (pixels,) of each, in the gaps.  Those that add nothing follow by their own worth.
    """
    worth = np.array([s * max(r, 0.0) for s, r in zip(covered, likeness, strict=True)])
    chosen, reached = list[int](), np.zeros(worth.shape[1:])
    while len(chosen) < min(most, len(worth)):
        gain = (np.maximum(worth, reached) - reached).sum(axis=1)
        own = 1e-6 * worth.sum(axis=1)  # where nothing is to be gained
        best = max(set(range(len(worth))) - set(chosen), key=lambda i: (gain[i] + own[i], -i))
        chosen.append(best)
        reached = np.maximum(reached, worth[best])
    return chosen


def _is_folder(path: Path) -> bool:
    """A folder that stands for no product."""
    return io.regular.is_there(path) and path.is_dir() and not io.staging.is_product(path)
