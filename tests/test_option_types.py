"""Options and settings of any type: what is not of theirs ends in one line that names them."""

from dataclasses import fields
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

import hydiff
from command import run
from hydiff.cube import as_cube
from hydiff.errors import BadValue, HydiffError
from hydiff.gaps.simulate import simulate
from hydiff.methods import METHODS, choose
from hydiff.request import Request, option_types

OPTIONS = [n for n in signature(hydiff.fill).parameters if n in option_types() or n == "resume"]
SWITCHES = [n for n in OPTIONS if option_types().get(n, bool) is bool]
NUMBERS = [n for n in OPTIONS if option_types().get(n) in (float, int, float | None, int | None)]
# these have rules of their own
MASKS = ("observed", "missing", "reference_missing")
ANY_KIND = (*MASKS, "input_uncertainty", "reference", "method", "recipe", "settings")
NEVER = (3 + 2j, {1}, object(), np.array([[1, 2]]), b"a")  # no option takes one of these
NO_NUMBER = ("x", "2", [1], {}, float("nan"), np.datetime64("2020"), True, Path("x"))
NO_SWITCH = ("no", 0, None, [False], float("nan"))


@pytest.fixture(scope="module")
def cube():
    return np.random.default_rng(0).random((3, 16, 16)).cumsum(axis=2)


@pytest.fixture(scope="module")
def stripe():
    observed = np.ones((16, 16), bool)
    observed[:, 7] = False
    return observed


def refused(cube, stripe, name, value):
    """The line that a fill with such an option ends in."""
    how = {"method": "linear", "observed": stripe}
    if name.startswith(("reference", "max_error", "no_prior", "budget", "recipe")):
        how = {"observed": stripe, "no_prior": True, "reference": [cube[:1]]}
    with pytest.raises(HydiffError) as caught:
        hydiff.fill(cube, **how | {name: value})
    return str(caught.value)


@pytest.mark.parametrize("name", [n for n in OPTIONS if n not in ANY_KIND])
def test_no_option_takes_what_no_option_is(cube, stripe, name):
    for value in NEVER:
        line = refused(cube, stripe, name, value)
        assert name.split("_")[0] in line and ("expected" in line or "known: " in line)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_numbers(cube, stripe, name):
    for value in NO_NUMBER:
        line = refused(cube, stripe, name, value)
        assert line.startswith(f"`{name}=") and "number" in line
    if name != "max_gap":
        assert name in refused(cube, stripe, name, -1)


def test_nan_as_noise_is_refused_in_words(cube, stripe):
    line = refused(cube, stripe, "sigma_y", float("nan"))
    assert line.startswith("`sigma_y=nan`: expected a value (Standard deviation of the noise")


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_are_true_or_false(cube, stripe, name):
    for value in NO_SWITCH:
        assert "expected True or False" in refused(cube, stripe, name, value)


def test_nodata_may_be_nan(cube, stripe):
    gaps = np.where(stripe, cube, np.nan)
    for nodata in (np.nan, [np.nan], np.array([np.nan]), (float("nan"), np.float32("nan"))):
        assert hydiff.fill(gaps, nodata=nodata, method="linear").filled.sum() == 3 * 16


SETTINGS = [(m, f.name, f.type) for m in METHODS for f in fields(choose(m).settings)]


@pytest.mark.parametrize("method", METHODS)
def test_settings_have_their_type_in_python_and_on_the_command_line(method):
    needs = {"reference": (np.zeros(1),)} if "references" in METHODS[method].asks else {}
    for name, kind in ((n, k) for m, n, k in SETTINGS if m == method):
        number = kind.removesuffix(" | None") in ("int", "float")
        wrong = ("x", float("nan"), float("inf"), 10**30, "nan", "1e30") if number else ()
        wrong += {"bool": ("x", 0, None), "str": (None, 3)}.get(kind, ())
        wrong += ({}, 3 + 2j, object())
        for value in wrong:
            with pytest.raises(HydiffError, match=name):
                _ = Request(method=method, settings={name: value}, **needs).chosen


def test_the_command_line_ends_in_one_line(tmp_path, cube):
    np.save(tmp_path / "in.npy", cube)
    for setting in ("steps=nan", "lr=inf", "channels=1e9", "steps=99999999999999", "lr=x"):
        words = ["fill", "in.npy", "-o", "out.npz", "--method", "ei", "--set", setting]
        done = run(*words, cwd=tmp_path)
        assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
        assert f"--set {setting.partition('=')[0]}=" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["in.npy"]


def test_a_path_of_weights_that_is_no_path_is_refused():
    with pytest.raises(BadValue, match="`weights=3`: expected a path"):
        _ = Request(method="hydiff-ei", settings={"weights": 3}).chosen


def test_other_functions_check_theirs(cube, stripe, tmp_path):
    result = hydiff.fill(cube, stripe, method="smooth", error_bars=True)
    path = result.save(tmp_path / "out.npz")[0]
    before = path.read_bytes()
    calls = {
        "`path=3`: expected a path": lambda: hydiff.write(cube, 3),
        "`path=None`: expected a path": lambda: hydiff.read(None),
        "`overwrite='no'`: expected True or False": lambda: result.save(path, overwrite="no"),
        "`unmarked='no'`: expected True or False": lambda: result.save(
            tmp_path / "b.npy", unmarked="no"
        ),
        "`f=3`: expected text": lambda: hydiff.propagate(result, 3),
        "`samples='x'`: expected a whole number": lambda: hydiff.propagate(result, samples="x"),
        "`samples=1.5`: expected a whole number": lambda: hydiff.propagate(result, samples=1.5),
        "`seed=True`: expected a whole number": lambda: hydiff.propagate(result, seed=True),
        "`noise='x'`: expected a number": lambda: simulate(as_cube(cube), "stripes", noise="x"),
        "`missing=[1]`: expected a number": lambda: simulate(as_cube(cube), "stripes", [1]),
    }
    for words, call in calls.items():
        with pytest.raises(BadValue) as caught:
            call()
        assert words in str(caught.value)
    assert path.read_bytes() == before and not (tmp_path / "b.npy").exists()
