"""The controls of the page and where they stand: two columns on a desk, one on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import panel as pn
from bokeh.models import Div

from hydiff.cube import Cube
from hydiff.viewer import running_fill
from hydiff.viewer.charts import MOVE, RECTANGLE, SHAPE, Curves, Picture
from hydiff.viewer.rendering import COMPOSITE, PALETTES, SINGLE

OWN = "Own choice"

WORDS = """
:host { font: 13px/1.45 system-ui, sans-serif; color: #1f2328; overflow-wrap: anywhere; }
.bk-clearfix { display: block !important; }
h1 { font-size: 20px; margin: 0; } h2 { font-size: 15px; margin: 0; } p { margin: 0; }
table { border-collapse: collapse; } td { padding: 1px 10px 1px 0; vertical-align: top; }
td:first-child { white-space: nowrap; }
.chip { color: #fff; border-radius: 9px; padding: 0 7px; font-weight: 600; }
.key { display: flex; flex-wrap: wrap; gap: 2px 14px; color: #3d444d; margin-bottom: 4px; }
.key span { white-space: nowrap; } .key svg { vertical-align: -1px; }
[role=alert] { background: #fff4e5; border-left: 4px solid #d55e00; padding: 8px 12px;
    border-radius: 4px; }
.scale { margin: 0 16px 0 54px; text-align: center; } .scale p { color: #3d444d; }
.colours { height: 12px; border: 1px solid #8a9099; border-radius: 2px; }
.ticks { position: relative; height: 25px; font-size: 12px; }
.ticks span { position: absolute; padding-top: 5px; white-space: nowrap;
    transform: translateX(-50%); }
.ticks span::before { content: ""; position: absolute; left: 50%; top: 0; height: 5px;
    border-left: 1px solid #8a9099; }
"""
TITLE = """
.bk-clearfix { display: flex !important; flex-wrap: wrap; align-items: baseline; }
h1 { margin-right: 14px; }
"""
QUIET = "p { color: #3d444d; }"
CARD = {
    "background": "#ffffff",
    "border": "1px solid #d8dce1",
    "border-radius": "8px",
    "padding": "10px 8px",
}
# What Bokeh shows without a name for screen readers gets one, also when it comes into sight later;
# a drawing has a ring when the keyboard is in it, not when it was clicked; and phones are told that
# the page fits their width.
READY = """
const calm = new CSSStyleSheet()
calm.replaceSync(".bk-events:focus:not(:focus-visible) { outline: none }")
const named = (root, parts, name) => {
    for (const part of root.querySelectorAll(parts))
        if (!part.hasAttribute("aria-label")) part.setAttribute("aria-label", name)
}
const label = (root) => {
    const title = root.querySelector(".bk-slider-title")
    if (title) named(root, ".noUi-handle", title.textContent.split(":")[0])
    for (const box of root.querySelectorAll("input[type=checkbox]"))
        box.setAttribute("aria-label", box.nextElementSibling?.textContent.trim() || "Show gaps")
    if (root.querySelector(".bk-events") && !root.adoptedStyleSheets.includes(calm))
        root.adoptedStyleSheets.push(calm)
    named(root, "progress", "Progress of the fill")
    named(root, ".bk-spin-btn-up", "One more")
    named(root, ".bk-spin-btn-down", "One less")
    named(root, ".bk-tool-overflow", "More tools")
    named(root, ".bk-events", "A drawing; what it shows is told in words beside it")
    for (const element of root.querySelectorAll("*"))
        if (element.shadowRoot) label(element.shadowRoot)
}
label(document)
document.addEventListener("focusin", () => label(document))
document.body.style.background = "#f3f4f6"
const meta = document.createElement("meta")
meta.name = "viewport"
meta.content = "width=device-width, initial-scale=1"
document.head.append(meta)
"""
# The controls come through the connection, so there are none before it stands; when it is lost they
# stay, and nobody answers them.
LOST = """
const told = document.createElement("div")
told.setAttribute("role", "alert")
told.style = "position: fixed; inset: 0 0 auto 0; z-index: 1000; padding: 8px 12px;"
    + " background: #fff4e5; border-bottom: 4px solid #d55e00; font: 14px system-ui, sans-serif"
told.textContent = "The viewer does not answer: what you do here has no effect."
    + " Start hydiff view again, and open the address that it prints."
document.body.append(told)
"""
WIDE: dict[str, Any] = {"sizing_mode": "stretch_width", "margin": (4, 6)}


class Controls:
    """Every widget of the page by its name."""

    def __init__(self, cube: Cube, presets: dict[str, tuple[int, int, int]], output: Path | None):
        rows, cols = cube.shape[1:]
        several = cube.bands > 1
        rgb = next(iter(presets.values()))

        def band(label: str, value: int) -> Any:
            return pn.widgets.IntSlider(
                label=label,
                start=1,
                end=max(cube.bands, 2),  # a slider needs two ends
                value=value + 1,
                visible=several,
                **WIDE,
            )

        self.show = select("Show", [COMPOSITE, SINGLE] if several else [SINGLE])
        self.stretch = pn.widgets.RangeSlider(
            label="Stretch, percentiles of valid pixels", end=100, value=(1, 99), step=0.5, **WIDE
        )
        self.preset = select("Colours", [*presets, OWN])
        self.rgb = [
            band(f"{name} band", value)
            for name, value in zip(("Red", "Green", "Blue"), rgb, strict=True)
        ]
        self.band = band("Band", rgb[0])
        self.palette = select("Palette", list(PALETTES), "Viridis")
        self.gaps = pn.widgets.Checkbox(label="Show gaps", margin=(10, 6))
        self.png = download("Picture (PNG)", "picture.png")
        self.reread = button("Read again")

        self.row, self.col = index("Row", rows), index("Column", cols)
        self.add, self.clear = button("Add spectrum"), button("Clear")
        self.csv = download("Spectra (CSV)", "spectra.csv")

        self.method = select("Method", list(running_fill.NAMES))
        self.budget = select("Effort", list(running_fill.BUDGETS), "normal")
        self.settings = text("Settings of the method", "steps=300")
        self.drag = select("Drag on the picture to", [MOVE, RECTANGLE, SHAPE])
        self.rectangle = text("Mark rows, columns as gap", "10:20, 30:40")
        self.undo = button("Unmark last")
        self.fill, self.stop, self.save = button("Fill", "primary"), button("Stop"), button("Save")
        self.stop.disabled = self.save.disabled = True
        self.name = text("Save as", "NAME.tif")
        self.name.value = "" if output is None else output.name
        self.bar = pn.indicators.Progress(value=0, max=100, height=14, visible=False, **WIDE)

        self.title, self.alert, self.state = (
            words("title", TITLE),
            words("alert"),
            words("state", QUIET),
        )
        self.scale, self.readout, self.picks = (
            words("bar"),
            words("readout"),
            words("picks"),
        )
        self.marked, self.status = words("marked"), words("status")

    def arranged(self, picture: Picture, curves: Curves) -> Any:
        """Everything in its place; a drawing each in the two columns."""
        self.swipe = pn.pane.Bokeh(picture.slider, **WIDE)
        self.colour_row = row(share(self.preset, 170), *(share(b, 100) for b in self.rgb))
        self.single_row = row(share(self.band, 220), share(self.palette, 120))
        drawing = pn.pane.Bokeh(picture.figure, sizing_mode="stretch_width")
        left = card(
            row(share(self.show, 170), share(self.stretch, 220)),
            self.colour_row,
            self.single_row,
            self.state,
            drawing,
            self.scale,
            self.swipe,
            self.readout,
            row(self.gaps, self.png, self.reread),
        )
        right = column(self._spectra(curves), self._fill())
        columns = pn.FlexBox(
            column(left), right, sizing_mode="stretch_width", align_items="flex-start", gap="12px"
        )
        return pn.Column(
            self.title, self.alert, columns, sizing_mode="stretch_width", styles={"padding": "4px"}
        )

    def _spectra(self, curves: Curves) -> Any:
        return card(
            heading("Spectra"),
            row(self.row, self.col, self.add, self.clear, self.csv),
            pn.pane.Bokeh(curves.figure, sizing_mode="stretch_width"),
            self.picks,
        )

    def _fill(self) -> Any:
        return card(
            heading("Fill"),
            row(share(self.method, 130), share(self.budget, 100), share(self.settings, 160)),
            row(share(self.drag, 160), share(self.rectangle, 160), self.undo),
            self.marked,
            row(self.fill, self.stop, share(self.name, 150), self.save),
            self.bar,
            self.status,
        )


def select(label: str, options: list[str], value: str | None = None) -> Any:
    return pn.widgets.Select(label=label, options=options, value=value or options[0], **WIDE)


def text(label: str, example: str) -> Any:
    return pn.widgets.TextInput(label=label, placeholder=example, **WIDE)


def index(label: str, length: int) -> Any:
    return pn.widgets.IntInput(
        label=label, start=0, end=length - 1, value=length // 2, width=80, margin=(4, 6)
    )


def button(label: str, kind: str = "default") -> Any:
    return pn.widgets.Button(label=label, color=kind, margin=(4, 6))


def download(label: str, filename: str) -> Any:
    """A button that hands over what its `callback` makes, through the page's own connection."""
    return pn.widgets.FileDownload(
        label=label,
        filename=filename,
        color="default",
        margin=(4, 6),
        stylesheets=[
            ":host .bk-btn a { font-size: 12px; line-height: 17.14px; padding: 6px 12px; }"
        ],
    )


def words(name: str, *styles: str) -> Any:
    """A piece of text on the page, found by its class.

    Bokeh's, because a pane of Panel's asks the network for its looks when it changes in a notebook.
    """
    return Div(css_classes=[name], stylesheets=[WORDS, *styles], **WIDE)


def heading(name: str) -> Any:
    return Div(text=f"<h2>{name}</h2>", stylesheets=[WORDS], **WIDE)


def column(*items: Any) -> Any:
    styles = {"flex": "1 1 460px", "min-width": "min(100%, 340px)", "width": "auto", "gap": "12px"}
    return pn.Column(*items, sizing_mode="stretch_width", styles=styles)


def card(*items: Any) -> Any:
    return pn.Column(*items, sizing_mode="stretch_width", styles=CARD)


def row(*items: Any) -> Any:
    return pn.FlexBox(*items, align_items="flex-end", sizing_mode="stretch_width")


def share(item: Any, least: int) -> Any:
    """A part of a row that grows, and is at least this many px wide."""
    item.styles = {"flex": f"1 1 {least}px", "width": "auto"}
    return item
