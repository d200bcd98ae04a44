"""The default fill on scenes that nobody tuned it on: gains, losses, and how well it foresees them.

    python benchmarks/stress.py [--cells 480] [--first 0]      continues an interrupted run

Budget `normal` on a CPU, which may use all cores; one row of benchmarks/results/stress.csv per
cell, which is a scene with one mask, drawn from its number (`stress_scenes.py`): a fifth of the
cells have noise, of a given or an estimated size.  Scores are of the missing entries against the
truth without noise.  MPSNR counts a square error of LITTLE² as none, so that differences far below
the range of a scene do not count.  `half` separates scenes for choosing from scenes for confirming.
The figures of a cell that `auto` refuses are empty.
"""

import argparse
import time
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

import hydiff
from hydiff.auto import RULES
from hydiff.bench import records
from hydiff.errors import BadValue
from hydiff.gaps import mask as masks
from stress_scenes import BY_BAND, SHARED, observed_of, scene_of

RESULTS = Path(__file__).parent / "results" / "stress.csv"
LITTLE = 1e-4  # of the range of a scene
SHARED_CELLS, NOISY_CELLS = 0.85, 0.2  # shares of the cells
NOISE = (0.02, 0.2)  # σ_y, log-uniform
BESIDE = ("smooth", "harmonic", "prior")
FIELDS = (
    *("cell", "kind", "scene", "half", "bands", "rows", "cols", "mask", "missing", "width"),
    *("sigma_y", "given", "auto", *BESIDE, "share", "nrmse", "expected", "low", "high"),
    *("inside_80", "copies", "folds", "seconds", "rules"),
)


class StressCell(NamedTuple):
    """A damaged scene: truth, values with gaps (NaN) and noise, what is measured."""

    kind: str
    scene: str
    mask: str
    truth: np.ndarray
    values: np.ndarray
    observed: np.ndarray
    sigma: float
    given: bool  # σ_y is given, not estimated

    @property
    def sigma_y(self):
        return self.sigma if self.given else "auto"

    @property
    def half(self):
        """Scenes of files are in one half only."""
        return zlib.crc32(self.scene.encode()) % 2


def cell_of(number):
    """The cell of a number."""
    rng = np.random.default_rng([number, 2])
    kind, scene, truth = scene_of(number, rng)
    several = len(truth) > 2
    mask = str(rng.choice(SHARED if not several or rng.random() < SHARED_CELLS else BY_BAND))
    observed = observed_of(mask, truth.shape, rng)
    noisy = rng.random() < NOISY_CELLS
    sigma = float(np.exp(rng.uniform(*np.log(NOISE)))) if noisy else 0.0
    given = not noisy or rng.random() < 0.5
    y = truth + sigma * rng.standard_normal(truth.shape)
    return StressCell(
        kind, scene, mask, truth, np.where(observed, y, np.nan), observed, sigma, given
    )


def filled(cell, method):
    """The result of a method, on one device whatever the machine has."""
    device = {} if method in ("smooth", "harmonic") else {"device": "cpu"}
    noise = {"sigma_y": cell.sigma_y} if method != "harmonic" else {}
    return hydiff.fill(cell.values, axis="bands first", method=method, **noise, **device)


def decibels(cell, values):
    """MPSNR of the missing entries, where LITTLE does not count."""
    missing = ~cell.observed
    bands = missing.any(axis=(1, 2))
    square = np.where(missing, (values - cell.truth) ** 2, 0.0).sum(axis=(1, 2))[bands]
    square = square / missing.sum(axis=(1, 2))[bands]
    return float(np.mean(-10 * np.log10(square + LITTLE**2)))


def promised(cell, result):
    """What `auto` said of its fill, and what was so."""
    found = hydiff.metrics.nrmse_per_band(result.values, cell.truth, ~cell.observed)
    recipe, inside = result.recipe, None
    if result.sigma is not None:
        bars = np.where(cell.observed, np.nan, result.sigma)
        widths = recipe["errors"]["intervals"]
        inside = hydiff.metrics.calibration(result.values, cell.truth, bars, widths)
    share = sum(c["share"] for c in recipe["candidates"] if c["name"] == "prior")
    return {
        "share": share,
        "nrmse": float(np.nanmean(found)),
        "expected": result.expected.get("nrmse"),
        "low": result.expected.get("nrmse_low"),
        "high": result.expected.get("nrmse_high"),
        "inside_80": None if inside is None else inside.covered_80,
        "copies": recipe["errors"].get("copies"),
        "folds": recipe["folds"],
    }


def row_of(number):
    """The row of a cell."""
    cell = cell_of(number)
    gaps = (~cell.observed).any(axis=0)
    row = {
        "cell": number,
        **{key: getattr(cell, key) for key in ("kind", "scene", "half", "mask")},
        **dict(zip(("bands", "rows", "cols"), cell.truth.shape, strict=True)),
        "missing": (~cell.observed).mean(),
        "width": masks.thickness(gaps)[gaps].mean(),
        "sigma_y": cell.sigma,
        "given": int(cell.given),
        "rules": RULES,
        **scored(cell),
    }
    return {key: shown(row.get(key)) for key in FIELDS}


def scored(cell):
    """The figures of the methods; none if `auto` refuses the cell."""
    began = time.process_time()
    try:
        auto = filled(cell, "auto")
    except BadValue as error:
        print(f"refused: {error}")
        return {}
    seconds = time.process_time() - began
    beside = {method: decibels(cell, filled(cell, method).values) for method in BESIDE}
    own = {"auto": decibels(cell, auto.values), "seconds": seconds}
    return own | beside | promised(cell, auto)


def shown(value):
    """A figure of a row: four digits; empty if there is none."""
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else value


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cells", type=int, default=480)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    done = {int(row["cell"]) for row in records.read(RESULTS)}
    for number in range(chosen.first, chosen.first + chosen.cells):
        if number not in done:
            records.append(RESULTS, row_of(number), FIELDS)


if __name__ == "__main__":
    main()
