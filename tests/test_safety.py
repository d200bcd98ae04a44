"""Numerical safety: whatever the numbers, a fill is finite, sensible and reported, or refused."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hydiff
from hydiff.cube import Cube
from hydiff.errors import BadValue, HydiffError
from hydiff.io import provenance
from hydiff.methods import METHODS

CLASSICAL = [name for name, method in METHODS.items() if not method.needs_torch]
BANDS, ROWS, COLS = 5, 12, 11


def check(
    values: np.ndarray, observed: np.ndarray, method: str, slack: float = 1e-3, **options: object
) -> hydiff.Result:
    """Fill, and hold the result against the laws; nothing may be warned of.

    slack: a share of the largest value that is allowed for beside the range."""
    budget = {"budget": "fast"} if method == "auto" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = hydiff.fill(values, observed, method=method, outside="fill", **budget, **options)
    found, seen = np.asarray(result.cube.values), np.broadcast_to(observed, values.shape)
    assert found.dtype == values.dtype
    assert found[seen].tobytes() == values[seen].tobytes()
    assert int(result.filled.sum()) + sum(result.left.values()) == int((~seen).sum())
    filled, data = found[result.filled].astype(float), values[seen].astype(float)
    assert np.isfinite(filled).all()
    span = data.max() - data.min()
    room = 2 * span + slack * max(1.0, np.abs(data).max())
    assert ((filled >= data.min() - room) & (filled <= data.max() + room)).all()
    if result.sigma is not None:
        bars = result.sigma[result.filled]
        # unknown only where a note says that too few observed pixels resemble them
        unknown = np.isnan(bars)
        assert not unknown.any() or any("no error bars" in note for note in result.notes)
        assert np.isfinite(bars[~unknown]).all() and (bars[~unknown] >= 0).all()
    return result


def smooth_cube(seed: int = 0, shape: tuple[int, int, int] = (BANDS, ROWS, COLS)) -> np.ndarray:
    """(bands, rows, cols) float64 in [0, 1]: smooth, with a little noise."""
    rows, cols = np.mgrid[: shape[1], : shape[2]] / 5
    waves = [np.sin(rows + k / 3) * np.cos(cols - k / 4) for k in range(shape[0])]
    found = np.stack(waves) + 0.05 * np.random.default_rng(seed).standard_normal(shape)
    return (found - found.min()) / max(np.ptp(found), 1e-9)


def gaps() -> np.ndarray:
    observed = np.ones((ROWS, COLS), bool)
    observed[:, 4:6] = observed[7:10, 7:10] = False
    return observed


def nasty() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    x, observed = smooth_cube(), gaps()
    one, two = (np.zeros((ROWS, COLS), bool) for _ in range(2))
    one[5, 5] = two[5, 5] = two[9, 9] = True
    yield "constant", np.full(x.shape, 7.0), observed
    yield "zero", np.zeros(x.shape), observed
    yield "a constant band", np.where(np.arange(BANDS)[:, None, None] == 2, 5.0, x), observed
    counts = (x * 60000).astype("u2")
    counts[3], counts[1][counts[1] > 30000] = 65535, 65535
    yield "saturated", counts, observed
    yield "negative radiance", -100 - 50 * x, observed
    yield "bands of 1e-6 to 1e6", x * np.logspace(-6, 6, BANDS)[:, None, None], observed
    steep = 10.0 ** (6 * x - 3)  # six orders of magnitude from pixel to pixel
    yield "a dynamic range of 1e6", steep, observed
    yield "a dynamic range of 1e6 in float32", steep.astype("f4"), observed
    yield "tiny", x * 1e-30, observed
    yield "denormal float32", (x * 1e-39).astype("f4"), observed
    yield "huge", x * 1e30, observed
    yield "the largest float32", ((2 * x - 1) * 3.4e38).astype("f4"), observed
    yield "big-endian floats", x.astype(">f8"), observed
    yield "big-endian integers", (x * 3000).astype(">i2"), observed
    yield "bytes", (x * 255).astype("u1"), observed
    yield "signed bytes", (x * 255 - 128).astype("i1"), observed
    yield "64-bit extremes", np.where(x > 0.5, 2**63 - 1, -(2**63)).astype("i8"), observed
    yield "half precision", x.astype("f2"), observed
    yield "a small signal on 1e9", 1e9 + x, observed
    yield "one observed pixel", x, one
    yield "two observed pixels", x, two
    few = np.zeros(x.shape, bool)
    few[2, 5, 5] = True
    yield "one observed entry", x, few
    yield "one row", x[:, :1], observed[:1]
    yield "one pixel", x[:, :1, :1], (np.arange(BANDS) != 2)[:, None, None]
    yield "one band", x[:1], observed
    spike = np.zeros(x.shape)
    spike[:, 3, 3] = 1
    yield "a spike", spike, observed
    outlier = x.copy()
    outlier[0, 0, 0] = 1e12
    yield "an outlier", outlier, observed
    scattered = np.random.default_rng(3).random(x.shape) > 0.3
    yield "gaps by band", x, scattered
    scattered = scattered.copy()
    scattered[3] = False
    yield "an empty band", x, scattered


NASTY = list(nasty())


@pytest.mark.parametrize("method", [*CLASSICAL, "auto"])
def test_nasty_numbers(method: str) -> None:
    for name, values, observed in NASTY:
        try:
            check(values, observed, method)
        except BaseException as error:
            raise AssertionError(f"{method} on {name}") from error


@pytest.mark.parametrize("method", ["ei", "hydiff-ei"])
def test_nasty_numbers_in_networks(method: str) -> None:
    """A step of a small network: it knows little, but what can overflow does so at once."""
    little = {"steps": 1, "channels": 4, "scales": 1, "device": "cpu"}
    for name, values, observed in NASTY:
        try:
            check(values, observed, method, slack=0.5, **little)
        except BaseException as error:
            raise AssertionError(f"{method} on {name}") from error


@pytest.mark.parametrize("factor", [1e300, 1e-310])
def test_numbers_without_a_square_are_refused(factor: float) -> None:
    with pytest.raises(BadValue, match="squares"):
        hydiff.fill(smooth_cube() * factor, gaps(), method="nearest")
    with pytest.raises(BadValue, match="largest number"):
        hydiff.fill((2 * smooth_cube() - 1) * 1.7e308, gaps(), method="nearest")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9)),
    dtype=st.sampled_from(["u1", "i1", ">u2", "i2", ">i4", "u4", "i8", "f2", "f4", ">f4", "f8"]),
    share=st.floats(0.0, 0.98),
    per_band=st.booleans(),
    low=st.floats(-1e4, 1e4),
    span=st.sampled_from([0.0, 1e-3, 1.0, 1e3, 1e6]),
    seed=st.integers(0, 2**20),
    method=st.sampled_from([*CLASSICAL, "smooth", "auto"]),
)
def test_random_shapes_types_and_masks(shape, dtype, share, per_band, low, span, seed, method):
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    values = low + span * rng.random(shape)
    if kind.kind in "iu":
        values = np.clip(np.rint(values), np.iinfo(kind).min, np.iinfo(kind).max)
    values = values.clip(-6e4, 6e4).astype(kind)
    observed = rng.random(shape if per_band else shape[1:]) >= share
    if not observed.any():
        observed.flat[0] = True
    # entries that share no row and no column leave several completions of the lowest rank
    check(values, observed, method, slack=1.0 if method == "halrtc" else 1e-3)


@pytest.mark.parametrize("method", ["smooth", "auto", "linear"])
@pytest.mark.parametrize("sigma_y", [1e-12, 1e-3, 2.0, 9.0, "auto", "500%"])
def test_noise_far_too_small_or_large(method: str, sigma_y: float | str) -> None:
    check(smooth_cube(), gaps(), method, sigma_y=sigma_y)


@pytest.mark.parametrize("sigma_y", [-1.0, np.nan, np.inf, 1e6, "x", "nan%"])
def test_noise_that_means_nothing_is_refused(sigma_y: float | str) -> None:
    with pytest.raises(HydiffError, match="sigma_y"):
        hydiff.fill(smooth_cube(), gaps(), method="smooth", sigma_y=sigma_y)


@pytest.mark.parametrize("suffix", ["bsq", "tif", "npz", "zarr"])
def test_what_does_not_fit_is_clipped_in_files_too(tmp_path: Path, suffix: str) -> None:
    """Written back, a fill that overshoots is the type's last value, never what it wraps to."""
    steep = np.minimum(np.arange(30) * 14, 255).astype("u1")
    observed = np.ones((12, 30), bool)
    observed[:, 19:] = False
    source = tmp_path / f"in.{suffix}"
    hydiff.write(Cube(np.broadcast_to(steep, (3, 12, 30)).copy()), source)
    result = hydiff.fill(hydiff.read(source), observed, method="biharmonic", outside="fill")
    provenance.save(result, tmp_path / f"out.{suffix}")
    back = np.asarray(hydiff.read(tmp_path / f"out.{suffix}").values)
    assert (back[result.raw > 255.5] == 255).all() and (result.raw > 255.5).any()
    record = json.loads((tmp_path / f"out.{suffix}.fill.json").read_text())
    assert "were clipped to the range of uint8" in json.dumps(record)


def test_what_does_not_fit_into_the_type_is_clipped_and_counted() -> None:
    """A ramp that a thin plate continues beyond the largest byte."""
    ramp = np.broadcast_to(np.arange(30.0) * 12, (3, 12, 30)).clip(0, 255)
    observed = np.ones((12, 30), bool)
    observed[:, 19:] = False
    steep = np.where(observed, np.minimum(np.arange(30.0) * 14, 255), 0)
    cube = Cube(np.broadcast_to(steep, ramp.shape).astype("u1"))
    result = hydiff.fill(cube, observed, method="biharmonic", outside="fill")
    clipped = [note for note in result.notes if "were clipped to the range of uint8" in note]
    over = int(((result.raw < -0.5) | (result.raw > 255.5))[:, ~observed].sum())
    assert over > 0 and len(clipped) == 1 and f"{over:,}" in clipped[0]
