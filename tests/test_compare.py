"""Laws of `hydiff compare`: a fill does not differ from itself, and no side is favoured."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import hydiff
from command import run
from hydiff import metrics
from hydiff.cube import Cube
from hydiff.io import provenance
from hydiff.report import fill_pair


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A truth, and three fills of its gaps: with error bars, without, and of other entries."""
    folder = tmp_path_factory.mktemp("compared")
    y, x = np.mgrid[:24, :24] / 6
    values = np.stack([500 + 200 * np.sin(x + b / 3) * np.cos(y - b / 5) for b in range(10)])
    truth = Cube(values.astype("f4"), wavelengths=np.linspace(450, 900, 10))
    hydiff.write(truth, folder / "truth.tif")
    for name, rows in (("in", slice(6, 10)), ("other", slice(14, 17))):
        gaps = np.array(truth.values)
        gaps[:, rows, 5:20] = np.nan
        hydiff.write(Cube(gaps, wavelengths=truth.wavelengths), folder / f"{name}.tif")
    cube = hydiff.read(folder / "in.tif")
    provenance.save(hydiff.fill(cube, method="smooth", error_bars=True), folder / "a.tif")
    provenance.save(hydiff.fill(cube, method="nearest"), folder / "b.tif")
    other = hydiff.fill(hydiff.read(folder / "other.tif"), method="nearest")
    provenance.save(other, folder / "elsewhere.tif")
    return folder


@pytest.fixture
def fills(made, tmp_path):
    """A copy of it, to be spoiled."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def test_a_fill_does_not_differ_from_itself(made):
    found = fill_pair.compare(made / "a.tif", made / "a.tif", made / "truth.tif")
    for part in (found.unit, found.in_sigma, found.in_degrees):
        assert tuple(part) == (0.0,) * 5
    assert not found.rms_by_band.any() and not np.nan_to_num(found.z).any()
    assert (found.only_a, found.only_b, found.measured_differ) == (0, 0, 0)
    assert {row.better for row in found.scores} == {""}


def test_swapping_the_fills_mirrors_everything(made):
    ab, ba = (
        fill_pair.compare(made / f"{one}.tif", made / f"{two}.tif", made / "truth.tif")
        for one, two in ("ab", "ba")
    )
    assert ab.unit.rms > 0 and ab.unit.mean == -ba.unit.mean
    assert ab.unit[1:] == ba.unit[1:] and ab.in_sigma[1:] == ba.in_sigma[1:]
    np.testing.assert_array_equal(ab.angle, ba.angle)
    swapped = {"A": "B", "B": "A", "": ""}
    mirrored = [(r.label, r.b, r.a, swapped[r.better]) for r in ba.scores]
    assert [tuple(r) for r in ab.scores] == mirrored


def test_the_scores_are_those_of_the_entries_that_both_have_filled(made):
    found = fill_pair.compare(made / "a.tif", made / "b.tif", made / "truth.tif")
    missing = ~hydiff.read(made / "in.tif").observed()
    np.testing.assert_array_equal(found.both, missing)
    one, two, truth = (hydiff.read(made / f"{n}.tif") for n in ("a", "b", "truth"))
    scores = [metrics.score(cube, truth, missing).missing for cube in (one, two)]
    for row, key in zip(found.scores, metrics.LABELS, strict=True):
        assert (row.a, row.b) == (scores[0][key], scores[1][key])
        higher = key in ("scc", "mssim", "mpsnr")
        if row.better:  # said by hand: which of the labels are better when larger
            assert row.better == ("A" if (row.a > row.b) == higher else "B")
    assert {r.label: r.better for r in found.scores}["MPSNR (dB)"] == "A"
    x, y = (np.asarray(c.values, float) for c in (one, two))
    assert found.in_degrees.mean == pytest.approx(metrics.sam(x, y, missing), rel=1e-6)
    assert found.unit.rms == pytest.approx(np.sqrt(np.mean((y - x)[missing] ** 2)))


def test_entries_that_one_fill_alone_has_change_no_score(made, tmp_path):
    cube = hydiff.read(made / "in.tif")
    less = hydiff.fill(cube, method="smooth", error_bars=True, bands="3:10")
    provenance.save(less, tmp_path / "less.tif")
    found = fill_pair.compare(made / "a.tif", tmp_path / "less.tif", made / "truth.tif")
    assert found.only_a > 0 and found.unit.rms == 0
    assert {row.better for row in found.scores} == {""}


def test_differences_are_in_units_of_the_error_bars_that_there_are(made):
    found = fill_pair.compare(made / "a.tif", made / "b.tif")
    expected = (found.b.values - found.a.values) / found.a.sigma
    np.testing.assert_allclose(found.z[found.both], expected[found.both])
    three, four = np.full(2, 3.0), np.full(2, 4.0)
    assert fill_pair.joint_sigma(three, four) == pytest.approx(np.sqrt(12.5))
    assert fill_pair.joint_sigma(None, None) is None
    assert fill_pair.compare(made / "b.tif", made / "b.tif").in_sigma is None


def test_a_changed_measured_value_is_noticed(fills):
    cube = hydiff.read(fills / "b.tif")
    values = np.array(cube.values)
    values[3, 0, 0] += 1
    hydiff.write(Cube(values, mark=cube.mark), fills / "c.npz")
    for path in fills.glob("b.tif.*"):
        shutil.copy(path, path.with_name(path.name.replace("b.tif", "c.npz", 1)))
    done = run("compare", fills / "b.tif", fills / "c.npz")
    assert "warning: 1 entries that neither has filled differ" in done.stdout


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_the_page_is_one_file_and_says_what_the_terminal_says(fills):
    words = ("compare", fills / "a.tif", fills / "b.tif", "--truth", fills / "truth.tif")
    done = run(*words, "--page", fills / "page.html", "--json")
    assert done.returncode == 0, done.stderr
    found, text = json.loads(done.stdout), (fills / "page.html").read_text()
    page = Tags(text)
    images = [a for tag, a in page.found if tag == "img"]
    assert len(images) >= 7 and all(a["src"].startswith("data:image/png") for a in images)
    assert not {"script", "link", "iframe"} & {tag for tag, _ in page.found}
    assert not re.search(r"https?://|url\(|@import", text)
    for row in found["scores"]:
        assert f"{row['label']}{row['a']:.4g}{row['b']:.4g}{row['better']}" in page.text
    shown = run(*words).stdout
    assert all(row["label"] in shown for row in found["scores"])
    refused = run(*words, "--page", fills / "page.html")
    assert refused.returncode == 2 and "page.html exists" in refused.stderr
    before = (fills / "b.tif").read_bytes()
    refused = run(*words, "--page", fills / "b.tif", "--overwrite")
    assert refused.returncode == 2 and (fills / "b.tif").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("a.tif", "none.tif"), "no such file"),
        (("a.tif", "truth.tif"), "the flags of a fill are neither"),
        (("a.tif", "elsewhere.tif"), "no filled entry in common"),
        (("a.tif", "b.tif", "--truth", "small.npz"), "name the file that belongs to it"),
        (("a.tif", "small.npz"), "name the file that belongs to it"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_line(fills, words, expected):
    hydiff.write(Cube(np.ones((2, 3, 4))), fills / "small.npz")
    done = run("compare", *words, cwd=fills)
    assert done.returncode == 2 and done.stdout == ""
    assert expected in done.stderr and len(done.stderr.splitlines()) == 1
