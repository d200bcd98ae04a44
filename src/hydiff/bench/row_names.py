"""Names of cells in the rows of a table."""

from __future__ import annotations

import json

from hydiff.bench import scenes
from hydiff.bench.cells import Cell

OURS = "hydiff-ei"  # the method whose settings are varied in tables
EQUIVARIANT = ("ei", "robust-ei", OURS)
FOR_FEWER = 2000  # iterations of DHP and R-DLRHyIn that the paper's times would allow
ASSUMED_NOISE = 0.1  # σ_0 of DDS2M's published code, whatever the data

# Settings that name a row where they are changed
VARIED = (
    "ei_weight", "transform", "eps0", "data_term", "remeasure_noise", "x0_from", "ei_reduction",
    "weighting", "noise_term", "n_transforms", "precision",
)  # fmt: skip


def row_name(cell: Cell) -> str:
    """Return the name of the row of a cell: its method, or the settings that are changed."""
    remark = ", on what it learned from" if cell.scene == scenes.OFFLINE_SEEN else ""
    return _row_name(cell) + remark


def _row_name(cell: Cell) -> str:
    """Return the name of the row, without the remark on seen training areas."""
    changed = json.loads(cell.settings)
    variants = [changed["preset"]] if "preset" in changed else []
    variants += ["tuned"] if "tuned" in changed else []
    variant = f" ({', '.join(variants)})" if variants else ""
    if "offline" in changed:
        return f"offline {changed['offline']['crops']}{variant}"
    varied = ", ".join(f"{key} {changed[key]}" for key in VARIED if key in changed)
    if varied and cell.method in EQUIVARIANT:
        return (varied if cell.method == OURS else f"{cell.method}, {varied}") + variant
    if changed.get("steps") == FOR_FEWER:
        return f"{cell.method} {FOR_FEWER}{variant}"
    if "sigma_0" in changed:
        return f"{cell.method}, σ_0 {changed['sigma_0']}{variant}"
    if "budget" in changed:
        estimated = ", σ estimated" if "noise" in changed else ""
        without_prior = ", without the prior" if changed.get("no_prior") else ""
        with_image = " with reference" if "reference" in changed else ""
        return f"{cell.method} {changed['budget']}{estimated}{without_prior}{with_image}"
    return cell.method + variant
