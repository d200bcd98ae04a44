"""The options of a request, with the files that they name replaced by hashes of their contents."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydiff.io.provenance import sha256
from hydiff.io.regular import exists, is_there
from hydiff.methods import user_code
from hydiff.reference.image_choice import files_of
from hydiff.request import Request

# options that may name one file
FILES = ("observed", "missing", "quality", "input_uncertainty", "region")
IMAGES = ("reference", "reference_missing")  # options that name any number of files


def by_content(request: Request) -> dict[str, Any]:
    """Return the options of a request, with each file that they name replaced by its hash.

    So the result changes if the content of a mask, a reference, a file of weights, or a file with
    a method of the user changes.
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
