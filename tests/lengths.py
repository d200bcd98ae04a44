"""How long are the files and functions of `src`?  `python tests/lengths.py` prints the table.

Lines of a function are those from its `def` to its end, less its docstring; a function inside
another counts by itself too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sources import PACKAGE as SOURCE
from sources import tree

LONG_FILE = 400  # lines; above it a file has its reason here
REASONS = {
    "cube.py": "the words that every other file uses: what a cube is, where it lies, how it scales",
    "metrics.py": "one function a measure, and the table of all",
}


class Function(NamedTuple):
    """One function or method of a file."""

    file: str
    name: str
    lines: int


def functions(source: Path = SOURCE) -> list[Function]:
    """Every function below a folder, the longest first."""
    found = [f for path in sorted(source.rglob("*.py")) for f in _functions_of(path, source)]
    return sorted(found, key=lambda f: -f.lines)


def _functions_of(path: Path, source: Path) -> Iterator[Function]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            end = node.end_lineno or node.lineno
            yield Function(
                str(path.relative_to(source)),
                node.name,
                end - node.lineno + 1 - _docstring_lines(node),
            )


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a docstring."""
    if ast.get_docstring(node) is None:
        return 0
    first = node.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


def files(source: Path = SOURCE) -> dict[str, int]:
    """Lines of every file below a folder, the longest first."""
    paths = source.rglob("*.py")
    lines = {str(p.relative_to(source)): p.read_text(encoding="utf-8").count("\n") for p in paths}
    return dict(sorted(lines.items(), key=lambda entry: -entry[1]))


def summary(lines: list[int]) -> tuple[float, float, int]:
    """Median, 90th percentile and maximum."""
    return float(np.median(lines)), float(np.percentile(lines, 90)), max(lines)


def main() -> None:
    found, lengths = functions(), files()
    print("| | number | median | 90th percentile | longest |\n|---|---|---|---|---|")
    for name, lines in (("functions", [f.lines for f in found]), ("files", [*lengths.values()])):
        median, most, longest = summary(lines)
        print(f"| {name} | {len(lines)} | {median:.0f} | {most:.0f} | {longest} |")
    print("\nlongest functions:")
    for function in found[:12]:
        print(f"{function.lines:4} {function.file}: {function.name}")
    print(f"\nfiles above {LONG_FILE} lines:")
    for file, count in lengths.items():
        if count > LONG_FILE:
            print(f"{count:4} {file}: {REASONS.get(file, 'no reason given')}")


if __name__ == "__main__":
    main()
