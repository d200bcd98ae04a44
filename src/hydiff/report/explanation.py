"""Explain a fill from its files: how it was decided, where not to trust it, what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hydiff import io
from hydiff.auto.intervals import HOPELESS
from hydiff.auto.recipe import Errors, KindRecipe, Tried
from hydiff.cube import Cube
from hydiff.flags import FAR, FLAGS, PRIOR
from hydiff.gaps.rule import left_lines
from hydiff.io import provenance
from hydiff.io.record import Record
from hydiff.maths.wavelengths import to_nanometres
from hydiff.methods import METHODS
from hydiff.report import record_of
from hydiff.report.document import distance_words, is_shown
from hydiff.report.survey import Survey, look, planes_of

WITHOUT = "without it"  # name of the candidate that does not use the reference
WORST_BANDS = 3  # number of least certain bands that are listed


class TriedShare(NamedTuple):
    """A candidate and its share in the blend."""

    name: str
    share: float  # mean over hidden entries; with a reference, over distances and bands
    near: float  # share at the smallest distance to the data that was tried
    far: float  # share at the largest distance
    meaning: str


class BlendWords(NamedTuple):
    """The decision for gaps of one kind."""

    gaps: str
    folds: int  # number of hidden copies of the gaps that it was decided on
    why: str
    candidates: list[TriedShare]
    errors: list[tuple[str, float]]  # distance to the data, error there in band stds


class Trust(NamedTuple):
    """Statistics of the error bars and gaps of a fill."""

    has_sigma: bool
    hopeless: int  # filled entries of good bands whose σ exceeds HOPELESS band stds
    at_edge: bool  # gaps reach the edge of the cube
    pixel: tuple[int, int, float] | None  # least certain pixel: row, col, mean σ in band stds
    bands: list[tuple[int, float]]  # least certain bands, RMS of their σ in band stds


@dataclass(frozen=True)
class Explanation:
    """A fill in words; options are written as Python arguments, see `errors.shell`."""

    summary: str
    method: str
    blends: list[BlendWords]
    doubts: list[str]
    advice: list[str]


def explain(filled: str | Path, var: str | None = None) -> Explanation:
    """Explain a fill from its record, its flags and its error bars; nothing is filled again.

    var: the variable to read, in files that hold several.
    """
    cube = io.read(filled, var=var)
    path = provenance.base_of(cube.path or Path(filled))
    record = record_of(path, cube)
    trust = trust_of(cube, path, look(cube, cube, path))
    n = record.entries
    return Explanation(
        summary=f"{n.filled:,} of {n.missing_before:,} missing entries were filled with "
        f"{record.method}",
        method=_meaning(record.method),
        blends=[words for part in _parts(record) for words in blends_of(part)],
        doubts=list(doubts_of(record, trust, cube)),
        advice=list(advice_for(record, trust)),
    )


def trust_of(cube: Cube, path: Path, survey: Survey) -> Trust:
    """Summarize the error bars of a fill; they are read one band at a time."""
    gaps = np.asarray((survey.filled | survey.left).any(axis=0))
    at_edge = bool(gaps[[0, -1]].any() or gaps[:, [0, -1]].any())
    if survey.by_band is None or survey.relative is None:
        return Trust(False, 0, at_edge, None, [])
    hopeless = 0
    for band, plane in enumerate(planes_of(path, cube)):
        if cube.good_bands[band] and survey.spread[band] > 0 and plane.sigma is not None:
            bound = HOPELESS * survey.spread[band]
            hopeless += int((plane.sigma[plane.filled] > bound).sum())
    by_band = np.full(cube.bands, np.nan)
    np.divide(survey.by_band, survey.spread, out=by_band, where=survey.spread > 0)
    by_band = np.where(cube.good_bands & np.isfinite(by_band), by_band, 0.0)
    worst = [int(b) for b in np.argsort(-by_band, kind="stable")[:WORST_BANDS] if by_band[b] > 0]
    pixel = None
    if np.isfinite(survey.relative).any():
        row, col = np.unravel_index(np.nanargmax(survey.relative), survey.relative.shape)
        position = int(row) * survey.every, int(col) * survey.every
        pixel = (*position, float(survey.relative[row, col]))
    return Trust(True, hopeless, at_edge, pixel, [(b, float(by_band[b])) for b in worst])


def _parts(record: Record) -> Sequence[KindRecipe]:
    """Return the recipe of each kind of gap; none if the record has no recipe."""
    return () if record.recipe is None else record.recipe.parts


def blends_of(part: KindRecipe) -> Iterator[BlendWords]:
    """Yield the blend for gaps of one kind, then the one with a reference image, if any."""
    yield _words(part.gaps, part.folds, part.why, part.candidates, part.weights, part.errors)
    if (reference := part.with_reference) is not None:
        used = "used" if reference.used else "not used"
        why = f"{reference.why}; worth {reference.worth:+.1f} dB, {used}"
        without = Tried(WITHOUT, "auto", {})
        candidates = (without, *reference.candidates)
        where = f"{part.gaps}, with another image of the place"
        yield _words(where, part.folds, why, candidates, reference.weights, reference.errors)


def _words(
    gaps: str,
    folds: int,
    why: str,
    candidates: Sequence[Tried],
    weights: Sequence[Sequence[Sequence[float]]],
    errors: Errors,
) -> BlendWords:
    """Describe one blend.

    weights: (candidates, distances, band groups).
    """
    by_distance = np.mean(weights, axis=2)  # mean over band groups: (candidates, distances)
    squares = errors.by_distance or ()
    tried = [d for d, square in enumerate(squares) if square is not None]
    near, far = (tried[0], tried[-1]) if tried else (0, by_distance.shape[1] - 1)
    shares = [
        TriedShare(
            name=c.name,
            share=float(weight.mean()) if c.share is None else c.share,
            near=float(weight[near]),
            far=float(weight[far]),
            meaning=_meaning(c.method, c),
        )
        for c, weight in zip(candidates, by_distance, strict=True)
    ]
    measured = [(distance_words(d), float(np.sqrt(squares[d] or 0.0))) for d in tried]
    return BlendWords(gaps, folds, why, shares, measured)


def _meaning(method: str, tried: Tried | None = None) -> str:
    """Summary of a method, with the settings of a candidate."""
    if tried is not None and tried.name == WITHOUT:
        return "the blend from the cube alone"
    text = METHODS[method].summary if method in METHODS else ""
    settings = {} if tried is None else tried.settings
    settings_text = ", ".join(f"{k}={v}" for k, v in settings.items())
    return f"{text} [{settings_text}]" if settings_text else text


def doubts_of(record: Record, trust: Trust, cube: Cube) -> Iterator[str]:
    """Yield reasons not to trust the fill, or parts of it."""
    filled = max(record.entries.filled, 1)
    far, prior = (record.flags.get(FLAGS[bit], 0) for bit in (FAR, PRIOR))
    if record.recipe is None:
        yield "one method was named and nothing was tried: how large its errors are is not measured"
    elif far:
        yield (
            f"{_percent(far, filled)} of the filled entries lie farther from the data than any "
            "hidden copy of the gaps: their errors are extrapolated"
        )
    if not trust.has_sigma:
        yield "there are no error bars: all filled entries look alike, near the data or far away"
    if trust.hopeless:
        yield (
            f"{_percent(trust.hopeless, filled)} of the filled entries are hardly better than the "
            f"mean of their band (σ above {HOPELESS:g} of its standard deviation)"
        )
    if trust.pixel is not None:
        row, col, error = trust.pixel
        yield (
            f"least certain pixel: row {row}, column {col}, σ {error:.2g} of the standard "
            "deviation of a band"
        )
    if trust.bands:
        bands = ", ".join(f"{_band(cube, b)} σ {error:.2g}" for b, error in trust.bands)
        yield f"least certain bands, in their standard deviations: {bands}"
    if prior:
        yield (
            f"{_percent(prior, filled)} of the filled entries have 10 % or more from a network "
            "that was trained on other images: detail there is plausible, not measured"
        )
    yield from left_lines(record.entries.left)
    yield from (n for n in record.notes if not is_shown(n) and "hardly better" not in n)


def advice_for(record: Record, trust: Trust) -> Iterator[str]:
    """Yield advice that would make the fill better or safer to use."""
    far = record.recipe is not None and record.flags.get(FLAGS[FAR], 0) > 0
    unsure = far or trust.hopeless > 0
    used = any(reference.get("share") for reference in record.references)
    if record.recipe is None:
        yield (
            "`method='auto'`: it tries several methods on hidden copies of the gaps, and gives "
            "error bars"
        )
    if record.references and not used:
        yield "a reference of another date: those that were given did not help"
    elif not record.references and (unsure or record.recipe is None):
        yield (
            "a reference, `reference='OTHER'`: another image of the place shows what lies in the "
            "gaps, and is used only where it helps on hidden copies of them"
        )
    if trust.at_edge or far:
        why = "gaps reach the edge of the cube" if trust.at_edge else "few data lie around the gaps"
        yield f"a wider window: {why}; if it was cut out of a larger scene, fill that one"
    if trust.hopeless:
        yield (
            f"`max_error={HOPELESS:g}`: leaves about {trust.hopeless:,} entries missing instead of "
            "filling them with little more than a mean"
        )
    if record.recipe is not None and record.recipe.budget != "best" and unsure:
        yield "`budget='best'`: also tries networks that are fitted to this cube; takes longer"


def _percent(count: int, total: int) -> str:
    return f"{100 * count / total:.3g} %"


def _band(cube: Cube, band: int) -> str:
    """Name a band by its number from 0, as in the options of the command line."""
    nm = to_nanometres(cube.wavelengths, cube.wavelength_units)
    return f"band {band}" + ("" if nm is None else f" ({nm[band]:.0f} nm)")
