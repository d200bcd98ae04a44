"""Models of a second image, on training places at two dates that are not used for evaluation.

python benchmarks/reference_places.py [--side 112]        continues an interrupted run

Writes benchmarks/results/reference_places.csv, a row for each place and mask, and prints means.
`auto` decides with budget `fast` on a CPU, without a prior.  Gains are in dB over `smooth` without
another image, in the gaps, mean over the bands.  These rows serve to choose the constants of fills
from another image; the pairs of `hydiff bench reference` evaluate them.
"""

import argparse
from itertools import product
from pathlib import Path

import numpy as np

import hydiff
from hydiff.auto.candidates import CORRECTED, WITH_REFERENCE
from hydiff.bench import pairs, records, scenes
from hydiff.cube import Cube
from hydiff.methods import choose
from hydiff.methods.estimate import Job, estimate
from hydiff.reference.planes import prepare
from hydiff.request import MAX_SHIFT

RESULTS = Path(__file__).parent / "results" / "reference_places.csv"
MODELS = {
    "regression": ("reference", {"context": 0}),
    "matched copy": ("matched-copy", {}),
    "similar pixels of others": ("similar-pixels", {}),
    "reference": ("reference", {}),
    "local gain": ("reference", {"context": 0, "local": 12.0}),
    **{c.name: (c.method, dict(c.settings)) for c in (*WITH_REFERENCE, CORRECTED)},
}
NAMES = (
    *("place", "mask", "side", *MODELS, "auto without", "auto", "inside_80"),
    "expected_over_true",
)
FILL = {"device": "cpu", "budget": "fast", "no_prior": True}
NORMAL_80 = 1.2816


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=112)
    parser.add_argument("--place", nargs="*", default=places(), choices=places())
    parser.add_argument("--mask", nargs="*", default=pairs.MASKS, choices=pairs.MASKS)
    parser.add_argument("--again", action="store_true", help="what `auto` makes of rows there are")
    parser.add_argument("--models", action="store_true", help="what single models make of them")
    options = parser.parse_args()
    rows = records.read(RESULTS)
    done = {(row["place"], row["mask"], row["side"]) for row in rows}
    for place, mask in product(options.place, options.mask):
        old = options.again or options.models
        if not old and (place, mask, str(options.side)) not in done:
            rows.append({"place": place, "mask": mask, "side": str(options.side)})
            rows[-1] |= modelled(place, mask, options.side) | decided(place, mask, options.side)
            records.write(RESULTS, rows, NAMES)
    for row in rows:
        cell = row["place"], row["mask"], int(row["side"])
        row |= decided(*cell) if options.again else {}
        row |= modelled(*cell) if options.models else {}
    records.write(RESULTS, rows, NAMES)
    _summary(rows)


def places() -> list[str]:
    """Names of the places, from the keys PLACE_DATE_20m."""
    with np.load(_images()) as images:
        return sorted({key.split("_")[0] for key in images.files})


def pair(place: str, side: int) -> tuple[np.ndarray, np.ndarray]:
    """(bands, rows, cols) the later image and the earlier one, in digital numbers."""
    with np.load(_images()) as images:
        both = [images[f"{place}_{date}_20m"][:, :side, :side] for date in (2, 1)]
    return tuple(values.astype(np.float64) for values in both)


def modelled(place: str, mask: str, side: int) -> dict[str, str]:
    """The gains of all models."""
    truth, other = pair(place, side)
    observed = scenes.observed_of(mask, truth.shape)
    gaps, entries = (np.broadcast_to(m, truth.shape) for m in (~observed, observed))
    cube = Cube(np.where(observed, truth, np.nan))
    planes = prepare(Cube(other), cube, entries, place, MAX_SHIFT).planes
    job = Job(0, "cpu", references=(planes,))
    plain = estimate(cube, entries, choose("smooth"), 0.0, job).values
    before, row = _square(plain, truth, gaps), {}
    for name, (method, settings) in MODELS.items():
        values = estimate(cube, entries, choose(method, None, settings), 0.0, job).values
        values = np.where(np.isnan(values), plain, values)  # where the other image has no data
        row[name] = _gain(before, values, truth, gaps)
    return row


def decided(place: str, mask: str, side: int) -> dict[str, str]:
    """The gains of `auto`, and whether it knew its errors."""
    truth, other = pair(place, side)
    observed = scenes.observed_of(mask, truth.shape)
    gaps = np.broadcast_to(~observed, truth.shape)
    smooth, without, result = (
        hydiff.fill(truth, observed, **how)
        for how in ({"method": "smooth"}, FILL, {**FILL, "reference": other})
    )
    before, error = _square(smooth.values, truth, gaps), np.abs(result.values - truth)[gaps]
    nrmse = np.sqrt(_square(result.values, truth, gaps)) / truth.std(axis=(1, 2))
    return {
        "auto without": _gain(before, without.values, truth, gaps),
        "auto": _gain(before, result.values, truth, gaps),
        "inside_80": f"{(error <= NORMAL_80 * result.sigma[gaps]).mean():.4f}",
        "expected_over_true": f"{result.expected['nrmse'] / nrmse.mean():.3f}",
    }


def _square(values: np.ndarray, truth: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """(bands,) mean square error in the gaps."""
    return np.square(values - truth).mean(axis=(1, 2), where=gaps)


def _gain(before: np.ndarray, values: np.ndarray, truth: np.ndarray, gaps: np.ndarray) -> str:
    return f"{np.mean(10 * np.log10(before / _square(values, truth, gaps))):.3f}"


def _images() -> Path:
    return scenes.data_folder() / "train" / "sentinel2.npz"


def _summary(rows: list[dict[str, str]]) -> None:
    for name in (*MODELS, "auto without", "auto"):
        gain = np.array([float(row[name]) for row in rows])
        print(f"{name}: {gain.mean():+.2f} dB over smooth, {gain.min():+.2f} at worst")
    inside, ratio = (np.array([float(r[k]) for r in rows]) for k in NAMES[-2:])
    print(f"inside 80 % intervals {100 * inside.mean():.1f} %")
    print(
        f"expected NRMSE within 15 % in {100 * np.mean(np.abs(ratio - 1) <= 0.15):.0f} % of cells"
    )


if __name__ == "__main__":
    main()
