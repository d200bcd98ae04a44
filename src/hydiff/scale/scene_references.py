"""Other images of a scene's place, resampled to its grid once, so that tiles can read windows.

In the folder of the scene, reference-NUMBER.npy holds the bands (R, rows, cols) of an image, NaN
where it has no value; references.json holds facts and notes about all of them.
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

ALIGNED_ON = 256  # px: side of the part of a scene on which the shift of a reference is measured
COPIES = 5  # most copies of a reference in float64 while it is resampled to the grid


def store(scene: Scene) -> None:
    """Write the references of a scene into its folder, unless they are already there."""
    request = scene.request
    if not request.reference or _list_path(scene.work).exists():
        return
    images = list(sources(request.reference, request.reference_missing, cube_and_mask))
    _check_memory(scene, images)
    at = _aligning_window(scene)
    place = Place(scene.cube.window(*at), scene.observed.box(at), scene.cube, at, scene.gaps)
    references, notes = taken(
        images, place, request.reference_max_shift, request.reference_max_days
    )
    for number, reference in enumerate(references, start=1):
        planes = np.where(reference.planes.observed, reference.planes.values, np.nan).astype(
            np.float32
        )
        ledger.write_array(scene.work / f"reference-{number}.npy", planes)
    entries = [{"name": r.name, "words": r.words, "facts": dict(r.facts)} for r in references]
    content = {"references": entries, "notes": notes}
    ledger.write_whole(_list_path(scene.work), json.dumps(content).encode())


def described(work: Path) -> tuple[list[Reference], list[str]]:
    """Return the references of a scene without their values, and notes about them."""
    if not _list_path(work).exists():
        return [], []
    nothing = ReferencePlanes(np.zeros((0, 0, 0)), np.zeros((0, 0), bool))
    content: dict[str, Any] = json.loads(_list_path(work).read_text())
    entries = content["references"]
    return [Reference(e["name"], nothing, e["facts"], e["words"]) for e in entries], content[
        "notes"
    ]


def within(work: Path, window: Box) -> tuple[ReferencePlanes, ...]:
    """Return the windows of all references that have an observed pixel there."""
    parts = []
    for path in sorted(work.glob("reference-*.npy")):
        planes = np.array(np.load(path, mmap_mode="r")[:, *window], dtype=np.float64)
        observed = np.asarray(np.isfinite(planes).all(axis=0))
        parts.append(ReferencePlanes(np.nan_to_num(planes), observed))
    return tuple(part for part in parts if part.observed.any())


def _list_path(work: Path) -> Path:
    """Return the path of the file with facts and notes about the references."""
    return work / "references.json"


def _aligning_window(scene: Scene) -> Box:
    """Return the part with the largest observed share, of nine parts spread over the scene."""
    rows, cols = (_parts(n) for n in scene.cube.shape[1:])
    return max(product(rows, cols), key=lambda part: float(scene.observed.box(part).mean()))


def _parts(length: int) -> list[slice]:
    """Return slices in the middle and at both ends of an axis; all of it if it is short."""
    last = max(length - ALIGNED_ON, 0)
    starts = dict.fromkeys((last // 2, 0, last))
    return [slice(start, min(start + ALIGNED_ON, length)) for start in starts]


def _check_memory(scene: Scene, images: list[GivenImage]) -> None:
    """Raise BadValue if the references do not fit into memory while they are resampled."""
    rows, cols = scene.cube.shape[1:]
    needs = [
        image.cube.bands * (image.cube.shape[1] * image.cube.shape[2] + rows * cols)
        for image in images
    ]
    peak = base(scene.request) + 8.0 * (COPIES * max(needs) + sum(needs))
    if peak > scene.limits.memory:
        raise BadValue(
            f"references of this size take {peak / 1e6:.0f} MB while they are put onto the grid of "
            f"the scene, and there are {scene.limits.memory / 1e6:.0f}; name fewer of them, crop "
            "them, or give more `memory=`"
        )
