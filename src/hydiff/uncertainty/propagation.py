"""Propagation of the errors of a fill to a mean, an index, or any function of the cube.

Letters: x a cube (bands, rows, cols), f a function of it with m values.  A sample is a cube that is
as likely as the fill; f of many samples shows how uncertain f is.  A linear f of few values needs
no samples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from hydiff.cube import Array, Bools, Cube, Floats
from hydiff.errors import BadValue, HydiffError, ShapeMismatch
from hydiff.gaps.regions import chosen_bands
from hydiff.maths.scoring import LEVELS, NORMAL_QUANTILES
from hydiff.option_types import check_seed, of_type
from hydiff.result import Result
from hydiff.uncertainty.expression import parsed
from hydiff.uncertainty.linear import Weights, variances
from hydiff.uncertainty.zones import ALL, Over, Zones, zones_of

MEAN = "mean"
SAMPLES = 200
EXACT = 200  # most values of a linear function to compute exactly; each takes as long as a sample
FEWEST = 10  # least samples for a standard deviation
MOST = 100_000  # samples: they give it to 0.2 %, and more would only take time

Function = Callable[..., Any]  # of x, and of the filled entries if it has a parameter `filled`


@dataclass(frozen=True, eq=False)
class Propagated:
    """m values of a function of a fill, with their uncertainty; arrays (m,) unless stated."""

    labels: tuple[Mapping[str, Any], ...]  # of each value: its zone, its band
    value: Floats  # of the fill
    sigma: Floats  # standard deviation
    low: Floats  # (3, m) lower ends of the 50, 80 and 95 % intervals
    high: Floats  # (3, m) upper ends
    share: Floats  # share of the variance that is due to filled entries, 0 … 1
    samples: int  # number of samples that were used; 0 = exact
    empty: tuple[str, ...] = ()  # zones without a pixel, which are left out
    notes: tuple[str, ...] = ()  # on bands of f whose errors are not well known

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per value, with plain numbers; None for unknown ones."""
        columns = {"value": self.value, "sigma": self.sigma}
        for level, low, high in zip(LEVELS, self.low, self.high, strict=True):
            columns |= {f"low_{100 * level:.0f}": low, f"high_{100 * level:.0f}": high}
        columns["share_filled"] = self.share
        return [
            {**label, **{name: _plain(column[i]) for name, column in columns.items()}}
            for i, label in enumerate(self.labels)
        ]

    def __repr__(self) -> str:
        how = f"{self.samples} samples" if self.samples else "exact"
        lines = [
            f"{' '.join(str(v) for v in label.values())}: {v:.6g} ± {s:.3g}, {100 * part:.0f} %"
            for label, v, s, part in zip(
                self.labels, self.value, self.sigma, self.share, strict=True
            )
        ]
        more = [f"… {len(lines) - 10} more"] if len(lines) > 10 else []
        head = f"hydiff.Propagated ({how}; value ± σ, share of the variance from filled entries)"
        return "\n".join([head, *lines[:10], *more, *self.notes])


def _plain(value: float) -> float | None:
    """Return a float as JSON can hold it: None for NaN and infinity."""
    return float(value) if np.isfinite(value) else None


class Quantity(NamedTuple):
    """A function of a cube, with labels of its m values."""

    labels: tuple[Mapping[str, Any], ...]
    f: Callable[[Array], Floats]  # x → (m,)
    weights: Callable[[int], Weights] | None = None  # weights of value i, if f is linear
    empty: tuple[str, ...] = ()  # zones without a pixel
    bands: Sequence[int] = ()  # of the cube that f depends on


def propagate(
    result: Result | str | Path,
    f: str | Function = MEAN,
    over: Over = None,
    *,
    bands: str | None = None,
    samples: int | Iterable[Array] | None = None,
    seed: int = 0,
) -> Propagated:
    """Return a mean, an index, or a function of a filled cube, with its uncertainty.

    result: a fill, or the path of one that was written with its companions.
    f: "mean", of each band; arithmetic such as "(b50 - b30) / (b50 + b30)", b50 the band of that
        number from 0, w860 that nearest to 860 nm, averaged over each zone; or a function of an
        array (bands, rows, cols), NaN where entries are missing, that returns a number, an array,
        or a map (rows, cols), which is averaged over each zone.  If it has a parameter `filled`, it
        also receives the filled entries, bool of the same shape.
    over: the zones: "all", "blocks", "blocks:16", "10:60,20:80" in rows and columns, a file of
        polygons, a mask file, or an array (rows, cols) whose True, or each number but 0, is a zone.
    bands: of "mean": "10:40,55", counted from 0, or "900-1000nm".
    samples: number of samples to draw where the result is not exact, by default 200; or cubes
        (bands, rows, cols) that are as likely as the fill.  If the fill is given by its path, the
        default is the samples that were written with it.  seed: of the draws.

    Values are those of `result.cube`; measured entries vary by the noise that the fill assumed.
    Linear functions of at most 200 values are exact: the model of the errors gives their variance.
    In a denoised cube all are computed from samples.

    >>> import numpy as np, hydiff
    >>> cube = hydiff.sample().window(slice(0, 20), slice(0, 20), slice(0, 8))
    >>> observed = np.ones((20, 20), bool)
    >>> observed[:, 5:7] = False
    >>> result = hydiff.fill(cube, observed, method="smooth")
    >>> found = hydiff.propagate(result, "b5 - b2", over="blocks:10")
    >>> found.samples, bool(found.sigma[0] > 0), bool(found.sigma[1] == 0)
    (0, True, True)
    """
    if not isinstance(samples, Iterable) or isinstance(samples, str | bytes):
        samples = of_type("samples", samples, int | None)
    if isinstance(samples, int) and not FEWEST <= samples <= MOST:
        raise BadValue(
            f"`samples={samples}`: expected a number of samples, {FEWEST} to {MOST:,}; "
            f"{SAMPLES} are the default"
        )
    check_seed(seed)
    if not callable(f):
        of_type("f", f, str, "'mean', a formula such as 'b5 - b2', or a function")
    if isinstance(result, str | Path):
        from hydiff.uncertainty.from_files import result_of, stored_samples

        result = result_of(result)
        samples = stored_samples(result) if samples is None else samples
    if not isinstance(result, Result):
        raise BadValue(f"a {type(result).__name__}: expected the Result of a fill, or its path")
    # entries that only a mask declares missing, and that were not filled, have values in the cube
    x = np.where(np.isfinite(result.values), fill_values(result.cube), np.nan)
    quantity = quantity_of(f, over, result.cube, x, result.filled, bands)
    # the errors of denoised measurements are correlated, too: only samples know how
    exact = len(quantity.labels) <= EXACT and not result.is_denoised
    if quantity.weights is not None and exact:
        propagated = _exact(result, quantity, quantity.weights, x)
    else:
        if samples is None or isinstance(samples, int | np.integer):
            errors = drawn_errors(result, int(samples or SAMPLES), seed)
        else:
            errors = _given_errors(samples, x)
        propagated = by_samples(quantity, x, result.filled, varied(result, x, errors, seed))
    return replace(propagated, empty=quantity.empty, notes=tuple(_notes(result, quantity.bands)))


def _notes(result: Result, bands: Sequence[int]) -> Iterator[str]:
    """Yield notes on the bands of a quantity whose errors the model of the cube does not know."""
    filled = [b for b in bands if result.filled[b].any()]
    good, bars = result.cube.good_bands, result.sigma
    unknown = {b: bars is None or not np.isfinite(bars[b][result.filled[b]]).all() for b in filled}
    for is_unknown, size in ((False, ""), (True, ", and as large as the band varies")):
        if bad := [str(b) for b in filled if not good[b] and unknown[b] == is_unknown]:
            yield (
                f"note: bad bands ({', '.join(bad)}): the errors of filled entries are taken as "
                f"independent{size}; σ of a mean over them is too small"
            )
    if lacking := [str(b) for b in filled if good[b] and unknown[b] and bars is not None]:
        yield (
            f"note: bands {', '.join(lacking)}: filled entries without an error bar get that of "
            "kriging"
        )


def fill_values(cube: Cube) -> Floats:
    """(bands, rows, cols) float64, NaN where the cube has no value."""
    values = np.asarray(cube.values)
    return np.where(cube.observed_in(values), values.astype(np.float64), np.nan)


# ── the quantity ─────────────────────────────────────────────────────────────────────────────────


def quantity_of(
    f: str | Function, over: Over, cube: Cube, x: Floats, filled: Bools, bands: str | None = None
) -> Quantity:
    """Return the quantity of f, over and bands; x: (bands, rows, cols), NaN where missing."""
    if bands is not None and f != MEAN:
        raise BadValue("`bands=` goes with the mean; a formula names its own, such as b50")
    if callable(f):
        return _of_function(f, over, cube, x, filled)
    zones = zones_of(over, cube)
    if f == MEAN:
        chosen = (
            np.arange(cube.bands) if bands is None else np.flatnonzero(chosen_bands(bands, cube))
        )
        return _means(zones, cube, x, chosen)
    formula = parsed(f, cube)
    labels = tuple({"zone": zone} for zone in zones.names)

    def mean(x: Array) -> Floats:
        means: Floats = zones.means(formula(x)[None])[0]
        return means

    affine = formula.affine
    if affine is None:
        return Quantity(labels, mean, None, zones.empty, formula.bands)

    def weights(i: int) -> Weights:
        return _weights(zones, i, affine.terms, x)

    return Quantity(labels, mean, weights, zones.empty, formula.bands)


def _means(zones: Zones, cube: Cube, x: Floats, bands: Array) -> Quantity:
    """Return the mean of each band in each zone."""
    waves = cube.wavelengths
    labels = tuple(
        {"zone": zone, "band": int(b)} | ({} if waves is None else {"wavelength": float(waves[b])})
        for zone in zones.names
        for b in bands
    )
    return Quantity(
        labels,
        lambda x: zones.means(x[bands]).T.ravel(),
        lambda i: _weights(zones, i // len(bands), {int(bands[i % len(bands)]): 1.0}, x),
        zones.empty,
        bands.tolist(),
    )


def _weights(zones: Zones, zone: int, terms: Mapping[int, float], x: Floats) -> Weights:
    """Return the weights of the mean, over one zone, of a linear function of bands."""
    inside, used = zones.inside(zone), sorted(terms)
    flat = x[used].reshape(len(used), -1)
    finite = inside[np.isfinite(flat[:, inside]).all(axis=0)]
    shares = np.zeros(flat.shape[1])
    shares[finite] = 1 / max(len(finite), 1)
    return {b: factor * shares.reshape(x.shape[1:]) for b, factor in terms.items()}


def _of_function(f: Function, over: Over, cube: Cube, x: Floats, filled: Bools) -> Quantity:
    """Return the quantity of a user's function; only maps are averaged, over zones."""
    name = getattr(f, "__name__", "f")
    arguments = {"filled": filled} if "filled" in inspect.signature(f).parameters else {}

    def called(x: Array) -> Array:
        try:
            return np.asarray(f(x, **arguments), np.float64)
        except HydiffError:
            raise
        except Exception as error:  # a user's function may raise anything
            raise BadValue(
                f"{name} fails on this cube: {type(error).__name__}: {error}; expected a function "
                "of an array (bands, rows, cols)"
            ) from error

    first = called(x.copy())
    if first.shape == x.shape[1:]:
        zones = zones_of(over, cube)
        labels = tuple({"zone": zone} for zone in zones.names)
        every = range(len(x))
        return Quantity(labels, lambda x: zones.means(called(x)[None])[0], None, zones.empty, every)
    if not (over is None or (isinstance(over, str) and over == ALL)):
        raise BadValue(
            f"{name} returns {first.shape or 'one number'}, which cannot be averaged over zones: "
            f"return a map {x.shape[1:]}, or leave `over=` out"
        )
    numbered = tuple({"of": name, "number": i} for i in range(first.size))
    return Quantity(numbered, lambda x: called(x).ravel(), bands=range(len(x)))


# ── its uncertainty ──────────────────────────────────────────────────────────────────────────────


def drawn_errors(result: Result, n: int, seed: int) -> Iterator[Floats]:
    """Yield the differences of n samples from a result."""
    values = np.asarray(result.values, np.float64)
    return (sample - values for sample in result.samples(n, seed))


def _given_errors(samples: Iterable[Array], x: Floats) -> Iterator[Floats]:
    """Yield the differences of given samples from the cube x (bands, rows, cols)."""
    for number, sample in enumerate(samples):
        if np.shape(sample) != x.shape:
            raise ShapeMismatch(
                f"sample {number} has shape {np.shape(sample)}, but the cube is {x.shape}; "
                "expected cubes such as `result.samples(200)` yields"
            )
        yield sample - x


def varied(result: Result, x: Floats, errors: Iterable[Floats], seed: int) -> Iterator[Floats]:
    """Yield cubes that are as likely as the filled cube x, from errors (bands, rows, cols).

    Filled entries vary by these errors, measured entries by the noise that the fill assumed; in a
    denoised cube all entries vary by the errors.
    """
    denoised = result.is_denoised
    noise = np.zeros(len(x)) if denoised else np.asarray(result.sigma_y, np.float64)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(len(x),)))
    for error in errors:
        measured = noise[:, None, None] * rng.standard_normal(x.shape) if noise.any() else 0.0
        yield x + (error if denoised else np.where(result.filled, error, measured))


def by_samples(
    quantity: Quantity, x: Floats, filled: Bools, samples: Iterable[Array]
) -> Propagated:
    """Return f of a cube x with its uncertainty from samples, and the share of the filled entries.

    x, filled and each sample: (bands, rows, cols).
    """
    values, filled_only = [], []
    for sample in samples:
        values.append(_as_many(quantity.f(sample), quantity))
        filled_sample = np.where(filled, sample, x)
        same = np.array_equal(filled_sample, sample, equal_nan=True)
        filled_only.append(values[-1] if same else quantity.f(filled_sample))
    if len(values) < FEWEST:
        raise BadValue(
            f"{len(values)} samples, expected {FEWEST} or more: draw them, `samples=200`"
        )
    sampled = np.stack(values)
    fill_var, rest_var = _variance(np.stack(filled_only)), _variance(sampled - filled_only)
    value, sigma = quantity.f(x), np.sqrt(_variance(sampled))
    low, high = zip(*(_interval(sampled, value, sigma, level) for level in LEVELS), strict=True)
    share = _ratio(fill_var, fill_var + rest_var)
    ends = np.stack(low), np.stack(high)
    return Propagated(quantity.labels, value, sigma, *ends, share, len(sampled))


def _variance(drawn: Floats) -> Floats:
    """(m,) variance of draws (n, m); exactly 0 where all are equal."""
    variance: Floats = np.var(drawn - drawn[0], axis=0, ddof=1)
    return variance


def _as_many(values: Floats, quantity: Quantity) -> Floats:
    """Return the values of a sample; refuse them if the fill has another number of values."""
    if len(values) != len(quantity.labels):
        raise BadValue(
            f"the function returns {len(values)} values for a sample and {len(quantity.labels)} "
            "for the fill; expected as many for any cube of this shape"
        )
    return values


def _interval(drawn: Floats, value: Floats, sigma: Floats, level: float) -> tuple[Floats, Floats]:
    """Return the ends of an interval: quantiles of the samples (n, m), whose coverage does not
    depend on their distribution; with too few samples, those of Student's t around the value."""
    n, tail = len(drawn), (1 - level) / 2
    if (n + 1) * tail >= 1:
        low, high = np.quantile(drawn, (tail, 1 - tail), axis=0, method="weibull")
        return np.asarray(low), np.asarray(high)
    half = float(special.stdtrit(n - 1, 1 - tail)) * np.sqrt(1 + 1 / n) * sigma
    return value - half, value + half


def _exact(
    result: Result, quantity: Quantity, weights: Callable[[int], Weights], x: Floats
) -> Propagated:
    """Return linear functions with their uncertainty from the covariance of the errors."""
    fill_var, noise_var = variances(result, (weights(i) for i in range(len(quantity.labels))))
    value = quantity.f(x)
    sigma = np.where(np.isfinite(value), np.sqrt(fill_var + noise_var), np.nan)
    half = np.array(NORMAL_QUANTILES)[:, None] * sigma
    share = _ratio(fill_var, fill_var + noise_var)
    return Propagated(quantity.labels, value, sigma, value - half, value + half, share, 0)


def _ratio(top: Floats, bottom: Floats) -> Floats:
    """Return top / bottom; 0 where bottom is 0."""
    return np.divide(top, bottom, out=np.zeros_like(bottom), where=bottom > 0)
