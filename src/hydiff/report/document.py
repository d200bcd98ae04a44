"""The report as HTML: this module makes its text and figures, templates/ has the layout."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hydiff.auto.classes import EDGES
from hydiff.auto.recipe import MODEL, KindRecipe
from hydiff.auto.wording import is_note
from hydiff.cube import Array, Floats
from hydiff.errors import shell
from hydiff.flags import shares
from hydiff.gaps.rule import left_lines
from hydiff.io.record import Entries, Record, SigmaBudget
from hydiff.maths.scoring import Verification
from hydiff.maths.wavelengths import to_nanometres
from hydiff.metrics import Calibration
from hydiff.report import calibration_plots, plots, scene_pictures, score_words
from hydiff.report.scene_pictures import KEY, Figure
from hydiff.report.survey import CloseView, Survey

ENGINE = "engine: "  # start of the note that names the device, and the weights of a network
# allow only embedded pictures and one style sheet, so that no injected script can run
POLICY = "default-src 'none'; img-src data:; style-src {}; base-uri 'none'; form-action 'none'"


class Judged(NamedTuple):
    """Scores of a fill and of its error bars against the truth."""

    table: Sequence[tuple[str, float, float | None]]  # label, all entries, those in the gaps
    bars: Calibration | None  # scores of the error bars; None if there are none
    more: Verification | None  # further scores of the error bars


@dataclass(frozen=True, eq=False)
class Story:
    """Contents of a report."""

    name: str
    record: Record
    shape: tuple[int, int, int]
    wavelengths: Array | None
    units: str | None
    survey: Survey
    close: CloseView | None
    spectra: list[Floats]  # (bands,) of each sample pixel
    truths: list[Floats] | None
    judged: Judged | None
    input_state: str


class FactTable(NamedTuple):
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def html(story: Story) -> str:
    """Return the report as one HTML page."""
    parts = (head, facts, by_kind, notes, spectra, certainty, decision, settings, origin, again)
    nm = to_nanometres(story.wavelengths, story.units)
    pictures = {
        "shown": scene_pictures.shown(story.survey, nm),
        "pictures": scene_pictures.pictures(story.survey),
        "closer": scene_pictures.closer(story.survey, story.close, story.shape[1:]),
    }
    texts = {part.__name__: part(story) for part in parts}
    return rendered("page.html", story.name, texts | pictures)


def rendered(template: str, name: str, parts: Mapping[str, Any]) -> str:
    """Render a page from a template and its parts, with the style sheet of all pages."""
    pages = Environment(
        loader=PackageLoader("hydiff.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    colours = "".join(f".{name} {{ background: rgb{rgb} }}\n" for name, (rgb, _) in KEY.items())
    style = "\n" + pages.get_template("page.css").render() + colours
    digest = b64encode(sha256(style.encode()).digest()).decode()
    return pages.get_template(template).render(
        parts,
        name=name,
        style=Markup(style),
        policy=POLICY.format(f"'sha256-{digest}'"),
    )


def head(s: Story) -> str:
    """Return the introduction: size of the cube, entries filled, and entries left missing."""
    n, r = s.record.entries, s.record
    bands, rows, cols = s.shape
    return (
        f"{bands} bands × {rows} rows × {cols} columns. {n.filled:,} of {n.missing_before:,} "
        f"missing entries were filled with {r.method} in {r.seconds:.1f} s; {_left_words(n)}"
    )


def facts(s: Story) -> list[tuple[str, str, str]]:
    """Return rows of term, value and meaning."""
    n, expected = s.record.entries, s.record.expected or {}
    return [
        ("Missing before", f"{100 * n.missing_before / n.all:.3g} %", "of all entries"),
        ("Filled", f"{n.filled:,}", "entries: one band of one pixel each"),
        ("Left missing", f"{n.missing_after:,}", "entries"),
        *(
            (
                f"Expected {label}",
                score_words.scored(name, value),
                f"in the gaps: {meaning}{score_words.usually(name, expected)}",
            )
            for name, value in score_words.in_order(expected)
            for label, _, meaning in [score_words.meaning(name)]
        ),
    ]


def by_kind(s: Story) -> FactTable | None:
    """Table of expected scores by kind of gap; None if the record has none."""
    kinds = s.record.expected_by_kind
    if not kinds:
        return None
    names = [
        name for name, _ in score_words.in_order({n: None for row in kinds.values() for n in row})
    ]
    rows = [
        (kind, *(score_words.foreseen(name, scores) for name in names))
        for kind, scores in kinds.items()
    ]
    return FactTable(("", *(score_words.meaning(name)[0] for name in names)), rows)


def notes(s: Story) -> list[str]:
    """Notes of the fill, without those that other parts of the page show.

    They name arguments as in Python; after a command they name its options.
    """
    words = shell if s.record.command else str
    lines = [words(note) for note in s.record.notes if not is_shown(note)]
    lines += [words(line) for line in left_lines(s.record.entries.left)]
    if s.input_state.startswith("CHANGED"):
        lines.append(f"the input is {s.input_state}")
    return lines


def is_shown(note: str) -> bool:
    """Whether another part of the page shows a note; warnings of few trials are repeated."""
    promised = note.startswith("expected in ") and "rests on" not in note
    return promised or note.startswith(ENGINE) or is_note(note)


def spectra(s: Story) -> list[Figure]:
    return [_spectrum(s, i) for i in range(len(s.survey.pixels))]


def _spectrum(s: Story, i: int) -> Figure:
    row, col = s.survey.pixels[i]
    values = s.spectra[i]
    filled = s.survey.filled[:, row // s.survey.every, col // s.survey.every]
    curves = [plots.Curve("Observed", np.where(filled, np.nan, values))]
    bars = None if s.survey.bars is None else s.survey.bars[:, i]
    curves.append(plots.Curve("Filled", np.where(filled, values, np.nan), bars))
    if s.truths is not None:
        curves.append(plots.Curve("Truth", s.truths[i]))
    png = plots.spectrum_png(curves, s.wavelengths, s.units)
    caption = f"Row {row}, column {col}: {int(filled.sum())} of {s.shape[0]} bands filled."
    if bars is not None and np.isfinite(bars).any():
        caption += f" Median σ {np.nanmedian(bars):.3g}."
    return Figure(png, f"Spectrum at row {row}, column {col}", caption)


def certainty(s: Story) -> dict[str, Any] | None:
    """Return what is known of the errors; None without error bars and without a truth."""
    v, recipe, judged = s.survey, s.record.recipe, s.judged
    if v.by_band is None and s.truths is None:
        return None
    bars = None if judged is None else judged.bars
    return {
        "figures": [*_bars(s), *_reliability(judged)],
        "intervals": [] if recipe is None else [_widths(part) for part in recipe.parts],
        "scores": None if judged is None else _judged(judged),
        "covered": "" if bars is None else ", ".join(f"{100 * c:.0f} %" for c in bars[:3]),
        "sharp": _sharpness(judged),
        "unscored": judged is None and s.truths is not None,
    }


def _widths(part: KindRecipe) -> str:
    """Return the half widths of the intervals in σ, and those that no copies of gaps support."""
    levels = [
        f"{level} % within {width:.2f} σ" + (f" ({MODEL})" if basis == MODEL else "")
        for level, width, basis in zip(
            (50, 80, 95), part.errors.intervals, part.errors.basis, strict=True
        )
    ]
    return f"Expected errors, in {part.gaps}: {', '.join(levels)} of the filled value."


def _judged(judged: Judged) -> FactTable:
    """Table of scores; medians over the bands come first, as they are used most."""
    rows = [(label, _number(a), _number(b)) for label, a, b in judged.table]
    rows.sort(key=lambda row: not row[0].lower().endswith("median"))
    return FactTable(("", "everywhere", "in the gaps"), rows)


def _bars(s: Story) -> Iterator[Figure]:
    by_band, relative = s.survey.by_band, s.survey.relative
    if by_band is None or relative is None or not np.isfinite(by_band).any():
        return
    png = plots.bands_png(by_band, "RMS of σ", s.wavelengths, s.units)
    yield Figure(png, "Error bars by band", "Typical error bar of each band, in the file's unit.")
    if np.isfinite(relative).any():
        top = max(float(np.nanpercentile(relative, 99)), 1e-9)
        caption = (
            f"σ in standard deviations of the band, mean of the bands of a pixel: from 0 (dark "
            f"blue) to {top:.2g} or more (yellow). Grey: nothing filled."
        )
        image = plots.heat(relative, top)
        yield Figure(plots.png_of(image), "Map of the error bars", caption, pixels=True)


def _sharpness(judged: Judged | None) -> str:
    """Proper scores of the error bars, next to those of one constant σ; "" without a truth."""
    if judged is None or judged.bars is None or judged.more is None:
        return ""
    pairs = {
        "CRPS": (judged.bars.crps, judged.bars.crps_constant),
        "interval score at 80 %": (
            judged.more.interval_score[1],
            judged.more.interval_score_constant[1],
        ),
    }
    return "; ".join(f"{n} {_number(a)}, with one σ {_number(b)}" for n, (a, b) in pairs.items())


def _reliability(judged: Judged | None) -> Iterator[Figure]:
    if judged is None or judged.more is None:
        return
    more = judged.more
    png = calibration_plots.curve_png(more.levels, more.covered)
    caption = "Share of the entries inside intervals of each level; on the line they are right."
    yield Figure(png, "Reliability curve", caption)
    caption = (
        "Where the truth falls in the predicted distributions (PIT), in tenths: level where they "
        "are right, high ends where they are too narrow, a slope where they are biased."
    )
    yield Figure(calibration_plots.histogram_png(more.pit), "PIT histogram", caption)


def decision(s: Story) -> list[dict[str, Any]]:
    """Candidates, blend weights and measured errors of `auto`, for each kind of gap."""
    return [] if s.record.recipe is None else [_decided(part) for part in s.record.recipe.parts]


def _decided(part: KindRecipe) -> dict[str, Any]:
    squares = part.errors.by_distance
    entries = {"gaps": part.gaps, "folds": part.folds, "why": part.why, "table": None}
    if squares is None:
        return entries
    weights = np.mean(part.weights, axis=2)  # mean over band groups: (candidates, distances)
    rows = [
        (distance_words(d), *(f"{100 * w:.0f} %" for w in weights[:, d]), f"{np.sqrt(square):.2f}")
        for d, square in enumerate(squares)
        if square is not None
    ]
    names = [candidate.name for candidate in part.candidates]
    table = FactTable(("distance", *names, "error"), rows)
    return entries | {"table": table, "untried": None in squares}


def settings(s: Story) -> FactTable:
    r = s.record
    sigma = r.sigma_y
    noise = f"{min(sigma):.3g} … {max(sigma):.3g}" if isinstance(sigma, tuple) else sigma
    rows = [("method", r.method), *r.settings.items(), ("seed", r.seed)]
    rows.append(("noise std assumed", noise))
    rows += [("computed by", n.removeprefix(ENGINE)) for n in r.notes if n.startswith(ENGINE)]
    rows += [("filled values", line) for line in shares(r.flags)]
    rows += [("missing because", f"{k.replace('_', ' ')}: {n:,}") for k, n in r.reasons.items()]
    rows += _budget_rows(r.budget)
    rows += [(f"tiles: {k}", v) for k, v in (r.tiles or {}).items()]
    return FactTable((), [(k, str(v)) for k, v in rows])


def _budget_rows(budget: SigmaBudget | None) -> Iterator[tuple[str, str]]:
    """Yield rows on what σ measures, and which errors it includes and does not include."""
    if budget is None:
        return
    yield "σ is of", budget.measurand
    for part in budget.included:
        yield "σ includes", f"{part.component}, correlated {part.correlation}"
    if budget.not_included:
        yield "σ does not include", ", ".join(budget.not_included)


def origin(s: Story) -> FactTable:
    r = s.record
    program, *words = r.command or ("from Python",)
    name = PurePath(program).name.replace("__main__.py", "hydiff")  # of `python -m hydiff`
    rows = [
        ("command", " ".join((name, *words))),
        ("time", r.time),
        ("input", "not a file" if r.input is None else r.input.path),
        ("its SHA-256", "" if r.input is None else r.input.sha256),
        ("input now", s.input_state),
        ("versions", ", ".join(f"{k} {v}" for k, v in r.versions.items())),
    ]
    return FactTable((), [(k, v) for k, v in rows if v])


def again(s: Story) -> str:
    """Return the command that fills another file in the same way."""
    return f"hydiff fill OTHER -o OUT --recipe {s.name}.fill.json"


def _left_words(entries: Entries) -> str:
    left = entries.missing_after
    return f"{left:,} were left missing." if left else "none was left."


def distance_words(d: int) -> str:
    """Name the d-th range of distances to the data, whose ends are EDGES."""
    low, high = (0.0, *EDGES)[d], (*EDGES, np.inf)[d]
    return f"above {low:g} px" if np.isinf(high) else f"to {high:g} px"


def _number(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.4g}"
