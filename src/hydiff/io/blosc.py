"""Check chunks compressed by Blosc before the library reads them.

Blosc trusts the lengths in a chunk's header and reads beyond the end of a chunk that is shorter,
which can end the process.  By its manual (`blosc_cbuffer_validate`) it is safe if the compressed
length in the header is the true one; its Python bindings do not check that.
"""

from __future__ import annotations

import struct
from typing import Any

import numcodecs
import zarr
from zarr.codecs import BloscCodec
from zarr.registry import register_codec

from hydiff.io.parsing import LARGEST_CHUNK

HEADER = struct.Struct("<4B3i")  # versions of format and codec, flags, type size; three lengths
VERSION = 2  # of the chunk format, the only one since Blosc 1.0


def check(chunk: Any) -> None:
    """Raise ValueError unless the header of a chunk (any buffer of bytes) has its true length."""
    data = memoryview(chunk).cast("B")
    if len(data) < HEADER.size:
        raise ValueError(f"a Blosc chunk of {len(data)} bytes, shorter than its header")
    version, _, _, size, nbytes, block, packed = HEADER.unpack_from(data)
    if version != VERSION or packed != len(data):
        raise ValueError(f"a Blosc chunk that should have {packed} bytes but has {len(data)}")
    if not (size > 0 and 0 <= nbytes <= LARGEST_CHUNK and 0 <= block <= max(nbytes, 1)):
        raise ValueError(f"a Blosc chunk of {nbytes} bytes in blocks of {block}")


class Blosc(numcodecs.Blosc):  # type: ignore[misc]  # numcodecs has no types for it
    """Checked codec for Zarr version 2, and for `numcodecs.blosc` in version 3."""

    def decode(self, buf: Any, out: Any = None) -> Any:
        check(buf)
        return super().decode(buf, out)


class Blosc3(BloscCodec):
    """Checked codec for Zarr version 3."""

    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        check(chunk_bytes.as_numpy_array())
        return super()._decode_sync(chunk_bytes, chunk_spec)


def guard() -> None:
    """Make zarr use these two codecs in this process."""
    numcodecs.register_codec(Blosc)
    register_codec("blosc", Blosc3)
    zarr.config.set({"codecs.blosc": f"{Blosc3.__module__}.{Blosc3.__qualname__}"})
