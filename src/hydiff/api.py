"""`fill`, which turns its arguments into a `Request`, a `CubePlan` and a `Result`; and `write`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hydiff import auto, flags, io
from hydiff.auto.apply import Decision
from hydiff.auto.sources import of_method
from hydiff.auto.split import keeps
from hydiff.cube import Array, Bools, Cube, Floats, Nodata, as_mask
from hydiff.errors import BadValue
from hydiff.gaps import reach, regions, rule, stored
from hydiff.gaps.detect import detect
from hydiff.io import axes, labelled, uncertainty
from hydiff.io.blocks import differs
from hydiff.io.marks import marked
from hydiff.maths.noise_level import Sigma, doubts, sigma_per_band
from hydiff.methods import DEFAULT, Inpaint, user_code
from hydiff.methods.estimate import Estimate, Job, Progress, estimate
from hydiff.option_types import of_type
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
    region: str | Path | None = None,
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
    """Fill the gaps of a cube from its observed entries, and from other images of the same place.

    data: a Cube, a DataArray, a Dataset that contains one, the path of a file, or an array (bands,
        rows, cols).  NaN, Inf and nodata values are missing.
    observed: mask (True = measured) besides the cube's own rule: an array (rows, cols) or (bands,
        rows, cols), a DataArray of these dimensions, or a mask file.
    missing: mask with the opposite meaning, instead of `observed`.
    axis: "bands first" or "bands last" in an array.  By default the shape of the mask decides, else
        bands come first, and an array that looks like (rows, cols, bands) is refused.
    method: a name of `hydiff.METHODS` ("auto" tries several and blends them), or your function.
    preset: a named set of settings of the method, such as "fast".
    sigma_y: standard deviation of the noise in the cube's unit: one number, one per band, or a dict
        with one per detector; "5%" is a share of the cube's unit range, "auto" estimates.
    input_uncertainty: uncertainty of the input product in the cube's unit, included in
        `Result.sigma`: one number, one per band, or an array, a cube or a file of the cube's shape.
    nodata: the value, or values, that mean missing, instead of what the file declares.
    nodata_in: "any" counts every entry with a nodata value as missing, "all" only pixels where all
        good bands are; by default "all" where the value lies within the range of the others.
    bad_bands: "fill" fills gaps in bad bands by plain spatial interpolation, "keep" leaves them.
    max_gap: leave entries missing where their gap is wider than this many pixels.
    outside: "fill" or "keep" missing entries that no line joins to observed ones on both sides, in
        the image or along the bands; the default is "keep" for files and "fill" for arrays.
    fill_clouds: also fill entries that the product withholds but has not lost (clouds in EMIT).
    region: fill only there, from the whole cube: "10:60,20:80" (rows and columns),
        "xmin,ymin,xmax,ymax" (map coordinates), or the path of a file of polygons.
    bands: fill only these bands: "10:40,55" (numbers, from 0) or "900-1000nm".
    buffer: number of pixels by which the missing parts of `observed` or `missing` are widened.
    denoise: with sigma_y > 0, also replace the observed entries of `Result.cube` by the estimate.
    clip: limit filled values to the range "observed" in their band, or to the "physical" one: 0 or
        more, and 1 or less where the file declares reflectance; "none" sets no limit.
    seed: of the random numbers, a whole number.
    device: "auto" (a GPU if there is one), "cpu" or "cuda", for methods with a network; "cuda"
        also for `smooth`.
    deterministic: give identical bytes on a GPU, at some cost in speed (a CPU always does).
    checkpoint: file for the state of a learned method until its end; `resume` continues from it.
    budget: effort of the method "auto": "fast", "normal" or "best".
    recipe: decision of an earlier "auto" fill, to be applied without trying methods again:
        `Result.recipe`, or the path of its record.
    no_prior: with the method "auto", do not use the network that was trained on other images.
    max_error: leave entries missing whose expected error exceeds this many standard deviations of
        their band; an error of 1 is no better than the mean of the band.
    reference: images of the same place, of any sensor, in any form that `data` can have, used
        where they improve hidden copies of the gaps; notes say by how much.
    reference_missing: masks of the references, in the same order, True = do not use.
    reference_max_days: refuse a reference taken more than this many days before or after the cube.
    reference_max_shift: refuse a reference displaced by more than this many pixels.
    progress: function called with every `Step` of the method; a true return value stops the method
        at its current estimate.  By default a notebook shows a bar; False switches it off.
    settings: settings of the method by name, e.g. `s=1.25`; with `weights=FILE` the size of the
        network is taken from the file.

    >>> import numpy as np, hydiff
    >>> cube = np.fromfunction(lambda b, r, c: b + r + c, (3, 12, 12))
    >>> observed = np.ones((12, 12), bool)
    >>> observed[:, 5:7] = False
    >>> result = hydiff.fill(cube, observed, method="linear")
    >>> bool(np.allclose(result.values, cube)), int(result.filled.sum())
    (True, 72)
    """
    user_code.check_progress(progress)
    of_type("resume", resume, bool)
    cube, mask = cube_and_mask(data, observed, missing, axis)
    mask = mask if nodata is None else rule.with_own_mask(mask, cube, data)
    outside = ("fill" if cube.path is None else "keep") if outside is None else outside
    if recipe is not None:
        recipe = auto.read_recipe(recipe)
    reference, reference_missing = _several(reference), _several(reference_missing)
    arguments = locals()
    request = Request(**{name: arguments[name] for name in ARGUMENTS})
    request.check()
    plan = plan_cube(request, cube.load(), mask)
    checkpoint_path = None if checkpoint is None else Path(of_type("checkpoint", checkpoint, Path))
    if progress is not None or "ipykernel" not in sys.modules:
        return execute(plan, checkpoint_path, resume, progress or None)
    from hydiff.report import notebook

    with notebook.progress_bar() as progress_bar:
        return execute(plan, checkpoint_path, resume, progress_bar)


def _several(given: Any) -> tuple[Any, ...]:
    """Return what is given for an argument that takes one, several or None."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list | tuple) else (given,)


@dataclass(frozen=True, eq=False)
class CubePlan:
    """A fill of a cube in memory: everything that is determined before the method runs."""

    request: Request
    cube: Cube  # in memory
    observed: Bools  # (bands, rows, cols) True = measured
    target: Bools  # (bands, rows, cols) missing entries to fill
    why: Array  # (bands, rows, cols) bits of `flags.REASONS`
    left: Mapping[str, int]  # reason → number of missing entries that are not to be filled
    limits: reach.Reach  # of the observed values, and what filled values are clipped to
    notes: list[str]  # about what counts as missing
    references: tuple[Reference, ...] = ()  # other images of the place, on the grid of the cube
    uncertainty: Floats | None = None  # (bands,) of the input product, in the cube's unit
    began: float = field(default_factory=time.perf_counter)  # s


def plan_cube(
    request: Request,
    cube: Cube,
    mask: Bools | None,
    say: Callable[[str], Any] = lambda text: None,
    named: Array | None = None,
) -> CubePlan:
    """Return the plan of a fill: the measured entries, the entries to fill, and the references.

    cube: in memory.  mask: True = measured, (rows, cols) or (bands, rows, cols).  named: why the
    entries of the mask are missing, bits of `flags.REASONS` in its shape; None means MASK.
    """
    began = time.perf_counter()
    rule.check_numbers(cube)
    mask = regions.grown(mask, request.buffer)
    observed, notes = rule.observed_entries(cube, mask, request.nodata, request.nodata_in)
    cube = stored.with_nodata(cube, request.nodata, notes)
    suspicions = [] if request.detect else rule.suspected(cube, observed, request.nodata)
    models_noise = request.chosen is None or request.chosen.facts.uses_sigma
    noise_doubts = doubts(request.sigma_y, cube, observed) if models_noise else []
    for note in (*notes, *suspicions, *noise_doubts):
        say(f"warning: {note}")
    if request.detect:
        for suggestion in detect(np.asarray(cube.values), observed, cube.good):
            say(f"taken as missing: {suggestion.message}")
            observed = observed & ~suggestion.missing
        suspicions = rule.suspected(cube, observed, request.nodata)
    target, left = rule.targets(
        cube,
        observed,
        bad_bands=request.bad_bands,
        max_gap=request.max_gap,
        outside=request.outside,
        fill_clouds=request.fill_clouds,
        selection=regions.selection_of(cube, request.region, request.bands),
    )
    limits = reach.reach_of(cube, *reach.extremes(np.asarray(cube.values), observed), request.clip)
    images = request.reference, request.reference_missing
    sources = list(image_choice.sources(*images, cube_and_mask))
    place = image_choice.Place(cube, observed, cube, EVERYWHERE, np.asarray(target.any(axis=0)))
    references, reference_notes = image_choice.taken(
        sources, place, request.reference_max_shift, request.reference_max_days
    )
    return CubePlan(
        request,
        cube,
        observed,
        target,
        why=rule.reasons(cube, observed, request.nodata, request.nodata_in, mask, named),
        left=left,
        limits=limits,
        notes=[*notes, *suspicions, *noise_doubts, *reference_notes],
        references=references,
        uncertainty=uncertainty.of_input(request.input_uncertainty, cube, observed),
        began=began,
    )


def execute(
    plan: CubePlan, checkpoint: Path | None = None, resume: bool = False, progress: Progress = None
) -> Result:
    """Run the method of a plan, and return the cube with the estimate in its gaps."""
    request, cube = plan.request, plan.cube
    planes = tuple(entry.planes for entry in plan.references if entry.planes.observed.any())
    run = request.seed, request.device, request.deterministic, checkpoint, resume
    job = Job(*run, references=planes)
    solution, decision = _solved(plan, job, progress)
    target, left = plan.target.copy(), dict(plan.left)
    for reason, entries in _given_up(solution, decision, request):
        if (unfilled := target & entries).any():
            left[reason] = int(unfilled.sum())
            target &= ~entries

    values, beyond = reach.bounded(cube.dtype, solution.values, target, plan.limits)
    noisy = solution.sigma_y > 0
    trusted = target | (plan.observed & noisy[:, None, None]) if noisy.any() else target
    replaced = trusted if request.denoise else target
    written, changed = stored.into_dtype(cube, values, replaced, request.nodata)
    kind = stored.float_for(cube.dtype)
    filled = int(np.count_nonzero(target))
    recipe = None if decision is None else decision.recipe
    served = filled if decision is None else decision.with_reference
    references = auto.reference_facts(plan.references, recipe, served, filled)
    entry_flags = _flags(plan, target, written, decision)
    bars = (solution.sigma, solution.sigma_y, decision is not None, plan.uncertainty)
    sigma, budget = uncertainty.stated(*bars, entry_flags, target)
    result = Result(
        cube=replace(cube, values=written, valid=cube.validated(target)),
        values=reach.composed(cube, plan.observed, trusted, values),
        raw=np.asarray(solution.values, kind),
        filled=target,
        flags=entry_flags,
        why=plan.why,
        left=left,
        method=request.method_name,
        settings=request.settings_used,
        sigma_y=solution.sigma_y,
        history=solution.history,
        seed=request.seed,
        seconds=time.perf_counter() - plan.began,
        notes=[
            *_notes(plan, solution, left),
            *(f"{count} filled entries {change}" for change, count in changed.items()),
            *reach.notes(beyond, request.clip),
            *(str(entry["words"]) for entry in references),
            *uncertainty.notes(plan.uncertainty, sigma is not None),
        ],
        sigma=None if sigma is None else np.asarray(sigma, kind),
        budget=budget,
        references=references,
        expected=None if decision is None else decision.expected,
        expected_by_kind=None if decision is None else decision.both_kinds,
        recipe=recipe,
        beyond=beyond | {"clip": request.clip},
    )
    return replace(result, cube=marked(result, request.denoise and bool(noisy.any())))


def _notes(plan: CubePlan, solution: Estimate, left: Mapping[str, int]) -> Iterator[str]:
    """Yield the notes of the plan and the method, and warnings about a recipe from elsewhere."""
    nodata, recipe = plan.request.nodata, plan.request.recipe
    yield from (*plan.notes, *solution.notes, *stored.undeclared_note(plan.cube, nodata, left))
    if recipe is not None:
        yield from auto.note_of_origin(recipe, auto.fingerprint(plan.cube, plan.observed))
    if not plan.references and (recipe or {}).get("with_reference"):
        yield "the recipe had another image of the place; without it the fill is another"


def _flags(plan: CubePlan, target: Bools, written: Array, decision: Decision | None) -> Array:
    """(bands, rows, cols) bits of `flags.FLAGS` for each entry.

    target: True = filled.  written: the values of the filled cube.
    """
    cube, observed, facts = plan.cube, plan.observed, plan.request.facts
    none = np.zeros((1, 1, 1), bool)
    from_bands = none if facts.each_band else keeps(cube, observed)
    origin = of_method(facts, target, cube.good_bands) if decision is None else decision.sources
    outside = flags.outside_of(written, plan.limits.low, plan.limits.high)
    changed = observed & differs(np.asarray(cube.values), written) if plan.request.denoise else none
    return flags.of_fill(target, from_bands, origin, outside, changed)


def _solved(plan: CubePlan, job: Job, progress: Progress) -> tuple[Estimate, Decision | None]:
    """Return the estimate of the whole cube, and the decision if the method is "auto"."""
    request, cube, observed = plan.request, plan.cube, plan.observed
    noise = sigma_per_band(request.sigma_y, cube)
    if request.chosen is not None:
        return estimate(cube, observed, request.chosen, noise, job, progress), None
    options: dict[str, Any] = {"budget": request.budget, "recipe": request.recipe}
    options |= {"prior": not request.no_prior, "max_error": request.max_error, "progress": progress}
    return auto.fill(cube, observed, plan.target, noise, job, **options)


def write(
    data: Result | Cube | Array | xarray.DataArray,
    path: str | Path,
    *,
    axis: str | None = None,
    overwrite: bool = False,
    unmarked: bool = False,
    compact: bool = False,
) -> list[Path]:
    """Write a cube to a file and return the paths of all files written, the values first.

    A file is written completely or not at all.  The suffix of `path` determines the format; without
    one it is the format of the input.  A Result is written with its companion files, as by `hydiff
    fill`.

    data: a Result, a Cube, a DataArray, or an array (bands, rows, cols).
    axis: "bands last" for an array (rows, cols, bands).  overwrite: replace existing files.
    unmarked: allow a format that cannot mark the file as filled (.npy).
    compact: write the companions of a Result as small .npz files.
    """
    if isinstance(data, Result):
        return data.save(path, overwrite=overwrite, unmarked=unmarked, compact=compact)
    cube = cube_and_mask(data, None, None, axis)[0]
    return io.write(cube, path, overwrite=overwrite, unmarked=unmarked)


def cube_and_mask(
    data: Any, observed: Mask = None, missing: Mask = None, axis: str | None = None
) -> tuple[Cube, Bools | None]:
    """Return the cube and the mask (True = measured), both with the bands first."""
    if observed is not None and missing is not None:
        raise BadValue("`observed=` and `missing=` say the same thing twice: give one of them")
    mask = observed if missing is None else missing
    if isinstance(data, str | Path):
        cube = io.read(data, axis=axis)
    else:
        if isinstance(data, Result):
            raise BadValue("a Result is filled already: its cube is `result.cube`")
        data = labelled.only_array(data)
        mask_shape = mask.shape if isinstance(mask, np.ndarray) else None
        is_last = axes.bands_last(data, axis, mask_shape)
        cube = labelled.cube_of(data.transpose(*axes.dims_in(data, (2, 0, 1))) if is_last else data)
        if is_last and mask_shape == data.shape:
            mask = np.asarray(mask).transpose(2, 0, 1)
    if isinstance(mask, str | Path):
        meaning = "observed" if missing is None else "missing"
        return cube, io.read_mask(mask, meaning, cube.shape, like=cube)
    mask = as_mask(labelled.like_array(mask, data), cube)
    return cube, mask if missing is None else ~rule.checked_mask(np.asarray(mask), cube.shape)


def _given_up(
    solution: Estimate, decision: Decision | None, request: Request
) -> Iterator[tuple[str, Bools]]:
    """Yield a reason and the entries (bands, rows, cols) that are left missing for it."""
    yield f"out of reach of {request.method_name}", np.isnan(solution.values)
    if decision is not None and request.max_error is not None:
        yield f"expected error above {request.max_error:g}", decision.too_uncertain
