"""`hydiff fill`: fill the gaps of files.  Its options are the fields of `Request` and `Way`."""
# ruff: noqa: RUF009 - `option` makes a dataclass field

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from hydiff import errors
from hydiff.cli.options import interrupted, key_values, sigma_of
from hydiff.cli.terminal import (
    err,
    out,
    print_event,
    print_json,
    print_left,
    print_preview,
    print_summary,
    progress_bar,
)
from hydiff.methods import DEFAULT, WITH_WEIGHTS
from hydiff.request import GAPS, METHOD, OUTPUT, RUN, Request, option
from hydiff.result import Meter

if TYPE_CHECKING:
    from hydiff.scale.forecast import WorkSize
    from hydiff.scale.layout import Limits
    from hydiff.scale.plan import FilePlan


SCALE = "Scale"
GROUPS = (GAPS, METHOD, OUTPUT, SCALE, RUN)  # of the options, in the order of --help
EXAMPLES = """
hydiff fill scene.hdr -o filled.bil --report            gaps that are declared
hydiff fill scene.hdr -o part.bil --missing clouds.npz  and those of a mask
hydiff fill 'granules/*.nc' -o filled                   files into a folder
"""

NO_OUTPUT = (
    "-o is missing: name the file to write, such as -o scene_filled.tif; its suffix is the format, "
    "and several inputs need a folder"
)


@dataclass(frozen=True)
class Way:
    """Options of `hydiff fill` that are not part of a `Request`."""

    weights: Path | None = option(None, "Weights of a network trained by `hydiff train`.", METHOD)
    refine: int = option(0, "Steps of fitting to this cube, from those weights.", METHOD)
    prior: int | None = option(None, "The former name of --pretrain.", METHOD, hidden=True)
    engine: str | None = option(
        None, "auto | eager | graph | fused, for learned methods.", RUN, shown="auto"
    )
    precision: str | None = option(
        None, "auto | fp32 | tf32 | bf16, for learned methods.", RUN, shown="auto"
    )
    resume: bool = option(False, "Continue an interrupted run.", SCALE)
    memory: str | None = option(
        None,
        "Memory to stay within, by tiles if needed, e.g. 2GB.",
        SCALE,
        shown="half the machine's",
    )
    tile: int | None = option(None, "Fill by tiles of this many pixels a side.", SCALE)
    overlap: int | None = option(None, "Pixels over which neighbouring tiles are blended.", SCALE)
    workers: int | None = option(
        None, "Processes that fill tiles or files, one thread each.", SCALE
    )
    scheduler: str | None = option(
        None, "Address of a Dask scheduler whose workers fill, tcp://HOST:PORT.", SCALE
    )
    band_mask: Path | None = option(
        None, "Also write the filled entries as a band_mask of EMIT (.nc).", OUTPUT
    )
    overwrite: bool = option(False, "Replace existing output files.", OUTPUT)
    dry_run: bool = option(
        False, "Only say what would be filled, and how long it would take.", OUTPUT
    )
    json: bool = option(
        False, "For programs, in JSON: the result on stdout, events as lines on stderr.", OUTPUT
    )

    @property
    def distributed(self) -> bool:
        """Whether workers fill, in other processes or on a cluster."""
        return self.workers is not None or self.scheduler is not None

    def say(self, text: str) -> None:
        """Print a line of text, or with --json an event, on stderr."""
        if self.json:
            print_event("message", text=errors.shell(text))
        else:
            _say(text)


def fill(
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="A file, several files, or a pattern such as 'granules/*.nc'.",
            rich_help_panel="Input",
        ),
    ],
    output: Annotated[
        str | None,  # a Path loses the / that makes it a folder
        typer.Option(
            "-o",
            "--output",
            metavar="<path>",
            help="File to write (required); a folder for several inputs, or if it ends with /.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    **options: Any,
) -> None:
    """Fill the gaps of INPUTS and write OUTPUT with its companions."""
    from hydiff.scale import batch, layout, plan

    if output is None:
        raise errors.BadValue(NO_OUTPUT)
    way = Way(**{f.name: options.pop(f.name) for f in fields(Way)})
    if way.prior is not None:
        way.say(
            "note: --prior N is now --pretrain N; a prior is the network that comes with hydiff"
        )
        options["pretrain"] = way.prior
    request = _request(way, options)
    limits = layout.limits(way.memory, way.tile, way.overlap, way.workers or 1)
    paths = batch.inputs_of(inputs)
    several = len(paths) > 1 or batch.is_pattern(inputs[0])
    named = _names_folder(output, paths[0])
    if several or named or plan.is_plain_folder(Path(output)):
        _fill_many(paths, Path(output), request, limits, way)
    else:
        _fill_one(paths[0], Path(output), request, limits, way)


def _names_folder(output: str, source: Path) -> bool:
    """Return whether an output ends as folders do, and is no product that is stored as one."""
    from hydiff.io.regular import exists
    from hydiff.io.staging import names_folder

    return names_folder(output) and not (exists(source) and source.is_dir())


def _parameters(kind: type) -> Iterator[inspect.Parameter]:
    """Yield the fields of a dataclass as parameters from which typer makes options."""
    hints = get_type_hints(kind)
    for f in fields(kind):
        flag = f.metadata.get("flag", f"--{f.name.replace('_', '-')}")
        text, default = f.metadata.get("text", (hints[f.name], f.default))
        shown, hidden = f.metadata.get("shown", True), f.metadata.get("hidden", False)
        typer_option = typer.Option(
            flag,
            help=f.metadata["help"],
            rich_help_panel=f.metadata["group"],
            show_default=shown,
            hidden=hidden,
        )
        yield inspect.Parameter(
            f.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[text, typer_option],
        )


def _sign() -> None:
    """Set the signature of `fill`, from which typer makes the command."""
    inputs, output, _ = inspect.signature(fill, eval_str=True).parameters.values()
    options = [output.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    options += [*_parameters(Request), *_parameters(Way)]
    options.sort(key=lambda p: GROUPS.index(p.annotation.__metadata__[0].rich_help_panel))
    signature = inspect.Signature([inputs, *options])
    fill.__signature__ = signature  # type: ignore[attr-defined]
    fill.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}


_sign()
fill.__doc__ = f"{fill.__doc__}\n\n\b{EXAMPLES}"  # \b preserves the line breaks


class FillCommand(TyperCommand):
    """The command `hydiff fill`; without arguments it prints examples."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print examples and exit with 2 if there are no arguments."""
        if not args:
            err.print(f"{EXAMPLES.strip()}\n\n`hydiff fill --help` lists all options.")
            ctx.exit(2)
        return super().parse_args(ctx, args)


class Clock:
    """Prints a forecast when a fill begins, and records how long it took."""

    def __init__(self, way: Way) -> None:
        self.way, self.meter = way, Meter()
        self.facts: dict[str, Any] = {}  # the forecast, for JSON
        self._work: WorkSize | None = None
        self._began = 0.0

    def begin(self, work: WorkSize) -> None:
        """Print the forecast of a fill, and start the clock."""
        from hydiff.scale import fill_history
        from hydiff.scale.forecast import forecast

        if self.way.scheduler is not None or not work.missing:
            return  # the speed of its workers is unknown; nothing to fill takes no time
        expected = forecast(work, fill_history.read_or_measure())
        self.facts = {"forecast": expected._asdict()}
        if self.way.json:
            print_event("forecast", **expected._asdict())
        else:
            self.way.say(str(expected))
        self._work, self._began = work, time.perf_counter()
        self.meter.expected = expected.seconds

    def keep(self, plan: FilePlan) -> None:
        """Record the time of a fill for later forecasts.

        Resumed fills, and fills that also wrote a report or samples, are not recorded.
        """
        from hydiff.scale import fill_history

        not_comparable = plan.resume or plan.request.report or plan.request.samples
        if self._work is not None and not not_comparable:
            seconds = time.perf_counter() - self._began
            fill_history.keep(self._work, seconds, alone=not self.way.distributed)


def _fill_one(path: Path, output: Path, request: Request, limits: Limits, way: Way) -> None:
    """Fill one file, or preview the fill, and print its summary."""
    from hydiff.io import provenance
    from hydiff.scale.execute import execute, preview
    from hydiff.scale.plan import make_plan
    from hydiff.workers import crew

    plan = make_plan(
        path,
        output,
        request,
        limits,
        by_tiles=way.distributed,
        resume=way.resume and not way.dry_run,
        overwrite=way.overwrite,
        band_mask=way.band_mask,
        command=sys.argv,
        say=way.say,
    )
    clock = Clock(way)
    if way.dry_run:
        facts = preview(plan, clock.begin)
        print_json(facts | clock.facts) if way.json else print_preview(facts)
        return
    state = (provenance.checkpoint_path(plan.output), provenance.tiles_path(plan.output))
    with (
        crew(way.workers, way.scheduler, gpu=request.learned, say=way.say) as run,
        interrupted(*state),
        progress_bar(clock.meter, "tiles" if run else "", way.json) as progress,
    ):
        paths, record = execute(plan, run=run, say=way.say, progress=progress, begin=clock.begin)
    clock.keep(plan)
    if way.json:
        print_json(record | {"outputs": [str(path) for path in paths]})
    elif not paths:
        out.print(f"{path} has nothing to fill: no file was written or replaced", markup=False)
        print_left(record["entries"]["left"])
    elif "method" not in record:
        out.print(f"{path} has no gaps: {output} is a verbatim copy", markup=False)
        for note in record.get("notes", ()):
            out.print(f"warning: {errors.shell(note)}", markup=False, style="bold red")
    else:
        print_summary(record, paths)


def _fill_many(paths: list[Path], folder: Path, request: Request, limits: Limits, way: Way) -> None:
    """Fill several files into a folder; exit with code 1 if any of them could not be filled."""
    from hydiff.io import suffixes
    from hydiff.scale import batch
    from hydiff.workers import crew

    if folder.suffix.lower() in suffixes() and not folder.is_dir():
        raise errors.BadValue(
            f"-o {folder} names a file, but several inputs, or a pattern, need a folder; name it "
            f"without {folder.suffix}"
        )
    if way.band_mask is not None:
        raise errors.BadValue("--band-mask belongs to one cube: fill that one by itself")
    if way.dry_run:
        batch.check(paths, folder, request)
        if way.json:
            print_json({"method": request.method, "inputs": [str(path) for path in paths]})
        else:
            out.print(f"would fill {len(paths)} files with {request.method}:", markup=False)
            out.print(*paths, sep="\n", markup=False)
        return
    if way.memory is None:  # each process fills a different file: they share the memory
        limits = limits._replace(memory=limits.memory / limits.processes)
    with progress_bar(unit="granules", events=way.json) as progress:
        rows = batch.fill_all(
            paths,
            folder,
            request,
            limits._replace(processes=1),
            crew=crew(way.workers, way.scheduler, gpu=request.learned, say=way.say),
            resume=way.resume,
            overwrite=way.overwrite,
            command=sys.argv,
            progress=progress,
            say=way.say,
        )
    failed = [row for row in rows if row.status == "failed"]
    if way.json:
        print_json([row._asdict() for row in rows])
    else:
        done = f"{len(rows) - len(failed)} of {len(rows)} done: {folder / batch.MARKDOWN}"
        out.print(done, markup=False)
        for row in rows:
            if row.status == "failed":
                out.print(f"failed: {row.input}: {row.error}", markup=False)
            elif row.note:
                out.print(f"note: {row.input}: {row.note}", markup=False)
    if failed:
        raise typer.Exit(1)


def _request(way: Way, options: dict[str, Any]) -> Request:
    """Return the request that the options of the command line describe."""
    from hydiff import auto

    recipe, nodata = options["recipe"], options["nodata"]
    method, settings = _settings(way, options)
    parsed = {
        "method": method,
        "settings": settings,
        "recipe": None if recipe is None else auto.read_recipe(recipe),
        "sigma_y": sigma_of(options["sigma_y"]),
        "nodata": tuple(nodata) if nodata else None,
        "reference": tuple(options["reference"] or ()),
        "reference_missing": tuple(options["reference_missing"] or ()),
    }
    return Request(**options | parsed)


def _settings(way: Way, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the method and its settings, which several options determine together."""
    method, preset, pretrain = options["method"], options["preset"], options["pretrain"]
    pairs = options["settings"] or []
    chosen = {"engine": way.engine, "precision": way.precision}
    settings: dict[str, Any] = dict(key_values(pairs))
    settings |= {name: choice for name, choice in chosen.items() if choice is not None}
    if way.weights is not None:
        if method not in (None, *WITH_WEIGHTS):
            names = " or ".join(WITH_WEIGHTS)
            raise errors.BadValue(f"--weights goes with --method {names}, not with {method}")
        settings = {"weights": str(way.weights), "refine": way.refine} | settings
    elif pretrain:
        settings["refine"] = way.refine
    elif way.refine:
        raise errors.BadValue(
            "--refine goes with trained --weights or --pretrain; without them set steps instead"
        )
    method = method or (WITH_WEIGHTS[0] if way.weights is not None or pretrain else DEFAULT)
    if method == DEFAULT and (settings or preset is not None):
        option_names = [f"--{name}" for name, choice in chosen.items() if choice is not None]
        option_names += ["--set"] * bool(pairs) + ["--preset"] * (preset is not None)
        raise errors.BadValue(
            f"{', '.join(option_names)}: settings belong to one method; name it with --method"
        )
    return method, settings


def _say(text: str) -> None:
    """Print a line on stderr, warnings in red."""
    color = "bold red" if text.startswith("warning: ") else None
    err.print(errors.shell(text), markup=False, style=color)
