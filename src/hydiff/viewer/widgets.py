"""Widgets and boxes in the style of the page."""

from __future__ import annotations

from typing import Any

import panel as pn
from bokeh.models import Div

from hydiff.viewer.browser import code

WORDS, TITLE = code("words.css"), code("title.css")

QUIET = "p { color: #3d444d; }"
CARD = {"background": "#ffffff", "border": "1px solid #d8dce1"}
CARD |= {"border-radius": "8px", "padding": "8px 8px"}
STRETCH: dict[str, Any] = {"sizing_mode": "stretch_width"}
MARGIN: dict[str, Any] = {"margin": (3, 6)}
WIDE = STRETCH | MARGIN
LINK = ":host .bk-btn a { font-size: 12px; line-height: 17.14px; padding: 6px 12px; }"


def select(label: str, options: list[str], value: str | None = None) -> Any:
    first = options[0] if options else None
    return pn.widgets.Select(label=label, options=options, value=value or first, **WIDE)


def check(label: str, value: bool = False) -> Any:
    return pn.widgets.Checkbox(label=label, value=value, margin=(8, 6))


def text(label: str, example: str) -> Any:
    return pn.widgets.TextInput(label=label, placeholder=example, **WIDE)


def index(label: str, length: int) -> Any:
    """Return a field for a row or column number below `length`."""
    middle, last = length // 2, length - 1
    return pn.widgets.IntInput(label=label, start=0, end=last, value=middle, width=80, **MARGIN)


def button(label: str, kind: str = "default") -> Any:
    return pn.widgets.Button(label=label, color=kind, **MARGIN)


def download(label: str, filename: str) -> Any:
    """Return a button that sends the file made by its `callback` over the page's connection."""
    look = {"color": "default", "stylesheets": [LINK], **MARGIN}
    return pn.widgets.FileDownload(label=label, filename=filename, **look)


def words(name: str, *styles: str) -> Any:
    """Return a text with a CSS class.

    It is made by Bokeh: panes of Panel load their style from the network when they change in a
    notebook.
    """
    return Div(css_classes=[name], stylesheets=[WORDS, *styles], **WIDE)


def heading(name: str) -> Any:
    return Div(text=f"<h2>{name}</h2>", stylesheets=[WORDS], **WIDE)


def column(*items: Any) -> Any:
    styles = {"flex": "1 1 460px", "min-width": "min(100%, 340px)", "width": "auto", "gap": "12px"}
    return pn.Column(*items, styles=styles, **STRETCH)


def card(*items: Any) -> Any:
    return pn.Column(*items, styles=CARD, **STRETCH)


def over(*items: Any) -> Any:
    """Place items over the first one, each at its own position."""
    return pn.Column(*items, styles={"position": "relative"}, **STRETCH)


def row(*items: Any) -> Any:
    return pn.FlexBox(*items, align_items="flex-end", **STRETCH)


def share(item: Any, least: int) -> Any:
    """Let an item of a row grow; least: its minimum width in px."""
    item.styles = {"flex": f"1 1 {least}px", "width": "auto"}
    return item
