"""The files of `src`, each parsed once: most laws about the code read all of them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "hydiff"


@cache
def tree(path: Path) -> ast.Module:
    """The syntax of a file; it is shared, so nobody changes it."""
    return ast.parse(path.read_text(encoding="utf-8"))
