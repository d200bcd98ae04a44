"""Scenes and masks of the benchmark: the truth on [0, 1], and which entries are observed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hydiff import io
from hydiff.cube import Array, Bools, Cube, Floats
from hydiff.errors import BadValue, CubeFormatError, UnknownName
from hydiff.gaps.mask import make_mask
from hydiff.io import bundled
from hydiff.io.variables import Several

Files = Mapping[str, Path]  # name of a scene of the caller → its file

BUNDLED = "indian_pines"
SIDE = 144  # larger scenes are cropped to this, smaller ones used whole
SPLIT = 97  # column of the bundled scene: offline training uses the left, its test the right
OFFLINE_SIDE = 48  # px, of the crops for training and the squares for testing
OFFLINE_TEST = "indian_pines_right"
OFFLINE_SEEN = "indian_pines_left"  # a square within the area of the training crops
QUICK = "indian_pines_quick"
TIMED = "indian_pines_128"  # with as many bands as the cubes in the paper's table of times
PICTURED = "indian_pines_72"  # a square of 72 pixels, for figures
PARTS = (BUNDLED, OFFLINE_TEST, OFFLINE_SEEN, QUICK, TIMED, PICTURED)  # of the bundled scene
QUICK_BANDS, QUICK_ROWS, QUICK_COLS = 12, 36, 48
# Columns of the development scenes: not every mask fits all of them
DEVELOPMENT = {
    "abu_airport-1_96": 96, "abu_airport-4_96": 96, "abu_urban-1_96": 96, "cave_feathers_144": 144,
    "cave_toys_144": 144, "chikusei_36": 36, "chikusei_36_img3": 36, "chikusei_36_img4": 36,
    "enmap_potsdam_64x96": 96, "jasper_96": 96, "paris_hyperion_72": 72, "wdc10_144": 144,
}  # fmt: skip
# Columns of the scenes with another image of the place
SAME_MOMENT = "paris_ali"  # Hyperion and ALI
PAIRS = {
    "taizhou": 144, "s2_montpellier": 144, "s2_rennes": 144, "s2_beihai": 144, "s2_saclay_e": 144,
    "s2_bercy": 144, SAME_MOMENT: 72,
}  # fmt: skip
CLOUDS = "clouds"  # a mask of real clouds
CLOUDY = 0.3  # approximate share that it hides


def data_folder() -> Path:
    """Return the folder of the development scenes."""
    return Path(os.environ.get("HYDIFF_DATA", "../shared/data"))


def available() -> list[str]:
    """Return the names of the bundled scene and of those in HYDIFF_DATA, without Indian Pines."""
    names = sorted(p.stem for p in (data_folder() / "dev").glob("*.npz"))
    return [BUNDLED, *(name for name in names if not name.startswith(BUNDLED))]


def unit_of(scene: str) -> str:
    """Return the scene as statistics count it: overlapping patches of one scene are one unit."""
    return "chikusei" if scene.startswith("chikusei") else scene


def load(name: str, files: Files | None = None) -> Floats:
    """Return the truth (bands, rows, cols), scaled to [0, 1] by its extremes, without bad bands."""
    files = files or {}
    if name in files:
        cube = _whole(files[name])
        values = np.asarray(cube.values)[cube.good_bands, :SIDE, :SIDE].astype(np.float64)
        if gaps := int((~cube.observed()[cube.good_bands]).sum()):
            raise BadValue(
                f"{files[name]}: {gaps:,} entries are missing, but a scene of the benchmark is the "
                "truth and has no gaps; cut out a part without gaps, in Python: "
                "hydiff.write(hydiff.read(FILE).window(rows=slice(0, 60)), 'part.bil')"
            )
        if np.ptp(values) == 0:
            raise BadValue(f"{files[name]}: the same value everywhere; give a cube with a content")
        return unit(values)
    if name in PARTS:
        values = np.asarray(bundled.sample().values).astype(np.float64)
        return unit(values[pixels_of(name)])
    if name in PAIRS:
        return unit(pair(name)[0])
    check(name)
    return unit(_from_npz(data_folder() / "dev" / f"{name}.npz")[:, :SIDE, :SIDE])


def _whole(path: Path) -> Cube:
    """Return the cube of a file, in memory; the file must hold one cube."""
    try:
        return io.read(path).load()
    except Several as error:
        raise CubeFormatError(
            f"{path}: more than one variable may be the cube{error.listing}; write one of them to "
            f"a file of its own: hydiff convert {path} scene.npz --var {error.first}"
        ) from None


def pair(name: str) -> tuple[Floats, Floats]:
    """Return a scene (bands, rows, cols) and another image (R, rows, cols) of the same place.

    Values are in the units of the files.  For the bundled scene the other image is simulated, with
    five broad bands and shifted by half a pixel.
    """
    if name in PARTS:
        scene = load(name)
        broad = np.stack([part.mean(axis=0) for part in np.array_split(scene, 5)])
        return scene, 0.5 * (broad + np.roll(broad, 1, axis=2))
    folder = data_folder()
    try:
        if name == SAME_MOMENT:
            from scipy.io import loadmat

            both = loadmat(folder / "native" / "paris_data_hs_ms.mat")
            first, second = (both[k].transpose(2, 0, 1) for k in ("MSim", "HSim"))
        elif name == "taizhou":
            names = (folder / "pairs" / f"taizhou_{year}TM" for year in (2000, 2003))
            first, second = (np.asarray(io.read(path).values) for path in names)
        else:
            with np.load(folder / "pairs" / f"{name}.npz") as both:
                first, second = both["first"], both["second"]
    except OSError as error:
        raise CubeFormatError(
            f"{name}: no readable pair of images ({error}); set HYDIFF_DATA (now {folder})"
        ) from None
    rows, cols = np.minimum(np.minimum(first.shape, second.shape)[1:], SIDE)
    return tuple(np.asarray(v[:, :rows, :cols], np.float64) for v in (second, first))  # type: ignore[return-value]


def columns(name: str, files: Files | None = None) -> int:
    """Return the number of columns of a scene after cropping."""
    if files and name in files:
        return int(load(name, files).shape[2])
    if name in PARTS:
        return len(range(145)[pixels_of(name)[2]])
    return (DEVELOPMENT | PAIRS).get(name, SIDE)


def distinct(files: Files) -> dict[str, Path]:
    """Return the scenes of the caller under unique names, which include a hash of the values."""
    named = {}
    for name, path in files.items():
        if not name:
            raise BadValue(f"`scene={path}`: expected name=path")
        if not path.exists():
            raise CubeFormatError(f"`scene={name}={path}`: no such file; give name=path of a cube")
        digest = hashlib.sha256(load(name, files).tobytes()).hexdigest()
        named[f"{name}@{digest[:6]}"] = path
    return named


def check(name: str) -> None:
    """Raise an error if no scene of this name is available."""
    if name not in (*PARTS, *PAIRS, *available()):
        hint = f"; set HYDIFF_DATA (now {data_folder()}) or give `scene={name}=FILE`"
        raise UnknownName("scene", name, [*available(), *PAIRS], hint)


def pixels_of(name: str) -> tuple[slice, slice, slice]:
    """Return the part of the bundled scene that one of its names stands for."""
    everything = slice(None)
    if name == OFFLINE_TEST:
        return everything, slice(OFFLINE_SIDE), slice(SPLIT, SPLIT + OFFLINE_SIDE)
    if name == OFFLINE_SEEN:
        return everything, slice(OFFLINE_SIDE), slice(SPLIT - OFFLINE_SIDE, SPLIT)
    if name == QUICK:
        return slice(0, 16 * QUICK_BANDS, 16), slice(QUICK_ROWS), slice(QUICK_COLS)
    if name == PICTURED:
        return everything, slice(20, 92), slice(20, 92)
    return slice(128) if name == TIMED else everything, slice(SIDE), slice(SIDE)


def labels_of(name: str) -> Array | None:
    """Return the land cover of a part of the bundled scene; None for other scenes."""
    if name not in PARTS:
        return None
    return bundled.sample_labels()[pixels_of(name)[1:]]


def _from_npz(path: Path) -> Floats:
    """Return the cube of a development scene (bands, rows, cols), from the key `cube`."""
    try:
        values = np.load(path)["cube"]
    except (OSError, KeyError, ValueError) as error:
        raise CubeFormatError(
            f"{path}: no readable scene ({error}); expected the key cube"
        ) from None
    return np.asarray(values.transpose(2, 0, 1), np.float64)


def unit(values: Floats) -> Floats:
    """Return values scaled to [0, 1] by their extremes; a constant cube becomes 0."""
    low, high = float(values.min()), float(values.max())
    return (values - low) / ((high - low) or 1.0)


def damaged_crops(n: int, side: int) -> list[Cube]:
    """Return n crops from the left of the bundled scene, with gaps (NaN) by the published masks.

    Each mask is shifted along the columns so that the crop contains a gap.
    """
    scene = unit(np.asarray(bundled.sample().values).astype(np.float64))
    rng = np.random.default_rng(0)
    crops = []
    for i in range(n):
        row, col = rng.integers(0, scene.shape[1] - side), rng.integers(0, SPLIT - side)
        crop = scene[:, row : row + side, col : col + side]
        stripes = make_mask(f"published-{i % 4 + 1}", (1, side, SIDE), None, rng)
        gaps = np.flatnonzero(~stripes[0])
        observed = np.roll(stripes, side // 2 - rng.choice(gaps), axis=1)[:, :side]
        crops.append(Cube(np.where(observed, crop, np.nan).astype(np.float32)))
    return crops


def observed_of(mask: str, shape: tuple[int, int, int]) -> Bools:
    """Return a mask by its name: a kind of `hydiff simulate`, clouds, or width-N.

    width-N has missing stripes of full height, N columns wide.  A mask is the same for every method
    and seed.
    """
    if mask == CLOUDS:
        return _clouds(shape)
    if mask.startswith("width-"):
        text = mask.removeprefix("width-")
        width = int(text) if text.isdecimal() else 0
        if not 0 < 2 * width <= shape[2]:
            raise BadValue(
                f"mask {mask}: expected width- and a number of columns, at most half of the "
                f"{shape[2]} that there are"
            )
        columns = np.arange(shape[2]) % (3 * width)
        return np.broadcast_to((columns < width) | (columns >= 2 * width), shape[1:])
    return make_mask(mask, shape, None, np.random.default_rng(0))


def _clouds(shape: tuple[int, int, int]) -> Bools:
    """(rows, cols) mask of real clouds, resized to the size of a scene."""
    path = data_folder() / "masks_clouds.npz"
    try:
        with np.load(path) as masks:
            observed = masks["observed"].astype(bool)
    except (OSError, KeyError) as error:
        raise CubeFormatError(
            f"{path}: no readable masks ({error}); set HYDIFF_DATA (now {data_folder()})"
        ) from None
    mask = observed[int(np.argmin(np.abs((~observed).mean(axis=(1, 2)) - CLOUDY)))]
    rows, cols = (np.arange(n) * m // n for n, m in zip(shape[1:], mask.shape, strict=True))
    clouds: Bools = mask[np.ix_(rows, cols)]
    return clouds
