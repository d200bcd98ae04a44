"""The front door: `fill(cube) -> Result`, as a request, a plan made from it, and its execution.

`write` takes what a fill takes and returns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hydiff import auto, flags, io
from hydiff.auto.apply import Decision, sources_of
from hydiff.auto.split import keeps
from hydiff.cube import Array, Bools, Cube, Floats, Nodata, as_cube
from hydiff.errors import BadValue
from hydiff.gaps import reach, regions
from hydiff.gaps.detect import detect
from hydiff.gaps.rule import (
    Sigma,
    check_numbers,
    checked_mask,
    float_for,
    into_dtype,
    observed_entries,
    reasons,
    sigma_per_band,
    suspected,
    targets,
)
from hydiff.io import axes, uncertainty
from hydiff.io.blocks import differs
from hydiff.io.marks import marked
from hydiff.methods import DEFAULT, Inpaint
from hydiff.methods.estimate import Estimate, Job, Progress, estimate
from hydiff.reference import image_choice
from hydiff.reference.planes import EVERYWHERE, Reference
from hydiff.request import (
    ARGUMENTS,
    MAX_SHIFT,
    AllOrAny,
    BudgetName,
    ClipName,
    FillOrKeep,
    MethodName,
    Request,
)
from hydiff.result import Result

if TYPE_CHECKING:
    import xarray


Mask = Bools | str | Path | None


def fill(
    data: Cube | Array | xarray.DataArray | xarray.Dataset | str | Path,
    observed: Mask = None,
    *,
    missing: Mask = None,
    axis: Literal["bands first", "bands last"] | None = None,
    method: MethodName | str | Inpaint = DEFAULT,
    preset: str | None = None,
    sigma_y: Sigma = 0.0,
    input_uncertainty: Any = None,
    nodata: Nodata = None,
    nodata_in: AllOrAny | None = None,
    bad_bands: FillOrKeep = "fill",
    max_gap: float | None = None,
    outside: FillOrKeep | None = None,
    fill_clouds: bool = False,
    region: str | None = None,
    bands: str | None = None,
    buffer: float = 0.0,
    denoise: bool = False,
    clip: ClipName = "none",
    seed: int = 0,
    device: str = "auto",
    deterministic: bool = False,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    budget: BudgetName = "normal",
    recipe: Mapping[str, Any] | str | Path | None = None,
    no_prior: bool = False,
    max_error: float | None = None,
    reference: Any = (),
    reference_missing: Any = (),
    reference_max_days: float | None = None,
    reference_max_shift: float = MAX_SHIFT,
    progress: Progress | Literal[False] = None,
    **settings: Any,
) -> Result:
    """Fill the gaps of a cube from its own observed entries, and from other images of its place.

    data: a Cube, a DataArray, a Dataset with one, the path of a file, or an array (bands, rows,
        cols).  Missing are the entries that `observed` (True = measured; (rows, cols) or
        (bands, rows, cols), or a mask file) names, and those that the cube itself does: its nodata
        value (or `nodata`, one or several), NaN, Inf.
    missing: a mask with the opposite meaning, instead of `observed`.
    axis: "bands first" or "bands last" of an array, (rows, cols, bands); by default the mask says
        it, else it is the first, and an array that looks otherwise is refused.
    nodata_in: "any" takes every entry with the nodata value as missing, "all" only pixels where
        all good bands have it; by default "all" for a value that could be a measurement, within
        the range of all others.
    sigma_y: noise std in the cube's unit, one number, one per band, or one per detector as a dict;
        "5%" is a share of its range, "auto" has it estimated from the cube.
    input_uncertainty: the product's own, in the cube's unit: one number per band, or an array, a
        cube or a file of its shape.  `Result.sigma` holds it, too.
    bad_bands: "fill" gives gaps in bad bands the plain spatial fill, "keep" leaves them.
    max_gap: leave what lies in gaps wider than this many pixels.
    outside: "keep" or "fill" what no line joins to observed pixels on both sides; by default kept
        in cubes that were read from files, filled in arrays.
    fill_clouds: also fill what a product withholds without having lost it (EMIT's screened clouds).
    region: fill only there: "10:60,20:80" in rows and columns, "xmin,ymin,xmax,ymax" in map
        coordinates, or the path of a file of polygons.  The whole cube is still used to fill from.
    bands: fill only these: "10:40,55", counted from 0, or "900-1000nm".
    buffer: pixels by which the missing parts of `observed` or `missing` are widened.
    clip: filled values to what was "observed" in their band, or to what is "physical": 0 or more,
        1 or less where the file says that it holds reflectance; "none" leaves them.
    denoise: with sigma_y > 0, `Result.cube` takes the estimate for its observed entries too.
    deterministic: the same bytes again on a GPU too, at some cost (a CPU always gives them).
    checkpoint: a file for the state of a learned method, written every half minute and removed at
        the end; with `resume` a run goes on from it.
    budget: of the method "auto": "fast", "normal" or "best".
    recipe: what an earlier "auto" decided, as `Result.recipe` or the path of its record: it is
        repeated without trying again.
    no_prior: of the method "auto": fill from this cube alone, without the network that was trained
        on other images.
    max_error: leave missing what is expected to be off by more than this many standard deviations
        of its band; 1 is no better than the band's mean.
    reference: another image of the same place, or several: whatever `data` may be, of any sensor.
        It is used where that pays on hidden copies of the gaps, and the notes say how much.
    reference_missing: masks of the references, in their order, True = not to be used.
    reference_max_days: refuse one from more days before or after the cube.
    reference_max_shift: refuse one that lies more pixels beside the cube.
    progress: called with every `Step` of the method; when it returns a true value, the method ends
        there and its estimate so far is taken.  By default a bar in a notebook; False: no bar.
    settings: entries of the method's settings, e.g. `s=1.25`; with `weights=FILE` the size of the
        network is the file's.

    >>> import numpy as np, hydiff
    >>> cube = np.fromfunction(lambda b, r, c: b + r + c, (3, 12, 12))
    >>> observed = np.ones((12, 12), bool)
    >>> observed[:, 5:7] = False
    >>> result = hydiff.fill(cube, observed, method="linear")
    >>> bool(np.allclose(result.values, cube)), int(result.filled.sum())
    (True, 72)
    """
    cube, mask = cube_and_mask(data, observed, missing, axis)
    if outside is None:
        outside = "fill" if cube.path is None else "keep"
    if recipe is not None:
        recipe = auto.read_recipe(recipe)
    reference, reference_missing = (
        tuple(given) if isinstance(given, list | tuple) else (given,)
        for given in (reference, reference_missing)
    )
    arguments = locals()
    request = Request(**{name: arguments[name] for name in ARGUMENTS})
    request.check()
    plan = plan_cube(request, cube.load(), mask)
    kept = None if checkpoint is None else Path(checkpoint)
    if progress is not None or "ipykernel" not in sys.modules:
        return execute(plan, kept, resume, progress or None)
    from hydiff.report import notebook

    with notebook.progress_bar() as shown:
        return execute(plan, kept, resume, shown)


@dataclass(frozen=True, eq=False)
class CubePlan:
    """The fill of a cube in memory, decided up to the method's own work."""

    request: Request
    cube: Cube  # in memory
    observed: Bools  # (bands, rows, cols) True = measured
    target: Bools  # (bands, rows, cols) missing entries to fill
    why: Array  # (bands, rows, cols) bits of `flags.REASONS`
    left: Mapping[str, int]  # reason → number of missing entries that are not to be filled
    limits: reach.Reach  # of the observed values, and what filled values are clipped to
    notes: list[str]  # about what counts as missing
    references: tuple[Reference, ...] = ()  # other images of the place, on the grid of the cube
    uncertainty: Floats | None = None  # (bands,) of the product itself, in the cube's unit
    began: float = field(default_factory=time.perf_counter)  # s


def plan_cube(
    request: Request,
    cube: Cube,
    mask: Bools | None,
    say: Callable[[str], Any] = lambda text: None,
    named: Array | None = None,
) -> CubePlan:
    """What counts as measured and what is to be filled, by a request that was checked.

    cube: in memory.  mask: True = measured, (rows, cols) or (bands, rows, cols).  named: of the
    shape of the mask, bits of `flags.REASONS`: why its entries are missing; by default MASK.
    """
    began = time.perf_counter()
    check_numbers(cube)
    mask = regions.grown(mask, request.buffer)
    observed, notes = observed_entries(cube, mask, request.nodata, request.nodata_in)
    doubts = [] if request.detect else suspected(cube, observed, request.nodata)
    for note in (*notes, *doubts):
        say(f"warning: {note}")
    if request.detect:
        for suggestion in detect(np.asarray(cube.values), observed, cube.good):
            say(f"taken as missing: {suggestion.message}")
            observed = observed & ~suggestion.missing
        doubts = suspected(cube, observed, request.nodata)
    target, left = targets(
        cube,
        observed,
        bad_bands=request.bad_bands,
        max_gap=request.max_gap,
        outside=request.outside,
        fill_clouds=request.fill_clouds,
        selection=regions.selection_of(cube, request.region, request.bands),
    )
    ends = reach.extremes(np.asarray(cube.values), observed)
    limits = reach.reach_of(cube, *ends, request.clip)
    images = request.reference, request.reference_missing
    given = list(image_choice.sources(*images, cube_and_mask))
    place = image_choice.Place(cube, observed, cube, EVERYWHERE, np.asarray(target.any(axis=0)))
    references, more = image_choice.taken(
        given, place, request.reference_max_shift, request.reference_max_days
    )
    return CubePlan(
        request,
        cube,
        observed,
        target,
        reasons(cube, observed, request.nodata, request.nodata_in, mask, named),
        left,
        limits,
        [*notes, *doubts, *more],
        references,
        uncertainty.of_input(request.input_uncertainty, cube, observed),
        began,
    )


def execute(
    plan: CubePlan, checkpoint: Path | None = None, resume: bool = False, progress: Progress = None
) -> Result:
    """Run the method of a plan, and put its estimate into the gaps."""
    request, cube = plan.request, plan.cube
    planes = tuple(one.planes for one in plan.references if one.planes.observed.any())
    how = (request.seed, request.device, request.deterministic, checkpoint, resume)
    job = Job(*how, references=planes)
    solution, decision = _solved(plan, job, progress)
    target, left = plan.target.copy(), dict(plan.left)
    for reason, entries in _given_up(solution, decision, request):
        if (kept := target & entries).any():
            left[reason] = int(kept.sum())
            target &= ~entries

    values, beyond = reach.bounded(cube.dtype, solution.values, target, plan.limits)
    noisy = solution.sigma_y > 0
    trusted = target | (plan.observed & noisy[:, None, None]) if noisy.any() else target
    replaced = trusted if request.denoise else target
    written, changed = into_dtype(cube, values, replaced, request.nodata)
    floats = partial(np.asarray, dtype=float_for(cube.dtype))
    filled = int(np.count_nonzero(target))
    recipe, served = (
        (None, filled) if decision is None else (decision.recipe, decision.with_reference)
    )
    references = auto.judged(plan.references, recipe, served, filled)
    own = _flags(plan, target, written, decision)
    bars = (solution.sigma, solution.sigma_y, decision is not None, plan.uncertainty)
    sigma, budget = uncertainty.stated(*bars, own, target)
    result = Result(
        cube=replace(cube, values=written, valid=cube.validated(target)),
        values=reach.composed(cube, plan.observed, trusted, values),
        raw=floats(solution.values),
        filled=target,
        flags=own,
        why=plan.why,
        left=left,
        method=request.method_name,
        settings=request.settings_used,
        sigma_y=solution.sigma_y,
        history=solution.history,
        seed=request.seed,
        seconds=time.perf_counter() - plan.began,
        notes=[
            *_notes(plan, solution),
            *(f"{n} filled entries {how}" for how, n in changed.items()),
            *reach.notes(beyond, request.clip),
            *(str(one["words"]) for one in references),
            *uncertainty.notes(plan.uncertainty, sigma is not None),
        ],
        sigma=None if sigma is None else floats(sigma),
        budget=budget,
        references=references,
        expected=None if decision is None else decision.expected,
        expected_by_kind=None if decision is None else decision.both_kinds,
        recipe=None if decision is None else decision.recipe,
        beyond=beyond | {"clip": request.clip},
    )
    return replace(result, cube=marked(result, request.denoise and bool(noisy.any())))


def _notes(plan: CubePlan, solution: Estimate) -> Iterator[str]:
    """What there is to say before anything is put into the gaps."""
    recipe = plan.request.recipe
    yield from (*plan.notes, *solution.notes)
    if recipe is not None:
        yield from auto.note_of_origin(recipe, auto.fingerprint(plan.cube, plan.observed))
    if not plan.references and (recipe or {}).get("with_reference"):
        yield "the recipe had another image of the place; without it the fill is another"


def _flags(plan: CubePlan, target: Bools, written: Array, decision: Decision | None) -> Array:
    """(bands, rows, cols) how each entry came about.  written: the values of the filled cube."""
    cube, observed, facts = plan.cube, plan.observed, plan.request.facts
    none = np.zeros((1, 1, 1), bool)
    kept = none if facts.each_band else keeps(cube, observed)
    origin = sources_of(decision, facts, target, cube.good_bands)
    outside = flags.outside_of(written, plan.limits.low, plan.limits.high)
    changed = observed & differs(np.asarray(cube.values), written) if plan.request.denoise else none
    return flags.of_fill(target, kept, origin, outside, changed)


def _solved(plan: CubePlan, job: Job, progress: Progress) -> tuple[Estimate, Decision | None]:
    """The estimate of the whole cube; by `auto` with its decision."""
    request, cube, observed = plan.request, plan.cube, plan.observed
    noise = sigma_per_band(request.sigma_y, cube)
    if request.chosen is not None:
        return estimate(cube, observed, request.chosen, noise, job, progress), None
    how: dict[str, Any] = {"budget": request.budget, "recipe": request.recipe}
    how |= {"prior": not request.no_prior, "max_error": request.max_error, "progress": progress}
    return auto.fill(cube, observed, plan.target, noise, job, **how)


def write(
    data: Result | Cube | Array | xarray.DataArray,
    path: str | Path,
    *,
    axis: str | None = None,
    overwrite: bool = False,
    unmarked: bool = False,
    compact: bool = False,
) -> list[Path]:
    """Write a cube, whole or not at all; the files made, the one with the values first.

    The suffix of `path` says the format; without one it is the format that the cube came in.  A
    Result is written with its companions, as `hydiff fill` does; arrays are (bands, rows, cols)
    unless `axis` is "bands last".  unmarked: allow a file that cannot say that it is filled (.npy).
    compact: companions as small .npz files, whatever the format of the cube.
    """
    if isinstance(data, Result):
        return data.save(path, overwrite=overwrite, unmarked=unmarked, compact=compact)
    cube = cube_and_mask(data, None, None, axis)[0]
    return io.write(cube, path, overwrite=overwrite, unmarked=unmarked)


def cube_and_mask(
    data: Any, observed: Mask = None, missing: Mask = None, axis: str | None = None
) -> tuple[Cube, Bools | None]:
    """The cube and the mask, True = measured, both with the bands first."""
    if observed is not None and missing is not None:
        raise BadValue("`observed=` and `missing=` say the same thing twice: give one of them")
    mask = observed if missing is None else missing
    if isinstance(data, str | Path):
        cube = io.read(data, axis=axis)
    else:
        if isinstance(data, Result):
            raise BadValue("a Result is filled already: its cube is `result.cube`")
        data = axes.only_array(data)
        form = mask.shape if isinstance(mask, np.ndarray) else None
        last = axes.bands_last(data, axis, form)
        cube = as_cube(data.transpose(*axes.dims_in(data, (2, 0, 1))) if last else data)
        if last and form == data.shape:
            mask = np.asarray(mask).transpose(2, 0, 1)
    if isinstance(mask, str | Path):
        meaning = "observed" if missing is None else "missing"
        return cube, io.read_mask(mask, meaning, cube.shape, like=cube)
    if mask is not None and missing is not None:
        mask = ~checked_mask(np.asarray(mask), cube.shape)
    return cube, mask


def _given_up(
    solution: Estimate, decision: Decision | None, request: Request
) -> Iterator[tuple[str, Bools]]:
    """Entries (bands, rows, cols) that are left missing after all, with the reason."""
    yield f"out of reach of {request.method_name}", np.isnan(solution.values)
    if decision is not None and request.max_error is not None:
        yield f"expected error above {request.max_error:g}", decision.hopeless
