"""From a scene and what the user has chosen to pictures: bands are read, stretched and coloured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from bokeh.palettes import Cividis256, Greys256, Viridis256

from hydiff.cube import Bools, Floats
from hydiff.viewer import images
from hydiff.viewer.images import Pixels, Stretch
from hydiff.viewer.scene_layers import ImageWindow, ViewedScene

COMPOSITE, SINGLE = "Colour composite", "One band"
SIGMA, ERROR = "Error bars (1 σ)", "Error against the truth"
PALETTES = {"Grey": Greys256, "Viridis": Viridis256, "Cividis": Cividis256}
CACHE = 24  # planes, for going back and forth between bands


@dataclass(frozen=True)
class Choice:
    """What the user wants to see."""

    show: str  # one of the four above
    bands: tuple[int, ...]  # from 0: red, green and blue, or one
    percent: tuple[float, float]  # percentiles shown darkest and brightest
    palette: str  # of one band


class Sight(NamedTuple):
    """The part of the scene in sight, in its pixels, and how many pixels of the screen it takes."""

    top: float
    bottom: float
    left: float
    right: float
    high: float
    wide: float


def whole_of(shape: tuple[int, int], pixels: int) -> ImageWindow:
    """All of (rows, cols) in about so many pixels."""
    return ImageWindow(0, shape[0], 0, shape[1], images.step_for(shape, pixels))


def sharper(sight: Sight, whole: ImageWindow) -> ImageWindow | None:
    """What is in sight, as fine as the screen can show it; None where `whole` is as fine."""
    top, left = max(whole.top, int(sight.top)), max(whole.left, int(sight.left))
    bottom = min(whole.bottom, int(np.ceil(sight.bottom)))
    right = min(whole.right, int(np.ceil(sight.right)))
    if bottom <= top or right <= left or sight.high < 1 or sight.wide < 1:
        return None
    dense = min((sight.bottom - sight.top) / sight.high, (sight.right - sight.left) / sight.wide)
    step = max(int(dense), images.step_for((bottom - top, right - left), images.PIXELS))
    return ImageWindow(top, bottom, left, right, step) if step < whole.step else None


class Planes:
    """Bands of a scene, (rows, cols) of a window; the latest ones stay in memory."""

    def __init__(self, scene: ViewedScene, whole: ImageWindow) -> None:
        self.scene, self.whole = scene, whole
        self._cache: dict[tuple[str, int, ImageWindow], Floats] = {}

    def get(self, layer: str, band: int, window: ImageWindow | None = None) -> Floats:
        """Of the layer of this name; "error" is the distance of the best one from the truth."""
        key = (layer, band, window or self.whole)
        if key not in self._cache:
            if len(self._cache) >= CACHE:
                self._cache.pop(next(iter(self._cache)))
            self._cache[key] = self._read(*key)
        return self._cache[key]

    def _read(self, layer: str, band: int, window: ImageWindow) -> Floats:
        if layer == "error":
            best = "before" if self.scene.after is None else "after"
            return np.abs(self.get(best, band, window) - self.get("truth", band, window))
        if layer == "sigma" and self.scene.fills is not None:
            return self.scene.fills.sigma_plane(band)[window.cut]
        plane: Floats = getattr(self.scene, layer).plane(band, window)
        return plane

    def missing(self, bands: tuple[int, ...], window: ImageWindow | None = None) -> Bools:
        """(rows, cols) where one of these bands was missing before."""
        lost = [np.isnan(self.get("before", band, window)) for band in bands]
        return np.logical_or.reduce(lost)  # type: ignore[no-any-return]


def layer_of(choice: Choice) -> str | None:
    """The layer that is shown as a map from 0 on; None for pictures of before and after."""
    return {SIGMA: "sigma", ERROR: "error"}.get(choice.show)


def limits(planes: Planes, choice: Choice) -> list[Stretch | None]:
    """For each band, of the whole picture: a look at a part does not change the colours.

    Of the measured pixels; of the filled ones where none was measured.
    """
    layer = layer_of(choice)
    if layer is not None:
        top = images.limits(planes.get(layer, choice.bands[0]), (0.0, choice.percent[1]))
        return [None if top is None else Stretch(0.0, top.high)]
    bounds = []
    for band in choice.bands:
        limit = images.limits(planes.get("before", band), choice.percent)
        if limit is None and planes.scene.after is not None:
            limit = images.limits(planes.get("after", band), choice.percent)
        bounds.append(limit)
    return bounds


def pictures(
    planes: Planes, choice: Choice, bounds: list[Stretch | None], window: ImageWindow | None = None
) -> list[Pixels]:
    """One picture, or before and after."""
    palette = images.palette(PALETTES[choice.palette])
    layer = layer_of(choice)
    names = [layer] if layer else [n for n in ("before", "after") if getattr(planes.scene, n)]
    layers = [[planes.get(name, band, window) for band in choice.bands] for name in names]
    if len(choice.bands) == 3:
        return [images.composite(bands, bounds) for bands in layers]
    return [images.mapped(bands[0], bounds[0], palette) for bands in layers]
