"""The outputs of a fill: a `Step` for each iteration, from which a `Meter` estimates the time left,
and the final `Result`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

from hydiff.cube import Array, Bools, Cube, band_order, size_and_wavelengths
from hydiff.errors import need
from hydiff.flags import attributes

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

OVERDUE = 0.2  # least time left, as a share of the time so far, when no step is done yet
WIDEST = 88  # characters of a text in `repr`
NOTES = 5  # number of notes that `repr` shows
# texts of the expected scores in `repr`
SCORES = {"nrmse": "NRMSE {:.3g}", "mpsnr": "MPSNR {:.3g} dB", "sam": "SAM {:.3g}°"}


class Step(NamedTuple):
    """Progress of a method after one iteration, and its current estimate."""

    done: int
    total: int
    x: Any  # (bands, rows, cols) on the unit range, array or tensor; NaN without an estimate
    log: Mapping[str, Any] = {}  # losses and monitors of this step, numbers or 0-d tensors
    state: Callable[[], Mapping[str, Any]] | None = None  # tensors to resume from, if supported
    sigma: Any = None  # (bands, rows, cols) posterior std of x on the unit range, if requested
    how: str = ""  # the engine or the worker that ran it, if there is a choice
    excess: Any = None  # (bands, rows, cols) by how much the variance is larger here than usual
    phase: str = ""  # name of the current part, in fills with parts of different duration


class Reading(NamedTuple):
    """The contents of a progress bar."""

    phase: str
    done: int
    total: int
    share: float  # elapsed share of the total time, from 0 to 1
    left: float | None  # seconds; None if unknown


def time_left(elapsed: float, share: float, expected: float | None) -> float | None:
    """Return the estimated seconds left, or None before the first step if nothing is expected.

    The estimate of the total time moves from `expected` to the rate so far as steps are done.

    elapsed: seconds so far.  share: of the steps that are done, 0 … 1.  expected: seconds of the
    whole fill, if known.

    >>> time_left(0, 0, 60), time_left(30, 0.5, 60), time_left(90, 0.9, 60)
    (60.0, 30.0, 6.0)
    """
    if share >= 1:
        return 0.0
    if share <= 0 and expected is None:
        return None
    by_rate = elapsed / share if share > 0 else 0.0
    total = by_rate if expected is None else (1 - share) * expected + share * by_rate
    return max(total - elapsed, OVERDUE * (1 - share) * elapsed)


class Meter:
    """Progress of a fill: receives its steps, and can be read at any time.

    expected: seconds of the whole fill; the attribute may be set later.  clock: returns seconds.
    """

    def __init__(
        self, expected: float | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.expected = expected
        self._clock, self._began = clock, clock()
        self._last = Step(0, 0, None, phase="preparing")
        self._share = 0.0

    def step(self, step: Step) -> None:
        """Receive a step of the fill."""
        self._last = step

    def read(self) -> Reading:
        """Return the current progress.  The share never decreases, so a bar does not go back."""
        last = self._last  # read once: another thread may receive a step meanwhile
        done, total, phase = last.done, last.total, last.phase
        elapsed = self._clock() - self._began
        left = time_left(elapsed, done / total if total else 0.0, self.expected)
        if left is not None:
            self._share = max(self._share, elapsed / max(elapsed + left, 1e-9))
        return Reading(phase or "filling", done, total, self._share, left)


def duration(seconds: float) -> str:
    """Return a duration as text: in hours or minutes if it is two of them or longer, else seconds.

    >>> duration(0.2), duration(100), duration(500), duration(2 * 3600)
    ('1 s', '100 s', '8 min', '2 h')
    """
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(math.ceil(seconds), 1)} s"


@dataclass(frozen=True, eq=False)
class Result:
    """A filled cube, and how it was filled.  Arrays are (bands, rows, cols) but for `sigma_y`."""

    cube: Cube  # ready to write: dtype and metadata of the input, observed entries unchanged
    values: Array  # the method's estimate, float, in the cube's unit; observed entries unchanged
    #               when sigma_y = 0; NaN where an entry was left missing
    raw: Array  # the estimate everywhere, as the method returned it
    filled: Bools  # True = this entry was missing and now has a value
    flags: Array  # uint8: how an entry was filled, bits of `hydiff.flags.FLAGS`; 0 = unchanged
    why: Array  # uint8: why an entry was missing, bits of `hydiff.flags.REASONS`
    left: Mapping[str, int]  # reason → number of entries left missing
    method: str
    settings: Mapping[str, Any]
    sigma_y: Array  # (bands,) the assumed noise std, in the cube's unit
    history: list[Mapping[str, float]]  # one record per step of the method
    seed: int
    seconds: float
    notes: list[str] = field(default_factory=list)  # remarks for the user about this run
    # standard uncertainty of the noise-free value of each filled entry, in the cube's unit and
    # relative to its own calibration; NaN elsewhere
    sigma: Array | None = None
    budget: Mapping[str, Any] | None = None  # error sources in and not in sigma; JSON-able
    expected: Mapping[str, float] | None = None  # expected scores of the filled entries
    # the same for each kind of gaps, where a cube has both: pixels without any band, and others
    expected_by_kind: Mapping[str, Mapping[str, float]] | None = None
    recipe: Mapping[str, Any] | None = None  # the decision of `auto`; JSON-able
    references: list[dict[str, Any]] = field(default_factory=list)  # other images of the place:
    #               position, gain, and number of entries filled with them; JSON-able
    beyond: Mapping[str, Any] = field(default_factory=dict)  # number of filled entries outside the
    #               range observed in their band, and how they were clipped; see `hydiff.gaps.reach`

    @property
    def layers(self) -> dict[str, Array]:
        """Layers with one value per entry, by name: `flags`, `why` and, if it exists, `sigma`."""
        bars = {} if self.sigma is None else {"sigma": self.sigma}
        return {"flags": self.flags, "why": self.why, **bars}

    @property
    def is_denoised(self) -> bool:
        """Whether measured entries of the cube were replaced by estimates, too."""
        return self.cube.mark is not None and self.cube.mark.denoised

    def __repr__(self) -> str:
        """Return a summary of at most twelve lines; the fields hold the details."""
        rows = (f"{name:9} {shorten(text, WIDEST, placeholder=' …')}" for name, text in facts(self))
        return "\n".join(["hydiff.Result", *rows])

    def _repr_html_(self) -> str:
        """Return pictures, expected scores and notes as HTML for a notebook."""
        from hydiff.report import notebook

        return notebook.html(self)

    def plot(
        self, *, truth: Cube | Array | None = None, pixel: tuple[int, int] | None = None
    ) -> Figure:
        """Return a figure of the gaps, the fill, and the spectrum of one pixel with its 1-σ band.

        truth: (bands, rows, cols), drawn beside the fill.  pixel: (row, col) of the spectrum; by
        default the one deepest in the gaps.
        """
        from hydiff.report import notebook

        return notebook.figure(self, truth, pixel)

    def samples(self, n: int, seed: int = 0) -> Iterator[Array]:
        """Yield cubes that are as likely as the fill, to work out errors of sums and indices.

        Each sample is (bands, rows, cols), float, in the cube's unit, like `values`.  A measured
        entry keeps its value; with sigma_y > 0 it is the estimate plus a draw of the error that the
        noise leaves.  A filled entry is the fill plus a draw of its error.  Entries left missing
        are NaN.  Errors are correlated in space and between bands.  Their std is `sigma` if the
        result has it, otherwise that of a kriging of the cube.  Sample i depends on the result, the
        seed and i, not on n.

        n: number of samples, 1 or more.
        """
        from hydiff.uncertainty.samples import samples

        return samples(self, n, seed)

    def save(
        self,
        path: str | Path,
        *,
        overwrite: bool = False,
        unmarked: bool = False,
        compact: bool = False,
    ) -> list[Path]:
        """Write the filled cube with its companion files, as `hydiff fill` does; return the paths.

        The path of the cube comes first.  The suffix of `path` determines the format.
        overwrite: replace existing files.  unmarked: allow a format that cannot mark the file as
        filled (.npy).  compact: write companions as small .npz files, whatever the format of the
        cube.
        """
        from hydiff.io import provenance

        options: dict[str, Any] = {"overwrite": overwrite, "unmarked": unmarked, "compact": compact}
        return provenance.save(self, path, **options)

    def to_xarray(self) -> xarray.Dataset:
        """Return a Dataset of the filled cube, the mask `filled` and the `layers` of the fill.

        The cube is the DataArray of `Cube.to_xarray`.  Its variable has the name of the DataArray
        that was filled, else `cube`.
        """
        need("xarray", "xarray", "to_xarray")
        import xarray

        array = self.cube.to_xarray()
        dims = [array.dims[i] for i in band_order([str(d) for d in array.dims])]
        data: dict[Any, Any] = {array.name or "cube": array, "filled": (dims, self.filled)}
        data |= {name: (dims, layer, attributes(name)) for name, layer in self.layers.items()}
        if "sigma" in data:
            data["sigma"][2].update(in_unit_of(array))
        metadata = {"method": self.method, "seed": self.seed}
        return xarray.Dataset(data, attrs=metadata).transpose(*array.dims)


def in_unit_of(array: xarray.DataArray) -> dict[str, Any]:
    """Return the attributes that give the errors of an array its unit: no offset, but its scale."""
    return {name: array.attrs[name] for name in ("units", "scale_factor") if name in array.attrs}


def facts(result: Result) -> list[tuple[str, str]]:
    """Return the most important facts about a fill, as name and text; eleven at most."""
    cube, filled, left = result.cube, int(result.filled.sum()), sum(result.left.values())
    count = f"{filled:,} of {filled + left:,} missing entries"
    rows = [("filled", f"{count} with {result.method} in {result.seconds:.1f} s")]
    rows.append(("cube", size_and_wavelengths(cube)))
    if left:
        reasons = (f"{n:,} entries, {reason}" for reason, n in result.left.items())
        rows.append(("left", "; ".join(reasons)))
    if result.expected is not None:
        scores = {k: v for k, v in result.expected.items() if k in SCORES and v is not None}
        rows.append(("expected", ", ".join(SCORES[k].format(v) for k, v in scores.items())))
    settings = [f"{k}={v}" for k, v in result.settings.items() if v is not None]
    rows.append(("settings", ", ".join([*settings, f"seed={result.seed}"])))
    notes = [note for note in result.notes if not note.startswith("expected in the filled")]
    rows += [("note", note) for note in notes[:NOTES]]
    if len(notes) > NOTES:
        rows.append(("notes", f"{len(notes) - NOTES} more in result.notes"))
    return rows
