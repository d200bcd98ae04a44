"""What a fill is asked for, whatever its files are called: the options of a request, by content."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydiff.io.provenance import sha256
from hydiff.io.regular import exists, is_there
from hydiff.methods import user_code
from hydiff.reference.image_choice import files_of
from hydiff.request import Request

FILES = ("observed", "missing", "quality", "input_uncertainty", "region")  # may name one each
IMAGES = ("reference", "reference_missing")  # options that name any number of files


def by_content(request: Request) -> dict[str, Any]:
    """Return the options of a request, with the hash of each file that they name in its place.

    A mask, a reference, a file of weights or a method in a file of the user's own that has
    changed makes another request, and one that has merely moved does not.
    """
    options = asdict(request)
    options |= {name: _hashed(options[name]) for name in FILES}
    for name in IMAGES:
        images = files_of(getattr(request, name))
        options[name] = [sha256(path) for path in images if is_there(path)]
    if (weights := request.settings.get("weights")) is not None:
        options["settings"] = {**request.settings, "weights": _hashed(weights)}
    if isinstance(request.method, str) and user_code.IN_FILE.fullmatch(request.method.strip()):
        options["method"] = (request.method, user_code.digest(request.method))
    return options


def _hashed(value: Any) -> Any:
    """Return the hash of a file if the value names one that exists, else the value."""
    if isinstance(value, str | Path) and exists(Path(value)) and is_there(Path(value)):
        return sha256(Path(value))
    return value
