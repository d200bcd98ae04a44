"""Pictures of a scene before and after its fill, and maps of what was filled and what was left."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Floats
from hydiff.report import plots
from hydiff.report.survey import CloseView, Survey

LARGE = 192  # px: scenes with a longer side get a close view
KEY = {
    "measured": (plots.PLAIN, "measured"),
    "most": (plots.BLUE_RGB, "filled in most bands"),
    "fewer": (plots.SKY_RGB, "filled in some bands"),
    "left": (plots.ORANGE_RGB, "still missing in some band"),
}  # key of the map: class in the style sheet, (colour, words)


class Figure(NamedTuple):
    """A picture of the page."""

    png: bytes
    alt: str
    caption: str
    pixels: bool = False  # True: enlarge without smoothing
    key: Sequence[tuple[str, str]] = ()  # colours: class in the style sheet, words

    @property
    def source(self) -> str:
        return f"data:image/png;base64,{b64encode(self.png).decode()}"


def shown(v: Survey, nm: Floats | None) -> str:
    """Return the caption of the pictures: their bands, the colour of gaps, and the subsampling.

    nm: (bands,) wavelengths in nanometres, or None if they are unknown.
    """
    bands = ", ".join(f"band {b + 1}" + ("" if nm is None else f" ({nm[b]:.0f} nm)") for b in v.rgb)
    thinned = f" Every {v.every}th row and column is shown." if v.every > 1 else ""
    return f"Red, green and blue are {bands}, counted from 1. Missing pixels are pink.{thinned}"


def pictures(v: Survey) -> list[Figure]:
    """Return the scene before and after the fill, and maps of filled and of missing entries."""
    observed = ~(v.filled | v.left)[list(v.rgb)]
    views = [("Before", v.before, observed), ("After", v.after, ~v.left[list(v.rgb)])]
    return [*_images(views, _limits(v), "the whole scene"), *_maps(v)]


def closer(v: Survey, c: CloseView | None, sides: Sequence[int]) -> dict[str, Any] | None:
    """Close view of a large scene (rows, cols) at full resolution; None for small scenes."""
    if c is None or max(sides) <= LARGE:
        return None
    views = [("Before", c.before, c.observed), ("After", c.after, c.valid)]
    return {
        "text": f"Closer: rows {c.rows} and columns {c.cols}, every pixel.",
        "figures": list(_images(views, _limits(v), "a part")),
    }


def _limits(v: Survey) -> Floats:
    """Stretch limits (3, 2) of the observed values before the fill, for both views."""
    return plots.stretch(v.before, (0, 1, 2), ~(v.filled | v.left)[list(v.rgb)])


def _images(
    views: Sequence[tuple[str, Array, Array]], limits: Floats, part: str
) -> Iterator[Figure]:
    """Yield pictures of three bands (3, rows, cols) with one stretch, gaps in pink."""
    for name, values, valid in views:
        image = plots.composite(values, (0, 1, 2), valid, limits)
        yield Figure(plots.png_of(image), f"{name}: {part} in three bands", name, pixels=True)


def _maps(v: Survey) -> Iterator[Figure]:
    """Yield a map of filled and missing pixels; bands without any value are not part of it.

    Such bands are missing everywhere, so with them all pixels would have the same colour.
    """
    alive = ~np.asarray(v.left.all(axis=(1, 2)))
    if not alive.any():
        alive = ~alive
    image = plots.whereabouts(v.filled[alive], v.left[alive])
    key = [(kind, words) for kind, (rgb, words) in KEY.items() if _holds(image, rgb)]
    dead = int((~alive).sum())
    caption = f"Without {dead} band{'s' * (dead > 1)} that hold{'s' * (dead == 1)} no value at all."
    alt = "Map of what was filled and what was left"
    yield Figure(plots.png_of(image), alt, caption if dead else "", pixels=True, key=key)
    share = v.left[alive].mean(axis=0)
    if ((share > 0) & (share < 1)).any():  # otherwise the map above shows all of it
        image = plots.heat(np.where(share > 0, share, np.nan), 1.0)
        caption = "Still missing: from few bands (dark blue) to all bands (yellow)."
        yield Figure(plots.png_of(image), "Map of what was left missing", caption, pixels=True)


def _holds(image: Array, rgb: tuple[int, ...]) -> bool:
    return bool((image == rgb).all(axis=-1).any())
