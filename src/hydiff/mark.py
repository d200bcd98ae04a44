"""Mark: what a filled cube says of itself, so that it never passes for a measurement.

A fill makes one, `Cube.mark` carries it, readers and writers of every format find a place for it.
What is read from a file is anybody's text: it is bounded and cleaned, and a mark that cannot be
understood still is a mark.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

FILLED, RECORD = "hydiff_filled", "hydiff_record"  # the attributes of a marked file
BY_BAND, EARLIER = "filled_share", "earlier"  # entries of the record
UNKNOWN = "unknown"
LONGEST_TEXT = 500  # characters of a mark
LONGEST_RECORD = 60_000  # characters of JSON; an attribute of HDF5 holds 64 KB
LONGEST_LIST, LONGEST_NOTE, DEEPEST = 32, 300, 6  # of what a record brings along
MOST_SHARES = 4096  # bands whose shares are listed
MOST_EARLIER = 16
LEFT_OUT = ("command", "seconds", "tiles")  # of a record: they say nothing about the values

TEXT = re.compile(
    r"(?:(?P<percent>\S+) %|an unknown share) of the entries filled by (?P<method>.+?), "
    r"not measured(?P<denoised>, the others denoised)? \(hydiff (?P<version>\S+), (?P<time>\S+)\)"
)


@dataclass(frozen=True, eq=False)
class Mark:
    """How much of a cube is filled, by what, and when."""

    share: float  # of all entries, 0 … 1; NaN where a file does not say
    by_band: NDArray[np.float64] | None = None  # (bands,) the same for each band
    method: str = UNKNOWN
    version: str = UNKNOWN  # of hydiff
    time: str = UNKNOWN
    denoised: bool = False  # measured entries were replaced too
    record: Mapping[str, Any] = field(default_factory=dict)  # bounded: see `bounded`
    filled: Any = field(default=None, repr=False)  # (bands, rows, cols) non-zero = filled; may be
    #                                                on disk, None where only the shares are known
    # those of `hydiff.flags.LAYERS` that are known, by name; (bands, rows, cols), may be on disk
    layers: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str:
        """One line for people, which `parsed` reads back."""
        share = "an unknown share" if math.isnan(self.share) else f"{100 * self.share:.4g} %"
        others = ", the others denoised" if self.denoised else ""
        return (
            f"{share} of the entries filled by {self.method}, not measured{others} "
            f"(hydiff {self.version}, {self.time})"
        )

    @property
    def attributes(self) -> dict[str, str]:
        """The mark as texts: for people, and the record as JSON."""
        record = dict(self.record)
        if self.by_band is not None and len(self.by_band) <= MOST_SHARES:
            record[BY_BAND] = [float(f"{share:.6g}") for share in self.by_band]
        return {FILLED: self.text, RECORD: json.dumps(record)}

    @property
    def json(self) -> str:
        """The same as one JSON object, for formats with one place."""
        text, record = self.attributes.values()
        return json.dumps({FILLED: text, RECORD: json.loads(record)})

    def window(self, bands: slice, rows: slice, cols: slice) -> Self:
        """The mark of a part; without a mask its bands keep the shares of the whole."""
        if self.filled is not None:
            inside = np.asarray(self.filled[bands, rows, cols]) != 0
            shares = inside.mean(axis=(1, 2)) if inside.size else np.zeros(len(inside))
            layers = {k: np.asarray(v[bands, rows, cols]) for k, v in self.layers.items()}
            return replace(self, filled=inside, layers=layers, **_shares(shares))
        if self.by_band is None:
            return self
        return replace(self, **_shares(self.by_band[bands]))

    def after(self, before: Mark | None) -> Mark:
        """The mark of a fill of a cube that was filled before: what either filled is filled."""
        if before is None:
            return self
        listed = before.record.get(EARLIER)
        earlier = [str(line) for line in listed] if isinstance(listed, list) else []
        record = {**self.record, EARLIER: [*earlier, before.text][-MOST_EARLIER:]}
        denoised = self.denoised or before.denoised
        if self.filled is not None and before.filled is not None:
            either = Either(before.filled, self.filled)
            shares = np.array([either[band].mean() for band in range(either.shape[0])])
            both = replace(self, filled=either, **_shares(shares))
        elif self.by_band is not None and before.by_band is not None:
            shares = np.minimum(before.by_band + self.by_band, 1)  # entries filled twice: once more
            both = replace(self, filled=None, **_shares(shares))
        else:
            both = replace(self, filled=None, by_band=None, share=math.nan)
        layers = _layers_over(self.layers, before.layers)
        return replace(both, record=record, denoised=denoised, layers=layers)


def _layers_over(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """The layers of a fill over those of an earlier one: its own where it has flags."""
    if "flags" not in new or not old:
        return dict(new)
    return {name: Over(new["flags"], new.get(name), old.get(name)) for name in {**old, **new}}


class Over:
    """A layer (bands, rows, cols) where there are flags, another one elsewhere; read when it is
    indexed.  One that is None is empty: 0, or NaN beside floats."""

    def __init__(self, flags: Any, new: Any, old: Any) -> None:
        some = old if new is None else new
        self.shape, self.dtype = tuple(flags.shape), np.dtype(some.dtype)
        self._flags, self._new, self._old = flags, new, old

    def __getitem__(self, key: Any) -> NDArray[Any]:
        empty = np.nan if self.dtype.kind == "f" else 0
        new, old = (empty if a is None else np.asarray(a[key]) for a in (self._new, self._old))
        layer = np.where(np.asarray(self._flags[key]) != 0, new, old)
        return layer.astype(self.dtype, copy=False)


class Either:
    """True where one of two masks (bands, rows, cols) is non-zero, read when it is indexed."""

    def __init__(self, one: Any, other: Any) -> None:
        self.shape, self.dtype, self._masks = tuple(one.shape), np.dtype(bool), (one, other)

    def __getitem__(self, key: Any) -> NDArray[np.bool_]:
        one, other = (np.asarray(mask[key]) != 0 for mask in self._masks)
        return np.asarray(one | other)


def of_fill(
    filled: Any,
    shares: NDArray[np.float64],
    method: str,
    record: Mapping[str, Any],
    *,
    denoised: bool = False,
    layers: Mapping[str, Any] | None = None,
) -> Mark:
    """The mark of a fill.

    filled: (bands, rows, cols) True = filled; shares: (bands,) how much of each band that is;
    record: what `provenance` says of the fill, of which the mark keeps what is short;
    layers: those of `hydiff.flags.LAYERS`, by name.
    """
    versions = record.get("versions")
    version = versions.get("hydiff", UNKNOWN) if isinstance(versions, Mapping) else UNKNOWN
    return Mark(
        method=clean(method, 60),
        version=clean(version, 60).replace(" ", "-"),
        time=clean(record.get("time", UNKNOWN), 60).replace(" ", "T"),
        denoised=denoised,
        record=bounded(record),
        filled=filled,
        layers=dict(layers or {}),
        **_shares(shares),
    )


def _shares(by_band: NDArray[np.float64]) -> dict[str, Any]:
    return {"by_band": by_band, "share": float(by_band.mean()) if len(by_band) else math.nan}


def now() -> str:
    """The time of a fill; SOURCE_DATE_EPOCH, where it is set, makes equal fills equal files."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return moment.isoformat(timespec="seconds")


# --- reading what a file says ---------------------------------------------------------------------


def parsed(text: Any, record: Any = None, by_band: Sequence[Any] = (), *, bands: int) -> Mark:
    """The mark that a file's texts make; whatever they hold, the file is marked."""
    match, entries = TEXT.match(clean(text, LONGEST_TEXT)), _record(record)
    parts: Mapping[str, Any] = {} if match is None else match.groupdict()
    shares = _numbers(by_band if len(by_band) else entries.pop(BY_BAND, ()), bands)
    share = _numbers([parts["percent"]], 1) if parts.get("percent") else None
    mark = Mark(
        share=math.nan if share is None or share[0] > 100 else float(share[0]) / 100,
        denoised=parts.get("denoised") is not None,
        record=entries,
        **{key: parts[key] for key in ("method", "version", "time") if key in parts},
    )
    return mark if shares is None or (shares > 1).any() else replace(mark, **_shares(shares))


def from_json(text: Any) -> dict[str, Any]:
    """The attributes that `Mark.json` holds; of damaged text, what `parsed` can take for a mark."""
    try:
        document = json.loads(str(text)[: 2 * LONGEST_RECORD])
        return {FILLED: str(document[FILLED]), RECORD: json.dumps(document[RECORD])}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {FILLED: clean(text, LONGEST_TEXT)}


def _record(text: Any) -> dict[str, Any]:
    """The record in a file; {} where there is none, or none that is sound."""
    if not isinstance(text, str) or len(text) > 2 * LONGEST_RECORD:
        return {}
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(record, dict):
        return {}
    shares = {BY_BAND: record[BY_BAND]} if isinstance(record.get(BY_BAND), list) else {}
    return bounded(record) | shares


def _numbers(listed: Any, count: int) -> NDArray[np.float64] | None:
    """`count` finite numbers of at least 0, or None."""
    try:
        numbers = np.array([float(item) for item in listed])
    except (TypeError, ValueError, OverflowError):
        return None
    sound = len(numbers) == count and np.isfinite(numbers).all() and (numbers >= 0).all()
    return numbers if sound else None


def clean(text: Any, most: int) -> str:
    """One printable line without braces, which delimit lists in ENVI headers."""
    line = " ".join(str(text)[:most].split()).replace("{", "(").replace("}", ")")
    return "".join(c if c.isprintable() else "?" for c in line)


def bounded(record: Mapping[str, Any]) -> dict[str, Any]:
    """The short entries of a record: no long lists, no folders, nothing that grows with a cube."""
    entries = {str(k): v for k, v in record.items() if k not in (*LEFT_OUT, BY_BAND)}
    source = entries.get("input")
    if isinstance(source, Mapping):  # a file that is handed on need not name our folders
        entries["input"] = {**source, "path": re.split(r"[/\\]", str(source.get("path")))[-1]}
    short: dict[str, Any] = {k: _short(v, DEEPEST) for k, v in entries.items()}
    for key in sorted(short, key=lambda k: -len(json.dumps(short[k]))):
        if len(json.dumps(short)) <= LONGEST_RECORD // 4:
            break
        del short[key]
    return short


def _short(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping) and depth:
        some = list(value.items())[:LONGEST_LIST]
        return {str(k)[:LONGEST_NOTE]: _short(v, depth - 1) for k, v in some}
    if isinstance(value, list | tuple) and depth and len(value) <= LONGEST_LIST:
        return [_short(v, depth - 1) for v in value]
    if isinstance(value, str):
        return clean(value, LONGEST_NOTE)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return f"{len(value)} entries" if hasattr(value, "__len__") else clean(value, LONGEST_NOTE)
