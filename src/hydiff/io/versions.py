"""Versions of the software that made a result."""

from __future__ import annotations

import importlib.metadata
import platform
from functools import cache


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python, of hydiff, and of those packages that are installed."""
    import hydiff

    own = {"python": platform.python_version(), "hydiff": hydiff.__version__}
    installed = {name: _installed(name) for name in packages}
    return own | {name: version for name, version in installed.items() if version is not None}


@cache  # reads a file of metadata, and an archive of fills has thousands of records
def _installed(name: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
