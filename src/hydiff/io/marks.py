"""Marks of filled cubes in files, as attributes, tags or header lines; see `hydiff.mark`.

Readers leave the mark among `Cube.attrs`, and `taken` turns it into `Cube.mark`; writers put it
back with `stamp` (attributes), `tag` (GeoTIFF) or `into_header` (ENVI).  A title and a
description get a prefix, a history gets a line; everything else stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Cube, Lazy
from hydiff.flags import FILLED as FILLED_BIT
from hydiff.flags import LAYERS, attributes
from hydiff.io.headers import FACTOR, canonical, with_lines
from hydiff.io.versions import versions
from hydiff.mark import FILLED, MOST_SHARES, RECORD, Mark, now, of_fill, parsed
from hydiff.result import Result

PREFIX = "Gap-filled"
TITLES = ("title", "description", "tifftag imagedescription")
SHARE = "FILLED_SHARE"  # the tag of a band
KEY, SHARES = "hydiff filled", "hydiff filled by band"  # lines of an ENVI header
OURS = (canonical(FILLED), canonical(RECORD), SHARES)
# endings of the variables with the layers of a fill, after the name of the cube's variable
SUFFIX = {name: f"_hydiff_{name}" for name in LAYERS}
FLAG = "_hydiff_filled"  # the same in earlier versions: 1 where an entry was filled
ENDS = (*SUFFIX.values(), FLAG)
TYPES = {name: np.dtype(np.uint8 if about.bits else np.float32) for name, about in LAYERS.items()}
# attributes that σ has in common with the values
SCALED = ("units", "scale_factor", "Units", "Scale_Factor", "data gain values", FACTOR)
PLACED = ("grid_mapping", "coordinates")  # those that all layers have in common with them
FLAG_ATTRIBUTES: dict[str, Any] = {  # of the CF conventions
    "long_name": "1 where the value was filled by hydiff, 0 where it was not",
    "standard_name": "status_flag",
    "flag_meanings": "not_filled gap_filled",
}
FLAG_VALUES = (0, 1)
OWN_ENTRIES = ("geotiff", "xarray")  # entries of `Cube.attrs` that are no attributes of a file
OWN_LINES = re.compile(
    rb"^[ \t]*hydiff filled(?: by band)?[ \t]*=[ \t]*(?:\{[^}]*\})?[^\n]*\n?",
    re.IGNORECASE | re.MULTILINE,
)
DESCRIPTION = re.compile(
    rb"^[ \t]*description[ \t]*=[ \t]*(?:\{\s*)?", re.IGNORECASE | re.MULTILINE
)


# --- reading --------------------------------------------------------------------------------------


def taken(cube: Cube) -> Cube:
    """Return the cube with the mark moved from its attributes to `Cube.mark`."""
    cube = replace(cube, attrs=_own_names_free(cube.attrs))
    box = cube.attrs.get("geotiff", {})
    tags = box.get("tags", {}).get("", {})
    bands = [spaces.get("", {}) for spaces in box.get("band_tags", ())]
    texts = {canonical(str(k)): v for k, v in (*tags.items(), *cube.attrs.items()) if _is_ours(k)}
    shares = [band[SHARE] for band in bands if SHARE in band]
    if not texts and not shares:
        return cube
    text, record = texts.get(OURS[0]), texts.get(OURS[1])
    mark = cube.mark or parsed(text, record, shares or texts.get(SHARES, ()), bands=cube.bands)
    attrs = {k: v for k, v in cube.attrs.items() if not _is_ours(k)}
    if box:
        attrs["geotiff"] = _without(box)
    return replace(cube, mark=mark, attrs=attrs)


def _own_names_free(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes of a file in which the names of OWN_ENTRIES are free for hydiff's use."""
    return {
        f"{key}_" if key in OWN_ENTRIES and not isinstance(value, Mapping) else key: value
        for key, value in attrs.items()
    }


def _is_ours(key: Any) -> bool:
    """Return whether a key of an attribute or a tag belongs to the mark."""
    return canonical(str(key)) in OURS


def _without(box: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a GeoTIFF without the mark."""
    spaces = box.get("tags", {})
    plain = {k: v for k, v in spaces.get("", {}).items() if not _is_ours(k)}
    bands = [
        {ns: {k: v for k, v in tags.items() if ns or k != SHARE} for ns, tags in band.items()}
        for band in box.get("band_tags", ())
    ]
    return {**box, "tags": {**spaces, "": plain}, "band_tags": bands}


def always(source: Path | None, path: Path) -> bool:
    """The `keeps_mark` of a format all of whose files have room for the mark."""
    return True


# --- writing --------------------------------------------------------------------------------------


def stamp(attrs: MutableMapping[str, Any], mark: Mark) -> None:
    """Add the mark to the attributes of a file; texts that are there keep their type."""
    if not any(canonical(key) == "history" for key in attrs):
        attrs["history"] = ""
    _amend(attrs, mark)
    for name, text in mark.attributes.items():
        attrs[name] = text


def entered(cube: Cube) -> Cube:
    """Return the cube to write to a new file: its titles and its history say that it is filled."""
    if cube.mark is None:
        return cube
    attrs = dict(cube.attrs)
    _amend(attrs, cube.mark)
    if (box := attrs.get("geotiff")) is not None:
        tags = dict(box.get("tags", {}).get("", {}))
        _amend(tags, cube.mark)
        attrs["geotiff"] = {**box, "tags": {**box.get("tags", {}), "": tags}}
    return replace(cube, attrs=attrs)


def _amend(attrs: MutableMapping[str, Any], mark: Mark) -> None:
    """Add a prefix to the titles that are there, and a line to the history."""
    line = f"{mark.time}: {mark.text}"
    for key in [key for key in attrs if canonical(key) in (*TITLES, "history")]:
        old, text = attrs[key], _text(attrs[key])
        if canonical(key) == "history" and line not in text:
            attrs[key] = _in_kind(f"{text.rstrip()}\n{line}".lstrip(), old)
        elif canonical(key) != "history" and text:
            attrs[key] = _in_kind(titled(text), old)


def titled(text: str) -> str:
    """Return a title with the prefix; a document as a title, such as OME's XML, is not changed."""
    unchanged = text.lstrip()[:1] in ("<", "{") or text.lower().startswith(PREFIX.lower())
    return text if unchanged else f"{PREFIX} {text}"


def _text(value: Any) -> str:
    """Return an attribute as text: HDF5 has bytes, texts, and arrays of them."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray | list | tuple):
        return "\n".join(_text(item) for item in np.ravel(np.asarray(value, dtype=object)))
    return value if isinstance(value, str) else ""


def _in_kind(text: str, like: Any) -> Any:
    """Return a text as bytes if the value that it replaces is bytes."""
    return np.bytes_(text.encode()) if isinstance(like, bytes) else text


def tag(dataset: Any, mark: Mark) -> None:
    """Write the mark as tags of an open GeoTIFF, and its share of filled entries to each band."""
    old_tags: dict[str, str] = dataset.tags()
    tags = {"TIFFTAG_IMAGEDESCRIPTION": "cube", **old_tags}
    stamp(tags, mark)
    dataset.update_tags(**{k: v for k, v in tags.items() if v != old_tags.get(k)})
    for band, share in enumerate(() if mark.by_band is None else mark.by_band, start=1):
        dataset.update_tags(band, **{SHARE: f"{share:.6g}"})


def into_header(path: Path, mark: Mark | None) -> None:
    """Write the mark into an ENVI header: its lines, and the prefix of the description.

    Everything else in the header stays, byte for byte.
    """
    if mark is None:
        return
    text = OWN_LINES.sub(b"", path.read_bytes())
    lines = [f"{KEY} = {mark.text}"]
    if mark.by_band is not None and len(mark.by_band) <= MOST_SHARES:
        lines.append(f"{SHARES} = {{{', '.join(f'{share:.6g}' for share in mark.by_band)}}}")
    if (title := DESCRIPTION.search(text)) is None:
        lines.insert(0, f"description = {{{PREFIX} cube}}")
    elif not text[title.end() :].lower().startswith(PREFIX.lower().encode()):
        text = text[: title.end()] + f"{PREFIX} ".encode() + text[title.end() :]
    path.write_bytes(with_lines(text, lines))


# --- layers in the file of the cube ---------------------------------------------------------------


def layers_of(mark: Mark) -> dict[str, Any]:
    """Return the layers to write with a cube; without layers, its filled entries as bit 1."""
    if mark.layers or mark.filled is None:
        return dict(mark.layers)
    return {"flags": mark.filled}


def block_of(name: str, layer: Any, block: Any) -> Array:
    """Return a block of a layer in the dtype in which files store it."""
    values = np.asarray(layer[block])
    return values.astype(TYPES[name], copy=False)


def is_empty(values: Array) -> bool:
    """Return whether a block is all 0 or NaN, so that its chunks need no room on disk."""
    return bool(np.isnan(values).all()) if values.dtype.kind == "f" else not values.any()


def about(name: str, cube: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a layer's variable: the grid of the cube's, and for σ its unit."""
    shared = (*PLACED, *(SCALED if name == "sigma" else ()))
    return attributes(name) | {key: cube[key] for key in shared if key in cube}


def with_layers(mark: Mark, layers: Mapping[str, Any]) -> Mark:
    """Return a mark that was read from a file, with its layers on disk added."""
    if (flags := layers.get("flags")) is None:
        return mark

    def read(*block: slice) -> Array:
        return np.asarray((np.asarray(flags[block]) & FILLED_BIT) != 0)

    filled = Lazy(flags.shape, np.dtype(bool), read, getattr(flags, "chunks", None))
    return replace(mark, filled=filled, layers=dict(layers))


def linked(ancillary: Any, *names: str) -> str:
    """Return `ancillary_variables` with the names of the layers' variables added."""
    others = [name for name in _text(ancillary).split() if name not in names]
    return " ".join([*others, *names])


def ancillary(attrs: Mapping[str, Any]) -> list[str]:
    """Return the names of the variables that the attributes of a variable link to."""
    return _text(attrs.get("ancillary_variables", "")).split()


def unlinked(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a variable's attributes without the links to its layers; writers add them again."""
    names = ancillary(attrs)
    others = [name for name in names if not name.endswith(ENDS)]
    rest = {k: v for k, v in attrs.items() if k != "ancillary_variables" or names == others}
    return rest | ({"ancillary_variables": " ".join(others)} if others != names and others else {})


def without_layers(variables: Mapping[str, Mapping[str, Any]], var: str | None) -> set[str]:
    """Return the names of the variables that are not linked as a layer of another variable.

    `var` is one of them in any case, unless it is a layer that hydiff wrote.
    """
    others = {name for attrs in variables.values() for name in ancillary(attrs)} - {var}
    return set(variables) - others - {name + end for name in variables for end in ENDS}


def marked(result: Result, denoised: bool) -> Cube:
    """Return the filled cube with the mark of this fill, and of earlier ones, if there were any."""
    filled, before = result.filled, result.cube.mark
    if not (denoised or filled.any()):
        return result.cube
    record = {
        "time": now(),
        "method": result.method,
        "settings": result.settings,
        "seed": result.seed,
        "entries": {"all": filled.size, "filled": int(np.count_nonzero(filled))},
        "expected": result.expected,
        "versions": versions(),
    }
    shares = np.array([np.count_nonzero(band) / band.size for band in filled])
    extra: dict[str, Any] = {"denoised": denoised, "layers": result.layers}
    mark = of_fill(filled, shares, result.method, record, **extra)
    return replace(result.cube, mark=mark.after(before))
