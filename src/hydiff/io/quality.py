"""Quality layers as masks: EMIT's band mask and flags, PRISMA's error matrix, EnMAP's pixel masks,
NEON's classes of pixels.

A layer has flags; each flag marks entries (bands, rows, cols), or pixels (rows, cols), that are not
to be trusted.  The entries of all chosen flags count as missing, as do the gaps of the cube itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hydiff.cube import Array, Bools
from hydiff.errors import BadValue, ShapeMismatch, UnknownName
from hydiff.flags import CLOUD, MASK, SATURATED
from hydiff.io import enmap, geotiff, hdf5, neon, prisma
from hydiff.io.parsing import parsing
from hydiff.io.regular import is_there

Shape = tuple[int, int, int]
Layer = Callable[[Shape], Bools]  # the flagged entries of a cube of that shape

BAND = "band"  # EMIT: this band of this pixel was interpolated (bad detector, saturation)
DEFECTIVE = "defective"
ENMAP_FLAGS = ("CLOUD", "CLOUDSHADOW", "CIRRUS", "HAZE", "SNOW")
# PRISMA's error codes; those of L2 are bits, those of L1 are numbers.
PRISMA_L1 = {DEFECTIVE: 1, "saturated": 2, "inaccurate": 3, "not-finite": 4}
PRISMA_L2 = {"invalid": 1, "negative": 2, "saturated": 4}
USUAL = (BAND, DEFECTIVE, "invalid", "saturated", "not-finite")  # used unless flags are given


class Quality(NamedTuple):
    """The entries that a quality layer flags, as a mask."""

    observed: Bools  # (bands, rows, cols) False = flagged
    counts: dict[str, int]  # flag -> number of entries that have it
    why: Array  # (bands, rows, cols) bits of `hydiff.flags.REASONS`, from the flags


def layers(path: Path, kind: str) -> dict[str, Layer]:
    """Return the flags of a file of this format, by name; none for a plain mask."""
    finders = {"emit": _emit, "prisma": _prisma, "enmap": _enmap, "neon": _neon}
    finder = finders.get(kind, _enmap if _sibling(path) is not None else None)
    return {} if finder is None else finder(path)


def combined(
    layers: Mapping[str, Layer], shape: Shape, flags: Sequence[str], path: Path
) -> Quality:
    """Combine the entries of all chosen flags, and count the entries of each."""
    for flag in flags:
        if flag not in layers:
            raise UnknownName(f"quality flag of {path.name}", flag, layers)
    chosen = flags or [flag for flag in layers if flag in USUAL]
    if not chosen:
        raise BadValue(
            f"{path}: choose what to take as missing with `flags=`; known: {', '.join(layers)}"
        )
    observed, counts, why = np.ones(shape, bool), {}, np.zeros(shape, np.uint8)
    for flag in chosen:
        missing = layers[flag](shape)
        if missing.shape not in (shape, shape[1:]):
            raise ShapeMismatch(
                f"{path}: its layer {flag} has shape {missing.shape}, but the cube is "
                f"(bands, rows, cols) = {shape}; give the layer of the same scene"
            )
        missing = np.broadcast_to(missing, shape)
        counts[flag] = int(missing.sum())
        observed &= ~missing
        why[missing] |= reason_of(flag)
    return Quality(observed, counts, why)


def reason_of(flag: str) -> int:
    """Return the bit of `hydiff.flags.REASONS` that a flag of a product stands for."""
    name = flag.lower()
    if any(word in name for word in ("cloud", "cirrus", "haze")):
        return CLOUD
    return SATURATED if "saturat" in name else MASK


def beside(path: Path, kind: str | None) -> dict[str, list[str]]:
    """Return the quality layers that come with a product: file -> its flags."""
    if kind not in ("emit", "prisma", "enmap", "neon"):
        return {}
    if kind == "emit":  # the layers are in a separate file
        path = path.with_name(re.sub("L2A_RFL|L1B_RAD", "L2A_MASK", path.name))
    if kind == "neon" and neon.pixel_classes(path) is None:
        return {}
    flags = list(layers(path, kind)) if is_there(path) else []
    return {str(path): flags} if flags else {}


# --- EMIT -----------------------------------------------------------------------------------------


def _emit(path: Path) -> dict[str, Layer]:
    """Return the flags of an EMIT mask file, by name."""
    flags: dict[str, Layer] = {}
    with parsing(path, "an EMIT mask file"), hdf5.open_file(path) as file:
        if "band_mask" in file:
            flags[BAND] = partial(_band_mask, path)
        names = file.get("sensor_band_parameters/mask_bands")
        if names is not None and "mask" in file:
            for i, name in enumerate(str(hdf5.plain(text)) for text in names[()]):
                stem, _, last = name.lower().rpartition(" ")
                if last == "flag":
                    flags[stem.replace(" ", "-")] = partial(_emit_flag, path, i)
    return flags


def _band_mask(path: Path, shape: Shape) -> Bools:
    """(bands, rows, cols) True where EMIT interpolated the value."""
    with parsing(path, "an EMIT mask file"), hdf5.open_file(path) as file:
        packed = file["band_mask"][()]
    return unpacked(packed, shape, path)


def unpacked(packed: Array, shape: Shape, path: Path) -> Bools:
    """Return EMIT's `band_mask` (rows, cols, bytes) as (bands, rows, cols), highest bit first."""
    bands, rows, cols = shape
    if packed.shape != (rows, cols, -(-bands // 8)) or packed.dtype != np.uint8:
        raise ShapeMismatch(
            f"{path}: band_mask is {packed.dtype} {packed.shape}, expected bytes "
            f"{(rows, cols, -(-bands // 8))} for a cube (bands, rows, cols) = {shape}; "
            "give the mask of the same scene"
        )
    return np.unpackbits(packed.transpose(2, 0, 1), axis=0, count=bands).astype(bool)


def _emit_flag(path: Path, index: int, shape: Shape) -> Bools:
    """(rows, cols) True where the flag at `index` of EMIT's mask is set."""
    with parsing(path, "an EMIT mask file"), hdf5.open_file(path) as file:
        return np.asarray(file["mask"][:, :, index] == 1)


# --- PRISMA ---------------------------------------------------------------------------------------


def _prisma(path: Path) -> dict[str, Layer]:
    """Return the flags of a PRISMA file, by name; {} if it has no error matrices."""
    with parsing(path, "a PRISMA file"), hdf5.open_file(path) as file:
        swath = prisma.swath_name(file, path)
        datasets = set(file[f"{prisma.SWATHS}/{swath}/Data Fields"])
    word, codes = ("SAT", PRISMA_L1) if "_L1_" in swath else ("L2", PRISMA_L2)
    names = [f"{detector}_PIXEL_{word}_ERR_MATRIX" for detector in prisma.DETECTORS]
    if not set(names) <= datasets:
        return {}
    return {flag: partial(_prisma_flag, path, swath, names, flag) for flag in codes}


def _prisma_flag(path: Path, swath: str, names: list[str], flag: str, shape: Shape) -> Bools:
    """(bands, rows, cols) True where the error matrices, one per detector, have a flag."""
    with parsing(path, "a PRISMA file"), hdf5.open_file(path) as file:
        cubes = prisma.detector_parts(file, swath, path)
        folder = f"{prisma.SWATHS}/{swath}/Data Fields"
        parts = [
            part._replace(name=f"{folder}/{name}") for part, name in zip(cubes, names, strict=True)
        ]
        for part, cube in zip(parts, cubes, strict=True):
            if file[part.name].shape != file[cube.name].shape:
                raise ShapeMismatch(
                    f"{path}: {part.name.rpartition('/')[2]} has shape {file[part.name].shape}, "
                    f"but its cube {file[cube.name].shape}; fetch the file again"
                )
        bands = sum(part.bands for part in parts)
        rows, _, cols = file[parts[0].name].shape
        codes = hdf5.read_block(file, parts, (slice(0, bands), slice(0, rows), slice(0, cols)))
    return np.asarray(codes == PRISMA_L1[flag] if "_L1_" in swath else codes & PRISMA_L2[flag] != 0)


# --- EnMAP ----------------------------------------------------------------------------------------


def _sibling(path: Path) -> Path | None:
    """Return the product folder that a quality layer `…-QL_*.TIF` lies in, else None."""
    is_layer = path.is_file() and "-QL_" in path.name.upper()
    return path.parent if is_layer and enmap.find_product(path.parent) is not None else None


def _enmap(path: Path) -> dict[str, Layer]:
    """Return the flags of an EnMAP product, by name; {} if the path belongs to none."""
    product = enmap.find_product(_sibling(path) or path)
    if product is None:
        return {}
    flags: dict[str, Layer] = {}
    masks = [product.member_ending(f"-QL_PIXELMASK{end}.TIF") for end in ("", "_VNIR", "_SWIR")]
    rasters = [product.raster(mask) for mask in masks if mask is not None]
    if rasters:
        flags[DEFECTIVE] = partial(_defective, rasters)
    for name in ENMAP_FLAGS:
        if (member := product.member_ending(f"-QL_QUALITY_{name}.TIF")) is not None:
            flags[name.lower()] = partial(_pixels, product.raster(member))
    return flags


def _defective(rasters: Sequence[Path], shape: Shape) -> Bools:
    """Defective entries, non-zero in one mask for all bands, or one per detector, VNIR first."""
    masks = [np.asarray(geotiff.read(path).values) != 0 for path in rasters]
    if len({mask.shape[1:] for mask in masks}) > 1:
        raise ShapeMismatch(
            f"{rasters[0]}: the masks of the two detectors differ in size; fetch the product again"
        )
    missing: Bools = np.concatenate(masks)
    if missing.mean() > 0.5:
        raise BadValue(
            f"{rasters[0]}: calls {100 * missing.mean():.0f} % of the entries defective, expected "
            "a few; if non-zero means good in this file, give it with `observed=`"
        )
    return missing[0] if len(missing) == 1 else missing


def _pixels(raster: Path, shape: Shape) -> Bools:
    """(rows, cols) True where the first band of a raster is not 0."""
    return np.asarray(geotiff.read(raster).values[0] != 0)


# --- NEON -----------------------------------------------------------------------------------------


def _neon(path: Path) -> dict[str, Layer]:
    """Return the flags of a NEON file, by name."""
    if neon.pixel_classes(path) is None:
        raise BadValue(
            f"{path}: has no quality layer, expected Metadata/{neon.PIXEL_CLASSES}; "
            "leave `quality=` out, or give a mask file"
        )
    return {flag: partial(_neon_flag, path, codes) for flag, codes in neon.CLASSES.items()}


def _neon_flag(path: Path, codes: Sequence[int], shape: Shape) -> Bools:
    """(rows, cols) True where the class of the pixel is one of `codes`."""
    return np.isin(neon.pixel_classes(path), codes)
