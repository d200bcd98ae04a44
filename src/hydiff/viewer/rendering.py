"""Render a scene as chosen by the user: read bands, stretch and colour them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from bokeh.palettes import Cividis256, Greys256, RdBu, Viridis256, interp_palette

from hydiff.cube import Bools, Floats
from hydiff.viewer import images
from hydiff.viewer.images import Pixels, Stretch
from hydiff.viewer.scene_layers import ImageWindow, ViewedScene

COMPOSITE, SINGLE = "Colour composite", "One band"
SIGMA, ERROR = "Error bars (1 σ)", "Error against the truth"
DIFFERENCE = "Difference, right less left"
PALETTES = {"Grey": Greys256, "Viridis": Viridis256, "Cividis": Cividis256}
DIVERGING = interp_palette(RdBu[11], 256)  # for differences: blue and red, white for 0
CACHE = 24  # planes kept in memory, for going back and forth between bands


@dataclass(frozen=True)
class Choice:
    """Kind of picture, bands and colours that the user has chosen."""

    show: str  # one of the five above
    bands: tuple[int, ...]  # band numbers from 0: red, green and blue, or a single one
    percent: tuple[float, float]  # percentiles shown darkest and brightest
    palette: str  # for a single band

    @property
    def colours(self) -> Sequence[str]:
        """The 256 colours for a single band or a map."""
        colours: Sequence[str] = DIVERGING if self.show == DIFFERENCE else PALETTES[self.palette]
        return colours


class Sight(NamedTuple):
    """The part of the scene in view, in scene pixels, and its size in screen pixels."""

    top: float
    bottom: float
    left: float
    right: float
    high: float  # screen pixels
    wide: float


def whole_of(shape: tuple[int, int], pixels: int) -> ImageWindow:
    """Return the whole scene (rows, cols), subsampled to at most about `pixels`."""
    return ImageWindow(0, shape[0], 0, shape[1], images.step_for(shape, pixels))


def sharper(sight: Sight, whole: ImageWindow) -> ImageWindow | None:
    """Return the part in view at the resolution of the screen; None if `whole` is as fine."""
    top, left = max(whole.top, int(sight.top)), max(whole.left, int(sight.left))
    bottom = min(whole.bottom, int(np.ceil(sight.bottom)))
    right = min(whole.right, int(np.ceil(sight.right)))
    if bottom <= top or right <= left or sight.high < 1 or sight.wide < 1:
        return None
    ratio = min((sight.bottom - sight.top) / sight.high, (sight.right - sight.left) / sight.wide)
    step = max(int(ratio), images.step_for((bottom - top, right - left), images.PIXELS))
    return ImageWindow(top, bottom, left, right, step) if step < whole.step else None


class Planes:
    """Reads bands of a scene (rows, cols) in a window, with a cache of the latest ones."""

    def __init__(self, scene: ViewedScene, whole: ImageWindow) -> None:
        self.scene, self.whole = scene, whole
        self._cache: dict[tuple[str, int, ImageWindow], Floats] = {}

    def get(self, layer: str, band: int, window: ImageWindow | None = None) -> Floats:
        """Return a band of a layer, (rows, cols) of a window.

        layer: attribute of the scene; "sigma"; "error", the absolute difference of the right layer
            to the truth; or "difference", right minus left layer.
        """
        key = (layer, band, window or self.whole)
        if key not in self._cache:
            if len(self._cache) >= CACHE:
                self._cache.pop(next(iter(self._cache)))
            self._cache[key] = self._read(*key)
        return self._cache[key]

    def _read(self, layer: str, band: int, window: ImageWindow) -> Floats:
        if layer == "error":
            right = sides(self.scene)[-1]
            return np.abs(self.get(right, band, window) - self.get("truth", band, window))
        if layer == "difference":
            left, right = sides(self.scene)
            return self.get(right, band, window) - self.get(left, band, window)
        if layer == "sigma" and self.scene.fills is not None:
            return self.scene.fills.sigma_plane(band)[window.cut]
        plane: Floats = getattr(self.scene, layer).plane(band, window)
        return plane

    def missing(self, bands: tuple[int, ...], window: ImageWindow | None = None) -> Bools:
        """Return pixels (rows, cols) where one of these bands was missing before the fill."""
        missing_before = [np.isnan(self.get("before", band, window)) for band in bands]
        masks = [self.scene.masked(band, window or self.whole) for band in bands]
        missing = [*missing_before, *(m for m in masks if m is not None)]
        return np.logical_or.reduce(missing)  # type: ignore[no-any-return]


def sides(scene: ViewedScene) -> list[str]:
    """Names of the layers left and right of the line; one name if both are the same."""
    right = "before" if scene.after is None else "after"
    return [*{"before" if scene.other is None else "other": 0, right: 0}]


def offered(scene: ViewedScene) -> list[str]:
    """List the kinds of pictures that the scene has data for."""
    return [
        *([COMPOSITE, SINGLE] if scene.cube.bands > 1 else [SINGLE]),
        *([SIGMA] if scene.fills is not None and scene.fills.sigma is not None else []),
        *([DIFFERENCE] if scene.other is not None and not scene.other.foreign else []),
        *([ERROR] if scene.truth is not None else []),
    ]


def layer_of(choice: Choice) -> str | None:
    """Name of the layer shown as a map; None for pictures of both sides."""
    return {SIGMA: "sigma", ERROR: "error", DIFFERENCE: "difference"}.get(choice.show)


def limits(planes: Planes, choice: Choice) -> list[Stretch | None]:
    """Return the stretch of each chosen band; None for a band without values.

    Limits are those of the whole picture, so that zooming does not change the colours.  They are
    taken from the measured pixels, or from the filled ones if none was measured.  Maps are
    stretched from 0, or symmetrically about 0 for a difference.
    """
    layer = layer_of(choice)
    if layer is not None:
        magnitude = np.abs(planes.get(layer, choice.bands[0]))
        if choice.show == DIFFERENCE:  # 0 where both hold the measured value
            magnitude = np.where(magnitude > 0, magnitude, np.nan)
        top = images.limits(magnitude, (0.0, choice.percent[1]))
        lowest = -1.0 if choice.show == DIFFERENCE else 0.0
        return [None if top is None else Stretch(lowest * top.high, top.high)]
    stretches = []
    for band in choice.bands:
        limit = images.limits(planes.get("before", band), choice.percent)
        if limit is None and planes.scene.after is not None:
            limit = images.limits(planes.get("after", band), choice.percent)
        stretches.append(limit)
    return stretches


def pictures(
    planes: Planes, choice: Choice, bounds: list[Stretch | None], window: ImageWindow | None = None
) -> list[Pixels]:
    """Return one picture, or those left and right of the line."""
    palette, layer = images.palette(choice.colours), layer_of(choice)
    names, shown = [layer] if layer else sides(planes.scene), []
    for name in names:
        bands = [planes.get(name, band, window) for band in choice.bands]
        limits = bounds
        if name == "other" and planes.scene.other is not None and planes.scene.other.foreign:
            limits = [images.limits(planes.get(name, b), choice.percent) for b in choice.bands]
        is_composite = len(bands) == 3
        shown.append(
            images.composite(bands, limits)
            if is_composite
            else images.mapped(bands[0], limits[0], palette)
        )
    return shown
