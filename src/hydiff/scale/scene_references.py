"""Other images of the place of a scene, put onto its grid once, for its tiles to read windows of.

reference-NUMBER.npy in the folder of the scene holds the bands (R, rows, cols), NaN where there is
no value; references.json what is to be said about them.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.api import cube_and_mask
from hydiff.errors import BadValue
from hydiff.reference.image_choice import GivenImage, Place, sources, taken
from hydiff.reference.models import ReferencePlanes
from hydiff.reference.planes import Reference
from hydiff.scale import ledger
from hydiff.scale.layout import Scene, base
from hydiff.scale.tiles import Box

ALIGNED_ON = 256  # px: side of the part of a scene that shows how far a reference lies beside it
COPIES = 5  # of a reference in float64 while it is put onto the grid, at most


def store(scene: Scene) -> None:
    """Put the references of a scene into its folder, unless they are there."""
    request = scene.request
    if not request.reference or _list_path(scene.work).exists():
        return
    given = list(sources(request.reference, request.reference_missing, cube_and_mask))
    _check_memory(scene, given)
    at = _aligning_window(scene)
    place = Place(scene.cube.window(*at), scene.observed.box(at), scene.cube, at, scene.gaps)
    references, notes = taken(given, place, request.reference_max_shift, request.reference_max_days)
    for number, one in enumerate(references, start=1):
        planes = np.where(one.planes.observed, one.planes.values, np.nan).astype(np.float32)
        ledger.write_array(scene.work / f"reference-{number}.npy", planes)
    entries = [{"name": r.name, "words": r.words, "facts": dict(r.facts)} for r in references]
    content = {"references": entries, "notes": notes}
    ledger.write_whole(_list_path(scene.work), json.dumps(content).encode())


def described(work: Path) -> tuple[list[Reference], list[str]]:
    """What there is to say about the references of a scene, without their values; and notes."""
    if not _list_path(work).exists():
        return [], []
    nothing = ReferencePlanes(np.zeros((0, 0, 0)), np.zeros((0, 0), bool))
    content: dict[str, Any] = json.loads(_list_path(work).read_text())
    entries = content["references"]
    return [Reference(e["name"], nothing, e["facts"], e["words"]) for e in entries], content[
        "notes"
    ]


def within(work: Path, window: Box) -> tuple[ReferencePlanes, ...]:
    """The references that see something of a window."""
    parts = []
    for path in sorted(work.glob("reference-*.npy")):
        planes = np.array(np.load(path, mmap_mode="r")[:, *window], dtype=np.float64)
        there = np.asarray(np.isfinite(planes).all(axis=0))
        parts.append(ReferencePlanes(np.nan_to_num(planes), there))
    return tuple(one for one in parts if one.observed.any())


def _list_path(work: Path) -> Path:
    return work / "references.json"


def _aligning_window(scene: Scene) -> Box:
    """Of nine parts of a scene, spread over it, the one with the most observed."""
    rows, cols = (_parts(n) for n in scene.cube.shape[1:])
    return max(product(rows, cols), key=lambda part: float(scene.observed.box(part).mean()))


def _parts(length: int) -> list[slice]:
    """One in the middle, and those at both ends; all of what is shorter than one."""
    last = max(length - ALIGNED_ON, 0)
    starts = dict.fromkeys((last // 2, 0, last))
    return [slice(start, min(start + ALIGNED_ON, length)) for start in starts]


def _check_memory(scene: Scene, given: list[GivenImage]) -> None:
    rows, cols = scene.cube.shape[1:]
    needs = [
        one.cube.bands * (one.cube.shape[1] * one.cube.shape[2] + rows * cols) for one in given
    ]
    most = base(scene.request) + 8.0 * (COPIES * max(needs) + sum(needs))
    if most > scene.limits.memory:
        raise BadValue(
            f"references of this size take {most / 1e6:.0f} MB while they are put onto the grid of "
            f"the scene, and there are {scene.limits.memory / 1e6:.0f}; name fewer of them, crop "
            "them, or give more `memory=`"
        )
