"""The units in which files give wavelengths."""

NM_PER_UNIT = {
    **dict.fromkeys(("nm", "nanometer", "nanometre"), 1.0),
    **dict.fromkeys(("um", "µm", "μm", "micron", "micrometer", "micrometre"), 1e3),
    **dict.fromkeys(("mm", "millimeter", "millimetre"), 1e6),
    **dict.fromkeys(("cm", "centimeter", "centimetre"), 1e7),
    **dict.fromkeys(("m", "meter", "metre"), 1e9),  # as CF has it
    **dict.fromkeys(("angstrom", "å"), 0.1),
}


def nm_per_unit(units: str | None) -> float | None:
    """Return the nanometres of a unit of length, in any spelling; None for any other text."""
    return NM_PER_UNIT.get((units or "").strip().lower().rstrip("s"))
