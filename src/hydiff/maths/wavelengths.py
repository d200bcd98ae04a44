"""Wavelengths in nanometres, from the units that files name, or do not name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NM_PER_UNIT = {
    **dict.fromkeys(("nm", "nanometer", "nanometre"), 1.0),
    **dict.fromkeys(("um", "µm", "μm", "micron", "micrometer", "micrometre"), 1e3),
    **dict.fromkeys(("mm", "millimeter", "millimetre"), 1e6),
    **dict.fromkeys(("cm", "centimeter", "centimetre"), 1e7),
    **dict.fromkeys(("m", "meter", "metre"), 1e9),  # as CF has it
    **dict.fromkeys(("angstrom", "å"), 0.1),
}


def is_stated(units: str | None) -> bool:
    """Return whether a unit is named; ENVI headers may say "Unknown"."""
    return (units or "").strip().lower() not in ("unknown", "none", "")


def to_nanometres(
    wavelengths: NDArray[Any] | None, units: str | None = None
) -> NDArray[np.float64] | None:
    """Return wavelengths in nm; None without any, or if their unit is not a length (an index, a
    wavenumber).

    Without a unit, or with "Unknown" as ENVI writes it, values below 100 are taken for micrometres.
    """
    if wavelengths is None:
        return None
    values = np.asarray(wavelengths, dtype=np.float64)
    name = (units or "").strip().lower().rstrip("s")
    if not is_stated(units):
        top = np.nanmax(values, initial=0.0)
        return values * (1000.0 if top < 100 else 1.0)
    return values * NM_PER_UNIT[name] if name in NM_PER_UNIT else None
