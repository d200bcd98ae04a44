"""Fill missing pixels and bands in a hyperspectral cube, from that cube alone.

>>> import hydiff
>>> cube = hydiff.sample()
>>> cube.shape, str(cube.dtype)
((200, 145, 145), 'uint16')
"""

from hydiff import metrics
from hydiff.api import fill
from hydiff.bundled import sample, sample_labels
from hydiff.cube import Cube
from hydiff.errors import HydiffError
from hydiff.io import read, write
from hydiff.methods import METHODS
from hydiff.result import Result, Step
from hydiff.viewer import view

__version__ = "0.1.0"
__all__ = [
    "METHODS",
    "Cube",
    "HydiffError",
    "Result",
    "Step",
    "fill",
    "metrics",
    "read",
    "sample",
    "sample_labels",
    "view",
    "write",
]
