"""From what was seen of a fill to HTML: pure, text out."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from hydiff import plots
from hydiff.cube import Array, Floats
from hydiff.metrics import Calibration
from hydiff.report.survey import CloseView, Survey
from hydiff.validate import EDGES

STYLE = """
:root { color-scheme: light }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: #fff; color: #111;
       font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.5rem; line-height: 1.2; margin: .5rem 0 }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #bbb }
p { max-width: 45rem; margin: .5rem 0 }
.row { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)) }
.pairs { grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)) }
.facts { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); padding: 0 }
.facts div { border: 1px solid #bbb; padding: .5rem .75rem }
.facts dt { font-size: .85rem; color: #444 } .facts dd { margin: 0; font-size: 1.3rem; font-weight: 600 }
.facts small { display: block; font-size: .8rem; font-weight: 400; color: #444 }
figure { margin: 0 } figcaption { font-size: .9rem; color: #333 }
img { width: 100%; max-height: 34rem; object-fit: contain; object-position: left top; display: block }
img.pixels { image-rendering: pixelated }
ul.notes { padding: .6rem 1rem .6rem 2rem; border-left: 4px solid #D55E00; background: #fdf3ec }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #ddd; vertical-align: top }
td.n, th.n { text-align: right } th, td:first-child { overflow-wrap: normal }
.wide { overflow-x: auto } @media (max-width: 30rem) { table { font-size: .85rem } th, td { padding-right: .4rem } }
code { font: .85em/1.4 ui-monospace, monospace; background: #f3f3f3; padding: .05rem .2rem }
.one { white-space: nowrap }
.key { display: inline-block; width: .8em; height: .8em; border: 1px solid #555; margin: 0 .3em 0 .6em }
@page { margin: 14mm }
@media print { html { font-size: 11px } body { font-size: 1rem; padding: 0 } figure, .facts div, tr { break-inside: avoid }
  h2 { break-after: avoid } .row { grid-template-columns: repeat(3, 1fr) }
  .pairs { grid-template-columns: repeat(2, 1fr) } .pairs img { max-height: 6cm } .wide { overflow: visible } }
"""  # noqa: E501  (CSS reads best one rule a line)
MEANING = {
    "nrmse": ("NRMSE", "", "typical error in standard deviations of a band; 1 is its mean"),
    "mpsnr": ("MPSNR", " dB", "peak signal over error, mean of the bands"),
    "sam": ("SAM", "°", "mean angle between filled and true spectrum"),
}
LARGE = 192  # pixels a side from which a close view is shown


class Judged(NamedTuple):
    """A fill held against the truth."""

    table: Sequence[tuple[str, float, float | None]]  # label, everywhere, in the gaps
    bars: Calibration | None


@dataclass(frozen=True, eq=False)
class Story:
    """All that a report tells."""

    name: str
    record: dict[str, Any]
    shape: tuple[int, int, int]
    wavelengths: Array | None
    units: str | None
    survey: Survey
    close: CloseView | None
    spectra: list[Floats]  # (bands,) of each sample pixel
    truths: list[Floats] | None
    judged: Judged | None
    input_state: str


def html(story: Story) -> str:
    """The whole page."""
    parts = (head, facts, notes, pictures, spectra, certainty, decision, settings, origin)
    body = "\n".join(line for part in parts for line in part(story))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Fill of {escape(story.name)}</title>\n<style>{STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def head(s: Story) -> Iterator[str]:
    n, r = s.record["entries"], s.record
    bands, rows, cols = s.shape
    yield f"<h1>{escape(s.name)}</h1>"
    yield (
        f"<p>{bands} bands × {rows} rows × {cols} columns. {n['filled']:,} of "
        f"{n['missing_before']:,} missing entries were filled with {escape(r['method'])} "
        f"in {r.get('seconds', 0):.1f} s; {_left_words(n)}</p>"
    )


def facts(s: Story) -> Iterator[str]:
    n = s.record["entries"]
    told = [
        ("Missing before", f"{100 * n['missing_before'] / n['all']:.3g} %", "of all entries"),
        ("Filled", f"{n['filled']:,}", "entries: one band of one pixel each"),
        ("Left missing", f"{n['missing_after']:,}", "entries"),
    ]
    for key, value in (s.record.get("expected") or {}).items():
        name, unit, meaning = MEANING.get(key, (key, "", ""))
        told.append((f"Expected {name}", f"{value:.3g}{unit}", f"in the gaps: {meaning}"))
    cells = (
        f"<div><dt>{escape(a)}</dt><dd>{escape(b)}<small>{escape(c)}</small></dd></div>"
        for a, b, c in told
    )
    yield f'<dl class="facts">{"".join(cells)}</dl>'


def notes(s: Story) -> Iterator[str]:
    """What the fill had to say, without what other parts of the page show."""
    why = (s.record.get("recipe") or {}).get("why", "\0")
    shown = [n for n in s.record["notes"] if why not in n and not n.startswith("expected in the")]
    left = s.record["entries"]["left"]
    shown += [f"left missing: {count:,} entries, {reason}" for reason, count in left.items()]
    if s.input_state.startswith("CHANGED"):
        shown.append(f"the input is {s.input_state}")
    if shown:
        yield "<h2>Before you use it</h2>"
        yield f'<ul class="notes">{"".join(f"<li>{escape(n)}</li>" for n in shown)}</ul>'


def pictures(s: Story) -> Iterator[str]:
    v = s.survey
    yield "<h2>Before and after</h2>"
    bands = ", ".join(_band(s, b) for b in v.rgb)
    told = f"Red, green and blue are {bands}. Purple is missing."
    if v.every > 1:
        told += f" Every {v.every}th row and column is shown."
    yield f"<p>{escape(told)}</p>"
    seen = ~(v.filled | v.left)[list(v.rgb)]
    views = [("Before", v.before, seen), ("After", v.after, ~v.left[list(v.rgb)])]
    limits = plots.stretch(v.before, (0, 1, 2), seen)
    yield _row([*_images(views, limits, "the whole scene"), *_maps(s)])
    if s.close is not None and max(s.shape[1:]) > LARGE:
        c = s.close
        yield f"<p>Closer: rows {c.rows} and columns {c.cols}, every pixel.</p>"
        views = [("Before", c.before, c.seen), ("After", c.after, c.valid)]
        yield _row(_images(views, limits, "a part"))


def spectra(s: Story) -> Iterator[str]:
    v = s.survey
    if not v.pixels:
        return
    yield "<h2>Spectra of sample pixels</h2>"
    yield (
        "<p>Chosen by a fixed rule: filled in most bands, one deepest in its gap, the others "
        "nearer to the data. The band around the line is ± 1 σ.</p>"
    )
    yield _row((_spectrum(s, i) for i in range(len(v.pixels))), "row pairs")


def _spectrum(s: Story, i: int) -> str:
    row, col = s.survey.pixels[i]
    values = s.spectra[i]
    filled = s.survey.filled[:, row // s.survey.every, col // s.survey.every]
    curves = [plots.Curve("Observed", np.where(filled, np.nan, values))]
    bars = None if s.survey.bars is None else s.survey.bars[:, i]
    curves.append(plots.Curve("Filled", np.where(filled, values, np.nan), bars))
    if s.truths is not None:
        curves.append(plots.Curve("Truth", s.truths[i]))
    png = plots.spectrum_png(curves, s.wavelengths, s.units)
    told = f"Row {row}, column {col}: {int(filled.sum())} of {s.shape[0]} bands filled."
    if bars is not None and np.isfinite(bars).any():
        told += f" Median σ {np.nanmedian(bars):.3g}."
    return _figure(png, f"Spectrum at row {row}, column {col}", told)


def certainty(s: Story) -> Iterator[str]:
    v, r = s.survey, s.record
    if v.by_band is None and s.judged is None and s.truths is None:
        return
    yield "<h2>How sure it is</h2>"
    if v.by_band is not None and np.isfinite(v.by_band).any():
        yield _row(_bars(s))
    widths = ((r.get("recipe") or {}).get("errors") or {}).get("intervals")
    if widths:
        listed = ", ".join(f"{w:.2f}" for w in widths)
        yield f"<p>Intervals of 50, 80 and 95 % reach {listed} σ to either side.</p>"
    if s.judged is not None:
        yield "<p>Against the truth that was given:</p>"
        rows = [(label, _number(a), _number(b)) for label, a, b in s.judged.table]
        yield _table(("", "everywhere", "in the gaps"), rows)
        if (bars := s.judged.bars) is not None:
            covered = ", ".join(f"{100 * c:.0f} %" for c in bars[:3])
            yield f"<p>The 50, 80 and 95 % intervals cover {covered} of the filled entries.</p>"
    elif s.truths is not None:
        yield "<p>Too large to be scored here: <code>hydiff score FILLED TRUTH</code> does it.</p>"


def _bars(s: Story) -> Iterator[str]:
    by_band, relative = s.survey.by_band, s.survey.relative
    assert by_band is not None and relative is not None
    png = plots.bands_png(by_band, "RMS of σ", s.wavelengths, s.units)
    yield _figure(png, "Error bars by band", "Typical error bar of each band, in the file's unit.")
    if np.isfinite(relative).any():
        top = max(float(np.nanpercentile(relative, 99)), 1e-9)
        told = (
            f"σ in standard deviations of the band, mean of the bands of a pixel: from 0 (dark "
            f"blue) to {top:.2g} or more (yellow). Grey is measured."
        )
        image = plots.heat(relative, top)
        yield _figure(plots.png_of(image), "Map of the error bars", told, "pixels")


def decision(s: Story) -> Iterator[str]:
    """What `auto` tried, what it took, and the errors it saw."""
    recipe = s.record.get("recipe")
    if not recipe:
        return
    yield "<h2>What auto did, and why</h2>"
    yield (
        f"<p>Copies of the gaps were laid over measured pixels, {recipe.get('folds', 0)} times, "
        f"and every candidate had to fill them. Decision: {escape(str(recipe.get('why', '')))}.</p>"
    )
    errors = recipe["errors"]
    if errors.get("by_distance") is None:
        yield "<p>Too few hidden pixels to tell how large the errors are.</p>"
        return
    names = [str(c["name"]) for c in recipe["candidates"]]
    weights = np.mean(recipe["weights"], axis=2)  # over band groups: (candidates, distances)
    rows = [
        (_distance(d), *(f"{100 * w:.0f} %" for w in weights[:, d]), f"{np.sqrt(square):.2f}")
        for d, square in enumerate(errors["by_distance"])
        if square is not None
    ]
    yield (
        "<p>Weight of each candidate, and the error seen in standard deviations of the band, by "
        "distance to the nearest data:</p>"
    )
    yield _table(("distance", *names, "error"), rows)
    if None in errors["by_distance"]:
        yield "<p>Other distances were not tried: no copy of the gaps reached them.</p>"


def settings(s: Story) -> Iterator[str]:
    r = s.record
    yield "<h2>Settings</h2>"
    sigma = r.get("sigma_y", 0.0)
    noise = f"{np.min(sigma):.3g} … {np.max(sigma):.3g}" if isinstance(sigma, list) else sigma
    rows = [("method", r["method"]), *r["settings"].items(), ("seed", r.get("seed"))]
    rows.append(("noise std assumed", noise))
    rows += [(f"tiles: {k}", v) for k, v in (r.get("tiles") or {}).items()]
    yield _table(("", ""), [(str(k), str(v)) for k, v in rows], numbers=False)


def origin(s: Story) -> Iterator[str]:
    r = s.record
    yield "<h2>Where it comes from</h2>"
    source = r.get("input") or {}
    command = r.get("command") or ["from Python"]
    rows = [
        ("command", " ".join([PurePath(c).name for c in command[:1]] + command[1:])),
        ("time", r.get("time", "")),
        ("input", source.get("path", "not a file")),
        ("its SHA-256", source.get("sha256", "")),
        ("input now", s.input_state),
        ("versions", ", ".join(f"{k} {v}" for k, v in r["versions"].items())),
    ]
    yield _table(("", ""), [(k, v) for k, v in rows if v], numbers=False)
    if r.get("recipe"):
        again = f"hydiff fill OTHER -o OUT --recipe {s.name}.fill.json"
        yield f"<p>The same decision on another cube: <code>{escape(again)}</code></p>"


def _left_words(entries: dict[str, Any]) -> str:
    left = entries["missing_after"]
    return f"{left:,} were left missing." if left else "none was left."


def _band(s: Story, band: int) -> str:
    nm = None if s.wavelengths is None else plots.to_nanometres(s.wavelengths, s.units)
    return f"band {band + 1}" + ("" if nm is None else f" ({nm[band]:.0f} nm)")


def _distance(d: int) -> str:
    low, high = (0.0, *EDGES)[d], (*EDGES, np.inf)[d]
    return f"above {low:g} px" if np.isinf(high) else f"to {high:g} px"


def _images(views: Sequence[tuple[str, Array, Array]], limits: Floats, what: str) -> Iterator[str]:
    """Pictures of three bands (3, rows, cols), stretched alike, gaps in purple."""
    for name, values, valid in views:
        image = plots.composite(values, (0, 1, 2), valid, limits)
        yield _figure(plots.png_of(image), f"{name}: {what} in three bands", name, "pixels")


def _maps(s: Story) -> Iterator[str]:
    v = s.survey
    key = {plots.PLAIN: "measured", plots.BLUE_RGB: "filled in most bands",
           plots.SKY_RGB: "filled in fewer", plots.ORANGE_RGB: "left in some band"}  # fmt: skip
    image = plots.whereabouts(v.filled, v.left)
    told = "".join(
        f'<span class="one"><i class="key" style="background:rgb{rgb}"></i>{name}</span>'
        for rgb, name in key.items()
        if (image == rgb).all(axis=-1).any()
    )
    alt = "Map of what was filled and what was left"
    yield _figure(plots.png_of(image), alt, told, "pixels", plain=False)
    share = v.left.mean(axis=0)
    if ((share > 0) & (share < 1)).any():  # else the map above says it all
        image = plots.heat(np.where(share > 0, share, np.nan), 1.0)
        told = "What was left, as the file marks it: share of the bands, yellow is all of them."
        yield _figure(plots.png_of(image), "Map of what was left missing", told, "pixels")


def _figure(png: bytes, alt: str, caption: str, kind: str = "", *, plain: bool = True) -> str:
    source = f"data:image/png;base64,{b64encode(png).decode()}"
    text = escape(caption) if plain else caption
    named = f' class="{kind}"' if kind else ""
    return (
        f'<figure><img{named} alt="{escape(alt)}" src="{source}">'
        f"<figcaption>{text}</figcaption></figure>"
    )


def _row(figures: Iterable[str], kind: str = "row") -> str:
    return f'<div class="{kind}">{"".join(figures)}</div>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    kind = ' class="n"' if numbers else ""
    top = "".join(f"<th{kind if i else ''}>{escape(h)}</th>" for i, h in enumerate(heads))
    lines = (
        "<tr>" + "".join(f"<td{kind if i else ''}>{escape(c)}</td>" for i, c in enumerate(row))
        + "</tr>" for row in rows
    )  # fmt: skip
    above = f"<thead><tr>{top}</tr></thead>" if any(heads) else ""
    return f'<div class="wide"><table>{above}<tbody>{"".join(lines)}</tbody></table></div>'


def _number(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.4g}"
