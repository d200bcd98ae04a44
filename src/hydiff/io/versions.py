"""Which software made a result."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform


def versions(*packages: str) -> dict[str, str]:
    """Python's and each package's that is installed; hydiff's own even where it is on the path."""
    import hydiff

    own = {"python": platform.python_version(), "hydiff": hydiff.__version__}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            own[name] = importlib.metadata.version(name)
    return own
