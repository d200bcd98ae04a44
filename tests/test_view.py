"""The real page in a headless Chromium: every test ends without an error on the console, and
without a request to anywhere but the viewer itself.

Screenshots go to `test-artefacts/`.
"""

import csv
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

import hydiff
from conftest import ROOT
from hydiff import errors, io
from hydiff.cube import Cube
from hydiff.io import provenance
from hydiff.report.plots import GAP_COLOUR
from hydiff.viewer import images
from hydiff.viewer.spectra import COLOURS

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
ARTEFACTS = ROOT / "test-artefacts"
BANDS, ROWS, COLS = 20, 48, 64
HELD = 700  # ms that a button is down before it moves: a slow hand, or a busy machine
DESK, PHONE = (1280, 800), (390, 844)


@pytest.fixture(scope="module")
def browser():
    """Started for this module alone: Playwright's event loop is in the way of other tests."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="no Playwright: pip install playwright (its driver alone)"
    )
    if CHROMIUM is None:
        pytest.skip("no Chromium to drive the viewer with: apt-get install chromium")
    ARTEFACTS.mkdir(exist_ok=True)
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A scene with gaps, its fill with companions, and its truth, as files."""
    folder = tmp_path_factory.mktemp("view")
    rng = np.random.default_rng(0)
    maps = gaussian_filter(rng.standard_normal((3, ROWS, COLS)), (0, 4, 4))
    spectra = 2 + gaussian_filter(rng.standard_normal((BANDS, 3)), (2, 0))
    values = (1000 + 900 * np.tensordot(spectra, maps, 1)).astype(np.float32)
    good = np.ones(BANDS, bool)
    good[9:11] = False
    truth = Cube(
        values,
        wavelengths=np.linspace(440.0, 2260.0, BANDS),
        wavelength_units="nm",
        good=good,
        nodata=-9999.0,
        crs="EPSG:32611",
        transform=(60.0, 0.0, 500000.0, 0.0, -60.0, 4100000.0),
    )
    missing = np.zeros((ROWS, COLS), bool)
    missing[:, 40:46] = missing[10:18, 8:16] = True
    damaged = replace(truth, values=np.where(missing, np.float32(-9999), values))
    io.write(truth, folder / "truth.bil")
    io.write(damaged, folder / "scene.bil")
    io.write_mask(missing, folder / "mask.npz", "missing")
    provenance.save(
        hydiff.fill(io.read(folder / "scene.bil"), budget="fast", outside="fill"),
        folder / "filled.bil",
    )
    return folder


class Server:
    """`hydiff view` as a process of its own."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "hydiff", "view", *map(str, arguments), "--no-browser"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.log = []
        self.url = None
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"http://\S+", line):
                self.url = found[0]
                break
        assert self.url, self.log
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self.reader.start()

    def close(self):
        self.process.terminate()
        self.process.wait(120)
        self.reader.join()
        self.process.stderr.close()
        assert "Traceback" not in "".join(self.log), "".join(self.log)


@pytest.fixture(scope="module")
def server(folder, browser):
    out = folder / "out"
    out.mkdir()
    server = Server(
        folder / "scene.bil",
        folder / "filled.bil",
        *("--truth", folder / "truth.bil", "--output", out / "result.bil"),
    )
    yield server
    server.close()


@pytest.fixture(scope="module")
def other_viewer(tmp_path_factory, browser):
    """A second viewer, of a scene with one band, no wavelengths and no value."""
    path = tmp_path_factory.mktemp("odd") / "odd.tif"
    io.write(Cube(np.full((1, 9, 11), np.nan)), path)
    viewer = Server(path)
    yield viewer
    viewer.close()


@pytest.fixture(scope="module")
def wrong():
    """What no page may do: complain on its console, or ask anybody else for anything."""
    return []


@pytest.fixture(autouse=True)
def nothing_wrong(wrong):
    yield
    found, wrong[:] = wrong[:], []
    assert found == []


@pytest.fixture(scope="module")
def opened(browser, wrong):
    """Opens pages, and keeps an eye on them."""
    contexts = []

    def open_page(url, size=DESK, **options):
        width, height = size
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)  # no test depends on speed
        host = urlsplit(url).netloc

        def check(request):
            at = urlsplit(request.url)
            if at.netloc != host and at.scheme not in ("data", "blob"):
                wrong.append(f"request to {request.url}")

        page.on("request", check)
        page.on("websocket", lambda s: urlsplit(s.url).netloc == host or wrong.append(s.url))
        page.on("requestfailed", lambda r: wrong.append(f"failed {r.url}"))
        page.on("response", lambda r: r.status < 400 or wrong.append(f"{r.status} {r.url}"))
        page.on("pageerror", lambda e: wrong.append(f"error {e}"))
        page.on("console", lambda m: m.type not in ("error", "warning") or wrong.append(m.text))
        page.goto(url)
        page.locator(".state p").first.wait_for()
        page.wait_for_function("window.Bokeh && Bokeh.documents.length && Bokeh.index.roots.length")
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def page(opened, server):
    """A page of one's own."""
    page = opened(server.url)
    yield page
    page.context.close()  # a page that is open goes on working


@pytest.fixture(scope="module")
def shared(opened, server):
    return opened(server.url)


@pytest.fixture
def look(shared):
    """One page for all tests that only look at it, as it was at the beginning."""
    shared.get_by_label("Show", exact=True).select_option("Colour composite")
    wait_text(shared, "state", "Colour composite")
    shared.get_by_label("Colours").select_option("True colour")
    wait_text(shared, "state", "red band 3 ")
    shared.get_by_role("button", name="Clear").click()
    wait_text(shared, "picks", "Click a pixel")
    shared.evaluate(CENTRE)
    shared.mouse.move(0, 0)
    return shared


# ── reading the page ─────────────────────────────────────────────────────────────────────────────


def text(page, name):
    return " ".join(page.locator(f".{name} :is(p, td)").all_inner_texts())


def wait_text(page, name, wanted):
    from playwright.sync_api import expect

    expect(page.locator(f".{name} :is(p, td)", has_text=wanted).first).to_be_visible(
        timeout=120_000
    )


CENTRE = """() => {
    for (const model of Bokeh.documents[0]._all_models.values())
        if (model.type == "Slider") {
            if (model.title.startsWith("Swipe")) model.value = model.end / 2
            if (model.title == "Band") model.value = 3
        }
}"""
SOURCE = """(columns) => {
    for (const model of Bokeh.documents[0]._all_models.values())
        if (model.type == "ColumnDataSource" && Object.keys(model.data).sort().join() == columns) {
            const plain = (v) => ArrayBuffer.isView(v) ? Array.from(v)
                : Array.isArray(v) ? v.map(plain) : v
            return Object.fromEntries(Object.entries(model.data).map(([k, v]) => [k, plain(v)]))
        }
}"""
SHOWN = """(name) => {
    for (const model of Bokeh.documents[0]._all_models.values())
        if (model.name == name) return Array.from(model.data.image[0])
}"""
PLACE = """([row, col]) => {
    const figures = [...Bokeh.documents[0]._all_models.values()].filter((m) => m.type == "Figure")
    const view = Bokeh.index.find_one(figures.find((m) => m.match_aspect))
    const {x, y} = view.el.getBoundingClientRect()
    return [x + view.frame.x_scale.compute(col + 0.5), y + view.frame.y_scale.compute(row + 0.5)]
}"""


def shown(page):
    """(rows, cols, 4) the picture that the browser has put together."""
    pixels = np.array(page.evaluate(SHOWN, "picture"), np.uint32).astype("<u4")
    return pixels.view(np.uint8).reshape(ROWS, COLS, 4)


def place(page, row, col):
    """Where a pixel is on the screen."""
    page.locator(".bk-Figure").first.scroll_into_view_if_needed()
    page.evaluate("window.scrollTo(0, 0)")
    return page.evaluate(PLACE, [row, col])


def one_band(page):
    page.get_by_label("Show", exact=True).select_option("One band")
    wait_text(page, "state", "One band: band 3 ")


def planes(folder, band):
    truth, before = (
        np.asarray(io.read(folder / n).values[band]) for n in ("truth.bil", "scene.bil")
    )
    after = np.asarray(io.read(folder / "filled.bil").values[band])
    return np.where(before == -9999, np.nan, before).astype(float), after.astype(float), truth


def coloured(plane, limits):
    from bokeh.palettes import Viridis256

    return images.mapped(plane, limits, images.palette(Viridis256))


def pictures(folder, band):
    """What one band must look like, before and after."""
    before, after, _ = planes(folder, band)
    limits = images.limits(before)
    return [coloured(plane, limits) for plane in (before, after)]


# ── looking ──────────────────────────────────────────────────────────────────────────────────────


def test_the_page_says_what_it_shows(look, folder):
    assert look.title() == "hydiff view scene.bil"
    assert look.locator(".title h1").inner_text() == "scene.bil"
    assert "20 bands × 48 rows × 64 columns, float32" in text(look, "title")
    assert "red band 3 (632 nm)" in text(look, "state")
    assert "11.5 % of the pixels missing" in text(look, "state")
    planes_of = [[p[i] for p in (planes(folder, b) for b in (2, 1, 0))] for i in (0, 1)]
    limits = [images.limits(plane) for plane in planes_of[0]]
    before, after = (images.composite(three, limits) for three in planes_of)
    np.testing.assert_array_equal(shown(look), images.swiped(before, after, COLS // 2))


def test_presets_and_sliders_choose_bands(look, folder):
    look.get_by_label("Colours").select_option("Short-wave infrared")
    wait_text(look, "state", "red band 19")
    look.get_by_label("Blue band").press("ArrowRight")
    wait_text(look, "state", "blue band 6")
    assert look.get_by_label("Colours").input_value() == "Own choice"
    one_band(look)
    look.get_by_label("Band", exact=True).press("ArrowRight")
    wait_text(look, "state", "band 4 (727 nm)")
    before, after = pictures(folder, 3)
    np.testing.assert_array_equal(shown(look), images.swiped(before, after, COLS // 2))


def test_a_click_gives_the_spectrum_of_that_pixel(look, folder):
    one_band(look)
    row, col = 14, 12
    look.mouse.click(*place(look, row, col))
    wait_text(look, "picks", f"row {row}, column {col}")
    after, truth = (io.read(folder / n).values[:, row, col] for n in ("filled.bil", "truth.bil"))
    sigma = provenance.companions(folder / "filled.bil", (BANDS, ROWS, COLS))["sigma"][:, row, col]
    picks = text(look, "picks")
    assert f"x {500000 + 60 * 12.5:.10g}, y {4100000 - 60 * 14.5:.10g}" in picks
    assert "20 of 20 bands filled" in picks
    assert f"before missing, after {after[2]:.5g} ± {sigma[2]:.3g}, truth {truth[2]:.5g}" in picks
    drawn = look.evaluate(SOURCE, "colour,x,y")  # the diamonds on filled bands
    np.testing.assert_allclose(drawn["y"], after, rtol=1e-6)
    marker = look.evaluate(SOURCE, "colour,number,x,y")
    assert (marker["x"], marker["y"]) == ([col + 0.5], [row + 0.5])
    assert set(drawn["colour"]) == {COLOURS[0]} == set(marker["colour"])
    chip = look.locator(".picks .chip")
    assert chip.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(0, 114, 178)"


def test_spectra_by_keyboard(look, folder):
    look.get_by_label("Row", exact=True).fill("30")
    look.get_by_label("Column", exact=True).fill("20")
    look.get_by_label("Column", exact=True).press("Tab")
    look.get_by_role("button", name="Add spectrum").press("Enter")
    wait_text(look, "picks", "row 30, column 20")
    look.get_by_label("Row", exact=True).fill("31")
    look.get_by_label("Row", exact=True).press("Tab")
    look.get_by_role("button", name="Add spectrum").press("Enter")
    wait_text(look, "picks", "row 31, column 20")
    assert look.evaluate(SOURCE, "colour,number,x,y")["colour"] == list(COLOURS[:2])
    look.get_by_role("button", name="Clear").press("Enter")
    wait_text(look, "picks", "Click a pixel")


def test_pointing_reads_values_and_coordinates(look, folder):
    one_band(look)
    look.mouse.move(*place(look, 5, 30))
    wait_text(look, "readout", "row 5, column 30")
    before, _, truth = planes(folder, 2)
    readout = text(look, "readout")
    assert f"x {500000 + 60 * 30.5:.10g}, y {4100000 - 60 * 5.5:.10g}" in readout
    assert (
        f"before {before[5, 30]:.5g}, after {before[5, 30]:.5g}, truth {truth[5, 30]:.5g}"
        in readout
    )


def test_the_line_is_dragged_between_before_and_after(look, folder):
    one_band(look)
    before, after = pictures(folder, 2)
    x, y = place(look, 24, COLS // 2 - 0.5)
    look.mouse.move(x, y)
    look.mouse.down()
    look.wait_for_timeout(HELD)
    look.mouse.move(*place(look, 24, 42.5), steps=8)
    look.mouse.up()
    from playwright.sync_api import expect

    slider = look.get_by_label("Swipe")
    expect(slider).to_have_attribute("aria-valuenow", "43.0")
    np.testing.assert_array_equal(shown(look), images.swiped(before, after, 43))
    slider.press("Home")
    np.testing.assert_array_equal(shown(look), after)
    slider.press("End")
    np.testing.assert_array_equal(shown(look), before)


def test_gaps_are_shaded_outlined_or_hidden(look, folder):
    """With a fill they are outlined at first; the share is said in any case."""
    one_band(look)
    look.get_by_label("Swipe").press("Home")  # only the fill
    gaps = look.get_by_label("Gaps", exact=True)
    assert gaps.input_value() == "Outlined"
    assert "11.5 % of the pixels missing" in text(look, "state")

    def wait_colour(wanted):
        for _ in range(100):
            x, y = place(look, 14, 12)
            shot = look.screenshot(clip={"x": x, "y": y, "width": 2, "height": 2})
            found = np.asarray(Image.open(BytesIO(shot)).convert("RGB")).mean(axis=(0, 1))
            if np.abs(found - wanted).max() <= 4:
                return
            look.wait_for_timeout(100)
        raise AssertionError(f"{found}, expected {wanted}")

    _, after = pictures(folder, 2)
    plain = after[14, 12, :3].astype(float)
    wait_colour(plain)  # inside the outline
    before, _, _ = planes(folder, 2)
    times = images.ON_SCREEN // COLS
    rim = np.array(look.evaluate(SHOWN, "picture gaps"), bool).reshape(ROWS * times, COLS * times)
    np.testing.assert_array_equal(rim, images.outlined(np.isnan(before)))
    gaps.select_option("Shaded")
    wait_colour(0.45 * plain + 0.55 * np.array(GAP_COLOUR))
    shade = np.array(look.evaluate(SHOWN, "picture gaps"), bool).reshape(ROWS, COLS)
    np.testing.assert_array_equal(shade, np.isnan(before))
    gaps.select_option("Hidden")
    wait_colour(plain)
    gaps.select_option("Outlined")


def test_error_bars_and_errors_are_maps(look, folder):
    look.get_by_label("Show", exact=True).select_option("Error bars (1 σ)")
    wait_text(look, "state", "Error bars (1 σ): band 3 (632 nm) from 0 to")
    before, after, truth = planes(folder, 2)
    np.testing.assert_array_equal(shown(look)[..., 3] == 255, np.isnan(before))
    assert "Error bar (1 σ), in the file's unit" in text(look, "bar")
    look.get_by_label("Show", exact=True).select_option("Error against the truth")
    top = np.percentile(np.abs(after - truth), 99)
    wait_text(look, "state", f"Error against the truth: band 3 (632 nm) from 0 to {top:.4g}")
    assert "Distance from the truth, in the file's unit" in text(look, "bar")


def test_the_colour_bar_runs_through_the_colours_of_the_picture(look, folder):
    """A pixel of the bar has the colour of a pixel of the picture with the value written there."""
    assert not look.locator(".bar").is_visible()  # three bands need none
    one_band(look)
    wait_text(look, "bar", "Value, in the file's unit")
    limits = images.limits(planes(folder, 2)[0])
    box = look.locator(".bar .colours").bounding_box()
    bar = np.asarray(Image.open(BytesIO(look.locator(".bar .colours").screenshot())).convert("RGB"))
    ticks = look.locator(".bar .ticks span")
    assert ticks.count() >= 2
    for i in range(ticks.count()):
        at = ticks.nth(i).bounding_box()
        x = at["x"] + at["width"] / 2 - box["x"]
        value = float(ticks.nth(i).inner_text())
        assert (value - limits.low) / (limits.high - limits.low) == pytest.approx(
            x / box["width"], abs=0.01
        )
        wanted = coloured(np.array([[value]]), limits)[0, 0, :3].astype(int)
        assert np.abs(bar[len(bar) // 2, int(x)].astype(int) - wanted).max() <= 12


def test_zooming_in_brings_every_pixel(opened, tmp_path):
    """A picture that is thinned at first is sharp where one looks closely."""
    row, col = np.mgrid[:1000, :900]
    cube = np.stack([row, col, (7 * row + 13 * col) % 101]).astype(np.float32)
    cube[2, 600:610, 500:510] = np.nan
    io.write(Cube(cube, wavelengths=np.array([450.0, 550.0, 650.0])), tmp_path / "large.tif")
    viewer = Server(tmp_path / "large.tif")
    try:
        page = opened(viewer.url)
        wait_text(page, "state", "1 of 2 rows and columns at a glance")
        page.get_by_label("Show", exact=True).select_option("One band")
        wait_text(page, "state", "One band: band 3")
        thin = cube[2, ::2, ::2]
        limits = images.limits(thin)
        glance = np.array(page.evaluate(SHOWN, "picture"), np.uint32).reshape(thin.shape)
        np.testing.assert_array_equal(glance, images.packed(coloured(thin, limits)))
        page.evaluate(ZOOM)
        page.mouse.move(*place(page, 605, 505))
        for _ in range(6):
            page.mouse.wheel(0, -400)
        page.wait_for_function(DETAIL)
        found = page.evaluate(DETAIL)
        top, left = found["y"], found["x"]
        assert 0 < top <= 605 and 0 < left <= 505
        pixels = np.array(found["image"], np.uint32).reshape(found["shape"])
        part = cube[2, top : top + pixels.shape[0], left : left + pixels.shape[1]]
        expected = images.opaque(coloured(part, limits), "#e6e8eb")
        np.testing.assert_array_equal(pixels, images.packed(expected))
        page.context.close()
    finally:
        viewer.close()


ZOOM = """() => {
    for (const model of Bokeh.documents[0]._all_models.values())
        if (model.type == "WheelZoomTool") model.active = true
}"""
DETAIL = """() => {
    const models = [...Bokeh.documents[0]._all_models.values()]
    const {data} = models.find((m) => m.name == "detail")
    const {visible} = models.find((m) => m.data_source?.name == "detail")
    const [image, x, y] = [data.image[0], data.x[0], data.y[0]]
    return y > 0 && visible
        && {image: Array.from(image), shape: image.shape, x, y}
}"""


def test_pictures_and_spectra_are_downloaded(look, folder):
    one_band(look)
    look.mouse.click(*place(look, 14, 12))
    wait_text(look, "picks", "row 14, column 12")
    with look.expect_download() as got:
        look.get_by_role("button", name="Spectra (CSV)").click()
    table = list(csv.DictReader(StringIO(got.value.path().read_text())))
    after = io.read(folder / "filled.bil").values[:, 14, 12]
    np.testing.assert_array_equal([float(line["after"]) for line in table], after)
    with look.expect_download() as got:
        look.get_by_role("button", name="Picture (PNG)").click()
    assert got.value.suggested_filename == "picture.png"
    picture = np.asarray(Image.open(got.value.path()))
    before, after = pictures(folder, 2)
    both = images.swiped(before, after, COLS // 2)
    times = images.ON_SCREEN // COLS
    rim = images.outlined(np.isnan(planes(folder, 2)[0]))
    expected = images.overlaid(both.repeat(times, axis=0).repeat(times, axis=1), rim, 1.0)
    np.testing.assert_array_equal(picture, expected)


# ── filling ──────────────────────────────────────────────────────────────────────────────────────


def test_a_fill_from_the_page_to_the_saved_file(page, folder):
    page.get_by_label("Drag on the picture to").select_option("Mark a gap: rectangle")
    x, y = place(page, 29.5, 19.5)
    page.mouse.move(x, y)
    page.mouse.down()
    page.wait_for_timeout(HELD)
    page.mouse.move(*place(page, 35.5, 27.5), steps=6)
    page.mouse.up()
    wait_text(page, "marked", "48 pixels are marked")
    box = page.get_by_label("Mark rows, columns as gap")
    box.fill("2:6, 50:60")
    box.press("Enter")
    wait_text(page, "marked", "88 pixels are marked")
    page.get_by_label("Method", exact=True).select_option("harmonic")
    page.get_by_role("button", name="Fill", exact=True).click()
    wait_text(page, "status", "entries with harmonic in")
    page.get_by_label("Save as").fill("mine.bil")
    page.get_by_label("Save as").press("Tab")
    page.get_by_role("button", name="Save", exact=True).click()
    wait_text(page, "saved", "Saved mine.bil")
    assert "entries with harmonic in" in text(page, "status")  # how it went stays beside it
    observed = np.ones((ROWS, COLS), bool)
    observed[30:36, 20:28] = observed[2:6, 50:60] = False
    expected = hydiff.fill(io.read(folder / "scene.bil"), observed, method="harmonic")
    saved = folder / "out" / "mine.bil"
    np.testing.assert_array_equal(io.read(saved).values[...], expected.cube.values)
    companions = provenance.companions(saved, (BANDS, ROWS, COLS))
    np.testing.assert_array_equal(companions["filled"], expected.filled)
    contents = saved.read_bytes()
    page.get_by_role("button", name="Save", exact=True).click()
    wait_text(page, "alert", f"mine.bil exists in {saved.parent.resolve()}")
    assert saved.read_bytes() == contents


def test_a_fill_is_watched_and_stopped(page, folder):
    page.get_by_label("Method", exact=True).select_option("ei")
    page.get_by_label("Settings of the method").fill("steps=100000 channels=8")
    page.get_by_label("Settings of the method").press("Tab")
    page.get_by_role("button", name="Fill", exact=True).click()
    wait_text(page, "busy", re.compile(r"ei: step \d+ of 100001, about .* left"))
    first = shown(page)
    deadline = time.monotonic() + 60
    while (shown(page) == first).all() and time.monotonic() < deadline:
        page.wait_for_timeout(200)
    assert (shown(page) != first).any()  # a preview
    page.get_by_role("button", name="Stop").click()
    wait_text(page, "status", re.compile(r"stopped by hand after \d+ of 100001 steps"))
    page.get_by_label("Save as").fill("stopped.bil")
    page.get_by_label("Save as").press("Tab")
    page.get_by_role("button", name="Save", exact=True).click()
    wait_text(page, "saved", "Saved stopped.bil")
    saved = np.asarray(io.read(folder / "out" / "stopped.bil").values)
    scene = np.asarray(io.read(folder / "scene.bil").values)
    np.testing.assert_array_equal(saved[scene != -9999], scene[scene != -9999])
    assert (saved[:, 10:18, 8:16] != -9999).all()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="a process cannot be held here")
def test_a_fill_by_tiles_in_another_process_is_followed(opened, folder, tmp_path):
    """The process is held after some tiles, so that there is a half-way to look at."""
    output = tmp_path / "filled.zarr"
    work = provenance.tiles_path(output)
    command = [sys.executable, "-m", "hydiff", "fill", folder / "scene.bil", "-o", output]
    command += ["--tile", "8", "--overlap", "2", "--outside", "fill", "--method", "harmonic"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as fill:
        while len(list(work.glob("tile-*.json"))) < 2 and fill.poll() is None:
            time.sleep(0.002)
        fill.send_signal(signal.SIGSTOP)
        viewer = Server(folder / "scene.bil", output)
        try:
            page = opened(viewer.url)
            wait_text(page, "status", re.compile(r"[1-9]\d* of \d+ tiles are done"))
            one_band(page)
            page.get_by_label("Swipe").press("Home")  # only the fill
            half = (shown(page)[..., 3] == 0).sum()
            assert 0 < half < np.isnan(planes(folder, 2)[0]).sum()
            page.screenshot(path=ARTEFACTS / "viewer-following.png")
            fill.send_signal(signal.SIGCONT)
            wait_text(page, "status", "The fill by tiles is done: this is filled.zarr")
            assert fill.wait(60) == 0, fill.stderr.read()
            page.wait_for_function(WHOLE)
            after = np.asarray(io.read(output).values[2])
            limits = images.limits(planes(folder, 2)[0])
            np.testing.assert_array_equal(shown(page), coloured(after, limits))
            page.context.close()
        finally:
            fill.kill()
            viewer.close()


WHOLE = """() => {
    for (const model of Bokeh.documents[0]._all_models.values())
        if (model.name == "picture")
            return model.data.image[0].every((pixel) => pixel >>> 24 == 255)
}"""


def test_an_error_becomes_a_message(page):
    page.get_by_label("Method", exact=True).select_option("smooth")
    settings = page.get_by_label("Settings of the method")
    for typed, message in (("nope=1", "unknown setting of smooth 'nope'"), ("fast", "key=value")):
        settings.fill(typed)
        settings.press("Tab")
        page.get_by_role("button", name="Fill", exact=True).click()
        wait_text(page, "alert", message)
    box = page.get_by_label("Mark rows, columns as gap")
    box.fill("everything")
    box.press("Enter")
    wait_text(page, "alert", "expected rows, then columns")
    assert page.locator(".alert [role=alert]").count() == 1


# ── for everybody ────────────────────────────────────────────────────────────────────────────────

FOCUS = """() => {
    let e = document.activeElement
    while (e.shadowRoot && e.shadowRoot.activeElement) e = e.shadowRoot.activeElement
    const label = e.labels && e.labels.length ? e.labels[0].textContent : ""
    return [e.tagName, e.getAttribute("aria-label") || label || e.title || e.textContent]
}"""


def test_every_control_is_reached_by_keyboard_and_has_a_name(page):
    names = []
    for _ in range(60):
        page.keyboard.press("Tab")
        tag, name = page.evaluate(FOCUS)
        if tag == "BODY":
            break
        assert name.strip(), f"{tag} after {names[-1:]}"
        names.append(name.strip())
    wanted = "Show, Colours, Red band, Green band, Blue band, Gaps, Map lines, Picture (PNG), Row"
    wanted += ", Column, Add spectrum, Clear, Spectra (CSV), Method, Effort, Drag on the picture to"
    wanted += ", Mean of rows, columns, Fill, Compare fills, Open files, Save as"
    assert [name for name in wanted.split(", ") if name not in ", ".join(names)] == []
    assert any(name.startswith("Swipe") for name in names)


def test_text_has_contrast_controls_have_names_and_focus_is_seen(look):
    """On each card: 4.5 : 1 (3 : 1 for large text), a name for what can be used, an outline or a
    shadow where the keyboard is."""
    assert look.evaluate("document.documentElement.lang") == "en"
    assert look.locator("h1").count() == 1
    look.mouse.click(*place(look, 14, 12))
    wait_text(look, "picks", "row 14, column 12")
    for card, control in (("Compare fills", "Left of the line"), ("Open files", "File")):
        look.get_by_role("button", name=card).click()
        look.get_by_label(control, exact=True).wait_for()
        assert look.evaluate(UNREADABLE) == []
        look.wait_for_function(f"!({NAMELESS})().length")
    look.get_by_role("button", name="Fill gaps").click()
    look.get_by_label("Method", exact=True).wait_for()
    assert look.evaluate(UNREADABLE) == []
    look.wait_for_function(f"!({NAMELESS})().length")
    assert look.evaluate(UNSEEN) == []


# every element with its parents, through the roots that Bokeh hides its widgets in
WALK = """
    const parent = (e) => e.parentElement ?? e.getRootNode().host ?? null
    const every = (root) => [...root.querySelectorAll("*")].flatMap(
        (e) => e.shadowRoot ? [e, ...every(e.shadowRoot)] : [e])
    const seen = (e) => e.checkVisibility() && e.getBoundingClientRect().width > 0
"""
UNREADABLE = f"""() => {{ {WALK}
    const rgb = (text) => (text.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number)
    const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
        .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0)
    const ground = (e) => {{
        for (; e; e = parent(e)) {{
            const [r, g, b, a = 1] = rgb(getComputedStyle(e).backgroundColor)
            if (a > 0.5) return [r, g, b]
        }}
        return [255, 255, 255]
    }}
    const wrong = []
    for (const e of every(document)) {{
        const own = [...e.childNodes].some((n) => n.nodeType == 3 && n.textContent.trim())
        if (!own || !seen(e) || e.closest("[disabled], svg, style, script, option")) continue
        const style = getComputedStyle(e), size = parseFloat(style.fontSize)
        const sign = !/[\\p{{L}}\\p{{N}}]/u.test(e.textContent)  // no text, as ⋮
        const large = sign || size >= 24 || size >= 18.66 && style.fontWeight >= 700
        const [a, b] = [light(rgb(style.color)), light(ground(e))].sort((x, y) => y - x)
        const ratio = (a + 0.05) / (b + 0.05)
        if (ratio < (large ? 3 : 4.5)) wrong.push([e.textContent.trim(), ratio.toFixed(2)])
    }}
    return wrong
}}"""
NAMELESS = f"""() => {{ {WALK}
    const used = "button, input, select, textarea, progress, a[href], [role=slider], [role=img],"
        + " [tabindex='0']"
    return every(document).filter((e) => e.matches(used) && seen(e)).filter((e) =>
        !(e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.title
            || e.textContent || "").trim()).map((e) => e.outerHTML.slice(0, 120))
}}"""
UNSEEN = f"""() => {{ {WALK}
    const look = (e) => {{
        const {{outlineStyle, outlineWidth, boxShadow, borderColor}} = getComputedStyle(e)
        return [outlineStyle, outlineWidth, boxShadow, borderColor].join()
    }}
    const used = "button, input, select, textarea, [role=slider], .bk-events"
    const wrong = []
    for (const e of every(document).filter((e) => e.matches(used) && seen(e) && !e.disabled)) {{
        const before = look(e)
        e.focus({{focusVisible: true}})
        if (look(e) == before) wrong.push(e.outerHTML.slice(0, 120))
        e.blur()
    }}
    return wrong
}}"""


def test_the_picture_by_keyboard(look, folder):
    """A cross, its spectrum, the line, the band and the marks, without a mouse."""
    one_band(look)
    look.locator(".bk-events").first.focus()
    for key in ("ArrowUp", "Shift+ArrowLeft"):
        look.keyboard.press(key)
    wait_text(look, "readout", f"row {ROWS // 2 - 1}, column {COLS // 2 - 10}")
    look.keyboard.press("Enter")
    wait_text(look, "picks", f"row {ROWS // 2 - 1}, column {COLS // 2 - 10}")
    look.keyboard.press("]")
    assert look.get_by_label("Swipe").get_attribute("aria-valuenow") == "33.0"
    look.keyboard.press(">")
    wait_text(look, "state", "One band: band 4")
    look.keyboard.press("g")
    from playwright.sync_api import expect

    expect(look.get_by_label("Gaps", exact=True)).to_have_value("Hidden")
    look.get_by_label("Gaps", exact=True).select_option("Outlined")


def test_samples_take_turns_on_the_picture(look, folder):
    """Only what was filled changes; without them the fill is back."""
    one_band(look)
    look.get_by_label("Swipe").press("Home")  # only the fill
    _, after = pictures(folder, 2)
    look.get_by_label("Flicker samples").check()
    look.wait_for_function(TURNS)
    seen = [shown(look) for _ in range(8) if look.wait_for_timeout(210) is None]
    before, _, _ = planes(folder, 2)
    gaps = np.isnan(before)
    assert all((picture[~gaps] == after[~gaps]).all() for picture in seen)
    assert len({picture[gaps].tobytes() for picture in seen}) > 2
    look.get_by_label("Flicker samples").uncheck()
    look.wait_for_function(f"!({TURNS})()")
    np.testing.assert_array_equal(shown(look), after)


TURNS = """() => {
    for (const model of Bokeh.documents[0]._all_models.values())
        if (model.name == "turns") return model.data.after.length > 0
}"""


@pytest.mark.parametrize(("name", "size"), [("desk", DESK), ("phone", PHONE)])
def test_it_fits_on_the_screen(opened, server, name, size):
    page = opened(server.url, size, is_mobile=name == "phone", has_touch=name == "phone")
    page.mouse.click(*place(page, 14, 12))
    wait_text(page, "picks", "row 14, column 12")
    page.wait_for_timeout(700)  # sooner, it would be a double click
    page.mouse.click(*place(page, 30, 44))
    wait_text(page, "picks", "row 30, column 44")
    assert page.evaluate("window.innerWidth") == size[0]
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate(CLIPPED) == []
    tools = page.locator(".bk-OnOffButton").first.bounding_box()
    handle = page.get_by_label("Swipe").bounding_box()
    assert handle["x"] + handle["width"] <= tools["x"]  # one does not lie on the other
    if name == "desk":  # all that is needed is in sight at once
        below = [page.get_by_role("button", name=n, exact=True) for n in ("Fill", "Save")]
        below += [page.locator(f".{part}") for part in ("state", "readout")]
        below += [page.locator("canvas").first, page.get_by_label("Drag on the picture to")]
        boxes = [part.bounding_box() for part in below]
        assert all(box["y"] + box["height"] <= size[1] for box in boxes)
    page.screenshot(path=ARTEFACTS / f"viewer-{name}.png", full_page=True)
    page.context.close()


CLIPPED = """() => {
    const wrong = []
    const look = (root) => {
        for (const e of root.querySelectorAll("*")) {
            if (e.shadowRoot) look(e.shadowRoot)
            if (!e.matches("label, .bk-btn, p, td, h1, h2, .bk-slider-title")) continue
            const box = e.getBoundingClientRect()
            if (box.width && (box.right > window.innerWidth + 1 || box.left < -1
                || e.scrollWidth > e.clientWidth + 2 && getComputedStyle(e).display != "inline"))
                wrong.push(e.textContent)
        }
    }
    look(document)
    return wrong
}"""


# ── odd scenes ───────────────────────────────────────────────────────────────────────────────────


def odd_scenes():
    plain = np.random.default_rng(1).random((6, 9, 11))
    some_dead = plain.copy()
    some_dead[[0, 3, 5]] = np.nan
    waves = np.linspace(450.0, 950.0, 6)
    return {
        "no wavelengths": (Cube(plain), "has no wavelengths"),
        "one band": (Cube(plain[:1], wavelengths=waves[:1]), "has one band"),
        "dead bands": (Cube(some_dead, wavelengths=waves), "3 of 6 bands have no value"),
        "all missing": (Cube(np.full((6, 9, 11), np.nan), wavelengths=waves), "Every entry is"),
        "one pixel": (Cube(plain[:, :1, :1], wavelengths=waves), ""),
        "constant": (Cube(np.ones((6, 9, 11)), wavelengths=waves), ""),
    }


@pytest.mark.parametrize("name", odd_scenes())
def test_odd_scenes_are_explained(name):
    pytest.importorskip("panel")
    from hydiff.viewer import scene_layers
    from hydiff.viewer.page import Window

    cube, message = odd_scenes()[name]
    shown = Window(scene_layers.from_data(cube)).page
    assert message in shown.controls.alert.text
    assert "pixels missing" in shown.controls.state.text
    shown.picking.pick(0, 0)
    assert "row 0, column 0" in shown.controls.picks.text
    if name == "dead bands":
        assert "has no value" not in shown.controls.state.text


def test_two_viewers_at_once_and_the_oddest_scene_in_the_browser(opened, server, other_viewer):
    """One band, no wavelengths, no value, beside the viewer that is already running."""
    assert other_viewer.url != server.url
    page = opened(other_viewer.url)
    for message in ("has one band", "has no wavelengths", "Every entry is missing"):
        wait_text(page, "alert", message)
    page.get_by_role("button", name="Add spectrum").click()
    wait_text(page, "picks", "row 4, column 5")
    page.get_by_role("button", name="Fill", exact=True).click()
    wait_text(page, "alert", "every entry is missing")
    page.context.close()


# ── a page that is not live ──────────────────────────────────────────────────────────────────────


def test_there_is_nothing_to_press_before_the_page_is_live(browser, server):
    """No event can be lost then: what can be pressed comes through the connection itself."""
    page = browser.new_page()
    page.set_default_timeout(120_000)
    page.route_web_socket(re.compile(r"/ws"), lambda socket: None)  # it opens, and stays silent
    page.goto(server.url)
    page.wait_for_function("window.Bokeh")
    page.wait_for_timeout(1500)
    assert page.locator("button, input, select, canvas, [role=slider]").count() == 0
    assert "not live yet" in page.get_by_role("status").inner_text()
    page.close()


def test_a_page_whose_viewer_has_ended_says_so(opened, wrong, other_viewer):
    """The last test of that viewer."""
    page = opened(other_viewer.url)
    other_viewer.process.kill()
    page.get_by_text("The viewer does not answer").wait_for()
    page.context.close()
    wrong.clear()  # Bokeh complains, rightly


# ── who is served ────────────────────────────────────────────────────────────────────────────────


def answer(url, request):
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), 120) as connection:
        connection.sendall(request.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        return connection.recv(200).decode(errors="replace").splitlines()[0]


def upgrade(host, origin):
    return (
        f"GET /ws HTTP/1.1\nHost: {host}\nOrigin: {origin}\nUpgrade: websocket\n"
        "Connection: Upgrade\nSec-WebSocket-Version: 13\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\nSec-WebSocket-Protocol: bokeh"
    )


def test_other_hosts_and_origins_are_refused(server):
    host = urlsplit(server.url).netloc
    port = host.split(":")[1]
    assert " 200 " in answer(server.url, f"GET / HTTP/1.1\nHost: {host}")
    assert " 200 " in answer(server.url, f"GET / HTTP/1.1\nHost: localhost:{port}")
    for other in (
        "example.org",
        f"example.org:{port}",
        "127.0.0.1:1",
        f"127.0.0.1.example.org:{port}",
    ):
        assert " 403 " in answer(server.url, f"GET / HTTP/1.1\nHost: {other}")
        assert " 403 " in answer(server.url, upgrade(other, f"http://{other}"))
        assert " 403 " in answer(server.url, upgrade(host, f"http://{other}"))


def test_it_listens_on_loopback_alone(server):
    port = urlsplit(server.url).port
    tables = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    if not tables[0].exists():
        pytest.skip("the sockets of a process are listed by /proc, on Linux")
    lines = [line.split() for t in tables if t.exists() for line in t.read_text().splitlines()[1:]]
    listening = (line[1].split(":") for line in lines if line[3] == "0A")
    assert {address for address, p in listening if int(p, 16) == port} == {"0100007F"}


def test_no_file_is_served(server, folder):
    host = urlsplit(server.url).netloc
    up = "/..".join([""] * 9)
    for path in (
        *(str(folder / "scene.bil"), "/scene.bil", "/../scene.bil", "//etc/passwd"),
        *(f"/static{up}/etc/passwd", f"/static/extensions{up}/etc/passwd"),
        *(f"/static/extensions/panel{up}/etc/passwd", f"/components{up}/etc/passwd"),
    ):
        status = answer(server.url, f"GET {path} HTTP/1.1\nHost: {host}")
        assert " 404 " in status or " 403 " in status, path


def test_the_page_names_no_other_address(server):
    """Icons too, which a headless browser does not ask for."""
    with urlopen(server.url) as reply:
        assert re.findall(r"https?://[^\"' ]+", reply.read().decode()) == []


def test_what_cannot_be_opened_is_refused_before_there_is_a_page(folder, tmp_path):
    command = [sys.executable, "-m", "hydiff", "view", tmp_path / "none.tif", "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such file" in done.stderr and done.stderr.count("\n") == 1


def test_what_cannot_be_served_is_refused(folder, tmp_path):
    from hydiff.cli.view import view

    (tmp_path / "noise.tif").write_bytes(b"noise")
    with pytest.raises(errors.CubeFormatError, match=r"noise\.tif"):
        view(tmp_path / "noise.tif", browser=False)
    with pytest.raises(errors.OutputError, match="is not a folder"):
        view(folder / "scene.bil", output=tmp_path / "none" / "x.bil", browser=False)
    with pytest.raises(errors.ShapeMismatch, match="mask"):
        io.write_mask(np.ones((3, 3), bool), tmp_path / "mask.npz", "missing")
        view(folder / "scene.bil", missing=tmp_path / "mask.npz", browser=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(errors.BadValue, match=f"port {port} is in use"):
            view(folder / "scene.bil", port=port, browser=False)
