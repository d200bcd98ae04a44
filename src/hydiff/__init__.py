"""Fill missing pixels and bands in a hyperspectral cube.

>>> import hydiff
>>> cube = hydiff.sample()
>>> cube.shape, str(cube.dtype)
((200, 145, 145), 'uint16')
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hydiff import metrics, report
    from hydiff.api import fill, write
    from hydiff.cube import Cube
    from hydiff.errors import HydiffError
    from hydiff.io import read
    from hydiff.io.bundled import sample, sample_labels
    from hydiff.methods import METHODS
    from hydiff.result import Result, Step
    from hydiff.uncertainty.propagation import propagate
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
    "propagate",
    "read",
    "report",
    "sample",
    "sample_labels",
    "view",
    "write",
]

# The modules of the public names.  Each is imported when it is first used, because importing scipy
# alone takes half a second, which would delay --help.
_HOME = {
    "METHODS": "methods",
    "Cube": "cube",
    "HydiffError": "errors",
    "Result": "result",
    "Step": "result",
    "fill": "api",
    "propagate": "uncertainty.propagation",
    "read": "io",
    "sample": "io.bundled",
    "sample_labels": "io.bundled",
    "view": "viewer",
    "write": "api",
}


def __getattr__(name: str) -> Any:
    """Return a public name, imported from its module at the first use."""
    if name in ("metrics", "report"):
        return import_module(f"hydiff.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'hydiff' has no attribute {name!r}")
    entry = globals()[name] = getattr(import_module(f"hydiff.{_HOME[name]}"), name)
    return entry


def __dir__() -> list[str]:
    """Return the public names and the modules in use, without what this file imports."""
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "annotations", "import_module"})
