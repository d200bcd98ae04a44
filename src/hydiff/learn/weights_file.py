"""Files of weights: safetensors with one metadata entry, in JSON, that describes the network.

There is only one entry because safetensors writes several in no fixed order, and equal runs must
give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydiff.errors import CubeFormatError
from hydiff.io.regular import is_there

if TYPE_CHECKING:
    from torch import Tensor


class Kind(NamedTuple):
    """Properties shared by the files of weights of one kind of network."""

    entry: str  # name of the metadata entry
    layout: int  # version of the format that this hydiff reads
    wanted: str  # description of the files in messages
    again: str = "train again"  # advice in messages about damaged files


def content(path: Path, kind: Kind) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the description in a file of weights, and its tensors."""
    from safetensors import SafetensorError, safe_open

    if not is_there(path) or path.is_dir():
        raise CubeFormatError(f"{path}: no such file; expected {kind.wanted}")
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get(kind.entry, "{}"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise CubeFormatError(
            f"{path}: not a readable safetensors file ({error}); expected {kind.wanted}"
        ) from None
    if not isinstance(about, dict) or "layout" not in about:
        raise CubeFormatError(f"{path}: not {kind.wanted}; name a file that it wrote")
    if about["layout"] != kind.layout:
        raise CubeFormatError(
            f"{path}: layout {about['layout']!r}, but this hydiff reads {kind.layout}; "
            f"{kind.again}, or use the hydiff that wrote it"
        )
    return about, tensors


def whole_number(path: Path, kind: Kind, name: str, found: Any, most: int) -> int:
    """Return a number from a file; refuse it if it is not a whole number from 1 to `most`."""
    if type(found) is not int or not 1 <= found <= most:
        raise CubeFormatError(
            f"{path}: says {name} = {found!r}, expected a whole number from 1 to {most}; "
            f"{kind.again}"
        )
    return found


def check_tensors(
    path: Path, kind: Kind, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    """Refuse tensors of a file that do not fit a network or are not finite numbers in float32.

    expected: the tensors of the network.
    """
    for name in sorted(expected.keys() | tensors.keys()):
        found, wanted = (tuple(d[name].shape) if name in d else None for d in (tensors, expected))
        if found != wanted:
            raise CubeFormatError(
                f"{path}: tensor {name} is damaged, missing or not ours "
                f"(shape {found}, expected {wanted}); {kind.again}"
            )
        values, usual = tensors[name], expected[name].dtype
        if values.is_floating_point() != usual.is_floating_point:
            raise CubeFormatError(
                f"{path}: tensor {name} is damaged: {values.dtype}, expected {usual}; {kind.again}"
            )
        if not values.float().isfinite().all():
            raise CubeFormatError(
                f"{path}: tensor {name} is damaged: not all values are finite in single "
                f"precision; {kind.again}"
            )
