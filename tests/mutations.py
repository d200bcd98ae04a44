"""Changes to a JSON document that respect its structure: each node lost or replaced, one at a time.

`mutations(document, rng)` yields changed copies, every node with every replacement in an order that
the rng draws; take as many as there is time for (`itertools.islice`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

LOST = object()
Path = tuple[str | int, ...]


def nested(depth: int, kind: str = "list") -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found] if kind == "list" else {"a": found}
    return found


MARKUP = "\"'></title></style></p><script>document.title='ran'</script><img src=x onerror=alert(1)>"
REPLACEMENTS: tuple[Any, ...] = (
    *(LOST, None, True, "", "text", MARKUP, "../../x", "a\0b", "\ud800", "\x1b[31m", "é" * 5000),
    *(0, 1, -1, 0.5, -0.5, 10**30, 10**400, 1e308, 1e-320),
    *(float("nan"), float("inf"), float("-inf"), "NaN", "1"),
    *([], {}, [[]], [None], [1, "a"], [0] * 50, {"a": 1}, [1.0] * 3, [-1.0, float("inf"), 0.0]),
    *(nested(3), nested(200), nested(200, "dict")),
)


def paths(document: Any, at: Path = ()) -> Iterator[Path]:
    """Of every node, the document itself first; of a long list the first, second and last."""
    yield at
    if isinstance(document, dict):
        inner: list[str | int] = list(document)
    else:
        count = len(document) if isinstance(document, list) else 0
        inner = sorted({0, 1, count - 1} & set(range(count)))
    for key in inner:
        yield from paths(document[key], (*at, key))


def changed(document: Any, path: Path, value: Any) -> Any:
    """A copy of the document with another value at a path, or without it."""
    copy = json.loads(json.dumps(document))
    if not path:
        return None if value is LOST else value
    node = copy
    for key in path[:-1]:
        node = node[key]
    if value is LOST:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return copy


def named(document: Any) -> list[tuple[Path, Any]]:
    """Every node with every replacement."""
    return [(path, value) for path in paths(document) for value in REPLACEMENTS]


def mutations(document: Any, rng: np.random.Generator) -> Iterator[Any]:
    """Copies of a document, each with one node lost or replaced."""
    every = named(document)
    for i in rng.permutation(len(every)):
        yield changed(document, *every[i])


def dumps(document: Any) -> bytes:
    """As a file holds it; with NaN and Infinity, as Python writes them."""
    return json.dumps(document).encode()
