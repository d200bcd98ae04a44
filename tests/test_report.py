"""A report is a function of a fill's files: it holds what they say, whole and for any size."""

import contextlib
import json
import re
import shutil
import socket
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from io import BytesIO
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import hydiff
import mutations
from command import run
from hydiff import report
from hydiff.auto.recipe import KINDS
from hydiff.cli import app
from hydiff.cube import Cube
from hydiff.errors import CubeFormatError, OutputError, ShapeMismatch
from hydiff.gaps import simulate
from hydiff.io import provenance, record, transfer
from hydiff.report import document as pages
from hydiff.report import plots, survey

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A damaged file, its fill by `auto` with a corner left missing, and the truth, in a folder."""
    folder = tmp_path_factory.mktemp("made")
    y, x = np.mgrid[:24, :24] / 8
    tiny = np.stack([2 + np.sin(x + b / 5) * np.cos(y - b / 9) for b in range(12)]) / 3
    truth = Cube((1000 * tiny).astype(np.float32), wavelengths=np.linspace(450, 900, 12))
    damaged, _ = simulate.simulate(truth, "stripes", 0.3, seed=1)
    values = damaged.values.copy()
    values[:, :3, :3] = np.nan  # outside: left
    hydiff.write(truth, folder / "truth.tif")
    hydiff.write(Cube(values, wavelengths=truth.wavelengths), folder / "in.tif")
    result = hydiff.fill(hydiff.read(folder / "in.tif"), budget="fast")
    provenance.save(result, folder / "out.tif", command=["/usr/bin/hydiff", "fill", "in.tif"])
    record = json.loads((folder / "out.tif.fill.json").read_text())
    record["input"]["path"] = "in.tif"  # as a command in this folder writes it
    (folder / "out.tif.fill.json").write_text(json.dumps(record))
    return folder


@pytest.fixture
def fill(made, tmp_path):
    """A copy of it, to be spoiled."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


@pytest.fixture(scope="module")
def whole(made):
    """Its report, parsed."""
    return page_of(report.write(made / "out.tif", made / "page.html"))


class Page(HTMLParser):
    """Tags that are open, attributes by tag, and the text."""

    VOID = ("meta", "img", "br", "link")

    def __init__(self, text):
        super().__init__()
        self.stack, self.seen, self.text = [], [], ""
        self.feed(text)
        assert self.stack == [], f"not closed: {self.stack}"

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text += data

    def images(self):
        return [a for tag, a in self.seen if tag == "img"]


def page_of(path):
    return Page(path.read_text(encoding="utf-8"))


def test_it_is_one_file_that_needs_nothing_else(made, whole):
    text = (made / "page.html").read_text()
    assert all(a["src"].startswith("data:image/png;base64,") for a in whole.images())
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in whole.seen}
    assert not re.search(r"https?://|url\(|@import", text)
    assert "width=device-width" in text and "@media print" in text


def test_every_picture_has_words_for_who_cannot_see_it(whole):
    images = whole.images()
    assert len(images) >= 8 and all(len(a["alt"]) > 10 for a in images)


def test_it_tells_what_the_record_tells(fill, whole):
    record = json.loads((fill / "out.tif.fill.json").read_text())
    texts = [record["recipe"]["why"], record["input"]["sha256"], record["time"]]
    texts += [f"{record['entries']['filled']:,}", f"{record['expected']['nrmse']:.3g}"]
    texts += [", counted from 1. Missing pixels are pink."]
    texts += ["outside the observed pixels; --outside fill takes them"]
    texts += list(record["entries"]["left"]) + list(record["versions"].values())
    texts += ["hydiff fill in.tif", "unchanged since the fill"]
    assert record["entries"]["left"] and all(t in whole.text for t in texts)


def test_what_auto_saw_is_reported_by_distance(fill, whole):
    recipe = json.loads((fill / "out.tif.fill.json").read_text())["recipe"]
    weights, errors = np.array(recipe["weights"]), recipe["errors"]
    seen = {d: square for d, square in enumerate(errors["by_distance"]) if square is not None}
    assert seen
    for d, square in seen.items():
        shares = "".join(f"{100 * weights[m, d].mean():.0f} %" for m in range(len(weights)))
        assert f"{shares}{np.sqrt(square):.2f}" in whole.text


def test_bands_without_any_value_do_not_hide_what_was_filled(fill):
    damaged = hydiff.read(fill / "in.tif").load()
    values = np.array(damaged.values)
    values[:, :3, :3], values[5:7] = 1.0, np.nan
    hydiff.write(replace(damaged, values=values), fill / "dead.tif")
    output = ("-o", fill / "f.tif", "--report")
    run("fill", fill / "dead.tif", *output, "--method", "smooth", "--outside", "fill")
    page = page_of(fill / "f.tif.report.html")
    assert "filled in most bands" in page.text and "still missing" not in page.text
    assert "Without 2 bands that hold no value at all." in page.text


def test_notes_name_options_after_a_command_and_arguments_after_python(fill):
    path = fill / "out.tif.fill.json"
    record = json.loads(path.read_text())
    record["notes"] = ["3 filled values are negative; `clip='observed'` would limit them"]
    record["command"] = ["/lib/hydiff/__main__.py", "fill", "in.tif"]
    path.write_text(json.dumps(record))
    page = page_of(report.write(fill / "out.tif", fill / "a.html"))
    assert "negative; --clip observed would" in page.text and "hydiff fill in.tif" in page.text
    assert "__main__" not in page.text
    del record["command"]
    path.write_text(json.dumps(record))
    page = page_of(report.write(fill / "out.tif", fill / "b.html"))
    assert "negative; `clip='observed'` would" in page.text


def test_the_same_files_give_the_same_bytes(fill):
    one, two = (report.write(fill / "out.tif", fill / n).read_bytes() for n in ("a", "b"))
    assert one == two


def test_a_changed_input_is_reported_and_a_lost_one_is_done_without(fill):
    hydiff.write(hydiff.read(fill / "truth.tif"), fill / "in.tif", overwrite=True)
    assert "CHANGED" in page_of(report.write(fill / "out.tif", fill / "a.html")).text
    (fill / "in.tif").unlink()
    page = page_of(report.write(fill / "out.tif", fill / "b.html"))
    assert "not found" in page.text
    assert (picture(page, "Before: the whole scene") == plots.GAP_COLOUR).all(axis=-1).any()


@pytest.mark.parametrize(
    "name", ["out.tif", "in.tif", "truth.tif", "out.tif.fill.json", "out.tif.flags.tif"]
)
def test_it_never_replaces_what_it_is_made_from(fill, name):
    before = (fill / name).read_bytes()
    with pytest.raises(OutputError, match=f"{name} is one of the inputs"):
        report.write(fill / "out.tif", fill / name, truth=fill / "truth.tif", overwrite=True)
    assert (fill / name).read_bytes() == before


def picture(page, start):
    (image,) = [a for a in page.images() if a["alt"].startswith(start)]
    data = b64decode(image["src"].split(",")[1])
    return np.asarray(Image.open(BytesIO(data)).convert("RGB"))


def test_the_pictures_are_those_of_the_files(fill, whole):
    source, cube = hydiff.read(fill / "in.tif"), hydiff.read(fill / "out.tif")
    missing, left = ~source.observed(), ~cube.observed()
    before = picture(whole, "Before: the whole scene")
    assert np.array_equal((before == plots.GAP_COLOUR).all(axis=-1), missing[0])
    after = picture(whole, "After: the whole scene")
    assert np.array_equal((after == plots.GAP_COLOUR).all(axis=-1), left[0])
    assert np.array_equal(before[~missing[0]], after[~missing[0]])
    where = picture(whole, "Map of what was filled")
    assert np.array_equal((where == plots.BLUE_RGB).all(axis=-1), (missing & ~left)[0])
    assert np.array_equal((where == plots.ORANGE_RGB).all(axis=-1), left[0])


def test_with_the_truth_it_tells_the_scores(fill):
    page = page_of(report.write(fill / "out.tif", truth=fill / "truth.tif"))
    filled = ~hydiff.read(fill / "in.tif").observed() & hydiff.read(fill / "out.tif").observed()
    scores = hydiff.metrics.score(
        hydiff.read(fill / "out.tif"), hydiff.read(fill / "truth.tif"), filled
    )
    assert f"{scores.missing['mpsnr']:.4g}" in page.text and "intervals cover" in page.text
    cubes = (np.asarray(hydiff.read(fill / name).values) for name in ("out.tif", "truth.tif"))
    bars, more = provenance.calibrated(fill / "out.tif", *cubes)
    scored = (bars.crps, bars.crps_constant, more.interval_score[1])
    assert all(f"{number:.4g}" in page.text for number in scored)
    curve, histogram = (picture(page, name) for name in ("Reliability curve", "PIT histogram"))
    assert curve.std() > 0 < histogram.std()


def test_companions_are_read_in_planes_as_they_were_written(fill):
    cube = hydiff.read(fill / "out.tif")
    whole = provenance.companions(fill / "out.tif", cube.shape)
    planes = list(survey.planes_of(fill / "out.tif", cube))
    assert np.array_equal([plane.filled for plane in planes], whole["filled"] > 0)
    assert np.array_equal([plane.sigma for plane in planes], whole["sigma"], equal_nan=True)


def test_a_thinned_survey_is_the_whole_one_at_its_points(fill, monkeypatch):
    cube, source = hydiff.read(fill / "out.tif"), hydiff.read(fill / "in.tif")
    whole = survey.look(cube, source, fill / "out.tif")
    monkeypatch.setattr(survey, "PIXELS", 24 * 24 // 9)
    monkeypatch.setattr("hydiff.io.blocks.BUDGET", 5000)  # blocks of a few rows
    thin = survey.look(cube, source, fill / "out.tif")
    assert (whole.every, thin.every) == (1, 3)
    for name in ("filled", "left", "before", "after"):
        assert np.array_equal(
            getattr(thin, name), getattr(whole, name)[:, ::3, ::3], equal_nan=True
        )
    assert np.array_equal(thin.by_band, whole.by_band)
    assert all(r % 3 == c % 3 == 0 for r, c in thin.pixels)
    close = survey.close_view(cube, source, fill / "out.tif", thin)
    assert np.array_equal(close.after, np.asarray(cube.values)[list(thin.rgb)], equal_nan=True)


def test_the_sample_pixels_were_filled_and_the_first_is_deepest(fill):
    found = survey.look(hydiff.read(fill / "out.tif"), hydiff.read(fill / "in.tif"),
                             fill / "out.tif")  # fmt: skip
    assert len(set(found.pixels)) == len(found.pixels) >= 3
    assert all(found.filled[:, r, c].all() for r, c in found.pixels)
    assert found.pixels[0] == plots.deepest(found.filled.all(axis=0))


def test_error_bars_are_drawn_as_wide_as_they_are(fill):
    found = survey.look(hydiff.read(fill / "out.tif"), hydiff.read(fill / "in.tif"),
                             fill / "out.tif")  # fmt: skip
    sigma = provenance.companions(fill / "out.tif", found.filled.shape)["sigma"]
    for i, (row, col) in enumerate(found.pixels):
        assert np.allclose(found.bars[:, i], sigma[:, row, col], equal_nan=True)


def spoiled(document):
    """A record with markup in every field that takes text, and as every name of an entry."""
    said, document = 0, document | {"tiles": {"size": [8, 8]}}
    kinds = dict.fromkeys(("one kind", "another"), document["expected"])
    own = {k: v for k, v in document["recipe"].items() if k not in ("budget", "cube")}
    recipe = document["recipe"] | {"gaps": KINDS[0], "partial": own | {"gaps": KINDS[1]}}
    document |= {"expected_by_kind": kinds, "recipe": recipe}
    for path in reversed(list(mutations.paths(document))):  # what is inside first
        changed = mutations.changed(document, path, f"{len(path)}{mutations.MARKUP}{said}")
        with contextlib.suppress(ValueError):  # no place for text
            record.checked(changed)
            document, said = changed, said + 1
    for name in ("settings", "versions", "expected", "tiles", "expected_by_kind"):
        document[name] = document[name] | {mutations.MARKUP: next(iter(document[name].values()))}
    document["entries"]["left"] = {mutations.MARKUP: document["entries"]["missing_after"]}
    return document, said


def anatomy(page):
    """Elements with their attributes, and what these say but for pictures and their words."""
    free = ("src", "alt", "content")
    return {(tag, k, None if k in free else v) for tag, a in page.seen for k, v in [*a.items()]} | {
        (tag,) for tag, _ in page.seen
    }


@pytest.fixture(scope="module")
def hostile(made, tmp_path_factory):
    """The report of a fill whose name, record and unit are all markup."""
    folder = Path(shutil.copytree(made, tmp_path_factory.mktemp("hostile"), dirs_exist_ok=True))
    nasty = folder / "\"'><script>document.title='ran'<img src=x onerror=alert(1)>.npz"
    cube = hydiff.read(folder / "out.tif")
    hydiff.write(replace(cube, wavelength_units=mutations.MARKUP, path=None), nasty)
    for name in (".flags.tif", ".why.tif", ".sigma.tif"):
        (folder / f"out.tif{name}").rename(nasty.with_name(nasty.name + name))
    document, said = spoiled(json.loads((folder / "out.tif.fill.json").read_text()))
    nasty.with_name(nasty.name + ".fill.json").write_text(json.dumps(document))
    assert hydiff.read(nasty).wavelength_units == mutations.MARKUP
    assert said >= 25  # fields that take text
    return report.write(nasty, folder / "hostile.html")


def test_nothing_in_a_file_or_its_name_writes_into_the_page(hostile, whole):
    page = page_of(hostile)
    assert page.text.count(mutations.MARKUP) > 25 and "onerror=alert(1)>.npz" in page.text
    added = {("th", "class", "n"), ("td", "class", "n")}  # of the table for two kinds of gaps
    assert anatomy(page) <= anatomy(whole) | added
    assert "script" not in {tag for tag, _ in page.seen}


def test_the_policy_allows_pictures_of_the_page_and_its_style_alone(made, whole):
    (policy,) = [a["content"] for _, a in whole.seen if "http-equiv" in a]
    style = re.search(r"<style>(.*?)</style>", (made / "page.html").read_text(), re.DOTALL)[1]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'", "img-src data:", f"style-src 'sha256-{digest}'",
        "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    assert not [a for _, a in whole.seen if "style" in a or any(k.startswith("on") for k in a)]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_in_a_browser_it_looks_as_it_should_and_no_script_runs(hostile, made, whole, tmp_path):
    api = pytest.importorskip("playwright.sync_api")
    good = made / "page.html"
    with socket.create_server(("127.0.0.1", 0)) as outside, api.sync_playwright() as driver:
        outside.setblocking(False)
        call = f"http://127.0.0.1:{outside.getsockname()[1]}/x"
        forced = f"<script>document.title='ran'</script><img src={call}></body>"
        text = hostile.read_text(encoding="utf-8").replace("</body>", forced)
        (tmp_path / "forced.html").write_text(text, encoding="utf-8")
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for path in (good, hostile, tmp_path / "forced.html"):
            page, said = browser.new_page(), []
            page.on("console", lambda message, said=said: said.append(message.text))
            page.goto(path.as_uri())
            assert page.title().startswith("Fill of ")  # a script would have changed it
            assert page.evaluate("getComputedStyle(document.body).maxWidth") == "1152px"
            drawn = page.evaluate("[...document.images].map(i => i.naturalWidth > 0)")
            assert all(drawn) == (said == []) == (path.name != "forced.html")
        browser.close()
        with pytest.raises(BlockingIOError):  # nobody called
            outside.accept()


def test_a_fill_without_recipe_or_error_bars_is_reported_too(fill):
    result = hydiff.fill(hydiff.read(fill / "in.tif"), method="linear")
    provenance.save(result, fill / "plain.tif")
    page = page_of(report.write(fill / "plain.tif"))
    assert "What auto did" not in page.text and "linear" in page.text


def test_gaps_that_differ_by_band_and_integers(tmp_path, tiny):
    values = (1000 * tiny).astype(np.int16)
    damaged, _ = simulate.simulate(Cube(values), "columns", 0.1, seed=2)
    result = hydiff.fill(damaged, method="smooth")
    provenance.save(result, tmp_path / "cols.tif")
    page = page_of(report.write(tmp_path / "cols.tif"))
    assert (picture(page, "Map of what") == plots.SKY_RGB).all(axis=-1).any()


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (lambda d: (d / "out.tif.fill.json").unlink(), CubeFormatError, "keep its companions"),
        (lambda d: (d / "out.tif.fill.json").write_text("[]"), CubeFormatError, "no record"),
        (lambda d: (d / "out.tif.flags.tif").unlink(), CubeFormatError, "flags of a fill"),
        (lambda d: (d / "out.tif.sigma.tif").write_bytes(b"PK"), CubeFormatError, "sigma.tif"),
        (lambda d: (d / "out.tif.report.html").write_text(""), OutputError, "`overwrite=True`"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_written(fill, spoil, error, words):
    spoil(fill)
    before = sorted(fill.iterdir())
    with pytest.raises(error, match=words) as caught:
        report.write(fill / "out.tif")
    assert "\n" not in str(caught.value) and sorted(fill.iterdir()) == before


def test_a_truth_of_another_shape_is_refused(fill, tiny):
    hydiff.write(Cube(tiny[:5]), fill / "other.npy")
    with pytest.raises(ShapeMismatch, match="belongs to it"):
        report.write(fill / "out.tif", truth=fill / "other.npy")


@pytest.mark.parametrize("more", [[], ["--tile", "16"]], ids=["plain", "by tiles"])
def test_fill_makes_one_when_asked(fill, monkeypatch, more):
    monkeypatch.chdir(fill)
    asked = ["fill", "in.tif", "-o", "again.tif", "--method", "smooth", "--report", *more]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0 and "again.tif.report.html" in done.stdout
    assert "unchanged since the fill" in page_of(fill / "again.tif.report.html").text


@pytest.mark.parametrize("given", ["in.hdr", "in.bil"])
def test_an_input_may_be_named_by_its_envi_header(fill, given):
    transfer.convert(fill / "in.tif", fill / "in.bil")
    done = run("fill", given, "-o", "again.bil", "--method", "linear", "--report", cwd=fill)
    assert done.returncode == 0, done.stderr
    assert "unchanged since the fill" in page_of(fill / "again.bil.report.html").text


def test_a_fill_in_place_is_not_its_own_input(fill):
    transfer.convert(fill / "in.tif", fill / "in.bil")
    options = ["--method", "linear", "--overwrite", "--report"]
    done = run("fill", "in.hdr", "-o", "in.hdr", *options, cwd=fill)
    assert done.returncode == 0, done.stderr
    assert "with the gaps cut out again" in page_of(fill / "in.bil.report.html").text


def test_a_file_of_several_variables_asks_for_one(tmp_path, monkeypatch, tiny):
    monkeypatch.chdir(tmp_path)
    values = tiny.transpose(1, 2, 0).copy()
    values[:, 9:12] = np.nan
    np.savez("two.npz", scene=values, other=values * 2)
    asked = ["fill", "two.npz", "-o", "out.npz", "--var", "scene", "--method", "linear", "--report"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    again = ["report", "out.npz", "--var", "scene", "--overwrite"]
    assert CliRunner().invoke(app, again).exit_code == 0


def test_the_command_writes_to_the_given_place(fill, monkeypatch):
    monkeypatch.chdir(fill)
    done = CliRunner().invoke(app, ["report", "out.tif", "--truth", "truth.tif", "-o", "r.html"])
    assert done.exit_code == 0 and done.stdout.strip() == "r.html"
    assert "Against the truth" in page_of(fill / "r.html").text


def test_a_recipe_that_saw_too_little_is_reported_too(fill):
    record = json.loads((fill / "out.tif.fill.json").read_text())
    record["recipe"]["errors"]["by_distance"] = None  # as `auto` writes where no fold was possible
    (fill / "out.tif.fill.json").write_text(json.dumps(record))
    assert "Too few hidden pixels" in page_of(report.write(fill / "out.tif")).text


@pytest.fixture(scope="module")
def mixed(made, tmp_path_factory):
    """The text of a report on gaps of two kinds, with more scores, notes and letters than usual."""
    folder = Path(shutil.copytree(made, tmp_path_factory.mktemp("mixed"), dirs_exist_ok=True))
    beside = folder / "out.tif.fill.json"
    content = json.loads(beside.read_text())
    content["method"] = "a\ud800b"
    content["expected"] |= {"unheard_of": 7.25, "nrmse_median": 0.123}
    content["notes"] += [
        "expected in x: NRMSE 1; this rests on 1 trial only",
        "expected in y: NRMSE",
    ]
    content["expected_by_kind"] = {
        "pixels without any band": {"nrmse": 0.5, "mpsnr": 20.5},
        "pixels that keep some bands": {"nrmse": 0.0123, "mpsnr": None},
    }
    beside.write_text(json.dumps(content))
    return page_of(report.write(folder / "out.tif")).text


def test_scores_that_people_use_lead(mixed):
    words = ("Expected median NRMSE by band0.123", "Expected NRMSE", "Expected SAM",
             "Expected MPSNR", "Expected unheard_of7.25")  # fmt: skip
    places = [mixed.index(word) for word in words]
    assert places == sorted(places)


def test_what_is_expected_of_each_kind_of_gap_is_a_table(mixed, whole):
    assert "NRMSEMPSNRpixels without any band0.520.5 dB" in mixed
    assert "pixels that keep some bands0.0123–" in mixed
    assert "each kind of gap" in mixed and "each kind of gap" not in whole.text


def test_few_trials_are_said_though_the_scores_are_shown(mixed):
    assert "this rests on 1 trial only" in mixed and "expected in y" not in mixed


def test_names_that_utf8_cannot_say_are_spelled_out(mixed):
    assert "a\\ud800b" in mixed


def test_a_replay_shows_its_own_budget_and_cube(fill):
    cube = hydiff.read(fill / "in.tif")
    again = hydiff.fill(cube, recipe=fill / "out.tif.fill.json", max_error=0.9)
    provenance.save(again, fill / "careful.tif")
    text = page_of(report.write(fill / "careful.tif")).text
    assert "budgetfast" in text and "another cube or" not in text


@pytest.mark.parametrize("named", ["truth.tif", "/dev/zero", "/", "x" * 5000, "a\0b", ""])
def test_a_file_that_only_a_record_names_is_read_only_if_it_is_the_one(fill, monkeypatch, named):
    """The record of a stranger may name any file; its hash says whether that was filled."""
    monkeypatch.chdir(fill)
    content = record.read(fill / "out.tif.fill.json")
    hostile = replace(content, input=replace(content.input, path=named))
    found, state = report.find_input(hostile, fill / "out.tif", None)
    assert found is None and "cut out again" in state
    assert state.startswith("CHANGED") == (named == "truth.tif")
    assert report.find_input(content, fill / "out.tif", None)[0] == Path("in.tif")


def test_a_record_of_another_cube_is_refused(fill):
    beside = fill / "out.tif.fill.json"
    content = json.loads(beside.read_text())
    content["entries"]["all"] += 1
    beside.write_text(json.dumps(content))
    with pytest.raises(ShapeMismatch, match="expected the record of this fill"):
        report.write(fill / "out.tif")


@pytest.mark.parametrize(
    "arrays",
    [
        {"share": np.ones(3, np.float16), "unit": np.ones(12)},
        {"share": np.ones(9999, np.float16), "unit": np.ones(3)},
        {"share": np.ones(9999, np.float16), "unit": np.full(12, np.inf)},
        {"share": np.ones(9999, np.float16), "unit": np.full(12, -1.0)},
        {"share": np.full(9999, np.inf, np.float16), "unit": np.ones(12)},
        {"share": np.ones(9999), "unit": np.ones(12)},
        {"unit": np.ones(12)},
    ],
)
def test_error_bars_that_are_none_are_refused(fill, arrays):
    for path in fill.glob("out.tif.*.tif"):
        path.unlink()
    filled = np.ones((12, 24, 24), bool)
    hydiff.io.write_mask(filled, fill / "out.tif.filled.npz", "missing")
    np.savez(fill / "out.tif.sigma.npz", **arrays)
    with pytest.raises(CubeFormatError, match="error bars"):
        report.write(fill / "out.tif")


def test_whatever_is_read_of_a_damaged_record_is_shown(fill):
    """Without the pictures, which do not depend on it."""
    cube = hydiff.read(fill / "out.tif")
    document = json.loads((fill / "out.tif.fill.json").read_text())
    found = replace(survey.look(cube, cube, fill / "out.tif"), pixels=[], by_band=None, bars=None)
    shown = 0
    for damaged in islice(mutations.mutations(document, np.random.default_rng(3)), 300):
        with contextlib.suppress(ValueError):
            read = record.checked(damaged)
            shown += 1
            story = pages.Story("x", read, cube.shape, None, None, found, None, [], None, None, "")
            parsed = Page(pages.html(story).encode("utf-8", "backslashreplace").decode())
            assert "script" not in {tag for tag, _ in parsed.seen}
    assert shown > 20
