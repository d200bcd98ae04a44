"""Which software made a result."""

from __future__ import annotations

import importlib.metadata
import platform


def versions(*packages: str) -> dict[str, str]:
    """Python's and each package's; hydiff's own even where it is not installed but on the path."""
    import hydiff

    own = {"python": platform.python_version(), "hydiff": hydiff.__version__}
    return own | {name: importlib.metadata.version(name) for name in packages}
