"""Former names of documented modules that moved; they work in this release, with a warning."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # importing it takes as long as everything else in `import hydiff`
    Loader = MetaPathFinder = object

MOVED = {
    "hydiff.mask": "hydiff.gaps.mask",
    "hydiff.simulate": "hydiff.gaps.simulate",
    "hydiff.census": "hydiff.gaps.census",
    "hydiff.detect": "hydiff.gaps.detect",
    "hydiff.provenance": "hydiff.io.provenance",
    "hydiff.plots": "hydiff.report.plots",
}


class Finder(MetaPathFinder):
    """Finds modules under their former names, and loads them with `Copy`."""

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, Copy()) if fullname in MOVED else None


class Copy(Loader):
    """Fills a module of a former name with the names of the new module, and warns."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        import warnings

        now = MOVED[module.__name__]
        message = f"{module.__name__} is {now} now; the former name goes with the next release"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        names = vars(import_module(now)).items()
        vars(module).update({k: v for k, v in names if not k.startswith("__")})


def install() -> None:
    """Install the finder, unless it already is: the package may be imported repeatedly."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.append(Finder())
