# ruff: noqa: RUF009 - `option` makes a dataclass field
"""The options of a fill, defined once for Python, the command line, archives and tiles.

Each field of `Request` is an option.  Its metadata holds the text for `--help`, its group there,
and its name and type on the command line where these differ (`flag`, `text`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, fields
from difflib import get_close_matches
from functools import cache, cached_property
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

import numpy as np

from hydiff.cube import Nodata
from hydiff.errors import BadValue, UnknownName, need_torch
from hydiff.methods import (
    DEFAULT,
    WITH_WEIGHTS,
    Chosen,
    Inpaint,
    Method,
    choose,
    declared,
)
from hydiff.methods.settings import settings_dict
from hydiff.option_types import check_seed, of_type

if TYPE_CHECKING:
    from hydiff.maths.noise_level import Sigma
else:  # importing scipy takes half a second, which would delay --help
    Sigma = Any

# Choices for editors and type checkers; tests compare them with the accepted values.  `fill` also
# accepts a method as any `str`, because programs may compute its name.
MethodName = Literal[
    "auto", "smooth", "prior", "harmonic", "biharmonic", "tension", "linear", "idw", "nearest",
    "spectral", "subspace", "bandmean", "rbf", "dineof", "halrtc", "exemplar", "fixbad",
    "subspace-fill", "hydiff-ei", "ei", "robust-ei", "dhp", "hyper-ei", "r-dlrhyin", "dds2m",
    "lrs-pnp-dip", "share", "hir-diff", "anchored", "reference", "matched-copy", "similar-pixels",
]  # fmt: skip
BudgetName = Literal["fast", "normal", "best"]
FillOrKeep = Literal["fill", "keep"]
ClipName = Literal["none", "observed", "physical"]
AllOrAny = Literal["all", "any"]

# options that name missing entries; in memory, all of them result in one mask
MASKS = ("observed", "missing", "quality", "flags", "detect")
# options for fills of files, which `hydiff.fill` does not have or uses with another meaning
FILES = ("var", *MASKS, "report", "samples", "unmarked", "compact", "pretrain")

RENAMED = "`prior=N` is now `pretrain=N`: a prior is the network that comes with hydiff"
MAX_SHIFT = 5.0  # px by which a reference may be displaced from the cube

# groups of options in --help; those of METHOD and VALUES are shown together
METHOD, GAPS, VALUES, RUN, OUTPUT = "How", "What to fill", "How", "More", "Output"


def option(default: Any, help: str, group: str, **spelling: Any) -> Any:
    """Return a dataclass field with the metadata of an option.

    default: a value, or a type such as `dict`, which is called for each new request.
    spelling: `flag`, the name on the command line, and `text`, the type and default there, where
    they differ from those of the field; `shown`, the default as `--help` shows it.
    """
    metadata = {"help": help, "group": group, **spelling}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Request:
    """All options of a fill except its input and output files."""

    method: str | Inpaint = option(
        DEFAULT,
        "A method that `hydiff methods` lists, or your own: FILE.py:FUNCTION.",
        METHOD,
        text=(str | None, None),
        shown=DEFAULT,
    )
    preset: str | None = option(None, "A named set of settings.", METHOD)
    settings: Mapping[str, Any] = option(
        dict, "One setting of the method, key=value (repeatable).", METHOD, flag="--set",
        text=(list[str] | None, None),
    )  # fmt: skip
    budget: str = option("normal", "fast | normal | best, for auto.", METHOD)
    recipe: Mapping[str, Any] | None = option(
        None, "Repeat the decision of an earlier fill (its .fill.json).", METHOD,
        text=(Path | None, None),
    )  # fmt: skip
    max_error: float | None = option(
        None,
        "Leave entries with a larger expected error, in standard deviations of their band.",
        METHOD,
    )
    reference: tuple[Any, ...] = option(
        (), "Another image of the place to fill from, or a folder of them (repeatable).", METHOD,
        text=(list[Path] | None, None),
    )  # fmt: skip
    reference_missing: tuple[Any, ...] = option(
        (), "Masks of the references in their order, non-zero = ignore (repeatable).", METHOD,
        text=(list[Path] | None, None),
    )  # fmt: skip
    reference_max_days: float | None = option(
        None, "Refuse a reference taken more than N days before or after.", METHOD
    )
    reference_max_shift: float = option(
        MAX_SHIFT, "Refuse a reference shifted against the cube by more than N pixels.", METHOD
    )
    sigma_y: Sigma = option(
        0.0,
        "Standard deviation of the noise: in the cube's unit, 5%, VNIR=3,SWIR=8, or auto.",
        VALUES,
        text=(str, "0"),
    )
    input_uncertainty: Any = option(
        None, "Uncertainty of the product itself, per band or entry; added to σ.", VALUES,
        text=(Path | None, None),
    )  # fmt: skip
    nodata: Nodata = option(
        None, "Value that means missing (repeatable).", GAPS, text=(list[float] | None, None)
    )
    nodata_in: str | None = option(
        None,
        "Bands of a pixel that must hold the nodata value: all | any.",
        GAPS,
        shown="all if it may be measured",
    )
    bad_bands: str = option("fill", "fill | keep gaps in bad bands.", GAPS)
    max_gap: float | None = option(None, "Leave gaps wider than N pixels.", GAPS)
    outside: str = option("keep", "keep | fill missing pixels outside the imaged area.", GAPS)
    fill_clouds: bool = option(False, "Also fill frames screened for clouds (EMIT).", GAPS)
    denoise: bool = option(
        False, "Replace measured values by their denoised estimates too.", VALUES
    )
    clip: str = option("none", "Clip filled values to limits: none | observed | physical.", VALUES)
    seed: int = option(0, "Seed of the random numbers.", RUN)
    device: Any = option(
        "auto", "auto | cpu | cuda, for networks; cuda also for smooth.", RUN, text=(str, "auto")
    )  # also a torch.device
    deterministic: bool = option(
        False, "Give the same bytes in every run, on a GPU too (slower).", RUN
    )
    var: str | None = option(None, "Variable to read in .mat and .npz files.", GAPS)
    observed: Path | None = option(None, "Mask file, non-zero = measured.", GAPS)
    missing: Path | None = option(None, "Mask file, non-zero = missing.", GAPS)
    quality: Path | None = option(
        None, "Quality layer of the product; flagged entries count as missing.", GAPS
    )
    flags: str | None = option(
        None, "Flags of the quality layer that count, separated by commas.", GAPS
    )
    detect: bool = option(False, "Also fill suspected damage.", GAPS)
    region: str | Path | None = option(
        None,
        "Fill only here: ROWS,COLS as 10:60,20:80; XMIN,YMIN,XMAX,YMAX; or polygons.",
        GAPS,
        text=(str | None, None),
    )
    bands: str | None = option(None, "Fill only these bands: 10:40,55 or 900-1000nm.", GAPS)
    buffer: float = option(0.0, "Widen the mask by this many pixels.", GAPS)
    report: bool = option(False, "Also write OUTPUT.report.html.", OUTPUT)
    compact: bool = option(
        False, "Flags and error bars as small .npz files, whatever the format.", OUTPUT
    )
    samples: int = option(
        0, "Also write N samples of the fill, for the errors of means and sums.", OUTPUT
    )
    unmarked: bool = option(
        False, "Allow a format that cannot record that it is filled (.npy).", OUTPUT
    )
    pretrain: int = option(
        0, "By tiles: train on the scene first, with N updates, then refine each tile.", METHOD
    )
    no_prior: bool = option(
        False, "Fill from this cube alone, without the network trained on other images.", METHOD
    )
    prior: InitVar[int | None] = None  # the former name of `pretrain`

    def __post_init__(self, prior: int | None) -> None:
        hints = option_types()
        for f in fields(self):
            if f.name != "method":  # `choose` says what there is
                given, words = getattr(self, f.name), f.metadata["help"]
                value = of_type(f.name, given, hints[f.name], words, nan=f.name == "nodata")
                object.__setattr__(self, f.name, value)
        if prior is not None:
            warnings.warn(RENAMED, DeprecationWarning, stacklevel=3)
            object.__setattr__(self, "pretrain", prior)
        if self.pretrain < 0:
            raise BadValue(f"`pretrain={self.pretrain}`: expected a number of updates, 0 or more")
        if self.samples < 0:
            raise BadValue(f"`samples={self.samples}`: expected a number of cubes, 0 or more")
        if self.pretrain and not declared(self.method).weights:
            names = " or ".join(f"`method='{name}'`" for name in WITH_WEIGHTS)
            raise BadValue(f"`pretrain=` goes with {names}, not with {self.method}")
        if self.pretrain and self.settings.get("weights") is not None:
            raise BadValue("`pretrain=` trains a network, `weights=` names one: give one of them")

    @cached_property
    def chosen(self) -> Chosen | None:
        """The method with its settings, or None for `auto`.

        With trained weights, the size of the network is read from their file.
        """
        if self.method == DEFAULT:
            return None
        return choose(self.method, self.preset, with_network(self.method, self.settings))

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling, without `chosen`: a worker chooses the method again, because its
        functions may not be picklable."""
        return {name: value for name, value in vars(self).items() if name != "chosen"}

    @property
    def facts(self) -> Method:
        """The declared properties of the method, with its settings taken into account."""
        return declared(self.method) if self.chosen is None else self.chosen.facts

    @property
    def method_name(self) -> str:
        """The name of the method as the record of a fill gives it."""
        return DEFAULT if self.chosen is None else self.chosen.name

    @property
    def settings_used(self) -> dict[str, Any]:
        """All settings of the method as the record of a fill lists them; for `auto`, its budget."""
        if self.chosen is not None:
            return settings_dict(self.chosen.settings)
        from hydiff.auto import budget_used

        return {"budget": budget_used(self.recipe, self.budget)}

    @property
    def learned(self) -> bool:
        """Whether the method fits a network, which is faster on a GPU."""
        return declared(self.method).learned

    def check(self) -> None:
        """Raise an error for options that are invalid for every cube.

        A fill calls this once, before it reads its input.
        """
        from hydiff.auto import BUDGETS, is_noisy
        from hydiff.gaps import reach, rule
        from hydiff.methods.devices import torch_device

        self._check_method()
        self._check_reference()
        if self.budget not in BUDGETS:
            raise UnknownName("budget", self.budget, BUDGETS)
        _check_sigma(self.sigma_y)
        if self.denoise and not is_noisy(self.sigma_y):
            raise BadValue("`denoise=True` takes off noise: say how much, or `sigma_y='auto'`")
        check_seed(self.seed)
        # only the machine that runs the fill can tell whether it has a GPU: no check of "cuda"
        if str(self.device) not in ("auto", "cpu") and not str(self.device).startswith("cuda"):
            torch_device(self.device)
        rule.check_choices(self.bad_bands, self.max_gap, self.outside)
        reach.check_clip(self.clip)
        rule.check_nodata(self.nodata, self.nodata_in)

    def _check_method(self) -> None:
        """Raise an error for unknown names or settings, and for options that exclude each other."""
        by_trials, method, preset = self.method == DEFAULT, self.method, self.preset
        if self.settings and isinstance(method, str):
            _refuse_misspelt(self.settings, {} if by_trials else vars(choose(method).settings))
        if by_trials and (self.settings or preset is not None):
            listing = ", ".join([*self.settings, *([f"preset {preset}"] if preset else [])])
            raise BadValue(
                f"{listing}: settings belong to one method; name it, e.g. method='smooth'"
            )
        if self.recipe is not None and not by_trials:
            raise BadValue(
                f"a recipe is replayed by the method 'auto', not by {method!r}: give one"
            )
        most = self.max_error
        if most is not None and not (by_trials and most > 0):
            raise BadValue("max_error is a positive number, and only the method 'auto' can keep it")
        self._check_prior()
        self.chosen  # noqa: B018 - refuses unknown names

    def _check_prior(self) -> None:
        """With `no_prior`, refuse a method or a recipe that needs the pretrained network."""
        if not self.no_prior:
            return
        if self.facts.pretrained:
            raise BadValue(f"`no_prior` leaves nothing of the method {self.method}: drop one")
        parts = [] if self.recipe is None else [self.recipe, self.recipe.get("partial") or {}]
        if any("weights" in c for part in parts for c in part.get("candidates", ())):
            raise BadValue("the recipe uses the prior, which `no_prior` excludes: drop one of them")

    def _check_reference(self) -> None:
        """Refuse reference options that are invalid or do not go with the method."""
        takes_references = self.method == DEFAULT or "references" in declared(self.method).asks
        if self.reference and not takes_references:
            raise BadValue(
                f"`reference=` goes with the method '{DEFAULT}', which finds out whether it helps, "
                f"not with {self.method}: leave one of them out"
            )
        if takes_references and self.method != DEFAULT and not self.reference:
            raise BadValue(
                f"the method {self.method!r} fills from another image: give `reference=`"
            )
        if self.reference_missing and not self.reference:
            raise BadValue("`reference_missing=` goes with `reference=`: give the image, too")
        days, shift = self.reference_max_days, self.reference_max_shift
        if days is not None and days < 0:
            raise BadValue(f"`reference_max_days={days:g}`: expected days, 0 or more")
        if shift < 0:
            raise BadValue(f"`reference_max_shift={shift:g}`: expected pixels, 0 or more")


@cache
def option_types() -> dict[str, Any]:
    """Return the type of each option."""
    return get_type_hints(Request)


ARGUMENTS = [f.name for f in fields(Request) if f.name not in FILES]  # also of `hydiff.fill`


def with_network(method: str | Inpaint, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, completed by the network's size if they name a file of weights.

    Sizes among the settings take precedence over those in the file.
    """
    if settings.get("weights") is None or not declared(method).weights:
        return dict(settings)
    need_torch("`weights=`")
    from hydiff.learn.weights import network_of

    return {**network_of(of_type("weights", settings["weights"], Path)), **settings}


def _refuse_misspelt(settings: Mapping[str, Any], allowed: Mapping[str, Any]) -> None:
    """Raise UnknownName for an unknown setting whose name is close to an argument of `fill`.

    Such a name is more likely a misspelt argument than a setting.
    """
    from hydiff.api import fill

    arguments = [name for name in signature(fill).parameters if name != "settings"]
    for name in settings:
        if name not in allowed and get_close_matches(name, arguments, n=1, cutoff=0.75):
            raise UnknownName("argument", name, arguments)


def _check_sigma(sigma_y: Sigma) -> None:
    """Refuse negative and infinite noise levels: the check that needs no cube."""
    expected = f"sigma_y = {sigma_y}: expected a standard deviation, 0 or more"
    numbers: Any = list(sigma_y.values()) if isinstance(sigma_y, Mapping) else sigma_y
    if isinstance(numbers, str):
        numbers = numbers.removesuffix("%") if numbers.endswith("%") else 0.0
    try:
        numbers = np.asarray(numbers, dtype=np.float64)
    except TypeError:
        raise BadValue(expected) from None
    except ValueError:
        return  # refused later, with the cube's unit
    if isinstance(sigma_y, bool) or not (np.isfinite(numbers) & (numbers >= 0)).all():
        raise BadValue(expected)
