"""The bundled scene: AVIRIS Indian Pines, 145 × 145 pixels, 200 bands, with its land cover.

Baumgardner, Biehl and Landgrebe, 220 Band AVIRIS Hyperspectral Image Data Set: June 12, 1992
Indian Pine Test Site 3, Purdue University Research Repository, doi:10.4231/R7RX991C, CC BY 3.0.
The 20 water-absorption bands are left out; values and labels are otherwise unchanged.  Wavelengths
are those of the sensor's calibration of that season.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hydiff.cube import Cube, Floats

CREDIT = "Baumgardner, Biehl, Landgrebe; Purdue University; doi:10.4231/R7RX991C; CC BY 3.0"

# channels without a signal from the ground, counted from 1: 104-108, 150-163, 220
LEFT_OUT = (*range(104, 109), *range(150, 164), 220)


def _arrays() -> Any:
    """Open the bundled archive, with the arrays "cube" and "labels"."""
    return np.load(str(files("hydiff") / "data" / "indian_pines.npz"))


def _channels() -> Floats:
    """(3, 200) number from 1, centre and full width at half maximum in nm, of the bands in use.

    The order is that of the sensor: its four spectrometers overlap, so the centres step back where
    one ends and the next begins.
    """
    table = files("hydiff") / "data" / "indian_pines_channels.csv"
    rows: Floats = np.loadtxt(str(table), delimiter=",", skiprows=1)
    return rows[~np.isin(rows[:, 0], LEFT_OUT)].T


def sample() -> Cube:
    """AVIRIS Indian Pines as a Cube: (200, 145, 145) uint16, 400-2489 nm, no gaps."""
    _, centres, widths = _channels()
    return Cube(
        values=_arrays()["cube"],
        wavelengths=centres,
        wavelength_units="nm",
        fwhm=widths,
        attrs={"sensor": "AVIRIS", "credit": CREDIT},
    )


def sample_labels() -> NDArray[np.uint8]:
    """Land-cover classes (145, 145) of the bundled scene: 0 none, 1-16 as published with it."""
    labels: NDArray[np.uint8] = _arrays()["labels"]
    return labels
