"""Propagation: means, formulas and functions of a fill, with their errors."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rasterio.crs import CRS
from scipy import ndimage

import hydiff
from command import run
from hydiff.cube import Cube
from hydiff.errors import BadValue, HydiffError
from hydiff.result import Result
from hydiff.uncertainty import expression, propagation
from hydiff.uncertainty.zones import zones_of

PLACE = {"crs": CRS.from_epsg(32611).to_wkt(), "transform": (10.0, 0.0, 5e5, 0.0, -10.0, 4e6)}
WAVES = 640.0 + 20 * np.arange(6)
GAP = slice(5, 8)


@pytest.fixture(scope="module")
def cube() -> Cube:
    """6 bands of Indian Pines, 14 × 16 pixels: three columns lost, and one band of a corner."""
    part = hydiff.sample().window(rows=slice(40, 54), cols=slice(20, 36), bands=slice(27, 33))
    values = np.asarray(part.values, np.float32)
    values[:, :, GAP] = np.nan
    values[2, 9:, 12:] = np.nan
    return Cube(values, wavelengths=WAVES, wavelength_units="nm", **PLACE)


@pytest.fixture(scope="module")
def result(cube: Cube) -> Result:
    """With error bars, as `auto` gives them: here they grow with the distance to the data."""
    plain = hydiff.fill(cube, method="smooth")
    away = np.stack([ndimage.distance_transform_edt(f) for f in plain.filled])
    return replace(plain, sigma=np.where(plain.filled, 20.0 * (1 + away), np.nan))


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_mean_of_one_pixel_is_its_value_with_its_error_bar(result: Result) -> None:
    pixels = np.arange(14 * 16).reshape(14, 16)
    found = hydiff.propagate(result, "mean", np.where(pixels < 32, 0, pixels), bands="2")
    assert np.array_equal(found.value, np.asarray(result.cube.values, float)[2, 2:].ravel())
    bars = np.nan_to_num(result.sigma[2, 2:]).ravel()
    assert found.sigma == pytest.approx(bars) and found.samples == 0
    assert np.array_equal(found.share, (bars > 0).astype(float))
    half = (found.high - found.low) / 2
    assert half[1] == pytest.approx(1.2815515655 * bars)


LINEAR = ["b4", "b4 - b1", "(b0 + 2 * b2) / 3 - w720"]


def test_exact_errors_of_linear_functions_are_those_of_samples(result: Result) -> None:
    """Whole pixels and single bands are missing, and there is noise; 150 samples know σ within
    6 %."""
    noisy = replace(result, sigma_y=np.full(6, 30.0))
    x = propagation.fill_values(noisy.cube)
    zones = np.arange(14 * 16).reshape(14, 16) // (16 * 7) + 1
    asked = [propagation.quantity_of(f, zones, noisy.cube, x, noisy.filled) for f in LINEAR]
    every = propagation.Quantity(
        sum((q.labels for q in asked), ()), lambda x: np.concatenate([q.f(x) for q in asked])
    )
    drawn = propagation.varied(noisy, x, propagation.drawn_errors(noisy, 150, 1), 1)
    sampled = propagation.by_samples(every, x, noisy.filled, drawn)
    exact = [hydiff.propagate(noisy, f, zones) for f in LINEAR]
    sigma, share = (np.concatenate([getattr(p, k) for p in exact]) for k in ("sigma", "share"))
    assert all(p.samples == 0 for p in exact) and (sigma > 0).all()
    assert sampled.sigma == pytest.approx(sigma, rel=0.2)
    assert sampled.share == pytest.approx(share, abs=0.15)
    assert np.array_equal(sampled.value, np.concatenate([p.value for p in exact]))
    assert ((share > 0.1) & (share < 0.999)).all()


def test_measured_entries_have_no_error_and_no_share(result: Result) -> None:
    for f in ("b4 - b1", "b4 / b1"):
        found = hydiff.propagate(result, f, "0:9,9:16", samples=10)
        assert (found.sigma, found.share) == (0, 0)
        assert found.low[2] == found.high[2] == pytest.approx(found.value)


@pytest.mark.parametrize("f", ["mean", "b4 / b1"])
def test_entries_left_missing_have_no_value_whatever_the_cube_has_there(
    cube: Cube, tmp_path: Path, f: str
) -> None:
    """A mask says that a corner is missing, where the file has values; it is outside, and left."""
    values = np.nan_to_num(np.asarray(cube.values), nan=5000.0)
    observed = np.isfinite(np.asarray(cube.values))
    observed[:, :4, :4] = False
    fills = [
        hydiff.fill(replace(cube, values=x), observed, method="smooth", outside="keep")
        for x in (values, np.where(observed, values, np.nan).astype(np.float32))
    ]
    fills[0].save(tmp_path / "fill.img")
    assert np.isfinite(fills[0].cube.values).all() and fills[0].left
    ours, wanted, from_file = (
        hydiff.propagate(r, f, "blocks:2", bands="0,3" if f == "mean" else None, samples=20)
        for r in (*fills, tmp_path / "fill.img")
    )
    assert np.isnan(wanted.value[0]) and np.isnan(wanted.sigma[0])
    for found in (ours, from_file):
        np.testing.assert_allclose(found.value, wanted.value, rtol=1e-6)
        np.testing.assert_allclose(found.sigma, wanted.sigma, rtol=1e-4)


def test_where_nothing_varies_samples_give_no_error(result: Result) -> None:
    """Not even that of rounding, of which the filled entries would have a share."""
    found = hydiff.propagate(result, lambda x: x[4] / x[1], "blocks:3", samples=11)
    unfilled = np.array([not np.isfinite(s) or s < 1e-9 for s in found.sigma])
    assert unfilled.any() and not found.sigma[unfilled].any() and not found.share[unfilled].any()


def test_denoised_entries_vary_as_samples_do(cube: Cube) -> None:
    """Their errors are correlated, so the noise of single entries does not give that of a mean."""
    fill = hydiff.fill(cube, method="smooth", sigma_y=60.0, denoise=True)
    found = hydiff.propagate(fill, "b4 - b1", "0:9,9:16", samples=40)
    differences = [(x[4] - x[1])[:9, 9:16].mean() for x in fill.samples(40)]
    assert found.samples == 40 and found.sigma == pytest.approx(np.std(differences, ddof=1))


def test_with_noise_measured_entries_share_the_variance(result: Result) -> None:
    noisy = replace(result, sigma_y=np.full(6, 8.0))
    found = hydiff.propagate(noisy, "b4", "0:9,9:16")
    assert found.sigma == pytest.approx(8 / np.sqrt(63)) and found.share == 0


def test_what_a_band_has_in_common_does_not_average_out(cube: Cube, tmp_path: Path) -> None:
    """The uncertainty of the product: the same error for all filled entries of a band."""
    own = 100.0 * np.arange(1, 7)
    plain = hydiff.fill(cube, method="smooth", error_bars=True)
    total = hydiff.fill(cube, method="smooth", error_bars=True, input_uncertainty=own)
    gap = "0:14,5:8"
    without, exact = (hydiff.propagate(r, "mean", gap) for r in (plain, total))
    assert exact.sigma == pytest.approx(np.hypot(without.sigma, own), rel=1e-6)
    formulas = [hydiff.propagate(r, "b3 - b1", gap).sigma for r in (plain, total)]
    assert formulas[1] == pytest.approx(np.sqrt(formulas[0] ** 2 + 400.0**2 + 200.0**2), rel=1e-6)
    drawn = hydiff.propagate(total, lambda x: np.nanmean(x[:, :, GAP], axis=(1, 2)), samples=300)
    assert drawn.sigma == pytest.approx(exact.sigma, rel=0.15)
    total.save(tmp_path / "fill.img")
    assert hydiff.propagate(tmp_path / "fill.img", "mean", gap).sigma == pytest.approx(exact.sigma)
    half = hydiff.propagate(total, "b3", "0:14,5:11")  # half of it is measured
    assert half.sigma[0] == pytest.approx(exact.sigma[3] / 2)


def test_a_scaled_function_has_a_scaled_error(result: Result) -> None:
    for f, factor in (("b4 - b1", -3.0), ("sqrt(b4) / b1", 3.0)):
        one = hydiff.propagate(result, f, "blocks", samples=12)
        other = hydiff.propagate(result, f"{factor} * ({f}) + 7", "blocks", samples=12)
        assert other.value == pytest.approx(factor * one.value + 7)
        assert other.sigma == pytest.approx(abs(factor) * one.sigma)
        ends = sorted([factor * one.low[1, 0] + 7, factor * one.high[1, 0] + 7])
        assert [other.low[1, 0], other.high[1, 0]] == pytest.approx(ends)


def test_a_mean_is_less_sure_than_independent_bars_say(result: Result) -> None:
    """Errors of neighbours are alike."""
    found = hydiff.propagate(result, "mean", "0:14,5:8", bands="3")
    bars = result.sigma[3, :, GAP]
    assert found.sigma > 1.5 * np.sqrt((bars**2).sum()) / bars.size


def test_intervals_of_samples_cover_what_they_say(rng: np.random.Generator) -> None:
    """Quantiles where there are enough samples, Student's t where there are not."""
    quantity = propagation.Quantity(({"zone": "all"},) * 4000, lambda x: x.ravel())
    truth, filled = rng.standard_normal((1, 1, 4000)), np.ones((1, 1, 4000), bool)
    found = propagation.by_samples(
        quantity, np.zeros_like(truth), filled, rng.standard_normal((20, 1, 1, 4000))
    )
    ends = zip(found.low, found.high, strict=True)
    inside = [np.mean((low <= truth) & (truth <= high)) for low, high in ends]
    assert inside == pytest.approx([0.5, 0.8, 0.95], abs=0.03)


# ── formulas ─────────────────────────────────────────────────────────────────────────────────────


FORMULAS = ["(b4-b1)/(b4+b1)", "-b0**2 + 3e2", "max(b1, b2) - abs(b3 - 800)", "exp(-b5/1e3)"]
FORMULAS += ["(b4 > b1)", "log(b2) / sqrt(w640)", "min(2, b0)", "2 ** -(b1 / b2)"]


def test_formulas_are_what_python_computes(cube: Cube) -> None:
    values = np.asarray(cube.values, np.float64)
    names = {f"b{i}": plane for i, plane in enumerate(values)} | {"w640": values[0]}
    names |= {"abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt}
    names |= {"max": np.maximum, "min": np.minimum}
    for text in FORMULAS:
        own = np.isfinite(values[expression.parsed(text, cube).bands]).all(axis=0)
        expected = np.where(own, eval(text, {}, names), np.nan)
        assert expression.parsed(text, cube)(values) == pytest.approx(expected, nan_ok=True), text


def test_a_linear_formula_is_known_as_one(cube: Cube, rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, 4, 5))
    for text in (*LINEAR, "-(b1 - 4) * 2 + 3 / 4", "2 - b1 - b1"):
        affine = expression.parsed(text, cube).affine
        assert affine is not None
        total = affine.constant + sum(c * x[b] for b, c in affine.terms.items())
        assert expression.parsed(text, cube)(x) == pytest.approx(total)
    for text in ("b1 * b2", "1 / b1", "b1 ** 2", "sqrt(b1)", "b1 < 3", "b1 / (b2 - b2)"):
        assert expression.parsed(text, cube).affine is None, text


REFUSED = {
    "__import__('os').system('true')": "found __import__",
    "b1.__class__": "found b1.__class__",
    "[b1 for b1 in b2]": "found [b1",
    "b1 if b2 else b3": "found b1 if",
    "(lambda: b1)()": "found (lambda",
    "b1 + 'a'": "found 'a'",
    "b1 + True": "found True",
    "b1 < b2 < b3": "found b1 < b2 < b3",
    "sqrt(b1, b2)": "sqrt takes 1",
    "b1 +": "cannot be read",
    "x + 1": "found x",
    "3 + 4": "no band in it",
    "b6": "bands are b0 to b5",
    "w900": "no good band near 900 nm",
    "(" * 300 + "b1" + ")" * 300: "characters, expected at most",
    "-" * 390 + "~b1": "found",
}


def test_formulas_that_are_not_arithmetic_are_refused_in_one_line(cube: Cube) -> None:
    for text, words in REFUSED.items():
        with pytest.raises(BadValue) as refused:
            expression.parsed(text, cube)
        assert words in str(refused.value) and "\n" not in str(refused.value), text
    with pytest.raises(BadValue, match="no wavelengths; give numbers"):
        expression.parsed("w700", replace(cube, wavelengths=None))


# ── zones ────────────────────────────────────────────────────────────────────────────────────────


def polygons(
    path: Path, *boxes: tuple[float, float, float, float], name: str | None = None
) -> Path:
    features = [
        {
            "type": "Feature",
            "properties": {"name": name} if name else None,
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[a, b], [c, b], [c, d], [a, d], [a, b]]],
            },
        }
        for a, b, c, d in boxes
    ]
    crs = {"type": "name", "properties": {"name": "EPSG:32611"}}
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features, "crs": crs}))
    return path


def test_means_over_zones_are_those_of_scipy(cube: Cube, rng: np.random.Generator) -> None:
    labels = rng.integers(0, 5, (14, 16))
    values = np.asarray(cube.values, np.float64)
    valid = np.isfinite(values[0])
    expected = ndimage.mean(np.where(valid, values[0], 0), np.where(valid, labels, 0), range(1, 5))
    assert zones_of(labels, cube).means(values[:1])[0] == pytest.approx(expected)
    for over, count in (("blocks", 4), ("blocks:5", 12), ("all", 1), (None, 1)):
        zones = zones_of(over, cube)
        assert len(zones.names) == count
        assert np.array_equal(np.sort(zones.pixels), np.arange(14 * 16))  # each pixel once
        for i, name in enumerate(zones.names):
            again = zones_of(None if name == "all" else name, cube)
            assert np.array_equal(np.sort(zones.inside(i)), again.pixels)


def test_zones_of_files(cube: Cube, tmp_path: Path) -> None:
    box, beside = (5e5, 4e6 - 60, 5e5 + 80, 4e6), (6e5, 4e6 - 60, 6e5 + 80, 4e6)
    path = polygons(tmp_path / "fields.geojson", beside, box, (5e5 + 40, 4e6 - 90, 5e5 + 60, 4e6))
    zones = zones_of(path, cube)
    assert zones.names == ("polygon 2", "polygon 3") and zones.empty == ("polygon 1",)
    assert np.array_equal(zones.inside(0), zones_of("0:6,0:8", cube).pixels)
    assert zones_of(polygons(path, box, name="field"), cube).names == ("field",)
    mask = np.zeros((14, 16), bool)
    mask[:6, :8] = True
    for meaning in ("missing", "observed"):  # whatever it was written for, where it is True
        hydiff.io.write_mask(mask, tmp_path / f"{meaning}.npz", meaning)
        found = zones_of(tmp_path / f"{meaning}.npz", cube)
        assert np.array_equal(found.pixels, zones.inside(0))
    small = Cube(np.ones((1, 6, 8), np.uint8), **PLACE)
    hydiff.write(small, tmp_path / "small.tif")  # a mask of a part of the map is no more than that
    assert np.array_equal(zones_of(tmp_path / "small.tif", cube).pixels, zones.inside(0))


# ── functions ────────────────────────────────────────────────────────────────────────────────────


def brightest(x: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """Two numbers: the largest measured value, and the largest of all."""
    return np.array([np.nanmax(x[~filled]), np.nanmax(x)])


def test_functions_get_the_filled_entries_and_maps_are_averaged(result: Result) -> None:
    found = hydiff.propagate(result, brightest, samples=10)
    assert found.sigma[0] == 0 and found.labels[1] == {"of": "brightest", "number": 1}
    one = hydiff.propagate(result, lambda x: x[4] / x[1], "blocks", samples=10)
    other = hydiff.propagate(result, "b4 / b1", "blocks", samples=10)
    assert one.value == pytest.approx(other.value) and one.sigma == pytest.approx(other.sigma)


WRONG: dict[str, tuple[Callable[[Result], Any], str]] = {
    "no end": (lambda r: hydiff.propagate(r, samples=10**30), "10 to 100,000"),
    "a formula": (lambda r: hydiff.propagate(r, "b0 +"), "`f='b0 +'`: cannot be read"),
    "too few": (lambda r: hydiff.propagate(r, samples=3), "10 to 100,000"),
    "no result": (lambda r: hydiff.propagate(r.cube), "expected the Result of a fill"),
    "few samples": (
        lambda r: hydiff.propagate(r, "b4 / b1", samples=r.samples(3)),
        "3 samples, expected 10 or more",
    ),
    "half a sample": (lambda r: hydiff.propagate(r, samples=10.5), "a whole number"),
    "samples of another shape": (
        lambda r: hydiff.propagate(r, "b4 / b1", samples=[np.zeros((3, 3))]),
        "sample 0 has shape (3, 3), but the cube is (6, 14, 16)",
    ),
    "no function": (lambda r: hydiff.propagate(r, ["b1"]), "'mean', a formula such as"),
    "seed": (lambda r: hydiff.propagate(r, seed=-1), "seed"),
    "bands of a formula": (lambda r: hydiff.propagate(r, "b1", bands="2"), "goes with the mean"),
    "no zone": (lambda r: hydiff.propagate(r, over=np.zeros((14, 16), bool)), "no pixel lies"),
    "shape": (lambda r: hydiff.propagate(r, over=np.ones((3, 3), bool)), "zones of shape"),
    "floats": (lambda r: hydiff.propagate(r, over=np.ones((14, 16))), "whole numbers"),
    "blocks of nothing": (lambda r: hydiff.propagate(r, over="blocks:0"), "1 pixel or more"),
    "no such zones": (lambda r: hydiff.propagate(r, over="fields"), "there is no such file"),
    "numbers over zones": (
        lambda r: hydiff.propagate(r, brightest, "blocks"),
        "cannot be averaged",
    ),
    "a function that fails": (
        lambda r: hydiff.propagate(r, lambda x: x[99]),
        "fails on this cube: IndexError",
    ),
    "values that come and go": (
        lambda r: hydiff.propagate(r, lambda x: x[x > 4000], samples=10),
        "as many for any cube",
    ),
}


def test_what_cannot_be_propagated_is_refused_in_one_line(result: Result) -> None:
    for what, (call, words) in WRONG.items():
        with pytest.raises(HydiffError) as refused:
            call(result)
        assert words in str(refused.value) and "\n" not in str(refused.value), what


# ── files ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def folder(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fill")
    result.save(folder / "filled.tif")
    (folder / "mine.py").write_text("def ndvi(x):\n    return (x[4] - x[1]) / (x[4] + x[1])\n")
    (folder / "broken.py").write_text("1 / 0\n")
    polygons(folder / "fields.geojson", (5e5, 4e6 - 60, 5e5 + 80, 4e6), name="field")
    return folder


def test_files_give_what_the_result_gives(result: Result, folder: Path) -> None:
    for f in ("b4 - b1", "b4 / b1"):
        one, other = (
            hydiff.propagate(r, f, "blocks", samples=10) for r in (result, folder / "filled.tif")
        )
        assert other.value == pytest.approx(one.value)
        assert other.sigma == pytest.approx(
            one.sigma, rel=5e-3
        )  # bars are stored in half precision


@pytest.mark.parametrize("suffix", ["img", "zarr"])
def test_samples_that_were_written_with_a_fill_are_used(
    suffix: str, cube: Cube, tmp_path: Path
) -> None:
    """They are those of the seed: drawn again, they give the same, but for rounding."""
    hydiff.write(cube, tmp_path / "scene.tif")
    options: list[object] = [
        "--method",
        "smooth",
        "--outside",
        "fill",
        "--seed",
        3,
        "--samples",
        12,
    ]
    options += ["-o", f"filled.{suffix}"]
    assert run("fill", "scene.tif", *options, cwd=tmp_path).returncode == 0
    filled = tmp_path / f"filled.{suffix}"
    stored = hydiff.propagate(filled, "b4 / b1", "blocks")
    drawn = hydiff.propagate(filled, "b4 / b1", "blocks", samples=12, seed=3)
    other = hydiff.propagate(filled, "b4 / b1", "blocks", samples=12, seed=4)
    assert stored.samples == 12 and stored.sigma == pytest.approx(drawn.sigma, rel=1e-4)
    assert other.sigma != pytest.approx(drawn.sigma, rel=1e-2)


def test_entries_of_an_earlier_fill_vary_where_samples_were_written(
    cube: Cube, tmp_path: Path
) -> None:
    hydiff.write(cube, tmp_path / "a.tif")
    smooth = ("--method", "smooth", "--outside", "fill")
    for words in (("a.tif", "-o", "b.tif", "--region", "0:14,0:9"),
                  ("b.tif", "-o", "c.tif", "--samples", 10)):  # fmt: skip
        assert run("fill", *words, *smooth, cwd=tmp_path).returncode == 0
    zones = np.where(np.arange(16) < 9, 1, 2) * np.ones((14, 1), int)
    found = hydiff.propagate(tmp_path / "c.tif", "b2 / b4", zones)
    assert (found.sigma > 0).all() and (found.share == 1).all()


def test_the_command_prints_and_writes_what_the_library_computes(folder: Path) -> None:
    formula = "(b4-b1)/(b4+b1)"
    words = ("propagate", "filled.tif", "--over", "fields.geojson", "--samples", 12)
    done = run(*words, "--of", formula, "--json", "-o", "table.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    expected = hydiff.propagate(
        folder / "filled.tif", formula, folder / "fields.geojson", samples=12
    )
    assert found["values"] == expected.rows() and found["samples"] == 12
    assert found["values"][0]["zone"] == "field"
    (row,) = csv.DictReader((folder / "table.csv").read_text().splitlines())
    assert {k: str(v) for k, v in found["values"][0].items()} == row
    own = json.loads(run(*words, "--of", "mine.py:ndvi", "--json", cwd=folder).stdout)
    assert own["values"] == [pytest.approx(found["values"][0])]
    shown = run("propagate", "filled.tif", "--over", "blocks", cwd=folder).stdout
    assert "exact" in shown and "and 4 more" in shown


def test_bands_whose_errors_are_not_known_are_noted(result: Result) -> None:
    bars = result.sigma.copy()
    bars[3, 4, 6] = np.nan  # one filled entry
    good = np.arange(6) != 4
    some = replace(result, cube=replace(result.cube, good=good), sigma=bars)
    for f, words in (("b1/b2", []), ("b4-b1", ["independent; σ"]), ("b3", ["get that of kriging"])):
        (*notes,) = hydiff.propagate(some, f, samples=10).notes
        assert len(notes) == len(words) and all(w in n for w, n in zip(words, notes, strict=True))
    (note,) = hydiff.propagate(replace(some, sigma=None), "mean").notes
    assert "bad bands (4): " in note and "as large as the band varies" in note
    assert note in repr(hydiff.propagate(replace(some, sigma=None), "mean"))


def test_a_note_on_a_bad_band_is_printed(cube: Cube, tmp_path: Path) -> None:
    bad = replace(cube, good=np.arange(6) != 4, attrs={}, crs=None, transform=None)
    hydiff.write(bad, tmp_path / "a.img")
    hydiff.fill(tmp_path / "a.img", method="smooth").save(tmp_path / "b.img")
    for f, noted in (("b4/b1", True), ("b3/b1", False)):
        done = run("propagate", "b.img", "--of", f, "--samples", 10, cwd=tmp_path)
        assert done.returncode == 0 and ("bad bands (4)" in done.stderr) == noted, done.stderr


def test_a_note_says_that_the_offset_of_a_file_is_not_applied(cube: Cube, tmp_path: Path) -> None:
    for name, offset, noted in (("a", 0.0, False), ("b", -0.1, True)):
        scale = {"scales": [1e-4] * 6, "offsets": [offset] * 6}
        hydiff.write(replace(cube, attrs={"geotiff": scale}), tmp_path / f"{name}.tif")
        hydiff.fill(tmp_path / f"{name}.tif", method="smooth").save(tmp_path / f"{name}o.tif")
        done = run("propagate", f"{name}o.tif", "--of", "b4/b1", "--samples", 10, cwd=tmp_path)
        assert done.returncode == 0 and ("not applied" in done.stderr) == noted


BAD = {
    "--of mine.py:nothing": "no function nothing in it",
    "--of broken.py:f": "does not run: ZeroDivisionError",
    "--of absent.py:f": "no such file",
    "--of b1+": "--of b1+: cannot be read",
    "--over fields": "--over fields: expected",
    "--samples 2": "10 to 100,000",
    "-o table.txt": "unknown suffix '.txt'",
    "-o filled.tif.fill.json": "exists",
}


def test_bad_input_is_one_line_and_writes_nothing(folder: Path) -> None:
    before = sorted(folder.iterdir())
    for options, words in BAD.items():
        done = run("propagate", "filled.tif", *options.split(), cwd=folder)
        assert done.returncode == 2 and words in done.stderr, (options, done.stderr)
        assert len(done.stderr.splitlines()) == 1
    done = run("propagate", "fields.geojson", cwd=folder)
    assert done.returncode == 2
    (folder / "alone").mkdir()
    hydiff.write(hydiff.read(folder / "filled.tif"), folder / "alone" / "filled.tif")
    done = run("propagate", "filled.tif", cwd=folder / "alone")
    assert done.returncode == 2 and "keep its companions" in done.stderr
    assert sorted(p for p in folder.iterdir() if p.name != "alone") == before


# ── retrievals ───────────────────────────────────────────────────────────────────────────────────


def matched_filter(x: np.ndarray, background: np.ndarray) -> np.ndarray:
    """(rows, cols) scores of a ramp; background: (rows, cols) pixels whose statistics are taken."""
    spectra, target = x[:, background], np.linspace(1, 2, len(x))
    weight = np.linalg.solve(np.cov(spectra), target)
    score: np.ndarray = np.einsum("b,brc->rc", weight, x - spectra.mean(axis=1)[:, None, None])
    return score


def test_a_retrieval_on_measured_pixels_has_the_same_bytes_before_and_after_the_fill(
    cube: Cube, tmp_path: Path
) -> None:
    hydiff.write(cube, tmp_path / "scene.tif")
    run(
        "fill",
        "scene.tif",
        "-o",
        "filled.tif",
        "--method",
        "smooth",
        "--outside",
        "fill",
        cwd=tmp_path,
    )
    before, after = (hydiff.read(tmp_path / f"{name}.tif").load() for name in ("scene", "filled"))
    assert after.path is not None
    filled = hydiff.io.provenance.companions(after.path, after.shape)["filled"] > 0
    measured = ~filled.any(axis=0)
    x, y = (np.asarray(c.values, np.float64) for c in (before, after))
    old, new = (matched_filter(v, measured)[measured] for v in (x, y))
    assert np.isfinite(y).all() and old.tobytes() == new.tobytes()
    everything = matched_filter(y, np.ones_like(measured))[measured]
    assert not np.allclose(old, everything, rtol=1e-3)  # without the flags it is another filter
