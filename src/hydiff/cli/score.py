"""`hydiff score`: compare a fill with the truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from hydiff.cli.options import Json, Var
from hydiff.cli.terminal import err, number, out, print_json
from hydiff.cube import Bools, Cube, Floats
from hydiff.errors import BadValue

if TYPE_CHECKING:
    from hydiff.maths.scoring import Verification
    from hydiff.metrics import Calibration, Scores

SAME = 1.0  # nm by which the wavelengths of a band may differ


def score(
    filled: Path,
    truth: Path,
    missing: Annotated[
        Path | None, typer.Option(help="Mask of the entries that were missing.")
    ] = None,
    observed: Annotated[
        Path | None, typer.Option(help="Mask of the measured entries instead.")
    ] = None,
    depth: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LEFT,CENTRE,RIGHT",
            help="Also score a band depth; band numbers from 0 (repeatable).",
        ),
    ] = None,
    index: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="Also score an index (A - B) / (A + B) (repeatable)."),
    ] = None,
    var: Var = None,
    json_: Json = False,
) -> None:
    """Score a filled cube against the truth, everywhere and on the missing entries alone.

    What spectra are used for comes first: error by band, angle, slope, depths and indices that were
    asked for; MPSNR, whose peak is the range of all bands together, last.
    """
    from hydiff import io, metrics
    from hydiff.io import fill_layers, provenance

    cube, reference = io.read(filled, var=var), io.read(truth, var=var)
    _check_alike(cube, reference, truth)
    features = _features(depth, "depth", 3, cube.shape[0])
    features |= _features(index, "index", 2, cube.shape[0])
    base = provenance.base_of(cube.path or filled)
    mask = io.given_mask(cube, observed, missing)
    gaps = None if mask is None else ~mask
    if gaps is None and (companions := provenance.companions(base, cube.shape, cube.mark)):
        err.print(f"missing entries by {fill_layers.file_of(base) or base}")
        gaps = companions["filled"] > 0
    scores = metrics.score(cube, reference, gaps)
    uses = {name: _use(bands, cube, reference, gaps) for name, bands in features.items()}
    values, clean = np.asarray(cube.values), np.asarray(reference.values)
    bars = provenance.calibrated(base, values, clean, cube.mark)
    if json_:
        facts = scores.to_dict() | ({"uses": uses} if uses else {})
        names = ("calibration", "verification")
        bar_scores = {
            n: b._asdict() for n, b in zip(names, bars or (), strict=False) if b is not None
        }
        print_json(facts | bar_scores)
        return
    _print_table(scores, uses)
    if bars is not None:
        _print_bars(*bars)
    if scores.unfilled:
        out.print(f"{scores.unfilled:,} entries are still missing in {filled} and were not scored")


def _check_alike(cube: Cube, reference: Cube, path: Path) -> None:
    """Refuse a truth that lies elsewhere on the map, and warn of one with other wavelengths."""
    from hydiff.io import grids
    from hydiff.maths.wavelengths import to_nanometres

    # the same CRS has many texts, such as one without a name in an ENVI header
    grids.check_same(cube, replace(reference, crs=None), path)
    ours, theirs = (to_nanometres(c.wavelengths, c.wavelength_units) for c in (cube, reference))
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return
    if (apart := float(np.abs(ours - theirs).max())) > SAME:
        err.print(f"warning: {path} has other wavelengths, by up to {apart:.4g} nm")


def _print_table(scores: Scores, uses: dict[str, dict[str, float | None]]) -> None:
    """Print the scores, with depths and indices before the last row, MPSNR."""
    table = Table("", "all", *(["gaps"] if scores.missing is not None else []))
    *first, last = scores.table()
    use_rows = [(f"{n.capitalize()}, RMSE", u["everywhere"], u["missing"]) for n, u in uses.items()]
    for label, everywhere, gaps in (*first, *use_rows, last):
        table.add_row(label, *[number(everywhere), number(gaps)][: len(table.columns) - 1])
    out.print(table)
    low, high = (number(v) for v in scores.range)
    bands = scores.per_band["psnr"][np.isfinite(scores.per_band["psnr"])]
    spread = f"{bands.min():.1f} to {bands.max():.1f} dB" if bands.size else "no figure"
    out.print(f"MPSNR: the peak is the range of the truth, {low} to {high}; bands have {spread}")


def _print_bars(bars: Calibration, verification: Verification | None) -> None:
    """Print the coverage and other scores of the error bars."""
    covered = (f"{100 * c:.0f} %" for c in bars[:3])
    out.print(f"error bars: 50, 80 and 95 % intervals cover {', '.join(covered)};", end=" ")
    out.print(f"CRPS {number(bars.crps)} (constant σ: {number(bars.crps_constant)})")
    if verification is not None and verification.repeated is not None:
        covered = (f"{100 * c:.0f} %" for c in verification.repeated)
        out.print(f"of repeated measurements, with their noise: {', '.join(covered)}")
    if verification is not None:
        score, constant = (number(s[1]) for s in verification[:2])
        out.print(f"interval score at 80 %: {score} (constant σ: {constant})", end="; ")
        off, level = max(
            (abs(c - p), p) for p, c in zip(verification.levels, verification.covered, strict=True)
        )
        out.print(f"reliability is off by at most {100 * off:.0f} % (at {100 * level:.0f} %)")
        shares = " ".join(f"{100 * share:.0f}" for share in verification.pit)
        out.print(f"PIT histogram, % in each tenth: {shares}")


def _features(texts: list[str] | None, kind: str, count: int, bands: int) -> dict[str, Any]:
    """Return the name of each depth or index → its band numbers, parsed from the options."""
    features = {}
    for text in texts or []:
        parts = text.split(",")
        numbers = tuple(int(part) for part in parts if part.strip().isdecimal())
        if not (len(parts) == len(set(numbers)) == count and max(numbers) < bands):
            raise BadValue(
                f"--{kind} {text}: expected {count} different band numbers from 0 to {bands - 1} "
                f"with commas between, e.g. --{kind} {','.join(str(b) for b in range(count))}"
            )
        features[f"{kind} {text}"] = numbers
    return features


def _use(
    bands: tuple[int, ...], cube: Cube, truth: Cube, gaps: Bools | None
) -> dict[str, float | None]:
    """Return the RMSE of a depth or an index in the cube's unit, everywhere and in the gaps."""
    from hydiff import metrics

    numbers = list(bands)
    x, t = (_with_gaps(c, numbers) for c in (cube, truth))
    where = None if gaps is None else np.broadcast_to(gaps, cube.shape)[numbers]
    rmse: Any = metrics.band_depth_rmse if len(numbers) == 3 else metrics.band_ratio_rmse
    at = tuple(range(len(numbers)))
    inside = None if where is None else rmse(x, t, at, where)
    return {"everywhere": rmse(x, t, at), "missing": inside}


def _with_gaps(cube: Cube, bands: list[int]) -> Floats:
    """(bands, rows, cols) float64, NaN where the cube has no value."""
    valid = cube.observed()[bands]
    return np.where(valid, np.asarray(cube.values)[bands].astype(np.float64), np.nan)
