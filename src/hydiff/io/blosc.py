"""Chunks compressed by Blosc, checked before the library sees them.

Blosc believes the lengths in a chunk's header and reads beyond a chunk that is shorter, which can
end the process.  It holds itself to be safe where the header's compressed length is the true one
(`blosc_cbuffer_validate` in its manual); its Python bindings do not look.
"""

from __future__ import annotations

import struct
from typing import Any

import numcodecs
import zarr
from zarr.codecs import BloscCodec
from zarr.registry import register_codec

from hydiff.io.parsing import LARGEST_CHUNK

HEADER = struct.Struct("<4B3i")  # version, its own of the codec, flags, type size; three lengths
VERSION = 2  # of the chunk format, the only one since Blosc 1.0


def check(chunk: Any) -> None:
    """ValueError unless the header of a chunk (any buffer of bytes) has its true length."""
    data = memoryview(chunk).cast("B")
    if len(data) < HEADER.size:
        raise ValueError(f"a Blosc chunk of {len(data)} bytes, shorter than its header")
    version, _, _, size, nbytes, block, packed = HEADER.unpack_from(data)
    if version != VERSION or packed != len(data):
        raise ValueError(f"a Blosc chunk that should have {packed} bytes but has {len(data)}")
    if not (size > 0 and 0 <= nbytes <= LARGEST_CHUNK and 0 <= block <= max(nbytes, 1)):
        raise ValueError(f"a Blosc chunk of {nbytes} bytes in blocks of {block}")


class Blosc(numcodecs.Blosc):  # type: ignore[misc]  # numcodecs has no types for it
    """The codec of version 2, and of `numcodecs.blosc` in version 3."""

    def decode(self, buf: Any, out: Any = None) -> Any:
        check(buf)
        return super().decode(buf, out)


class Blosc3(BloscCodec):
    """The codec of version 3."""

    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        check(chunk_bytes.as_numpy_array())
        return super()._decode_sync(chunk_bytes, chunk_spec)


def guard() -> None:
    """Have zarr decode by these two, in this process."""
    numcodecs.register_codec(Blosc)
    register_codec("blosc", Blosc3)
    zarr.config.set({"codecs.blosc": f"{Blosc3.__module__}.{Blosc3.__qualname__}"})
