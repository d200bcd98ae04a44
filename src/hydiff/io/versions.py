"""Which software made a result."""

from __future__ import annotations

import importlib.metadata
import platform
from functools import cache


def versions(*packages: str) -> dict[str, str]:
    """Python's and each package's that is installed; hydiff's own even where it is on the path."""
    import hydiff

    own = {"python": platform.python_version(), "hydiff": hydiff.__version__}
    found = {name: _installed(name) for name in packages}
    return own | {name: version for name, version in found.items() if version is not None}


@cache  # its metadata are a file, and an archive has thousands of records
def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
