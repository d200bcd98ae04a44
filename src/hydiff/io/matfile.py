"""Check the structure of a MATLAB version 5 file before scipy reads it.

scipy uses the type code of stored numbers as an index without checking it, so a damaged or hostile
file can end the process.  Here every code and every length is checked first.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from hydiff.errors import CubeFormatError

HEADER = 128  # bytes before the first variable
MATRIX, COMPRESSED = 14, 15
NUMBERS = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18}  # codes of stored numbers and characters
HOLDERS = {1, 2, 3, 16, 17, 18}  # classes whose parts are variables: cells, structs, objects
DEEPEST = 32  # structs inside structs
PIECE = 1 << 20  # bytes that are skipped at a time

Read = Callable[[int], bytes]


def check(path: Path) -> None:
    """Raise CubeFormatError unless the file consists of variables whose parts have known types."""
    with path.open("rb") as file:
        header = file.read(HEADER)
        if 0 in header[:4]:
            return  # version 4, which has no type codes
        order = "<" if header.endswith(b"IM") else ">"
        try:
            while tag := file.read(8):
                kind, length = struct.unpack(f"{order}II", tag)
                following = file.tell() + length
                if kind == COMPRESSED:
                    inside = _inflated(file, length)
                    kind, length = struct.unpack(f"{order}II", inside(8))
                else:
                    inside = file.read
                if kind != MATRIX:
                    raise ValueError(f"a part of type {kind} where a variable should be")
                _check_matrix(inside, length, order, 0)
                file.seek(following)
        except (ValueError, struct.error, zlib.error) as error:
            raise CubeFormatError(
                f"{path}: expected a MATLAB file, but it is damaged or truncated ({error}); "
                "fetch or save it again"
            ) from error


def _check_matrix(read: Read, length: int, order: str, depth: int) -> None:
    """Check a variable of `length` bytes: flags, dimensions, name, then its numbers or parts."""
    if depth > DEEPEST:
        raise ValueError(f"variables inside variables, more than {DEEPEST} deep")
    holds_variables, number = False, 0
    while length > 0:
        kind, size, small = _tag(read(8), order)
        length -= 8
        if small:
            size = 0  # the data are inside the tag
        if size > length:
            raise ValueError(f"a part of {size} bytes in a variable with {length} left")
        if kind == MATRIX and holds_variables:
            _check_matrix(read, size, order, depth + 1)
            length -= size
        elif kind not in NUMBERS:
            raise ValueError(f"numbers of the unknown type {kind}")
        else:
            padded = min(size + -size % 8, length)
            start = _skip(read, padded)
            if number == 0:
                holds_variables = bool(start) and start[0 if order == "<" else 3] in HOLDERS
            length -= padded
        number += 1


def _tag(tag: bytes, order: str) -> tuple[int, int, bool]:
    """Return the type, the number of bytes, and whether these are inside the tag itself."""
    kind, size = struct.unpack(f"{order}II", tag)
    return (kind & 0xFFFF, kind >> 16, True) if kind >> 16 else (kind, size, False)


def _skip(read: Read, count: int) -> bytes:
    """Skip `count` bytes and return the first few of them."""
    start = b""
    while count > 0:
        part = read(min(count, PIECE))
        if not part:
            raise ValueError("it ends too early")
        start = start or part[:8]
        count -= len(part)
    return start


def _inflated(file: IO[bytes], length: int) -> Read:
    """Return a `read` function for the content of the next `length` bytes, which are compressed."""
    unpacker, remaining = zlib.decompressobj(), length

    def read(count: int) -> bytes:
        nonlocal remaining
        data = b""
        while len(data) < count and not unpacker.eof:
            packed = unpacker.unconsumed_tail
            if not packed:
                packed = file.read(min(remaining, 1 << 16))
                remaining -= len(packed)
            more = unpacker.decompress(packed, count - len(data))
            if not more and not packed:
                break
            data += more
        return data

    return read
