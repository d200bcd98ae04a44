"""`hydiff explain`: explain a fill in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydiff.cli.options import Json, Var
from hydiff.cli.terminal import out, print_json
from hydiff.errors import shell

if TYPE_CHECKING:
    from hydiff.report.explanation import BlendWords, TriedShare

NOTHING = "nothing that its files could name"
CHANGES = 0.05  # least difference of a share near and far from the data for both to be printed


def explain(filled: Path, var: Var = None, json_: Json = False) -> None:
    """Explain a fill: what was decided and why, where not to trust it, and what would help.

    It reads the record, the flags and the error bars of FILLED; nothing is filled again.
    """
    from hydiff.report import explanation

    words = explanation.explain(filled, var)
    lists = {
        "Where not to trust it": [shell(line) for line in words.doubts],
        "What would help": [shell(line) for line in words.advice],
    }
    if json_:
        doubts, advice = lists.values()
        blends = [_plain(blend) for blend in words.blends]
        facts = {"summary": words.summary, "method": words.method, "blends": blends}
        print_json(facts | {"doubts": doubts, "advice": advice})
        return
    out.print(f"{filled}: {words.summary}")
    out.print("\nWhy it is filled like this")
    if words.method:
        out.print(f"  {words.method}")
    for blend in words.blends:
        _print_blend(blend)
    for head, lines in lists.items():
        out.print(f"\n{head}")
        for line in lines or [NOTHING]:
            out.print(f"  - {line}")


def _print_blend(blend: BlendWords) -> None:
    """Print the candidates of a blend, the decision, and its error by distance."""
    used = [c.name for c in blend.candidates if c.share > 0]
    text = f"{used[0]} alone" if len(used) == 1 else f"a blend of {', '.join(used)}"
    out.print(f"\n  {blend.gaps}: {text}")
    width = max(len(c.name) for c in blend.candidates)
    for candidate in blend.candidates:
        out.print(f"    {candidate.name:{width}} {_share(candidate)}  {candidate.meaning}")
    copies = f"in {blend.folds} folds each candidate filled hidden copies of such gaps"
    out.print(f"  tried: {copies if blend.folds else 'nothing'}")
    out.print(f"  decision: {blend.why}")
    if blend.errors:
        listing = ", ".join(f"{error:.2f} {distance}" for distance, error in blend.errors)
        out.print(
            f"  error on the copies, in standard deviations of a band: {listing} from the data"
        )


def _share(candidate: TriedShare) -> str:
    """Return the share of a candidate, also near and far from the data if these differ."""
    text = f"{100 * candidate.share:3.0f} %"
    if abs(candidate.near - candidate.far) < CHANGES:
        return text
    return f"{text} ({100 * candidate.near:.0f} % near the data, {100 * candidate.far:.0f} % far)"


def _plain(blend: BlendWords) -> dict[str, Any]:
    """Return a blend as plain dictionaries and lists, for JSON."""
    errors = [{"distance": distance, "error": error} for distance, error in blend.errors]
    candidates = [candidate._asdict() for candidate in blend.candidates]
    return blend._asdict() | {"candidates": candidates, "errors": errors}
