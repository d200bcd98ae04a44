"""Scenes and gaps of the stress run, none of which is a development scene; drawn from a number.

Scenes are (bands, rows, cols) on [0, 1], masks are True = measured.  Files: those of other sensors
in `native` that are no copies or crops of development scenes, Sentinel-2 places that the shipped
network held back, both images of the pairs, photographs of scikit-image.  Others are drawn: dead
leaves as in the training, but with other seeds, and pictures that no image of the training
resembles.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
from scipy import ndimage

from hydiff import io
from hydiff.bench.scenes import unit
from hydiff.gaps.mask import make_mask
from hydiff.learn import dead_leaves, prior_weights, weights_file

DATA = Path(os.environ.get("HYDIFF_DATA", "../shared/data"))
NATIVE = (
    "AV_mastercal_testdata.hdr",
    "HyMap02_Berlin_Urban_Gradient_2009.hdr",
    "ang20160910t185702_2rdn_img.hdr",
    "corn-kernel-hyperspectral.hdr",
    "neon_sjer_subset.h5",
)
PHOTOGRAPHS = (
    *("astronaut", "coffee", "rocket", "chelsea", "retina", "immunohistochemistry"),
    *("hubble_deep_field", "camera", "moon", "coins", "brick", "grass", "gravel", "cell", "text"),
)
DRAWN = 10_000  # first seed of dead leaves; the training drew its images from other ones
SIDES = (32, 40, 48, 64, 80, 96, 128, 160)
OFTEN = (0.16, 0.16, 0.2, 0.24, 0.1, 0.1, 0.03, 0.01)  # share of each side
MOST_BANDS = 16
SHARED = (
    *("stripes", "slc-off", "blobs", "frames", "tiles", "lines", "dots", "full", "wide"),
    *("half-rows", "clouds", "border"),
)
BY_BAND = ("columns", "pixels", "bands", "both")


# ── scenes ───────────────────────────────────────────────────────────────────────────────────────


@cache
def whole(kind, name):
    """The whole image that a scene is a crop of."""
    if kind == "native":
        cube = io.read(DATA / "native" / name).load()
        x = np.asarray(cube.values, float)[cube.good_bands]
        return x[cube.observed()[cube.good_bands].all(axis=(1, 2))]
    if kind == "held back":
        file = "sentinel2_corners.npz" if name.endswith("corner") else "sentinel2.npz"
        with np.load(DATA / "train" / file) as images:
            return images[name].astype(float)
    if name.startswith("taizhou"):
        return np.asarray(io.read(DATA / "pairs" / name).values, float)
    with np.load(DATA / "pairs" / f"{name.split(':')[0]}.npz") as both:
        return both[name.split(":")[1]].astype(float)


@cache
def names_of(kind):
    """The images of a kind that comes from files."""
    if kind == "native":
        return NATIVE
    if kind == "pairs":
        places = sorted(path.stem for path in (DATA / "pairs").glob("s2_*.npz"))
        both = [f"{place}:{date}" for place in places for date in ("first", "second")]
        return ("taizhou_2000TM", "taizhou_2003TM", *both)
    about, _ = weights_file.content(prior_weights.packaged("full"), prior_weights.KIND)
    names = []
    for path in sorted((DATA / "train").glob("*.npz")):
        with np.load(path) as images:
            names += [name for name in images if name.split("_")[0] in about["held"]]
    return tuple(names)


def photograph(name, rng):
    """Its channels, or a few smooth functions of them as a sensor of many bands would see them."""
    from skimage import data

    x = np.atleast_3d(np.asarray(getattr(data, name)(), float)).transpose(2, 0, 1)
    scale = int(rng.choice((1, 2, 4)))  # pixels, averaged over squares
    rows, cols = (n // scale * scale for n in x.shape[1:])
    x = x[:, :rows, :cols].reshape(len(x), rows // scale, scale, cols // scale, scale)
    x = x.mean(axis=(2, 4))
    return lifted(x, rng) if rng.random() < 0.5 else x


def lifted(x, rng):
    """Up to MOST_BANDS mixtures, smooth along the bands, of channels and of their squares."""
    x = (x - x.min()) / np.ptp(x)
    parts = np.concatenate([x, x**2, x[::-1] * x[:1]])
    bands = int(rng.integers(6, MOST_BANDS, endpoint=True))
    mixture = ndimage.gaussian_filter1d(rng.standard_normal((bands, len(parts))), 1.5, axis=0)
    return np.tensordot(mixture, parts, 1)


def field(rows, cols, slope, rng):
    """(rows, cols) Gaussian field of variance 1, its power falling with the frequency^-2·slope."""
    waves = np.hypot(np.fft.fftfreq(2 * rows)[:, None], np.fft.rfftfreq(2 * cols))
    waves[0, 0] = np.inf
    noise = np.fft.rfft2(rng.standard_normal((2 * rows, 2 * cols)))
    drawn = np.fft.irfft2(noise * waves**-slope, s=(2 * rows, 2 * cols))[:rows, :cols]
    return (drawn - drawn.mean()) / drawn.std()


def spectra(count, bands, rng):
    """(bands, count) smooth, positive spectra."""
    drawn = ndimage.gaussian_filter1d(rng.standard_normal((bands, count)), 2.0, axis=0)
    return np.exp(drawn / drawn.std() * 0.5)


def mixed(abundance, bands, rng):
    """(bands, rows, cols) from images (count, rows, cols) of materials."""
    return np.tensordot(spectra(len(abundance), bands, rng), abundance, 1)


def fields(rows, cols, bands, rng):
    """Mixtures of fields, from rough to smooth."""
    slopes = rng.uniform(0.6, 2.5, 4)
    parts = [np.exp(0.7 * field(rows, cols, slope, rng)) for slope in slopes]
    return mixed(np.array(parts), bands, rng)


def cracks(rows, cols, bands, rng):
    """Dark lines along the zeros of smooth fields, over a texture."""
    ground = 1 + 0.1 * field(rows, cols, 1.2, rng)
    for _ in range(3):
        ground = np.where(np.abs(field(rows, cols, 2.0, rng)) < 0.06, 0.3, ground)
    return mixed(np.array([ground, field(rows, cols, 1.8, rng) ** 2]), bands, rng)


def weave(rows, cols, bands, rng):
    """Periodic textures in two directions, of different materials."""
    row, col = np.mgrid[:rows, :cols]
    waves = [
        np.sin(2 * np.pi * (np.cos(a) * row + np.sin(a) * col) / period)
        for a, period in zip(rng.uniform(0, np.pi, 3), rng.uniform(3, 16, 3), strict=True)
    ]
    return mixed(1 + 0.4 * np.array(waves), bands, rng)


def cells(rows, cols, bands, rng):
    """Voronoi cells of several materials, like fields, with a texture in each."""
    count = int(rng.integers(8, 60))
    down, right = rng.uniform(0, rows, count), rng.uniform(0, cols, count)
    row, col = np.mgrid[:rows, :cols]
    nearest = np.hypot(row[..., None] - down, col[..., None] - right).argmin(axis=2)
    material = rng.integers(5, size=count)[nearest]
    grain = 1 + rng.uniform(0, 0.1) * field(rows, cols, rng.uniform(0, 1.5), rng)
    return mixed(np.array([(material == m) * grain for m in range(5)]), bands, rng)


def snow(rows, cols, bands, rng):
    """A saturated plateau over dark ground, with a sharp limit."""
    height = field(rows, cols, 1.6, rng)
    bright = np.clip(3 * (height - rng.uniform(-0.5, 0.5)), 0, 1)
    rock = 0.2 + 0.05 * field(rows, cols, 1.0, rng)
    return np.minimum(mixed(np.array([bright, rock * (1 - bright)]), bands, rng), 1.0)


def glint(rows, cols, bands, rng):
    """Dark, smooth water with bright single pixels, and a shore."""
    water = 0.05 + 0.01 * field(rows, cols, 2.5, rng)
    sparks = rng.exponential(0.2, (rows, cols)) * (rng.random((rows, cols)) < 0.03)
    land = (field(rows, cols, 2.2, rng) > 1.0) * (0.5 + 0.1 * field(rows, cols, 1.0, rng))
    return mixed(np.array([water, sparks, land]), bands, rng)


def striped(rows, cols, bands, rng):
    """Fields, with an offset of every column as push-broom sensors have it."""
    x = fields(rows, cols, bands, rng)
    strength = rng.uniform(0.1, 0.6) * x.std(axis=(1, 2))
    return x + strength[:, None, None] * rng.standard_normal((bands, 1, cols))


def grain(rows, cols, bands, rng):
    """Small bright discs side by side, as seeds on a belt."""
    x = np.full((rows, cols), 0.1)
    row, col = np.mgrid[:rows, :cols]
    for _ in range(rows * cols // 60):
        away = np.hypot(row - rng.uniform(0, rows), col - rng.uniform(0, cols))
        x = np.where(away < rng.uniform(1.5, 4), rng.uniform(0.5, 1) - 0.02 * away**2, x)
    return mixed(np.array([x, np.full_like(x, 0.1)]), bands, rng)


def uneven(rows, cols, bands, rng):
    """A smooth part and a rough one."""
    smooth, rough = fields(rows, cols, bands, rng), cells(rows, cols, bands, rng)
    share = 1 / (1 + np.exp(-6 * field(rows, cols, 2.5, rng)))
    return share * smooth / smooth.std() + (1 - share) * rough / rough.std()


PICTURES = {
    picture.__name__: picture
    for picture in (fields, cracks, weave, cells, snow, glint, striped, grain, uneven)
}
KINDS = ("native", "held back", "pairs", "photograph", "drawn", "picture")


def scene_of(number, rng):
    """Kind, name, and (bands, rows, cols) on [0, 1]."""
    kind = KINDS[number % len(KINDS)]
    side = int(rng.choice(SIDES, p=OFTEN))
    rows, cols = side, side if rng.random() < 0.7 else int(rng.choice((32, 48, 64)))
    if kind == "picture":
        name = list(PICTURES)[number // len(KINDS) % len(PICTURES)]
        bands = int(rng.integers(3, MOST_BANDS, endpoint=True))
        x = PICTURES[name](rows, cols, bands, rng)
        return kind, f"{name} {number}", unit(x)
    if kind == "drawn":
        name = f"leaves {DRAWN + number}"
        x = dead_leaves.drawn(np.random.default_rng(DRAWN + number))
    elif kind == "photograph":
        name = PHOTOGRAPHS[number // len(KINDS) % len(PHOTOGRAPHS)]
        x = photograph(name, rng)
    else:
        names = names_of(kind)
        name = names[number // len(KINDS) % len(names)]
        x = whole(kind, name)
    return kind, name, unit(part_of(x, rows, cols, rng))


def part_of(x, rows, cols, rng):
    """A crop of at most so many rows and columns, and MOST_BANDS bands, each of which varies."""
    rows, cols = min(rows, x.shape[1]), min(cols, x.shape[2])
    while True:
        row, col = (
            int(rng.integers(n - s + 1)) for n, s in zip(x.shape[1:], (rows, cols), strict=True)
        )
        part = x[:, row : row + rows, col : col + cols]
        part = part[np.ptp(part, axis=(1, 2)) > 0]
        if len(part):
            return part[:: -(-len(part) // MOST_BANDS)]


# ── gaps ─────────────────────────────────────────────────────────────────────────────────────────


def observed_of(kind, shape, rng):
    """(bands, rows, cols)"""
    _, rows, cols = shape
    share = float(rng.uniform(0.08, 0.42))
    own = {
        "dots": lambda: rng.random((rows, cols)) > share,
        "full": lambda: bars(cols, share, rng)[None].repeat(rows, axis=0),
        "wide": lambda: wide(rows, cols, rng),
        "half-rows": lambda: half_rows(rows, cols, share, rng),
        "clouds": lambda: clouds(rows, cols, rng),
        "border": lambda: border(rows, cols, rng),
        "bands": lambda: some_bands(shape, share, rng),
        "both": lambda: (
            make_mask("stripes", shape, share / 2, rng) & make_mask("columns", shape, 0.1, rng)
        ),
    }
    if kind in own:
        observed = own[kind]()
    else:
        observed = make_mask(kind, shape, None if kind == "frames" else share, rng)
    return np.broadcast_to(observed, shape)


def bars(cols, share, rng):
    """(cols,) bars of one width, at regular distances."""
    width, first = int(rng.integers(2, 12)), int(rng.integers(40))
    observed = (np.arange(cols) + first) % max(int(width / share), width + 1) >= width
    return np.arange(cols) >= width if observed.all() else observed


def wide(rows, cols, rng):
    """One rectangle with sides of a fifth to a half of the image."""
    observed = np.ones((rows, cols), bool)
    high, broad = (int(n * rng.uniform(0.2, 0.5)) for n in (rows, cols))
    top, left = int(rng.integers(rows - high + 1)), int(rng.integers(cols - broad + 1))
    observed[top : top + high, left : left + broad] = False
    return observed


def half_rows(rows, cols, share, rng):
    """The left or the right half of some rows, as when a detector drops out."""
    lost, right = rng.random(rows) < min(1.6 * share, 0.6), rng.random() < 0.5
    lost[int(rng.integers(rows))] = True
    side = np.arange(cols) >= cols // 2 if right else np.arange(cols) < cols // 2
    return ~(lost[:, None] & side)


def clouds(rows, cols, rng):
    """Real clouds, mirrored to reach the size, with at most two thirds of the pixels."""
    with np.load(DATA / "masks_clouds.npz") as kept:
        masks = kept["observed"]
    observed = masks[int(rng.integers(len(masks)))]
    grown = np.pad(observed, ((0, rows), (0, cols)), mode="symmetric")
    row, col = int(rng.integers(50)), int(rng.integers(50))
    observed = grown[row : row + rows, col : col + cols]
    return observed if 0.33 < observed.mean() < 0.98 else clouds(rows, cols, rng)


def border(rows, cols, rng):
    """A strip of one side of the image, and a few blobs."""
    observed = make_mask("blobs", (1, rows, cols), 0.05, rng)
    width = int(rng.integers(3, max(cols // 5, 4)))
    observed[:, :width] = False
    return np.rot90(observed, 2 * int(rng.integers(2)))


def some_bands(shape, share, rng):
    """Blobs in which a run of neighbouring bands is missing."""
    bands, observed = shape[0], np.ones(shape, bool)
    count = max(bands // 2, 1)
    first = int(rng.integers(bands - count + 1))
    observed[first : first + count] = make_mask("blobs", shape, share, rng)
    return observed
