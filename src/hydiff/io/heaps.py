"""Check the global heaps of an HDF5 file, which hold texts of any length, before HDF5 reads them.

HDF5 steps through a heap by the lengths of its objects, so that a free object of length 0 keeps it
busy for ever.  Found in fuzzing, with HDF5 2.0.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from hydiff.io.parsing import damaged

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MARK = b"GCOL\x01\0\0\0"  # with the version; then follow the heap's length and its objects
OBJECT = struct.Struct("<HHIQ")  # index (0: free), references, reserved, length
SCANNED = 64 << 20  # bytes; longer files are not searched, since that would take too long


def check(path: Path) -> None:
    """Raise CubeFormatError for a heap that would keep HDF5 busy for ever."""
    with path.open("rb") as file:
        if not 0 < path.stat().st_size <= SCANNED:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if _length_size(data) != 8:
                return  # current software writes lengths of 8 bytes
            offset = data.find(MARK)
            while offset >= 0:
                if _loops(data, offset):
                    raise damaged(
                        path, f"a heap of texts at byte {offset} has an object without an end"
                    )
                offset = data.find(MARK, offset + 1)


def _length_size(data: mmap.mmap) -> int:
    """Return the size of lengths by the superblock, at the start or after a user block; else 0."""
    offset = 0
    while data[offset : offset + 8] != SIGNATURE:
        offset = 2 * offset or 512
        if offset + 16 > len(data):
            return 0
    return data[offset + (14 if data[offset + 8] < 2 else 10)]


def _loops(data: mmap.mmap, offset: int) -> bool:
    """Return whether the heap at `offset` has a free object of length 0."""
    end = min(offset + int.from_bytes(data[offset + 8 : offset + 16], "little"), len(data))
    offset += 16
    while offset + OBJECT.size <= end:
        index, _, _, length = OBJECT.unpack_from(data, offset)
        if index == length == 0:
            return True
        offset += OBJECT.size + length + -length % 8 if index else length
    return False
