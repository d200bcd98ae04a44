"""From a library's exception to one line that says which file is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.errors import CubeFormatError, HydiffError


@contextmanager
def parsing(
    path: Path, what: str, advice: str = "check that the file is complete"
) -> Iterator[None]:
    """Turn whatever a format library raises inside the block into a CubeFormatError."""
    try:
        yield
    except (HydiffError, MemoryError):
        raise
    except Exception as error:  # the libraries raise anything from KeyError to zlib.error
        raise CubeFormatError(
            f"{path}: expected {what}, but it cannot be read as one ({first_line(error)}); {advice}"
        ) from error


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(" .,;") if lines else type(error).__name__


def check_real(dtype: np.dtype[Any], path: Path) -> None:
    """A cube holds real numbers or booleans."""
    if dtype.kind not in "biuf":
        raise CubeFormatError(
            f"{path}: holds values of type {dtype}, but a cube holds real numbers; "
            "convert it to float32 or an integer type"
        )


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same type in this machine's byte order."""
    return dtype.newbyteorder("=")


def check_dtype(dtype: np.dtype[Any], known: tuple[str, ...], format_name: str) -> None:
    """Refuse a dtype that the format to be written has no code for."""
    if native(dtype).name not in known:
        raise CubeFormatError(
            f"{format_name} cannot hold {dtype.name} values, only {', '.join(known)}; "
            "convert the values first, or write .npy, which holds any of them"
        )
