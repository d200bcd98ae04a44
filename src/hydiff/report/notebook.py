"""Display of a `Result` in a notebook: thumbnails with facts, a progress bar, and a figure."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, as_cube
from hydiff.report import plots
from hydiff.result import Meter, Reading, Result, Step, duration, facts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DELAY = 1.0  # seconds until the bar appears; most fills of small cubes are done by then
EVERY = 0.25  # seconds between two updates of the bar
SIDE = 320  # most rows and columns of a thumbnail
HEIGHT = 200  # px of a thumbnail on the page


@contextmanager
def progress_bar() -> Iterator[Callable[[Step], None] | None]:
    """Show a progress bar with phase, share and time left under the running cell.

    Yields the function that updates it, or None outside of a notebook.  The bar is removed when
    the fill is done.
    """
    from IPython import display as page
    from IPython import get_ipython

    if not hasattr(get_ipython(), "kernel"):
        yield None
        return
    meter, handle, last_update = Meter(), None, time.monotonic() + DELAY - EVERY

    def update(step: Step) -> None:
        nonlocal handle, last_update
        meter.step(step)
        if (now := time.monotonic()) - last_update < EVERY:
            return
        bar, last_update = page.HTML(bar_html(meter.read())), now
        if handle is None:
            handle = page.display(bar, display_id=True)
        else:
            handle.update(bar)

    try:
        yield update
    finally:
        if handle is not None:
            handle.update(page.HTML(""))


def bar_html(reading: Reading) -> str:
    """Return the bar as HTML: `trials ▇▇▇▇▇▁▁▁▁ 42 %, about 20 s left`."""
    left = "" if reading.left is None else f", about {duration(reading.left)} left"
    percent = f"{100 * reading.share:.0f} %{left}"
    return (
        f'{escape(reading.phase)} <progress value="{reading.share:.3f}" max="1" '
        f'aria-label="{escape(reading.phase)}"></progress> {percent}'
    )


class Thumbnail(NamedTuple):
    """A small picture of a cube."""

    caption: str
    image: plots.Pixels


def html(result: Result) -> str:
    """Return thumbnails and facts as HTML; all text is escaped, as notes may quote the file."""
    figures = "".join(_figure(picture) for picture in pictures(result))
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in facts(result)
    )
    return (
        f'<div><div style="display:flex;flex-wrap:wrap;gap:8px">{figures}</div>'
        f"<table>{rows}</table></div>"
    )


def _figure(picture: Thumbnail) -> str:
    """Return a thumbnail as HTML, with the image embedded."""
    source = b64encode(plots.png_of(picture.image)).decode()
    caption = escape(picture.caption)
    return (
        f'<figure style="margin:0"><img src="data:image/png;base64,{source}" alt="{caption}" '
        f'style="height:{HEIGHT}px;image-rendering:pixelated">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def pictures(result: Result) -> Iterator[Thumbnail]:
    """Yield subsampled thumbnails of the input, of the fill, and of the error bars if any."""
    cube = result.cube
    thin = (slice(None), *(slice(None, None, -(-n // SIDE)) for n in cube.shape[1:]))
    values, filled = result.values[thin], result.filled[thin]
    valid = np.isfinite(values)
    observed = valid & ~filled
    rgb = plots.rgb_shown(cube.wavelengths, observed, cube.wavelength_units)
    limits = plots.stretch(values, rgb, observed)
    for caption, mask in (("Input, gaps in pink", observed), ("Filled", valid)):
        shown = plots.complete_pixels(mask, rgb)
        yield Thumbnail(caption, plots.composite(values, rgb, shown, limits))
    if result.sigma is not None:
        bars = relative_bars(result.sigma[thin], values, observed)
        yield Thumbnail(
            "σ in standard deviations of the band: blue 0, yellow 1", plots.heat(bars, 1)
        )


def relative_bars(sigma: Array, values: Array, observed: Bools) -> Floats:
    """Mean σ of each pixel (rows, cols), in standard deviations of the observed values of a band.

    All arguments are (bands, rows, cols); NaN for pixels without an error bar.
    """
    count = np.maximum(observed.sum(axis=(1, 2)), 1)[:, None, None]
    measured = np.where(observed, values, 0).astype(np.float64)
    centred = np.where(observed, values - measured.sum(axis=(1, 2), keepdims=True) / count, 0)
    spread = np.sqrt((centred**2).sum(axis=(1, 2), keepdims=True) / count)
    valid = np.isfinite(sigma) & (spread > 0)
    shares = np.divide(sigma, spread, out=np.zeros(sigma.shape), where=valid)
    bands = valid.sum(axis=0)
    mean = np.full(bands.shape, np.nan)
    np.divide(shares.sum(axis=0), bands, out=mean, where=bands > 0)
    return mean


def figure(
    result: Result, truth: Cube | Array | None = None, pixel: tuple[int, int] | None = None
) -> Figure:
    """Draw the input, the fill, the truth if given, and a spectrum; see `plots.comparison`."""
    return plots.comparison(
        result.values,
        result.values,
        observed=np.isfinite(result.values) & ~result.filled,
        filled=result.filled,
        truth=None if truth is None else np.asarray(as_cube(truth).values),
        sigma=result.sigma,
        pixel=pixel,
        wavelengths=result.cube.wavelengths,
        wavelength_units=result.cube.wavelength_units,
        title=f"{result.method}: {int(result.filled.sum()):,} entries filled",
    )
