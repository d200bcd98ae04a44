"""The methods: a plain dict from name to where it lives; modules are imported when first used.

A method is a generator function `inpaint(y, observed, sigma_y, settings, *, rng)` that yields
`Step`s, and a frozen dataclass of settings whose defaults are the published ones.  To add one,
write `methods/mine.py` with both and add a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from importlib import import_module
from types import NoneType, SimpleNamespace
from typing import Any, NamedTuple, get_args, get_type_hints

from hydiff.errors import BadValue, UnknownName, need_torch
from hydiff.result import Step

Inpaint = Callable[..., Iterator[Step]]
STAND_IN = "HIR-Diff (stand-in denoiser)"  # how every output must call hir-diff without weights


class Method(NamedTuple):
    module: str  # inside hydiff.methods
    inpaint: str  # the generator function
    settings: str  # its settings dataclass
    backend: str  # "numpy" or "torch": what y, observed, sigma_y and rng are
    summary: str
    noise: bool = False  # whether it makes use of sigma_y
    rules: int = (
        1  # raised when it gives other results with the same settings: a bench runs it again
    )


METHODS: dict[str, Method] = {
    "smooth": Method(
        "smooth",
        "smooth",
        "Smooth",
        "numpy",
        "kriging of the principal components; spectral regression where a pixel keeps bands",
        noise=True,
        rules=2,
    ),
    "harmonic": Method(
        "classical", "harmonic", "Plain", "numpy", "membrane through the observed pixels (Laplace)"
    ),
    "biharmonic": Method(
        "classical", "biharmonic", "Plain", "numpy", "thin plate through the observed pixels"
    ),
    "linear": Method("classical", "linear", "Plain", "numpy", "linear in Delaunay triangles"),
    "idw": Method(
        "classical", "idw", "Plain", "numpy", "inverse distance, GDAL's fillnodata on every band"
    ),
    "nearest": Method("classical", "nearest", "Plain", "numpy", "nearest observed pixel"),
    "spectral": Method(
        "classical",
        "spectral",
        "Spectral",
        "numpy",
        "linear along the bands; only pixels that keep some bands",
    ),
    "subspace": Method(
        "classical",
        "subspace_regression",
        "SubspaceRegression",
        "numpy",
        "regression on a pixel's other bands; only pixels that keep some bands",
    ),
    "bandmean": Method(
        "classical", "bandmean", "Plain", "numpy", "each band's mean: the floor of every comparison"
    ),
    "rbf": Method(
        "rbf", "rbf", "RBF", "numpy", "radial basis functions on the principal components (scipy)"
    ),
    "dineof": Method(
        "dineof", "dineof", "DINEOF", "numpy", "iterated empirical orthogonal functions"
    ),
    "halrtc": Method(
        "halrtc",
        "halrtc",
        "HaLRTC",
        "numpy",
        "low-rank tensor completion; blind to lines missing over the whole width",
    ),
    "exemplar": Method(
        "exemplar", "exemplar", "Exemplar", "numpy", "patches copied from elsewhere in the image"
    ),
    "fixbad": Method(
        "fixbad",
        "fixbad",
        "FixBad",
        "numpy",
        "spectral angle and regression, for dead columns; only pixels that keep some bands",
    ),
    "subspace-fill": Method(
        "subspace_fill",
        "subspace_fill",
        "SubspaceFill",
        "numpy",
        "projection on the principal components, then linear: the simple answer to noise",
        noise=True,
    ),
    "hydiff-ei": Method(
        "hydiff_ei",
        "hydiff_ei",
        "HyDiffEI",
        "torch",
        "the paper: a network fitted to this cube along a reverse diffusion",
        noise=True,
    ),
    "ei": Method(
        "ei", "ei", "EI", "torch", "equivariant imaging alone, without diffusion", noise=True
    ),
    "robust-ei": Method(
        "ei", "robust_ei", "EI", "torch", "EI with SURE for noisy data", noise=True
    ),
    "dhp": Method(
        "dhp", "dhp", "DHP", "torch", "a network of fixed noise, fitted to this cube", noise=True
    ),
    "r-dlrhyin": Method(
        "r_dlrhyin",
        "r_dlrhyin",
        "RDLRHyIn",
        "torch",
        "DHP with the Huber loss and a low-rank term",
        noise=True,
    ),
    "dds2m": Method(
        "dds2m",
        "dds2m",
        "DDS2M",
        "torch",
        "a diffusion with an untrained spatial-spectral network, fitted on the way",
        noise=True,
    ),
    "share": Method(
        "share",
        "share",
        "Share",
        "torch",
        "EI with SURE and a 3-D U-Net that reads a memory of spectra",
        noise=True,
    ),
    "hir-diff": Method(
        "hir_diff",
        "hir_diff",
        "HIRDiff",
        "torch",
        f"{STAND_IN}: a pretrained diffusion of three bands",
        noise=True,
    ),
    "anchored": Method(
        "anchored",
        "anchored",
        "Anchored",
        "torch",
        "smooth, and a network that learns from this cube where it errs",
        noise=True,
        rules=2,
    ),
}
DEFAULT = "auto"  # tries several of them on hidden entries and blends: `hydiff.auto`


class Chosen(NamedTuple):
    name: str
    inpaint: Inpaint
    settings: Any
    backend: str


def choose(
    method: str | Inpaint, preset: str | None = None, overrides: Mapping[str, Any] | None = None
) -> Chosen:
    """A method ready to run: by name, or any function with the signature of a method."""
    overrides = overrides or {}
    if callable(method):
        name = getattr(method, "__name__", "custom")
        return Chosen(
            name, method, SimpleNamespace(**overrides), getattr(method, "backend", "numpy")
        )
    if method not in METHODS:
        raise UnknownName(
            "method", method, [DEFAULT, *METHODS], "; `hydiff methods` describes them"
        )
    entry = METHODS[method]
    if entry.backend == "torch":
        need_torch(f"the method {method}")
    module = import_module(f"hydiff.methods.{entry.module}")
    settings = settings_from(method, getattr(module, entry.settings), preset, overrides)
    return Chosen(method, getattr(module, entry.inpaint), settings, entry.backend)


def settings_from(
    method: str, cls: type[Any], preset: str | None, overrides: Mapping[str, Any]
) -> Any:
    """Settings of `cls`: a preset (the defaults when None) with single entries changed.

    Values may be strings, as they come from the command line; they are read by the field's type.
    """
    presets: Mapping[str, Any] = getattr(cls, "PRESETS", {})
    if preset is not None and preset not in presets:
        raise UnknownName(f"preset of {method}", preset, presets)
    base = cls() if preset is None else presets[preset]
    hints, names = get_type_hints(cls), [f.name for f in fields(cls)]
    for name in overrides:
        if name not in names:
            raise UnknownName(f"setting of {method}", name, names)
    return replace(base, **{k: _typed(k, v, hints[k]) for k, v in overrides.items()})


def _typed(name: str, value: Any, hint: Any) -> Any:
    if not isinstance(value, str) or hint is str:
        return value
    if value.lower() == "none" and NoneType in get_args(hint):
        return None
    if hint == float | None:
        hint = float
    if hint is bool and value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        if hint in (int, float):
            return hint(value)
        if "tuple[float" in str(hint):
            return tuple(float(part) for part in value.split(","))
        if "str" in str(hint):
            return value
    except ValueError:
        pass
    raise BadValue(f"setting {name} = {value!r}: expected {getattr(hint, '__name__', hint)}")


def settings_dict(settings: Any) -> dict[str, Any]:
    """Settings as a JSON-able dict."""
    return dict(vars(settings)) if isinstance(settings, SimpleNamespace) else asdict(settings)
