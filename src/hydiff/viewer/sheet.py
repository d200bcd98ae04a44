"""An image layer of the picture: two versions with a line between them, and the gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh import models
from bokeh.models import ColumnDataSource

from hydiff.cube import Bools
from hydiff.viewer import images
from hydiff.viewer.charts import GAPS
from hydiff.viewer.images import Pixels
from hydiff.viewer.scene_layers import ImageWindow

SHADED, OUTLINED, HIDDEN = "Shaded", "Outlined", "Hidden"  # how gaps are marked
OPACITY = {SHADED: 0.55, OUTLINED: 1.0}


class Sheet:
    """An image that the browser combines of two, left and right of the line, and its gaps."""

    def __init__(self, on: Any, name: str, window: ImageWindow) -> None:
        self.none = np.zeros((0, 0), np.uint32)
        blank, place = np.zeros((1, 1), np.uint32), placed(window)
        self.pair = ColumnDataSource({"before": [self.none], "after": [blank], **place})
        self.shown = ColumnDataSource({"image": [blank], **place}, name=name)
        gaps = blank.astype(np.uint8)
        self.missing = ColumnDataSource({"image": [gaps], **place}, name=f"{name} gaps")
        at = {key: key for key in ("image", *place)}
        self.image = on.image_rgba(**at, source=self.shown, level="image")
        mapper = models.LinearColorMapper(palette=["rgba(0,0,0,0)", GAPS], low=0, high=1)
        self.overlay = on.image(**at, source=self.missing, color_mapper=mapper, level="image")
        self.how = HIDDEN
        self._gaps: tuple[Bools, ImageWindow] | None = None
        self._sent: tuple[str, ImageWindow, bytes] | None = None

    def show(self, pictures: Sequence[Pixels], missing: Bools, window: ImageWindow) -> None:
        """Show one or two images (rows, cols, 4), and their gaps (rows, cols)."""
        before = images.packed(pictures[0]) if len(pictures) == 2 else self.none
        after = images.packed(pictures[-1])
        place = placed(window)
        self.pair.data = {"before": [before], "after": [after], **place}
        if self.pair.document is None:  # no browser yet to combine the two
            whole = images.swiped(pictures[0], pictures[-1], round(0.5 * after.shape[1]))
            self.shown.data = {"image": [images.packed(whole)], **place}
        self._gaps = missing, window
        self.mark(self.how)

    def mark(self, how: str) -> None:
        """Mark the gaps as SHADED, OUTLINED or HIDDEN."""
        self.how = how
        self.overlay.visible = how != HIDDEN and self.image.visible
        if self._gaps is None or how == HIDDEN:
            return
        missing, window = self._gaps
        key = (how, window, np.packbits(missing).tobytes())
        if key == self._sent:  # unchanged: most bands share their gaps
            return
        self._sent = key
        if how == OUTLINED:
            missing = images.outlined(missing)
        self.overlay.glyph.global_alpha = OPACITY[how]
        self.missing.data = {"image": [missing.astype(np.uint8)], **placed(window)}


def placed(window: ImageWindow) -> dict[str, list[int]]:
    """Return the position and size of the image of a window on the picture."""
    top, bottom, left, right, step = window
    high, wide = (-(-n // step) * step for n in (bottom - top, right - left))
    return {"x": [left], "y": [top], "dw": [wide], "dh": [high]}
