"""Two detectors in one cube: one scale for both, or one for each?

    python benchmarks/detectors.py            writes benchmarks/results/detectors.csv

EnMAP Potsdam (64 × 96, 91 VNIR and 127 SWIR bands), with whole rows missing in one detector or in
both, in two units: each detector stretched to 16 bits, as in PRISMA L2, and radiance (reflectance
times the spectrum of a body at 5778 K), as in L1, where the SWIR is much darker.
NRMSE: mean over the bands of RMSE / standard deviation, of missing entries only.
"""

import csv

import numpy as np

import hydiff
from classical import DATA, ROOT

RESULTS = ROOT / "benchmarks" / "results" / "detectors.csv"
ROWS = {  # missing rows of VNIR and SWIR
    "4 rows of the SWIR": (range(0), range(30, 34)),
    "4 rows of the VNIR": (range(30, 34), range(0)),
    "6 rows of each, apart": (range(20, 26), range(40, 46)),
    "4 rows of both": (range(30, 34), range(30, 34)),
}


def nrmse(values, truth, missing):
    bands = [b for b in range(len(truth)) if missing[b].any()]
    errors = [np.sqrt(np.mean((values[b] - truth[b])[missing[b]] ** 2)) for b in bands]
    return float(np.mean(np.array(errors) / truth[bands].std(axis=(1, 2))))


def stretched(cube, parts):
    """Each part from 0 to 65535."""
    out = np.empty_like(cube)
    for part in parts:
        low, high = cube[part].min(), cube[part].max()
        out[part] = (cube[part] - low) / (high - low) * 65535
    return out


def radiance(cube, wavelengths):
    """Times Planck's law; wavelengths in nm."""
    x = 1.438777e7 / (wavelengths * 5778)
    return cube * (1e15 / wavelengths**5 / np.expm1(x))[:, None, None]


def main():
    with np.load(DATA / "dev" / "enmap_potsdam_64x96.npz") as scene:
        reflectance = scene["cube"].transpose(2, 0, 1).astype(np.float64)
        wavelengths = scene["wavelength_nm"].astype(np.float64)
    bands = len(wavelengths)
    first_swir = int(np.argmax(np.diff(wavelengths) < 0)) + 1  # the detectors overlap
    parts = [slice(0, first_swir), slice(first_swir, bands)]
    detector = ["VNIR"] * first_swir + ["SWIR"] * (bands - first_swir)
    units = {
        "16 bits each": stretched(reflectance, parts),
        "radiance": radiance(reflectance, wavelengths),
    }
    with RESULTS.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["unit", "missing", "harmonic", "one", "each"])
        for unit, truth in units.items():
            for name, rows in ROWS.items():
                observed = np.ones(truth.shape, bool)
                for part, lost in zip(parts, rows, strict=True):
                    observed[part, list(lost)] = False
                figures = []
                for method, attrs in (
                    ("harmonic", {}),
                    ("smooth", {}),
                    ("smooth", {"detector": detector}),
                ):
                    cube = hydiff.Cube(truth, attrs=attrs)
                    filled = hydiff.fill(cube, observed, method=method).values
                    figures.append(f"{nrmse(filled, truth, ~observed):.4f}")
                table.writerow([unit, name, *figures])


if __name__ == "__main__":
    main()
