"""The structure of a TIFF file, read without GDAL: its pages and their tags, and a compact copy.

GDAL follows some tags to other files, and leaves the old bytes of replaced data in the file; so
tags are checked before GDAL opens a file, and pages are laid out again after GDAL has changed it.
"""

from __future__ import annotations

import re
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from hydiff.cube import Array, Bools
from hydiff.io.parsing import damaged

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
# type -> struct code; rationals are two integers
CODES = {1: "B", 2: "B", 3: "H", 4: "I", 5: "II", 6: "b", 7: "B", 8: "h", 9: "i", 10: "ii"}
CODES |= {11: "f", 12: "d", 13: "I", 16: "Q", 17: "q", 18: "Q"}
SUBFILE, WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 254, 256, 257, 258, 259, 262
SAMPLES, ROWS_PER_STRIP, PLANAR, TILE_WIDTH, TILE_HEIGHT = 277, 278, 284, 322, 323
GDAL_METADATA = 42112
OFFSETS = {273: 279, 324: 325}  # strips and tiles: the tag of their offsets -> that of their sizes
SUB_PAGES = (330, 34665, 34853, 40965)  # tags that hold offsets of further pages
UNMOVABLE = (512, 513, 519, 520, 521)  # of old JPEG: offsets that are not lists of strips
REDUCED, MASK = 1, 4  # bits of SUBFILE: the page is an overview, or a mask
DESCRIPTION = 270
IMAGEJ = re.compile(r"ImageJ=.*?^images=(\d+)", re.DOTALL | re.MULTILINE)
MOST_PAGES = 65535
MOST_TIMES = 4  # limit of the bytes of all tags, in multiples of the size of the file
PIECE = 16 << 20  # bytes that are copied at once


class Entry(NamedTuple):
    """The values of one tag of a page."""

    type: int
    number: int  # of values
    data: bytes  # in the byte order of the file; b"" where it lies beyond the end of the file


class Directory(NamedTuple):
    """A page of a file, as the list of its tags."""

    entries: list[tuple[int, Entry]]  # by tag, in the order of the file

    def numbers(self, tag: int, default: int = 0, order: str = "<") -> list[int]:
        """Return the integers of a tag, or [default] if the page lacks it."""
        entry = next((entry for key, entry in self.entries if key == tag), None)
        return [default] if entry is None else _numbers(entry, order)


class Tiff(NamedTuple):
    """The structure of a file."""

    order: str  # "<" or ">"
    big: bool  # BigTIFF, with offsets of 8 bytes
    pages: list[Directory]

    def first(self, tag: int, default: int = 0, page: int = 0) -> int:
        """Return the first number of a tag of a page."""
        return next(iter(self.pages[page].numbers(tag, default, self.order)), default)

    def metadata(self) -> Iterator[str]:
        """Yield the GDAL_METADATA of every page that has them."""
        for page in self.pages:
            for tag, entry in page.entries:
                if tag == GDAL_METADATA:
                    yield _text(entry, self.order)


def planes(file: Tiff) -> int:
    """Return the number of images of one size that a file holds one to a page, or, as ImageJ writes
    large ones, one after the other below a single page; 1 if its first page has several bands."""
    if file.first(SAMPLES, 1) > 1:
        return 1
    sizes = [
        (file.first(WIDTH, page=i), file.first(HEIGHT, page=i))
        for i in range(len(file.pages))
        if not file.first(SUBFILE, page=i) & (REDUCED | MASK)
    ]
    texts = (_text(e, file.order) for tag, e in file.pages[0].entries if tag == DESCRIPTION)
    listed = [int(found[1]) for text in texts if (found := IMAGEJ.match(text))]
    first = file.first(WIDTH), file.first(HEIGHT)
    return max(1, sizes.count(first), *listed)


def is_tiff(path: Path) -> bool:
    """Return whether a file begins as a TIFF or a BigTIFF does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) in MAGIC


def parse(file: BinaryIO, size: int, path: Path) -> Tiff:
    """Read the tags of every page in the chain of a file of `size` bytes; values stay on disk."""
    head = file.read(16)
    if head[:4] not in MAGIC:
        raise damaged(path, "expected a GeoTIFF, found another kind of file")
    order, big = "<" if head[:2] == b"II" else ">", head[2:4] in (b"+\0", b"\0+")
    offset = _unpack(order + ("Q" if big else "I"), head[8 if big else 4 :])
    pages: list[Directory] = []
    visited: set[int] = set()
    tag_bytes = 0
    while offset and offset not in visited and len(pages) < MOST_PAGES:
        visited.add(offset)
        page, offset = _page(file, offset, size, order, big)
        pages.append(page)
        tag_bytes += sum(len(entry.data) for _, entry in page.entries)
        if tag_bytes > MOST_TIMES * size:
            raise damaged(path, "its tags claim more than it holds")
    if not pages or not pages[0].entries:
        raise damaged(path, "expected a GeoTIFF, found none of its pages readable")
    return Tiff(order, big, pages)


def _page(file: BinaryIO, offset: int, size: int, order: str, big: bool) -> tuple[Directory, int]:
    """Read a page, and the offset of the next: 0 after the last, and if the file is truncated."""
    wide, head = ("Q", "HHQ") if big else ("I", "HHI")
    length = 20 if big else 12
    file.seek(offset)
    count = _unpack(order + ("Q" if big else "H"), file.read(8 if big else 2))
    count = min(count, (size - offset) // length + 1)
    table = file.read(count * length)
    following = _unpack(order + wide, file.read(struct.calcsize(wide)))
    entries, remaining = [], MOST_TIMES * size
    for i in range(len(table) // length):
        row = table[i * length : (i + 1) * length]
        tag, kind, number = struct.unpack_from(order + head, row)
        inside = row[struct.calcsize("=" + head) :]
        data = _data(file, kind, number, inside, min(size, remaining), order)
        remaining -= len(data)
        entries.append((tag, Entry(kind, number, data)))
    return Directory(entries), following


def _data(file: BinaryIO, kind: int, count: int, inside: bytes, size: int, order: str) -> bytes:
    """Return the values of a tag: from the entry itself if they fit, else from their offset."""
    if kind not in CODES:
        return inside
    length = count * struct.calcsize("=" + CODES[kind])
    if length <= len(inside):
        return inside[:length]
    offset = _unpack(order + ("Q" if len(inside) == 8 else "I"), inside)
    if offset + length > size:
        return b""
    file.seek(offset)
    return file.read(length)


def _unpack(code: str, data: bytes) -> int:
    """Return one integer; 0 if the file ends before it."""
    length = struct.calcsize(code)
    return int(struct.unpack(code, data[:length])[0]) if len(data) >= length else 0


def _integers(entry: Entry, order: str) -> Array:
    """Return the integers of an entry (n,); none if it has another type or no data."""
    code = CODES.get(entry.type, "")
    if not entry.data or len(code) != 1 or code in "fd":
        return np.zeros(0, int)
    return np.frombuffer(entry.data, order + np.dtype(code).str[1:])


def _numbers(entry: Entry, order: str) -> list[int]:
    return list(_integers(entry, order).tolist())


def _text(entry: Entry, order: str) -> str:
    """Return the text of a tag of any integer type: the low byte of each value, as libtiff does."""
    return _integers(entry, order).astype(np.uint8).tobytes().decode("utf-8", "replace")


# --- a compact copy -------------------------------------------------------------------------------


class Change(NamedTuple):
    """How a compact copy differs from its source."""

    stale: frozenset[int] = frozenset()  # bands, from 0, whose statistics no longer hold
    masks: Callable[[int], Bools] | None = None  # band -> (rows, cols): masks of single bands


def compact(source: Path, target: Path, change: Change) -> None:
    """Copy a file without the bytes that no page refers to; all tags and stored blocks stay."""
    with source.open("rb") as file:
        tiff = parse(file, source.stat().st_size, source)
        if not all(movable(page) for page in tiff.pages):
            shutil.copyfile(source, target)
            return
        with target.open("wb") as out:
            _PageCopy(file, source.stat().st_size, tiff, out, change).run()


def movable(page: Directory) -> bool:
    """Return whether all offsets of a page are known, with the sizes of the data there."""
    tags = {tag for tag, _ in page.entries}
    return not tags & set(UNMOVABLE) and all(tags >= {s} for o, s in OFFSETS.items() if o in tags)


class _PageCopy:
    """Copies the pages of a file in one pass: blocks first, then the tags that point to them."""

    def __init__(
        self, file: BinaryIO, size: int, tiff: Tiff, out: BinaryIO, change: Change
    ) -> None:
        self.file, self.size, self.tiff, self.out, self.change = file, size, tiff, out, change
        self.moved: dict[tuple[int, int], int] = {}  # (offset, bytes) of a block -> its new offset

    def run(self) -> None:
        """Write the header and all pages."""
        order, big = self.tiff.order, self.tiff.big
        mark = b"II" if order == "<" else b"MM"
        self.out.write(mark + struct.pack(order + "H", 43 if big else 42))
        if big:
            self.out.write(struct.pack(order + "HH", 8, 0))
        link = self.out.tell()
        self.out.write(bytes(8 if big else 4))
        for number, page in enumerate(self._pages()):
            link = self._page(page, link, number == 0)

    def _pages(self) -> Iterator[Directory | None]:
        """Yield the pages to write; None stands for a new page of masks of single bands."""
        subfile = [self.tiff.first(SUBFILE, page=i) for i in range(len(self.tiff.pages))]
        for page, kind in zip(self.tiff.pages, subfile, strict=True):
            if self.change.masks is None or not kind & MASK:
                yield page
        if self.change.masks is not None:
            yield None

    def _page(self, page: Directory | None, link: int, first: bool) -> int:
        """Write a page, and its offset at `link`; return the position of the next page's offset."""
        entries = self._mask_entries() if page is None else self._moved(page.entries)
        if first and self.change.stale:
            entries = [(tag, self._fresh(tag, entry)) for tag, entry in entries]
        offset = self._align()
        following = self._write_entries(entries)
        self._patch(link, offset)
        return following

    def _moved(self, entries: list[tuple[int, Entry]]) -> list[tuple[int, Entry]]:
        """Copy the blocks of a page and the pages below it; return its entries with new offsets."""
        by_tag = dict(entries)
        copies = []
        for tag, entry in entries:
            if tag in OFFSETS and OFFSETS[tag] in by_tag:
                sizes = _numbers(by_tag[OFFSETS[tag]], self.tiff.order)
                places = zip(_numbers(entry, self.tiff.order), sizes, strict=False)
                entry = self._integers([self._block(offset, size) for offset, size in places])
            elif tag in SUB_PAGES:
                below = _numbers(entry, self.tiff.order)
                entry = self._integers([self._below(offset) for offset in below], entry.type)
            copies.append((tag, entry))
        return copies

    def _block(self, offset: int, size: int) -> int:
        """Copy a strip or tile, once even if several places share it; return its new offset."""
        if offset == 0 or size == 0:  # sparse
            return offset if size else 0
        if (offset, size) not in self.moved:
            self.moved[offset, size] = self.out.tell()
            self._raw(offset, min(size, max(0, self.size - offset)))
        return self.moved[offset, size]

    def _raw(self, offset: int, size: int) -> None:
        """Copy bytes of the source to the end of the output."""
        self.file.seek(offset)
        for start in range(0, size, PIECE):
            self.out.write(self.file.read(min(PIECE, size - start)))

    def _below(self, offset: int) -> int:
        """Copy a page that a tag of another page refers to; return its new offset."""
        page, _ = _page(self.file, offset, self.size, self.tiff.order, self.tiff.big)
        entries = self._moved([entry for entry in page.entries if entry[0] not in SUB_PAGES])
        start = self._align()
        self._write_entries(entries)
        return start

    def _write_entries(self, entries: list[tuple[int, Entry]]) -> int:
        """Write a page at the end; return the position of the next page's offset, 0 for now."""
        order, big = self.tiff.order, self.tiff.big
        wide, inside, length = ("Q", 8, 20) if big else ("I", 4, 12)
        head = struct.pack(order + ("Q" if big else "H"), len(entries))
        beyond = self.out.tell() + len(head) + length * len(entries) + inside
        rows, tail = b"", b""
        for tag, entry in sorted(entries, key=lambda item: item[0]):
            rows += struct.pack(order + "HH" + wide, tag, entry.type, entry.number)
            if len(entry.data) <= inside:
                rows += entry.data.ljust(inside, b"\0")
            else:
                tail += bytes(-(beyond + len(tail)) % 8)
                rows += struct.pack(order + wide, beyond + len(tail))
                tail += entry.data
        self.out.write(head + rows)
        link = self.out.tell()
        self.out.write(bytes(inside) + tail)
        return link

    def _align(self) -> int:
        """Pad the output to a multiple of 8 bytes; return its length."""
        self.out.write(bytes(-self.out.tell() % 8))
        return self.out.tell()

    def _patch(self, link: int, offset: int) -> None:
        """Write an offset at the position `link`, and go back to the end."""
        self.out.seek(link)
        self.out.write(struct.pack(self.tiff.order + ("Q" if self.tiff.big else "I"), offset))
        self.out.seek(0, 2)

    def _integers(self, numbers: list[int], kind: int = 0) -> Entry:
        """Return an entry of integers; kind: their type, 0 for that of offsets."""
        kind = kind or (16 if self.tiff.big else 4)
        code = np.dtype(self.tiff.order + np.dtype(CODES[kind]).str[1:])
        return Entry(kind, len(numbers), np.array(numbers, code).tobytes())

    def _fresh(self, tag: int, entry: Entry) -> Entry:
        """Return GDAL's metadata without outdated statistics; other entries unchanged."""
        if tag != GDAL_METADATA:
            return entry
        text = without_statistics(_text(entry, self.tiff.order).rstrip("\0"), self.change.stale)
        data = text.encode() + b"\0"
        return Entry(2, len(data), data)

    def _mask_entries(self) -> list[tuple[int, Entry]]:
        """Write a mask for each band as a deflated strip of bits; return the entries of their page.

        GDAL reads such a page as masks of single bands.
        """
        assert self.change.masks is not None
        bands, rows, cols = (self.tiff.first(tag, 1) for tag in (SAMPLES, HEIGHT, WIDTH))
        places, sizes = [], []
        for band in range(bands):
            strip = zlib.compress(np.packbits(self.change.masks(band), axis=1).tobytes())
            places.append(self.out.tell())
            sizes.append(len(strip))
            self.out.write(strip)
        short = {SUBFILE: MASK, WIDTH: cols, HEIGHT: rows, COMPRESSION: 8, PHOTOMETRIC: 4}
        short |= {SAMPLES: bands, ROWS_PER_STRIP: rows, PLANAR: 2}
        entries = [(tag, self._integers([n], 4 if n > 65535 else 3)) for tag, n in short.items()]
        lists = {BITS: ([1] * bands, 3), 273: (places, 0), 279: (sizes, 0)}
        return entries + [(tag, self._integers(*listed)) for tag, listed in lists.items()]


ITEM = re.compile(r"\s*<Item\b([^>]*)>[^<]*</Item>")


def without_statistics(text: str, stale: frozenset[int]) -> str:
    """Return GDAL's metadata without the STATISTICS_… items of stale bands; the rest unchanged."""

    def current(item: re.Match[str]) -> str:
        """Return an item unchanged, or "" for the statistics of a stale band."""
        name = re.search(r"""\bname\s*=\s*["']STATISTICS_""", item[1])
        sample = re.search(r"""\bsample\s*=\s*["'](\d+)""", item[1])
        return "" if name and sample and int(sample[1]) in stale else item[0]

    return ITEM.sub(current, text)
