"""The bundled scene: AVIRIS Indian Pines, 145 × 145 pixels, 200 bands, with its land cover.

Baumgardner, Biehl and Landgrebe, 220 Band AVIRIS Hyperspectral Image Data Set: June 12, 1992
Indian Pine Test Site 3, Purdue University Research Repository, doi:10.4231/R7RX991C, CC BY 3.0.
The 20 water-absorption bands are left out; values and labels are otherwise unchanged.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hydiff.cube import Cube

CREDIT = "Baumgardner, Biehl, Landgrebe; Purdue University; doi:10.4231/R7RX991C; CC BY 3.0"


def _arrays() -> Any:
    return np.load(str(files("hydiff") / "data" / "indian_pines.npz"))


def sample() -> Cube:
    """AVIRIS Indian Pines as a Cube: (200, 145, 145) uint16, no gaps."""
    return Cube(values=_arrays()["cube"], attrs={"sensor": "AVIRIS", "credit": CREDIT})


def sample_labels() -> NDArray[np.uint8]:
    """Its land-cover classes (145, 145): 0 none, 1-16 as published with the scene."""
    labels: NDArray[np.uint8] = _arrays()["labels"]
    return labels
