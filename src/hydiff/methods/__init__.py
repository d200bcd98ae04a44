"""The methods: a plain dict from name to declaration; modules are imported when first used.

A method is a generator function `inpaint(y, observed, sigma_y, settings, *, rng)` that yields
`Step`s, and a frozen dataclass of settings whose defaults are the published ones.  To add one,
write `methods/mine.py` with both and add an entry here.  What a method can do is declared in its
entry: no other module compares a method's name or probes its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

from hydiff.errors import UnknownName, need_torch
from hydiff.methods import user_code
from hydiff.methods.settings import settings_dict, settings_from
from hydiff.result import Step

Inpaint = Callable[..., Iterator[Step]]
STAND_IN = "HIR-Diff (stand-in denoiser)"  # how every output must call hir-diff without weights


@dataclass(frozen=True)
class PeakMemory:
    """Peak memory of a fill in bytes: the figures of single fills, measured and rounded up."""

    process: float = 200e6  # of a process before it fills anything
    entry: float = 130.0  # per band and pixel of the window
    pixel: float = 2500.0  # per pixel of the window
    tile: float = 0.5  # share of `entry` and `pixel` for a tile after all is decided


@dataclass(frozen=True)
class Method:
    """Where a method's code is, and what it can do.  All methods accept masks that vary by band."""

    module: str  # inside hydiff.methods
    inpaint: str  # the generator function
    settings: str  # its settings dataclass
    summary: str
    backend: str = "numpy"  # or "torch": gets tensors and a torch.Generator, on any device
    uses_sigma: bool = False  # its result depends on sigma_y
    replaces_noisy: bool = False  # with sigma_y > 0 its estimate replaces observed entries too
    whole_pixels: bool = True  # also fills pixels without any observed band; False: leaves NaN
    error_bars: bool = False  # its steps can contain a posterior std
    random: bool = False  # its result depends on the seed
    memory: PeakMemory = PeakMemory()
    local: bool = False  # fits a covariance to each window; small windows suit it better
    asks: tuple[str, ...] = ()  # settings that the cube or scene provides, such as "wavelengths"
    coordinates: bool = False  # takes `given`: the components, shared by several fills of a cube
    weights: bool = False  # takes `initial` (trained weights) and has a setting `weights`
    equivariant: bool = False  # its setting `transform` names a group of image transforms
    notes: bool = False  # its settings have `notes`, which every output must include
    label: str = ""  # its name in tables and figures, if another one
    pretrained: bool = False  # uses a network trained on other images; takes `device`
    may_be_pretrained: bool = False  # its settings decide whether it is `pretrained`
    halo: int = 0  # px around a tile that its estimate depends on, however wide the gaps are
    each_band: bool = False  # fills each band only from observed pixels of the same band
    names_rows: bool = False  # its settings have `decisive(noisy)`, used by `row_settings`
    rules: int = 1  # raised when results change for the same settings: benchmarks then run again

    @property
    def learned(self) -> bool:
        """Whether the method fits a network with torch; a GPU is faster at that."""
        return self.backend == "torch"

    @property
    def needs_torch(self) -> bool:
        return self.learned or self.pretrained

    def facts(self) -> dict[str, Any]:
        """Return the properties of a method that users see, as plain values for JSON."""
        names = ("summary", "backend", "uses_sigma", "replaces_noisy", "whole_pixels")
        return {name: vars(self)[name] for name in (*names, "error_bars", "random")}


@dataclass(frozen=True)
class Network(Method):
    """A method that fits a network with torch."""

    backend: str = "torch"
    uses_sigma: bool = True
    replaces_noisy: bool = True
    random: bool = True
    memory: PeakMemory = PeakMemory(process=520e6, pixel=25_000.0)


def _spatial(inpaint: str, summary: str) -> Method:
    """Return the declaration of a method that interpolates each band separately."""
    return Method("classical", inpaint, "Plain", summary, each_band=True)


METHODS: dict[str, Method] = {
    "smooth": Method(
        "smooth",
        "smooth",
        "Smooth",
        "kriging of the principal components; spectral regression where a pixel keeps bands",
        uses_sigma=True,
        replaces_noisy=True,
        rules=2,
        error_bars=True,
        local=True,
        asks=("space",),
        coordinates=True,
    ),
    "prior": Method(
        "prior",
        "prior",
        "Prior",
        "smooth fields, corrected by a network that was trained once on satellite images",
        uses_sigma=True,
        replaces_noisy=True,
        error_bars=True,
        memory=PeakMemory(process=520e6, pixel=12_000.0, tile=1.0),
        asks=("space",),
        coordinates=True,
        pretrained=True,
        names_rows=True,
        halo=97,  # how far its network sees; tests/test_prior.py measures it
        rules=3,
    ),
    "harmonic": _spatial("harmonic", "membrane through the observed pixels (Laplace)"),
    "biharmonic": _spatial("biharmonic", "thin plate through the observed pixels"),
    "tension": _spatial("tension", "spline in tension, between membrane and thin plate"),
    "linear": _spatial("linear", "linear in Delaunay triangles"),
    "idw": _spatial("idw", "inverse distance, GDAL's fillnodata on every band"),
    "nearest": _spatial("nearest", "nearest observed pixel"),
    "spectral": Method(
        "classical",
        "spectral",
        "Spectral",
        "linear along the bands; only pixels that keep some bands",
        whole_pixels=False,
        asks=("wavelengths",),
    ),
    "subspace": Method(
        "classical",
        "subspace_regression",
        "SubspaceRegression",
        "regression on a pixel's other bands; only pixels that keep some bands",
        whole_pixels=False,
    ),
    "bandmean": _spatial("bandmean", "each band's mean: the floor of every comparison"),
    "rbf": Method("rbf", "rbf", "RBF", "radial basis functions on principal components (scipy)"),
    "dineof": Method(
        "dineof", "dineof", "DINEOF", "iterated empirical orthogonal functions", random=True
    ),
    "halrtc": Method(
        "halrtc",
        "halrtc",
        "HaLRTC",
        "low-rank tensor completion; blind to lines missing over the whole width",
    ),
    "exemplar": Method(
        "exemplar", "exemplar", "Exemplar", "patches copied from elsewhere in the image"
    ),
    "fixbad": Method(
        "fixbad",
        "fixbad",
        "FixBad",
        "spectral angle and regression, for dead columns; only pixels that keep some bands",
        whole_pixels=False,
    ),
    "subspace-fill": Method(
        "subspace_fill",
        "subspace_fill",
        "SubspaceFill",
        "projection on the principal components, then linear: the simple answer to noise",
        uses_sigma=True,
        replaces_noisy=True,
    ),
    "hydiff-ei": Network(
        "hydiff_ei",
        "hydiff_ei",
        "HyDiffEI",
        "the paper: a network fitted to this cube along a reverse diffusion",
        weights=True,
        names_rows=True,
        equivariant=True,
    ),
    "ei": Network(
        "ei",
        "ei",
        "EI",
        "equivariant imaging alone, without diffusion",
        equivariant=True,
        names_rows=True,
    ),
    "robust-ei": Network(
        "ei", "robust_ei", "EI", "EI with SURE for noisy data", equivariant=True, names_rows=True
    ),
    "dhp": Network(
        "dhp", "dhp", "DHP", "a network of fixed noise, fitted to this cube", uses_sigma=False
    ),
    "hyper-ei": Network(
        "hyper_ei",
        "hyper_ei",
        "HyperEI",
        "EI as published for one cube: an attention U-Net, shifts, and no model of noise",
        uses_sigma=False,
        equivariant=True,
    ),
    "r-dlrhyin": Network(
        "r_dlrhyin",
        "r_dlrhyin",
        "RDLRHyIn",
        "DHP with the Huber loss and a low-rank term",
        uses_sigma=False,
        names_rows=True,
    ),
    "dds2m": Network(
        "dds2m",
        "dds2m",
        "DDS2M",
        "a diffusion with an untrained spatial-spectral network, fitted on the way",
        rules=3,
        names_rows=True,
    ),
    "lrs-pnp-dip": Network(
        "lrs_pnp_dip",
        "lrs_pnp_dip",
        "LRSPnPDIP",
        "plug-and-play: sparse blocks and a network, made to agree",
        uses_sigma=False,
        memory=PeakMemory(process=520e6, entry=400.0, pixel=25_000.0, tile=1.0),  # 30 outputs
    ),
    "share": Network(
        "share",
        "share",
        "Share",
        "EI with SURE and a 3-D U-Net that reads a memory of spectra",
        equivariant=True,
        rules=2,
    ),
    "hir-diff": Network(
        "hir_diff",
        "hir_diff",
        "HIRDiff",
        f"{STAND_IN}: a pretrained diffusion of three bands",
        uses_sigma=False,
        notes=True,
        label=STAND_IN,
        rules=2,
    ),
    "anchored": Network(
        "anchored",
        "anchored",
        "Anchored",
        "smooth, and a network that learns from this cube where it errs",
        rules=2,
        names_rows=True,
        may_be_pretrained=True,
    ),
}
# For cubes with reference images of the same place; not listed among the methods
WITH_REFERENCE = {
    "reference": Method(
        "from_reference",
        "from_reference",
        "FromReference",
        "regression on another image of the place, and kriging of what it leaves over",
        uses_sigma=True,
        replaces_noisy=True,
        whole_pixels=False,
        may_be_pretrained=True,
        asks=("references", "space"),
        coordinates=True,
        rules=4,
    ),
    "matched-copy": Method(
        "reference_peers",
        "matched_copy",
        "MatchedCopy",
        "the band of another image that correlates most, with its histogram matched",
        whole_pixels=False,
        asks=("references",),
    ),
    "similar-pixels": Method(
        "reference_peers",
        "similar_pixels",
        "SimilarPixels",
        "the mean of nearby pixels that look alike in another image, as NSPI takes it",
        whole_pixels=False,
        asks=("references",),
    ),
}
DEFAULT = "auto"  # `hydiff.auto`: not a single method
AUTO = Method(
    *("", "", ""),
    "tries several on hidden copies of the gaps, blends them, gives error bars; the default",
    uses_sigma=True,
    replaces_noisy=True,
    error_bars=True,
    random=True,
    memory=PeakMemory(process=330e6, entry=110.0, pixel=18_000.0, tile=0.3),  # with torch
    local=True,
)
FUNCTION = Method("", "", "", "a function", uses_sigma=True, replaces_noisy=True)
WITH_WEIGHTS = tuple(name for name, method in METHODS.items() if method.weights)


class Chosen(NamedTuple):
    """A method ready to run."""

    name: str
    inpaint: Inpaint
    settings: Any
    facts: Method


def declared(method: str | Inpaint) -> Method:
    """Return the declaration of a method, of `auto`, or of a function used as a method."""
    if callable(target := user_code.own(method)):
        rules = user_code.digest(method) if isinstance(method, str) else 1
        return replace(FUNCTION, backend=getattr(target, "backend", FUNCTION.backend), rules=rules)
    if entry := {DEFAULT: AUTO, **METHODS, **WITH_REFERENCE}.get(target):
        return entry
    hint = "; `hydiff methods` describes them, and FILE.py:FUNCTION is your own"
    raise UnknownName("method", target, [DEFAULT, *METHODS], hint)


def labelled(row: str) -> str:
    """Return the name of a table row with the method's name replaced by its label, if any."""
    for name, method in METHODS.items():
        if method.label and row.startswith(name):
            return method.label + row.removeprefix(name)
    return row


def choose(
    method: str | Inpaint, preset: str | None = None, overrides: Mapping[str, Any] | None = None
) -> Chosen:
    """Return a method ready to run, from its name or from a function with a method's signature."""
    overrides, entry, target = overrides or {}, declared(method), user_code.own(method)
    if callable(target):
        settings = SimpleNamespace(**{k: user_code.number(v) for k, v in overrides.items()})
        return Chosen(getattr(target, "__name__", "custom"), target, settings, entry)
    method = target
    if entry is AUTO:
        raise UnknownName("single method", method, METHODS)
    if entry.needs_torch:
        need_torch(f"the method {method}")
    module = import_module(f"hydiff.methods.{entry.module}")
    settings = settings_from(method, getattr(module, entry.settings), preset, overrides)
    if entry.may_be_pretrained and settings.pretrained:
        entry = replace(entry, pretrained=True)
    return Chosen(method, getattr(module, entry.inpaint), settings, entry)


def row_settings(chosen: Chosen, noisy: bool) -> dict[str, Any]:
    """Return the settings that identify a benchmark row; a method may choose its own."""
    if chosen.facts.names_rows:
        return dict(chosen.settings.decisive(noisy))
    return settings_dict(chosen.settings)
