"""The command line: parse the arguments, call the library, print the result.

Progress and messages go to stderr, results to stdout (`--json` for programs).
Exit codes: 0 = done, 1 = an internal error, or failed inputs or checks, 2 = an error that the user
can correct, 130 = interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

import typer

from hydiff import errors
from hydiff.cli import (
    bench,
    compare,
    convert,
    demo,
    doctor,
    explain,
    fill,
    info,
    limited,
    mask,
    methods,
    propagate,
    report,
    score,
    simulate,
    train,
    train_prior,
    view,
)
from hydiff.cli.terminal import err, out, prepare_streams

COMMANDS = (
    demo.demo, info.info, mask.mask, simulate.simulate, fill.fill, score.score, report.report,
    explain.explain, compare.compare, propagate.propagate, convert.convert, train.train,
    train_prior.train_prior, view.view, bench.bench, methods.methods, doctor.doctor,
)  # fmt: skip
INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)
for command in COMMANDS:
    app.command(cls=fill.FillCommand if command is fill.fill else None)(command)


def main() -> None:
    """Run `hydiff`; errors that a user can correct are printed as one line, with exit code 2."""
    prepare_streams()
    logging.getLogger("asyncio").addFilter(_matters)
    os.environ["PYTHONSAFEPATH"] = "1"  # worker processes must not import from the current folder
    try:
        limited.run(app) if limited.is_limited() else app()
    except errors.HydiffError as error:
        err.print(f"hydiff: {errors.shell(str(error))}", style="red", markup=False)
        sys.exit(2)
    except Exception as error:
        if (lacking := errors.cannot_import(error)) is not None:
            err.print(f"hydiff: {lacking}", style="red", markup=False)
            sys.exit(2)
        if not errors.is_no_memory(error):
            raise
        why = f" ({error})" if "ended the process" in str(error) else ""
        message = f"out of memory{why}; free some, or give --memory to fill by tiles"
        err.print(f"hydiff: {message}", style="red", markup=False)
        sys.exit(2)
    except SystemExit as done:
        if done.code == INTERRUPTED:  # typer itself prints nothing on Ctrl-C
            err.print("hydiff: interrupted")
        raise


def _matters(record: logging.LogRecord) -> bool:
    """Return False for warnings about the tasks that zarr leaves pending if a chunk is damaged."""
    return "Task was destroyed but it is pending" not in record.getMessage()


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Fill missing pixels and bands in a hyperspectral cube."""
    if version:
        import hydiff

        out.print(f"hydiff {hydiff.__version__}")
        raise typer.Exit
