"""Scenes larger than memory: one decision, many tiles, each kept on disk when it is done.

1. Walk through the file once for its mask; plan tiles over the gaps that are to be filled.
2. Decide once, on a sample of windows: scale, noise, spectral basis, method and blend.
3. Fill tile by tile.  A finished tile is a file with a marker that says what it belongs to, so
   that `resume` goes on after any interruption and ends with the same bytes.
4. Write the output in windows: a copy of the input with the blended tiles in its gaps.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b, file_digest
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import api, auto, io, mask, problem, provenance, tiles
from hydiff.checkpoint import fingerprint
from hydiff.cube import Array, Bools, Cube, Floats, Lazy, Scale, detector_scale, equals
from hydiff.errors import BadValue, HydiffError, NothingObserved, OutputError
from hydiff.io.blocks import blocks
from hydiff.methods import METHODS, Chosen, choose, settings_dict
from hydiff.problem import Sigma
from hydiff.result import Step
from hydiff.run import Common, Job, Progress, estimate
from hydiff.subspace import Subspace
from hydiff.tiles import Box, Grid, Tile

SIZES = (256, 192, 144, 96, 64, 48, 32)  # px, sides of cores that are tried, the largest first
SAMPLES = 4  # windows that the decision is made on
SAMPLE_PIXELS = 10_000  # of them that scale and basis are taken from
WHOLE_FORMATS = ("mat", "npz")  # that are written as a whole, from memory
# Peak memory, as single fills took it, rounded up: of the process as such, per pixel of the
# scene while gaps are measured, and per entry and pixel of a window while it is filled.
BASE, TORCH_BASE, PLANES = 200e6, 320e6, 100.0
PER_ENTRY = {auto.NAME: 290.0}
PER_ENTRY_ELSE, PER_PIXEL, PER_PIXEL_TORCH = 130.0, 2500.0, 25_000.0


@dataclass(frozen=True)
class Order:
    """What to fill and how; all that a fill depends on beside the scene itself."""

    method: str = auto.NAME
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    budget: str = "normal"
    recipe: Mapping[str, Any] | None = None  # what an earlier `auto` decided
    max_error: float | None = None
    sigma_y: Sigma = 0.0
    nodata: float | None = None
    bad_bands: str = "fill"
    max_gap: float | None = None
    outside: str = "keep"
    fill_clouds: bool = False
    seed: int = 0
    device: str = "auto"
    deterministic: bool = False

    @property
    def chosen(self) -> Chosen | None:
        """The one method, or None for `auto`."""
        if self.method == auto.NAME:
            return None
        return choose(self.method, self.preset, self.settings)


@dataclass(frozen=True)
class Limits:
    memory: float  # bytes, of the whole process
    tile: int | None = None  # px, side of the cores; None = the largest that memory allows
    overlap: int | None = None  # px over which neighbours are blended


class Decided(NamedTuple):
    """What is the same for all tiles of a scene."""

    recipe: dict[str, Any] | None
    sigma_y: list[float]  # (bands,) in the cube's unit
    common: Common
    notes: list[str]


class Filled(NamedTuple):
    made: list[Path]  # the cube first
    record: dict[str, Any]  # as in OUT.fill.json


def limits(memory: str | None, tile: int | None, overlap: int | None) -> Limits:
    """From the words of the command line; without --memory, half of what the machine has."""
    if memory is None:
        return Limits(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2, tile, overlap)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", memory.strip(), re.IGNORECASE)
    if found is None or not float(found[1]) > 0:
        raise BadValue(f"--memory {memory}: expected a size such as 2GB or 500MB")
    step = 1024.0 if found[3] else 1000.0
    return Limits(float(found[1]) * step ** " KMGT".index(found[2].upper() or " "), tile, overlap)


def wanted(cube: Cube, method: str, bounds: Limits) -> bool:
    """Whether to fill by tiles: it was asked for, or the cube does not fit as one."""
    whole = _base(method) + _cost(method, cube.bands, cube.shape[1] * cube.shape[2])
    return bounds.tile is not None or whole > bounds.memory


def fill(
    path: Path,
    output: Path,
    order: Order,
    bounds: Limits,
    *,
    observed: Bools | None = None,
    var: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    progress: Progress = None,
) -> Filled:
    """Fill a file of any size within bounded memory, and write it with its companions.

    observed: a further mask, (rows, cols) or (bands, rows, cols), True = measured.
    """
    began = time.perf_counter()
    cube = io.read(path, var=var)
    if io.format_for(cube, output) in WHOLE_FORMATS:
        raise BadValue(
            f"{output.suffix} files are written from memory as a whole, and this scene is filled "
            "by tiles: name the output .zarr, .tif or .img"
        )

    work = provenance.tiles_path(output)
    with io.staging.explained(output, work):
        _prepare(work, resume)
    with _tidied(work), io.staging.explained(output, work):
        scene, left = _laid_out(path, var, order, bounds, observed, work)
        cuts, planned, seen, target = scene.cuts, scene.planned, scene.seen, scene.target
        source = {"path": str(cube.path), "sha256": provenance.sha256(cube.path or path)}
        belongs = _belongings(source["sha256"], (seen, target), order, cuts, cube)
        _claim(work, belongs)
        decided = _decision(scene, order, bounds, belongs)
        tags = [fingerprint(belongs, decided.recipe, t.number) for t in planned]
        for done, (tile, tag) in enumerate(zip(planned, tags, strict=True), start=1):
            if not _is_done(scene, tile, tag):
                _keep(scene, tile, tag, *_fill_tile(scene, tile, order, decided))
            if progress is not None:
                progress(Step(done, len(planned), None))
        markers = [json.loads(_marker(work, tile).read_text()) for tile in planned]
        filled, changed = _filled(scene, order.nodata)
        count = filled.total()
        if (unreached := target.total() - count) > 0:
            left[_out_of_reach(order)] = unreached
        chosen = order.chosen
        told = {
            "method": order.method,
            "settings": {"budget": order.budget}
            if chosen is None
            else settings_dict(chosen.settings),
            "seed": order.seed,
            "sigma_y": provenance.one_or_all(np.asarray(decided.sigma_y)),
            "entries": provenance.counts(cube.shape, count, left),
            "expected": _expected(markers) if decided.recipe is not None else None,
            "recipe": decided.recipe,
            "notes": _notes(decided, markers, changed, scene),
            "tiles": _tiling(scene),
        }
        bars = bool(markers) and all(m["bars"] for m in markers)
        written = replace(cube, values=_values(scene, filled, order.nodata))
        told["seconds"] = round(time.perf_counter() - began, 3)
        record = provenance.dated(command, source, told)
        made = _write(scene, written, filled, bars, record, output, overwrite)
        shutil.rmtree(work)
    return Filled(made, record)


def preview(
    path: Path,
    order: Order,
    bounds: Limits,
    *,
    observed: Bools | None = None,
    var: str | None = None,
) -> dict[str, Any]:
    """What `fill` would do; the scene is read once, nothing is written."""
    with tempfile.TemporaryDirectory() as folder:
        scene, left = _laid_out(path, var, order, bounds, observed, Path(folder))
        return {
            "method": order.method,
            "entries_to_fill": scene.target.total(),
            "left": left,
            "tiles": _tiling(scene),
        }


def _laid_out(
    path: Path,
    var: str | None,
    order: Order,
    bounds: Limits,
    observed: Bools | None,
    work: Path,
) -> tuple[Scene, dict[str, int]]:
    """The scene with its masks and tiles, and what is left missing for which reason."""

    def opened() -> Cube:  # anew for each window: no file stays open, or mapped
        cube = io.read(path, var=var)
        return io.envi.plain_windows(cube) if cube.format == "envi" else cube

    cube = opened()
    api.check_request(
        order.method, order.preset, order.settings, order.budget, order.recipe, order.max_error
    )
    problem.check_numbers(cube)
    problem.check_choices(order.bad_bands, order.max_gap, order.outside)
    seen, withheld = _scan(opened, cube, observed, order.nodata, work)
    target, width, left = _aims(cube, seen, withheld, order, work)
    cuts, planned = _planned(cube, order.method, width, bounds)
    return Scene(opened, cube, seen, target, width > 0, cuts, planned, work), left


def _tiling(scene: Scene) -> dict[str, Any]:
    rows, cols = (np.diff(edges) for edges in scene.cuts[:2])
    return {
        "size": [int(rows.max()), int(cols.max())],
        "overlap": scene.cuts.overlap,
        "filled": len(scene.planned),
        "of": len(rows) * len(cols),
    }


# ── memory ───────────────────────────────────────────────────────────────────────────────────────


def _learned(method: str) -> bool:
    return method in METHODS and METHODS[method].backend == "torch"


def _base(method: str) -> float:
    return BASE + (TORCH_BASE if _learned(method) else 0.0)


def _cost(method: str, bands: int, pixels: int) -> float:
    """Bytes that the fill of a window takes at its peak."""
    each = PER_PIXEL_TORCH if _learned(method) else PER_PIXEL
    return pixels * (bands * PER_ENTRY.get(method, PER_ENTRY_ELSE) + each)


def _planned(cube: Cube, method: str, width: Floats, bounds: Limits) -> tuple[Grid, list[Tile]]:
    """The largest tiles that fit into memory; BadValue names the least memory that would do."""
    scene = (cube.shape[1], cube.shape[2])
    base = _base(method) + 16.0 * width.size
    needs = []
    for size in SIZES if bounds.tile is None else (bounds.tile,):
        overlap = min(tiles.OVERLAP, size // 2) if bounds.overlap is None else bounds.overlap
        cuts = tiles.grid(scene, size, overlap)
        planned = tiles.plan(cuts, width)
        largest = max((_area(t.window) for t in planned), default=0)
        needs.append(
            max(base + _cost(method, cube.bands, largest), _base(method) + PLANES * width.size)
        )
        if needs[-1] <= bounds.memory:
            return cuts, planned
    least = f"--memory {np.ceil(min(needs) / 1e6):.0f}MB"
    if bounds.tile is None:
        raise BadValue(
            f"{bounds.memory / 1e6:.0f} MB are too few for a single tile of this scene: its widest "
            f"gap is {width.max():.0f} pixels wide; give {least}"
        )
    raise BadValue(
        f"tiles of {bounds.tile} pixels do not fit into {bounds.memory / 1e6:.0f} MB; "
        f"give {least}, or a smaller --tile"
    )


def _area(box: Box) -> int:
    rows, cols = (int(s.stop - s.start) for s in box)
    return rows * cols


# ── masks on disk ────────────────────────────────────────────────────────────────────────────────


class Bits(NamedTuple):
    """Booleans (bands, rows, cols) in a file, eight columns to a byte."""

    path: Path
    shape: tuple[int, int, int]

    def _mapped(self, mode: Any) -> Array:
        bands, rows, cols = self.shape
        return np.memmap(self.path, np.uint8, mode, shape=(bands, rows, -(-cols // 8)))

    def empty(self) -> Bits:
        self._mapped("w+")
        return self

    def put(self, bands: slice, rows: slice, flags: Bools) -> None:
        self._mapped("r+")[bands, rows] = np.packbits(flags, axis=-1)

    def get(self, bands: slice, rows: slice, cols: slice) -> Bools:
        first = cols.start // 8
        packed = self._mapped("r")[bands, rows, first : -(-cols.stop // 8)]
        flags = np.unpackbits(packed, axis=-1)[..., cols.start - 8 * first : cols.stop - 8 * first]
        return flags.astype(bool)

    def plane(self, band: int) -> Bools:
        plane: Bools = self.get(slice(band, band + 1), *_everything(self.shape))[0]
        return plane

    def box(self, box: Box) -> Bools:
        return self.get(slice(0, self.shape[0]), *box)

    def total(self) -> int:
        planes = (self.plane(band) for band in range(self.shape[0]))
        return sum(int(np.count_nonzero(plane)) for plane in planes)


def _everything(shape: tuple[int, int, int]) -> Box:
    return slice(0, shape[1]), slice(0, shape[2])


def _scan(
    opened: Callable[[], Cube],
    cube: Cube,
    observed: Bools | None,
    nodata: float | None,
    work: Path,
) -> tuple[Bits, Bits | None]:
    """What is observed, and what is withheld without being lost, from one walk down the rows."""
    given = None if observed is None else problem.checked_mask(np.asarray(observed), cube.shape)
    seen = Bits(work / "seen.bits", cube.shape).empty()
    withheld = None
    if cube.withheld_rule is not None:
        withheld = Bits(work / "withheld.bits", cube.shape).empty()
    chunks = getattr(cube.values, "chunks", None)
    found = declared = False
    for bands, rows, cols in blocks(cube.shape, cube.dtype.itemsize, 1, chunks[1] if chunks else 1):
        values = np.asarray(opened().values[bands, rows, cols])
        flags = cube.observed_in(values, nodata, rows, cols)
        if nodata is not None:
            declared |= bool(equals(values, nodata).any())
        if given is not None:
            flags &= given[..., rows, cols]
        seen.put(bands, rows, flags)
        found |= bool(flags.any())
        if withheld is not None:
            withheld.put(bands, rows, cube.withheld_in(values) & ~flags)
    if nodata is not None and not declared:
        raise problem.no_such_nodata(nodata)
    if not found:
        raise NothingObserved(problem.NOTHING)
    return seen, withheld


def _aims(
    cube: Cube, seen: Bits, withheld: Bits | None, order: Order, work: Path
) -> tuple[Bits, Floats, dict[str, int]]:
    """What to fill, how wide the gaps are there (rows, cols), and what is left, as in `targets`.

    A band at a time; bands with one mask share the geometry of its gaps.
    """
    bands, good = cube.bands, cube.good_bands
    some = np.array([seen.plane(band).any() for band in range(bands)])
    lost = problem.lost_detectors(some[:, None, None], good, cube.detectors)
    target = Bits(work / "target.bits", cube.shape).empty()
    width = np.zeros(cube.shape[1:])
    left: Counter[str] = Counter()
    geometry: dict[bytes, tuple[list[tuple[str, Bools]], Floats]] = {}
    for band in range(bands):
        missing = ~seen.plane(band)
        wanted = missing.copy()
        if withheld is not None and not order.fill_clouds:
            screened = withheld.plane(band)
            left[problem.WITHHELD] += int(screened.sum())
            wanted &= ~screened
        if not some[band]:
            reason = next((r for r, own in lost.items() if own[band]), problem.EMPTY_BAND)
            left[reason] += int(wanted.sum())
            continue
        if order.bad_bands == "keep" and not good[band]:
            left[problem.BAD_BAND] += int(wanted.sum())
            continue
        if not wanted.any():
            continue
        digest = blake2b(np.packbits(missing).data).digest()
        if digest not in geometry:
            kept = list(problem.kept_pixels(missing, order.max_gap, order.outside))
            geometry = {digest: (kept, mask.thickness(missing))}  # one plane of each at a time
        for reason, pixels in geometry[digest][0]:
            left[reason] += int((wanted & pixels).sum())
            wanted &= ~pixels
        np.maximum(width, geometry[digest][1], out=width, where=wanted)
        target.put(slice(band, band + 1), slice(0, cube.shape[1]), wanted[None])
    return target, width, {reason: n for reason, n in left.items() if n}


# ── deciding once ────────────────────────────────────────────────────────────────────────────────


class Scene(NamedTuple):
    """A scene that is being filled; all but `gaps` is on disk."""

    opened: Callable[[], Cube]
    cube: Cube
    seen: Bits
    target: Bits
    gaps: Bools  # (rows, cols) pixels with something to fill
    cuts: Grid
    planned: list[Tile]
    work: Path


def _decision(scene: Scene, order: Order, bounds: Limits, belongs: Mapping[str, Any]) -> Decided:
    """The decision of this run, from the disk if it was made before."""
    path = scene.work / "decided.json"
    if path.exists():
        return _from_json(json.loads(path.read_text()))
    decided = _decide(scene, order, bounds)
    _write_whole(path, json.dumps(_as_json(decided)).encode())
    return _from_json(json.loads(path.read_text()))  # the numbers that a resumed run would have


def _decide(scene: Scene, order: Order, bounds: Limits) -> Decided:
    cube, chosen = scene.cube, order.chosen
    good = cube.good_bands
    sigma_y = problem.sigma_per_band(order.sigma_y, cube)
    sample = _sample(scene.planned)
    scale = detector_scale(*_pooled(scene, sample), good, cube.detectors)
    fitted = good & np.array([scene.seen.plane(b).any() for b in range(cube.bands)])
    sigmas, notes, spectra = [], [], []
    components = getattr(chosen.settings if chosen else choose("smooth").settings, "components", 0)
    by_smooth = chosen is None or chosen.name == "smooth"
    pixels = sum(_area(t.window) for t in sample)
    for tile in sample:
        part, known, _ = _window(scene, tile)
        y = np.where(known, scale.to_unit(np.asarray(part.values, dtype=np.float64)), 0.0)
        sigma, told = problem.unit_sigma(sigma_y, y, known, good, scale)
        if chosen is not None and chosen.name in METHODS and not METHODS[chosen.name].noise:
            sigma = np.zeros_like(sigma)
        sigmas.append(sigma)
        notes += [note for note in told if note not in notes]
        if by_smooth:
            from hydiff.methods import smooth

            complete = smooth.spectra(y[fitted], known[fitted], sigma[fitted])
            spectra.append(complete[:, :: -(-pixels // SAMPLE_PIXELS)])
    sigma = np.median(sigmas, axis=0) if sigmas else np.zeros(cube.bands)
    space = None
    if by_smooth and sum(part.shape[1] for part in spectra) > components:
        from hydiff import subspace

        pooled = np.concatenate(spectra, axis=1)
        space = subspace.fit(pooled, np.ones(pooled.shape, bool), components)
    recipe = None if order.recipe is None else dict(order.recipe)
    if chosen is None and recipe is None and sample:
        windows = [auto.Window(*_window(scene, tile)) for tile in sample]
        largest = max(_area(t.window) for t in sample)
        room = bounds.memory - _base(order.method) - _cost(order.method, cube.bands, largest)
        job = Job(order.seed, order.device, order.deterministic, None, False)
        recipe, _ = auto.decide_on(
            windows, sigma_y, auto.BUDGETS[order.budget], job, memory=max(room, 0.0)
        )
    common = Common(scale, fitted, space)
    return Decided(recipe, (sigma * scale.spans).tolist(), common, notes)


def _sample(planned: Sequence[Tile]) -> list[Tile]:
    """Windows spread evenly over the tiles."""
    at = np.linspace(0, len(planned) - 1, min(SAMPLES, len(planned)))
    return [planned[round(i)] for i in at]


def _window(scene: Scene, tile: Tile) -> tuple[Cube, Bools, Bools]:
    """The part of a tile's window: values, what is observed, and what to fill in its support."""
    part = scene.opened().window(*tile.window)
    target = scene.target.box(tile.window)
    counts = np.zeros(target.shape[1:], bool)
    counts[_inside(tile.support, tile.window)] = True
    return part, scene.seen.box(tile.window), target & counts


def _inside(box: Box, window: Box) -> Box:
    """A box in the coordinates of a window around it."""
    rows, cols = (
        slice(b.start - w.start, b.stop - w.start) for b, w in zip(box, window, strict=True)
    )
    return rows, cols


def _pooled(scene: Scene, sample: Sequence[Tile]) -> tuple[Floats, Bools]:
    """Some pixels of the sample (bands, n, 1), and which entries of them were seen."""
    step = -(-sum(_area(t.window) for t in sample) // SAMPLE_PIXELS)
    parts = []
    for tile in sample or [_whole(scene)]:
        part, seen, _ = _window(scene, tile)
        values = np.asarray(part.values).reshape(scene.cube.bands, -1)[:, :: max(step, 1)]
        parts.append((values.astype(np.float64), seen.reshape(len(seen), -1)[:, :: max(step, 1)]))
    values, seen = (np.concatenate(p, axis=1)[:, :, None] for p in zip(*parts, strict=True))
    return values, seen


def _whole(scene: Scene) -> Tile:
    rows, cols = (slice(0, min(n, SIZES[0])) for n in scene.cube.shape[1:])
    return Tile(0, (rows, cols), (rows, cols))


def _as_json(decided: Decided) -> dict[str, Any]:
    scale, bands, space = decided.common
    return {
        "recipe": decided.recipe,
        "sigma_y": decided.sigma_y,
        "scale": [np.asarray(end).tolist() for end in scale],
        "bands": bands.tolist(),
        "space": None if space is None else [np.asarray(part).tolist() for part in space],
        "notes": decided.notes,
    }


def _from_json(told: Mapping[str, Any]) -> Decided:
    low, high = (e if isinstance(e, float) else np.asarray(e) for e in told["scale"])
    space = None
    if told["space"] is not None:
        mean, basis, variance, noise = told["space"]
        space = Subspace(np.asarray(mean), np.asarray(basis), np.asarray(variance), float(noise))
    common = Common(Scale(low, high), np.asarray(told["bands"], bool), space)
    return Decided(told["recipe"], told["sigma_y"], common, told["notes"])


# ── one tile ─────────────────────────────────────────────────────────────────────────────────────


def _fill_tile(
    scene: Scene, tile: Tile, order: Order, decided: Decided
) -> tuple[Array, dict[str, Any]]:
    """(1 or 2, bands, n): the estimate of the gaps' pixels in the support, then its error bars;
    NaN where nothing is to fill or nothing can be told.  And what the marker says beside it."""
    cube, seen, target = _window(scene, tile)
    seed = tiles.seed_of(order.seed, tile.number)
    job = Job(seed, order.device, order.deterministic, None, False, decided.common)
    chosen, expected = order.chosen, None
    if chosen is None:
        found, decision = auto.fill(cube, seen, target, decided.sigma_y, job, recipe=decided.recipe)
        expected = decision.expected
        if order.max_error is not None:
            target &= decision.relative <= order.max_error
    else:
        found = estimate(cube, seen, chosen, decided.sigma_y, job)
    box = _inside(tile.support, tile.window)
    gaps = scene.gaps[tile.support]
    layers = [found.values] if found.sigma is None else [found.values, found.sigma]
    kept = np.stack(
        [np.where(target, layer, np.nan)[:, box[0], box[1]][:, gaps] for layer in layers]
    )
    entries = int(np.isfinite(kept[0]).sum())
    told = {"entries": entries, "bars": len(layers) == 2, "notes": found.notes}
    return kept, told | {"expected": expected}


def _marker(work: Path, tile: Tile) -> Path:
    return work / f"tile-{tile.number:06d}.json"


def _kept(work: Path, tile: Tile) -> Path:
    return work / f"tile-{tile.number:06d}.npy"


def _keep(scene: Scene, tile: Tile, tag: str, kept: Array, told: Mapping[str, Any]) -> None:
    """The tile's values, then its marker: a marker vouches for whole values."""
    path = _kept(scene.work, tile)
    draft = path.with_suffix(".part")
    with draft.open("wb") as file:
        io.npz.write_array(file, kept)
        _to_disk(file)
    draft.replace(path)
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    note = {"belongs to": tag, "sha256": digest, **told}
    _write_whole(_marker(scene.work, tile), json.dumps(note).encode())


def _is_done(scene: Scene, tile: Tile, tag: str) -> bool:
    try:
        told = json.loads(_marker(scene.work, tile).read_text())
        with _kept(scene.work, tile).open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return False
    return bool(told["belongs to"] == tag and told["sha256"] == digest)


def _write_whole(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".part")
    with draft.open("wb") as file:
        file.write(content)
        _to_disk(file)
    draft.replace(path)


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


# ── going on after an interruption ───────────────────────────────────────────────────────────────


@contextmanager
def _tidied(work: Path) -> Iterator[None]:
    """Remove the folder after an error, unless there are finished tiles to go on with."""
    try:
        yield
    except HydiffError:
        if next(work.glob("tile-*.json"), None) is None:
            shutil.rmtree(work, ignore_errors=True)
        raise


# every name in the folder of the tiles
OURS = re.compile(r"(tile-\d+|scene|decided)\.(json|npy|part)|(seen|withheld|target|filled)\.bits")


def _prepare(work: Path, resume: bool) -> None:
    """An empty folder for the tiles, or the one of the interrupted run."""
    known = work.exists() and (work / "scene.json").exists()
    if work.exists() and not known:  # a kill may have left files of ours, as it came or went
        if not all(OURS.fullmatch(path.name) for path in work.iterdir()):
            raise OutputError(
                f"{work} is in the way and holds no unfinished fill; move it elsewhere"
            )
        shutil.rmtree(work)
    if known and not resume:
        shutil.rmtree(work)
    work.mkdir(exist_ok=True)
    if not (work / "scene.json").exists():
        _write_whole(work / "scene.json", b"{}")


def _belongings(
    input_hash: str, masks: Iterable[Bits], order: Order, cuts: Grid, cube: Cube
) -> dict[str, Any]:
    """What a tile belongs to, by the name that a refusal gives it."""
    digests = []
    for bits in masks:
        with bits.path.open("rb") as file:
            digests.append(file_digest(file, "sha256").hexdigest())
    how: dict[str, Any] = {k: v for k, v in asdict(order).items() if k not in ("recipe", "seed")}
    return {
        "the input": input_hash,
        "its metadata": fingerprint(
            str(cube.dtype),
            cube.shape,
            *(None if a is None else a.tolist() for a in (cube.wavelengths, cube.good)),
        ),
        "what is missing": digests,
        "the settings": fingerprint(how),
        "the recipe": fingerprint(order.recipe),
        "the seed": order.seed,
        "the tiling": [list(cuts.rows), list(cuts.cols), cuts.overlap],
        "hydiff's version": version("hydiff"),
    }


def _claim(work: Path, belongs: Mapping[str, Any]) -> None:
    """Write down what the tiles of this run belong to; refuse those of another."""
    path = work / "scene.json"
    before = json.loads(path.read_text())
    now = json.loads(json.dumps(belongs))
    if before and before != now:
        changed = " and ".join(key for key in now if before.get(key) != now[key])
        raise BadValue(
            f"cannot go on with the tiles in {work}: {changed} changed since they were made; "
            "take that back, or leave --resume out to start anew"
        )
    if not before:
        _write_whole(path, json.dumps(now).encode())


# ── putting it together ──────────────────────────────────────────────────────────────────────────


def _blended(scene: Scene, layer: int, bands: slice, box: Box) -> Floats:
    """(bands, rows, cols) of a box: what the tiles say, NaN where nothing was filled."""
    return tiles.overlap_add(box, bands.stop - bands.start, _pieces(scene, layer, bands, box))


def _pieces(scene: Scene, layer: int, bands: slice, box: Box) -> Iterator[tiles.Piece]:
    for tile in scene.planned:
        if all(
            s.start < b.stop and b.start < s.stop for s, b in zip(tile.support, box, strict=True)
        ):
            rows, cols = np.nonzero(scene.gaps[tile.support])
            weight = tiles.weights(scene.cuts, tile)[rows, cols]
            kept = np.load(_kept(scene.work, tile), mmap_mode="r")
            yield tiles.Piece(
                rows + tile.support[0].start,
                cols + tile.support[1].start,
                weight,
                np.array(kept[layer, bands]),
            )


def _pieces_of(block: tuple[slice, slice, slice]) -> Iterator[tuple[slice, slice, slice]]:
    """A block in parts of some MB, so that adding up takes little memory."""
    bands, rows, cols = block
    shape = (bands.stop - bands.start, rows.stop - rows.start, cols.stop - cols.start)
    for b, r, _ in blocks(shape, 64):
        yield (
            slice(bands.start + b.start, bands.start + b.stop),
            slice(rows.start + r.start, rows.start + r.stop),
            cols,
        )


def _filled(scene: Scene, nodata: float | None) -> tuple[Bits, Counter[str]]:
    """What is filled, and how many values the dtype changed, by what it did to them."""
    shape = scene.cube.shape
    filled = Bits(scene.work / "filled.bits", shape).empty()
    changed: Counter[str] = Counter()
    plain = Cube(np.zeros((1, 1, 1), scene.cube.dtype), nodata=scene.cube.nodata)
    for bands, rows, cols in _pieces_of((slice(0, shape[0]), *_everything(shape))):
        found = _blended(scene, 0, bands, (rows, cols))
        told = np.isfinite(found)
        filled.put(bands, rows, told)
        new = found[told][None, None]
        blank = replace(plain, values=np.zeros(new.shape, scene.cube.dtype))
        changed.update(problem.into_dtype(blank, new, np.ones(new.shape, bool), nodata)[1])
    return filled, changed


def _values(scene: Scene, filled: Bits, nodata: float | None) -> Lazy:
    """The input's values with the blended tiles in its gaps, worked out when they are read."""

    def read(bands: slice, rows: slice, cols: slice) -> Array:
        out = np.array(scene.opened().values[bands, rows, cols])
        for part in _pieces_of((bands, rows, cols)):
            where = filled.get(*part)
            if where.any():
                found = _blended(scene, 0, part[0], part[1:])
                inside = tuple(
                    slice(p.start - o.start, p.stop - o.start)
                    for p, o in zip(part, (bands, rows, cols), strict=True)
                )
                old = Cube(out[inside], nodata=scene.cube.nodata)
                out[inside] = problem.into_dtype(old, found, where, nodata)[0]
        return out

    chunks = getattr(scene.cube.values, "chunks", None)
    return Lazy(scene.cube.shape, scene.cube.dtype, read, chunks)


def _write(
    scene: Scene,
    cube: Cube,
    filled: Bits,
    bars: bool,
    record: Mapping[str, Any],
    output: Path,
    overwrite: bool,
) -> list[Path]:
    """The cube and its companions, all or nothing."""
    bands = cube.bands
    with io.staged(output, overwrite=overwrite) as folder:
        made = io.write_into(cube, folder / output.name)
        groups = (slice(b, min(b + 8, bands)) for b in range(0, bands, 8))
        planes = (filled.get(group, *_everything(cube.shape)) for group in groups)
        beside = provenance.filled_mask_path(folder / output.name)
        io.masks.write_planes(planes, beside, "missing", cube.shape)
        if bars:
            kind = problem.float_for(cube.dtype)
            pairs = (
                (_blended(scene, 1, slice(b, b + 1), _everything(cube.shape))[0].astype(kind), f)
                for b, f in ((b, filled.plane(b)) for b in range(bands))
            )
            count = record["entries"]["filled"]
            beside = provenance.sigma_path(folder / output.name)
            provenance.write_bars(pairs, count, bands, beside)
        note = json.dumps(record, indent=2) + "\n"
        provenance.record_path(folder / output.name).write_text(note)
    cubes = [output.with_name(p.name) for p in made]
    sigma = [provenance.sigma_path(output)] if bars else []
    return [*cubes, *sigma, provenance.filled_mask_path(output), provenance.record_path(output)]


def _out_of_reach(order: Order) -> str:
    if order.max_error is not None:
        return f"expected error above {order.max_error:g}, or out of reach"
    return f"out of reach of {order.method}"


def _expected(markers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What the tiles expect, each by the number of its entries."""
    told = [(m["expected"], m["entries"]) for m in markers if m["expected"] and m["entries"]]
    if not told:
        return {}
    names = [name for name in told[0][0] if all(name in scores for scores, _ in told)]
    entries = [n for _, n in told]
    return {n: float(np.average([scores[n] for scores, _ in told], weights=entries)) for n in names}


def _notes(
    decided: Decided,
    markers: Sequence[Mapping[str, Any]],
    changed: Mapping[str, int],
    scene: Scene,
) -> list[str]:
    """What the decision and all tiles say alike, and what became of the values."""
    tiling = _tiling(scene)
    common = [
        n for n in (markers[0]["notes"] if markers else []) if all(n in m["notes"] for m in markers)
    ]
    told = [f"{tiling['filled']} of {tiling['of']} tiles had gaps; one recipe for all of them"]
    told += [note for note in (*decided.notes, *common) if note not in told]
    return [*told, *(f"{n} filled entries {how}" for how, n in changed.items())]
