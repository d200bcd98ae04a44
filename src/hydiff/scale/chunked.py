"""Fill a Dask array by tiles, at the time it is computed.

When a result is computed for the first time, the chunks of the input are written to a scratch file,
and that file is filled by tiles with the same bytes as any other file.  Chunks of the result are
read from the finished tiles.  The scratch folder exists as long as the graph that reads from it.
"""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Cube
from hydiff.errors import BadValue
from hydiff.gaps.stored import float_for
from hydiff.io import envi_header
from hydiff.io.blocks import Block
from hydiff.io.envi_header import CODES
from hydiff.io.parsing import native
from hydiff.io.scratch import Scratch
from hydiff.methods import declared
from hydiff.request import Request
from hydiff.scale import assemble, ledger, scene
from hydiff.scale.bits import reserve
from hydiff.scale.layout import Limits
from hydiff.scale.plan import make_plan
from hydiff.workers import in_turn

NAME = "scene.bil"  # the values, in the scratch folder
UNWRITTEN = ("missing_rule", "withheld_rule", "crs", "transform")
_one_at_a_time = threading.Lock()


class ChunkedFill(NamedTuple):
    """Dask arrays (bands, rows, cols) with the chunks of the input."""

    values: Any
    filled: Any  # bool
    sigma: Any  # None for methods without error bars


class ChunkedJob:
    """The inputs of a fill that runs when a result is computed; opaque to Dask."""

    def __init__(
        self,
        array: Any,
        cube: Cube,
        observed: Bools | None,
        request: Request,
        limits: Limits,
    ) -> None:
        self.array, self.cube, self.observed = array, cube, observed
        self.request, self.limits = request, limits
        self.tiled: scene.Tiled | None = None  # the filled tiles, after the first computation
        self.lock = threading.Lock()  # of `tiled`

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the inputs only, not the filled tiles."""
        return ChunkedJob, (self.array, self.cube, self.observed, self.request, self.limits)


class RawFile:
    """A file of values in the order (rows, bands, cols), written block by block.

    It is mapped only while a block is written.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int], dtype: np.dtype[Any]) -> None:
        self.path, self.shape, self.dtype = path, shape, dtype

    def create(self) -> None:
        """Create the file, filled with zeros."""
        reserve(self.path, math.prod(self.shape) * self.dtype.itemsize)

    @property
    def mapped(self) -> Array:
        """The file mapped as an array (bands, rows, cols)."""
        bands, rows, cols = self.shape
        stored = np.memmap(self.path, self.dtype, "r+", shape=(rows, bands, cols))
        return stored.transpose(1, 0, 2)

    def __setitem__(self, block: Block, values: Array) -> None:
        self.mapped[block] = values


def fill(
    array: Any, cube: Cube, observed: Bools | None, request: Request, limits: Limits
) -> ChunkedFill:
    """Plan the fill of a Dask array (bands, rows, cols); it runs when a result is computed.

    cube: metadata of the array; its values are not used.
    observed: (rows, cols) or (bands, rows, cols), True = measured, besides the cube's own rule.
    """
    from dask.delayed import delayed

    _check_dtype(array.dtype)
    scratch = Scratch()
    metadata = replace(cube, mark=None, attrs=_detectors(cube))
    job = ChunkedJob(array, metadata, observed, request, limits)
    tiled = delayed(_tiled, pure=False)(job, scratch)
    read = partial(_chunks, array.chunks, tiled, scratch)
    requested = declared(request.method).error_bars and bool(request.settings.get("error_bars"))
    bars = request.chosen is None or requested
    sigma = read("sigma", float_for(array.dtype)) if bars else None
    return ChunkedFill(read("values", array.dtype), read("filled", np.dtype(bool)), sigma)


def _check_dtype(dtype: np.dtype[Any]) -> None:
    """Raise BadValue for a dtype that an ENVI file cannot store."""
    if native(dtype).name not in CODES:
        raise BadValue(
            f"a Dask array of {dtype}: expected one of {', '.join(CODES)} to fill by tiles; "
            "convert it with astype, or load it"
        )


def _detectors(cube: Cube) -> dict[str, Any]:
    """Return the attributes that name the detector of each band; {} without detectors."""
    return {"detector": list(cube.detectors)} if cube.detectors is not None else {}


def _chunks(chunks: Any, tiled: Any, scratch: Scratch, layer: str, dtype: np.dtype[Any]) -> Any:
    """Return a layer of the result as a Dask array with the given chunks."""
    import dask.array as da
    from dask.delayed import delayed

    def part(*block: slice) -> Any:
        """Return a block of the result as a Dask array."""
        values = delayed(_read, pure=False)(tiled, scratch, layer, block)
        return da.from_delayed(values, tuple(s.stop - s.start for s in block), dtype)

    edges = ([0, *accumulate(sizes)] for sizes in chunks)
    b, r, c = ([slice(*pair) for pair in pairwise(axis_edges)] for axis_edges in edges)
    return da.block([[[part(bands, rows, cols) for cols in c] for rows in r] for bands in b])


def _tiled(job: ChunkedJob, scratch: Scratch) -> scene.Tiled:
    """Return the filled tiles; within one process they are computed only once."""
    with job.lock:
        if job.tiled is None:
            job.tiled = _filled_tiles(job, scratch)
        return job.tiled


def _filled_tiles(job: ChunkedJob, scratch: Scratch) -> scene.Tiled:
    """Write the Dask array to the scratch file, and fill that file by tiles."""
    import dask.array as da

    cube, path, work = job.cube, scratch.folder / NAME, scratch.folder / "tiles"
    raw: Any = RawFile(path, cube.shape, cube.dtype)
    raw.create()
    da.store([job.array], [raw], lock=False, scheduler="threads")
    header = envi_header.compose(replace(cube, crs=None, transform=None), cube.dtype, "bil")
    envi_header.write_header(path.with_suffix(".hdr"), header)
    plan = make_plan(path, scratch.folder / "filled.bil", job.request, job.limits, by_tiles=True)
    # an ENVI header cannot store the rules of a product, nor every map projection
    unwritten = {name: getattr(cube, name) for name in UNWRITTEN}
    plan = replace(plan, cube=replace(plan.cube, **unwritten), mask=job.observed)
    ledger.prepare(work, resume=True)
    with _one_at_a_time:  # not before: the chunks of the array may come from another fill
        return scene.fill_tiles(plan, work, in_turn)


def _read(tiled: scene.Tiled, scratch: Scratch, layer: str, block: Block) -> Array:
    """Return a block of one layer of the result."""
    filled = tiled.filled
    if layer == "filled":
        return filled.get(*block)
    if layer == "values":
        return assemble.values(tiled.scene, tiled.entries)[block]
    sigma = np.nan if tiled.sigma is None else tiled.sigma[block]
    return np.asarray(np.broadcast_to(sigma, filled.get(*block).shape), sigma_type(tiled))


def sigma_type(tiled: scene.Tiled) -> np.dtype[Any]:
    """Return the dtype of the error bars."""
    return float_for(tiled.scene.cube.dtype)
