"""Labels, units, meanings and order of expected scores."""

from __future__ import annotations

from collections.abc import Mapping

MEANING = {
    "nrmse_median": (
        "median NRMSE by band",
        "",
        "error of the typical band in its standard deviations; 1: no better than its mean",
    ),
    "poor_bands": ("share of bands above 0.9", "", "NRMSE there: hardly better than their mean"),
    "nrmse": (
        "NRMSE",
        "",
        "typical error in standard deviations of a band; 1: no better than its mean",
    ),
    "sam": ("SAM", "°", "mean angle between filled and true spectrum"),
    "mpsnr": ("MPSNR", " dB", "peak signal over error, mean of the bands"),
}  # score: (label, unit, meaning), in the order of the page
ENDS = ("nrmse_low", "nrmse_high")  # interval of the expected NRMSE, shown next to it


def in_order(scores: Mapping[str, float | None]) -> list[tuple[str, float | None]]:
    """Sort scores in the order of MEANING, without ENDS; unknown scores come last."""
    known = list(MEANING)
    scores = {name: value for name, value in scores.items() if name not in ENDS}
    return sorted(scores.items(), key=lambda s: known.index(s[0]) if s[0] in known else len(known))


def meaning(name: str) -> tuple[str, str, str]:
    """Return label, unit and meaning of a score."""
    return MEANING.get(name, (name, "", name))


def scored(name: str, value: float | None) -> str:
    """Return a score with its unit as text; – for None."""
    return "–" if value is None else f"{value:.3g}{meaning(name)[1]}"


def usually(name: str, scores: Mapping[str, float | None]) -> str:
    """Return the interval of an expected score as a part of a sentence; "" without an interval."""
    low, high = (scores.get(f"{name}_{end}") for end in ("low", "high"))
    return "" if low is None or high is None else f"; {low:.3g} to {high:.3g} in 80 % of scenes"


def foreseen(name: str, scores: Mapping[str, float | None]) -> str:
    """Return an expected score as text, with its interval in parentheses if it has one.

    The interval contains the true score in 80 % of the scenes.
    """
    low, high = (scores.get(f"{name}_{end}") for end in ("low", "high"))
    interval = "" if low is None or high is None else f" ({low:.3g} to {high:.3g})"
    return scored(name, scores.get(name)) + interval
