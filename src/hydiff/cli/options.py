"""Options that several commands share, and parsers of their text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from hydiff import errors
from hydiff.cli.terminal import err

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Var = Annotated[str | None, typer.Option(help="Variable to read in .mat and .npz files.")]
Quality = Annotated[
    Path | None,
    typer.Option(help="Quality layer of the product; flagged entries count as missing."),
]
Flags = Annotated[
    str | None, typer.Option(help="Flags of the quality layer that count, separated by commas.")
]
Nodata = Annotated[list[float] | None, typer.Option(help="Value that means missing (repeatable).")]
NodataIn = Annotated[
    str | None,
    typer.Option(
        help="Bands of a pixel that must hold the nodata value: all | any.",
        show_default="all if it may be measured",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output files.")]
Unmarked = Annotated[
    bool,
    typer.Option("--unmarked", help="Allow a format that cannot record that it is filled (.npy)."),
]
Seed = Annotated[int, typer.Option(help="Seed of the random numbers.")]


def output_file(name: str) -> Path:
    """Parse the name of an output file; names that end with / are refused."""
    from hydiff.io import staging

    return staging.output_file(name)


AS_FILE: dict[str, Any] = {"parser": output_file, "metavar": "<path>"}  # of output options
Output = Annotated[Path, typer.Option("-o", "--output", help="File to write.", **AS_FILE)]


@contextmanager
def interrupted(*checkpoints: Path) -> Iterator[None]:
    """On Ctrl-C, print which of these files or folders a later run can resume from."""
    try:
        yield
    except KeyboardInterrupt:
        for path in checkpoints:
            if path.exists():
                err.print(f"{path} keeps what was done: --resume goes on from it", markup=False)
        raise


def key_values(pairs: list[str]) -> dict[str, str]:
    """Parse the texts key=value of --set."""
    for pair in pairs:
        if "=" not in pair:
            raise errors.BadValue(f"--set {pair}: expected key=value, e.g. --set s=1.25")
    return dict(pair.split("=", 1) for pair in pairs)


def sigma_of(text: str) -> float | str | list[float] | dict[str, float]:
    """Parse --sigma-y: a number, a share with a percent sign, comma-separated numbers (one per
    band), comma-separated NAME=NUMBER (one per detector), or auto."""
    if text == "auto":
        return text
    try:
        if "=" in text:
            pairs = (part.split("=", 1) for part in text.split(","))
            return {name.strip(): float(value) for name, value in pairs}
        if "," in text:
            return [float(part) for part in text.split(",")]
        return text if text.endswith("%") and float(text[:-1]) else float(text.rstrip("%"))
    except ValueError:
        raise errors.BadValue(
            f"--sigma-y {text}: expected a number in the cube's unit, a share such as 5%, or auto"
        ) from None
