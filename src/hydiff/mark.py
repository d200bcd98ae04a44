"""`Mark`: the statement in a cube that it was filled, so that it is not taken for a measurement.

A fill creates a mark, `Cube.mark` holds it, and the readers and writers of all formats preserve it.
Text from a file is not trusted: it is bounded and cleaned.  A mark that cannot be parsed still
counts as a mark.
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

from hydiff.flags import FILLED as FILLED_BIT

FILLED, RECORD = "hydiff_filled", "hydiff_record"  # the attributes of a marked file
BY_BAND, EARLIER = "filled_share", "earlier"  # keys of the record
UNKNOWN = "unknown"
LONGEST_TEXT = 500  # characters of a mark
LONGEST_RECORD = 60_000  # characters of JSON; an attribute of HDF5 holds 64 KB
LONGEST_LIST, LONGEST_NOTE, DEEPEST = 32, 300, 6  # bounds of lists, texts and nesting in a record
MOST_SHARES = 4096  # most bands with which the share of each band is listed
MOST_EARLIER = 16  # number of earlier fills that are listed
LEFT_OUT = ("command", "seconds", "tiles")  # keys of a record that do not concern the values

TEXT = re.compile(
    r"(?:(?P<percent>\S+) %|an unknown share) of the entries filled by (?P<method>.+?), "
    r"not measured(?P<denoised>, the others denoised)? \(hydiff (?P<version>\S+), (?P<time>\S+)\)"
)


@dataclass(frozen=True, eq=False)
class Mark:
    """Share of a cube that was filled, with the method and the time."""

    share: float  # of all entries, 0 … 1; NaN if unknown
    by_band: NDArray[np.float64] | None = None  # (bands,) share of each band
    method: str = UNKNOWN
    version: str = UNKNOWN  # of hydiff
    time: str = UNKNOWN
    denoised: bool = False  # measured entries were replaced too
    record: Mapping[str, Any] = field(default_factory=dict)  # shortened by `bounded`
    filled: Any = field(default=None, repr=False)  # (bands, rows, cols) non-zero = filled; may be
    #                                                on disk; None if only the shares are known
    # known layers of `hydiff.flags.LAYERS` by name; (bands, rows, cols), may be on disk
    layers: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str:
        """The mark as one readable line, which `parsed` can read back."""
        share = "an unknown share" if math.isnan(self.share) else f"{100 * self.share:.4g} %"
        others = ", the others denoised" if self.denoised else ""
        return (
            f"{share} of the entries filled by {self.method}, not measured{others} "
            f"(hydiff {self.version}, {self.time})"
        )

    @property
    def attributes(self) -> dict[str, str]:
        """The mark as two file attributes: the readable line, and the record as JSON."""
        record = dict(self.record)
        if self.by_band is not None and len(self.by_band) <= MOST_SHARES:
            record[BY_BAND] = [float(f"{share:.6g}") for share in self.by_band]
        return {FILLED: self.text, RECORD: json.dumps(record)}

    @property
    def json(self) -> str:
        """Both attributes as one JSON object, for formats with a single field for them."""
        text, record = self.attributes.values()
        return json.dumps({FILLED: text, RECORD: json.loads(record)})

    def window(self, bands: slice, rows: slice, cols: slice) -> Self:
        """Return the mark of a part of the cube.

        Without a mask of the filled entries, bands keep the shares of the whole cube.
        """
        layers = {k: np.asarray(v[bands, rows, cols]) for k, v in self.layers.items()}
        if self.filled is not None:
            inside = np.asarray(self.filled[bands, rows, cols]) != 0
            shares = inside.mean(axis=(1, 2)) if inside.size else np.zeros(len(inside))
            return replace(self, filled=inside, layers=layers, **_shares(shares))
        if self.by_band is None:
            return replace(self, layers=layers)
        return replace(self, layers=layers, **_shares(self.by_band[bands]))

    def after(self, before: Mark | None) -> Mark:
        """Return the mark of a fill of a cube that was filled before.

        An entry counts as filled if either fill has filled it.
        """
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
            # an upper bound: entries that both fills have filled are counted twice
            shares = np.minimum(before.by_band + self.by_band, 1)
            both = replace(self, filled=None, **_shares(shares))
        else:
            both = replace(self, filled=None, by_band=None, share=math.nan)
        layers = layers_over(self.layers, before.layers)
        return replace(both, record=record, denoised=denoised, layers=layers)


def layers_over(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return layers with the values of a fill where it filled, else those of an earlier fill."""
    if "flags" not in new or not old:
        return dict(new or old)
    return {name: Over(new["flags"], new.get(name), old.get(name)) for name in {**old, **new}}


class Over:
    """A layer (bands, rows, cols) with values of `new` where it filled, else of `old`; elsewhere a
    layer of bits has the bits of both.

    It is computed when it is indexed.  A layer that is None is 0, or NaN if the other has floats.
    """

    def __init__(self, flags: Any, new: Any, old: Any) -> None:
        existing = old if new is None else new
        self.shape, self.dtype = tuple(flags.shape), np.dtype(existing.dtype)
        self._flags, self._new, self._old = flags, new, old

    def __getitem__(self, key: Any) -> NDArray[Any]:
        bits = self.dtype.kind == "u"
        empty: Any = 0 if bits else np.nan
        new, old = (empty if a is None else np.asarray(a[key]) for a in (self._new, self._old))
        layer = np.where(np.asarray(self._flags[key]) & FILLED_BIT, new, old | new if bits else old)
        return layer.astype(self.dtype, copy=False)


class Either:
    """True where one of two masks (bands, rows, cols) is non-zero; computed when it is indexed."""

    def __init__(self, one: Any, other: Any) -> None:
        self.shape, self.dtype, self._masks = tuple(one.shape), np.dtype(bool), (one, other)

    def __getitem__(self, key: Any) -> NDArray[np.bool_]:
        first, second = (np.asarray(mask[key]) != 0 for mask in self._masks)
        return np.asarray(first | second)


def of_fill(
    filled: Any,
    shares: NDArray[np.float64],
    method: str,
    record: Mapping[str, Any],
    *,
    denoised: bool = False,
    layers: Mapping[str, Any] | None = None,
) -> Mark:
    """Return the mark of a fill.

    filled: (bands, rows, cols) True = filled.  shares: (bands,) filled share of each band.
    record: the record of the fill (`provenance`), of which the mark keeps the short entries.
    denoised: measured entries were replaced too.  layers: of `hydiff.flags.LAYERS`, by name.
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
    """Return the fields `by_band` (bands,) and `share`, their mean, of a mark."""
    return {"by_band": by_band, "share": float(by_band.mean()) if len(by_band) else math.nan}


def now() -> str:
    """Return the current time, or SOURCE_DATE_EPOCH if it is set, for reproducible files."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return moment.isoformat(timespec="seconds")


# --- reading marks from files ---------------------------------------------------------------------


def parsed(text: Any, record: Any = None, by_band: Sequence[Any] = (), *, bands: int) -> Mark:
    """Return the mark from the attributes of a file; for any text, the file counts as marked."""
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
    """Return the attributes from `Mark.json`; for damaged text, the text itself as attribute."""
    try:
        document = json.loads(str(text)[: 2 * LONGEST_RECORD])
        return {FILLED: str(document[FILLED]), RECORD: json.dumps(document[RECORD])}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {FILLED: clean(text, LONGEST_TEXT)}


def _record(text: Any) -> dict[str, Any]:
    """Return the record from a file; {} if there is none or it is invalid."""
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
    """Return `count` finite numbers of at least 0, or None if the list has anything else."""
    try:
        numbers = np.array([float(item) for item in listed])
    except (TypeError, ValueError, OverflowError):
        return None
    sound = len(numbers) == count and np.isfinite(numbers).all() and (numbers >= 0).all()
    return numbers if sound else None


def clean(text: Any, most: int) -> str:
    """Return one printable line without braces, which delimit lists in ENVI headers.

    most: number of characters of the text to use.
    """
    line = " ".join(str(text)[:most].split()).replace("{", "(").replace("}", ")")
    return "".join(c if c.isprintable() else "?" for c in line)


def bounded(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without long lists, folder names, and entries that grow with the cube."""
    entries = {str(k): v for k, v in record.items() if k not in (*LEFT_OUT, BY_BAND)}
    source = entries.get("input")
    if isinstance(source, Mapping):  # a file that is passed on should not reveal local folders
        entries["input"] = {**source, "path": re.split(r"[/\\]", str(source.get("path")))[-1]}
    short: dict[str, Any] = {k: _short(v, DEEPEST) for k, v in entries.items()}
    for key in sorted(short, key=lambda k: -len(json.dumps(short[k]))):
        if len(json.dumps(short)) <= LONGEST_RECORD // 4:
            break
        del short[key]
    return short


def _short(value: Any, depth: int) -> Any:
    """Return a value for a record: nested at most `depth` deep, without long lists and texts."""
    if isinstance(value, Mapping) and depth:
        items = list(value.items())[:LONGEST_LIST]
        return {str(k)[:LONGEST_NOTE]: _short(v, depth - 1) for k, v in items}
    if isinstance(value, list | tuple) and depth and len(value) <= LONGEST_LIST:
        return [_short(v, depth - 1) for v in value]
    if isinstance(value, str):
        return clean(value, LONGEST_NOTE)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return f"{len(value)} entries" if hasattr(value, "__len__") else clean(value, LONGEST_NOTE)
