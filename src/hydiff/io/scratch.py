"""A scratch folder that exists as long as the object that uses it."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any


class Scratch:
    """A folder that is removed with the object; copies in other processes hold only its path."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hydiff-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path only, so that a copy does not remove the folder."""
        return _elsewhere, (str(self.folder),)


def _elsewhere(folder: str) -> Scratch:
    """Return a copy for another process; the folder is not removed with it."""
    place = Scratch.__new__(Scratch)
    place.folder = Path(folder)
    return place
