"""The wavelengths of the bundled scene are those of its bands: the scene itself shows it.

Values are radiances times 500, plus 1000, as Purdue University documents them.
"""

import numpy as np
import pytest

import hydiff
from hydiff.io import bundled
from hydiff.report import plots

OFFSET = 1000
GRASS, WOODS = 6, 14  # classes of green plants


@pytest.fixture(scope="module")
def scene():
    return hydiff.sample()


@pytest.fixture(scope="module")
def radiance(scene):
    """(bands,) mean over the scene, times 500."""
    return np.asarray(scene.values).mean(axis=(1, 2)) - OFFSET


def between(nm, low, high):
    return np.flatnonzero((low <= nm) & (nm <= high))


def test_all_channels_but_twenty_are_there(scene):
    nm = scene.wavelengths
    assert len(nm) == len(scene.fwhm) == 220 - len(bundled.LEFT_OUT) == scene.bands
    assert nm.min() == pytest.approx(400, abs=1) and 2480 < nm.max() < 2500
    assert scene.wavelength_units == "nm" and (scene.fwhm > 8).all() and (scene.fwhm < 16).all()


def test_what_was_left_out_is_where_water_lets_nothing_through(scene):
    nm = np.sort(scene.wavelengths)
    (wide,) = np.nonzero(np.diff(nm) > 20)
    assert [(nm[i] < water < nm[i + 1]) for i, water in zip(wide, (1380, 1870), strict=True)] == [
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("what", "low", "high", "expected"),
    [
        ("oxygen A", 735, 790, 762),
        ("water vapour", 880, 1000, 940),
        ("water vapour", 1060, 1220, 1135),
    ],
)
def test_absorptions_of_the_air_are_where_they_belong(scene, radiance, what, low, high, expected):
    """Within one band: the list moved by two bands would fail."""
    near = between(scene.wavelengths, low, high)
    deepest = scene.wavelengths[near[np.argmin(radiance[near])]]
    assert deepest == pytest.approx(expected, abs=10)


@pytest.mark.parametrize("plants", [GRASS, WOODS])
def test_plants_have_their_red_edge(scene, plants):
    spectrum = np.asarray(scene.values)[:, hydiff.sample_labels() == plants].mean(axis=1)
    at = between(scene.wavelengths, 640, 756)
    at = at[np.argsort(scene.wavelengths[at])]
    nm, rise = scene.wavelengths[at], np.diff(spectrum[at])
    # of the steps between bands that lie apart: two spectrometers see 687 and 697 nm
    steps = np.where(np.diff(nm) > 5, rise, -np.inf)
    middle = (nm[1:] + nm[:-1])[np.argmax(steps)] / 2
    assert 700 <= middle <= 745


def test_two_spectrometers_agree_where_they_overlap(scene, radiance):
    """At the same wavelength the same radiance, while it differs from one band to the next."""
    nm = scene.wavelengths
    back = np.flatnonzero(np.diff(nm) < 0)
    assert [round(nm[i]) for i in back] == [696, 1283]  # sensor order; the third is left out
    pairs = [(i, j) for i in range(200) for j in range(i + 2, 200) if abs(nm[i] - nm[j]) < 0.5]
    assert len(pairs) == 4
    for i, j in pairs:
        assert radiance[i] == pytest.approx(radiance[j], rel=0.04)
    (i, _), (k, _) = pairs[:2]
    assert radiance[i] != pytest.approx(radiance[k], rel=0.08)


def test_pictures_take_red_green_and_blue(scene):
    rgb = plots.rgb_bands(scene.wavelengths, scene.bands, scene.wavelength_units)
    assert scene.wavelengths[list(rgb)] == pytest.approx([650, 550, 450], abs=5)
