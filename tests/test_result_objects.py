"""How a result, a score and a fill show themselves: in a terminal, a notebook, a figure, a file."""

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

import hydiff
from hydiff import metrics
from hydiff.errors import BadValue, OutputError
from hydiff.gaps.simulate import simulate
from hydiff.report import notebook, plots
from hydiff.result import Reading


@pytest.fixture(scope="module")
def truth():
    return hydiff.sample().window(rows=slice(0, 32), cols=slice(0, 40))


@pytest.fixture(scope="module")
def damaged(truth):
    return simulate(truth, "stripes", 0.2, seed=1)[0]


@pytest.fixture(scope="module")
def result(damaged):
    """By `auto`, with a part left missing."""
    return hydiff.fill(damaged, budget="fast", max_error=1.2)


# ── text ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_result_is_described_in_few_lines(result):
    lines = repr(result).splitlines()
    assert len(lines) <= 12 and max(map(len, lines)) <= 100
    filled, left = int(result.filled.sum()), sum(result.left.values())
    assert left > 0 and f"{filled:,} of {filled + left:,} missing entries with auto" in lines[1]
    expected = next(line for line in lines if line.startswith("expected"))
    assert f"NRMSE {result.expected['nrmse']:.3g}" in expected
    assert any(line.startswith("note") for line in lines)


def test_no_number_of_notes_or_settings_makes_it_longer(result):
    notes = [f"note {i} " + "with many words " * 40 for i in range(30)]
    many = replace(result, notes=notes, settings={f"setting_{i}": i for i in range(60)})
    lines = repr(many).splitlines()
    assert len(lines) == 12 and max(map(len, lines)) <= 100
    assert "25 more in result.notes" in lines[-1]


def test_a_method_without_expected_scores_promises_none(damaged):
    plain = repr(hydiff.fill(damaged, method="linear"))
    assert "expected" not in plain and "with linear" in plain


def test_settings_without_a_value_are_not_shown(damaged):
    smooth = hydiff.fill(damaged, method="smooth")
    assert smooth.settings["space"] is None and "None" not in repr(smooth)


def test_a_table_of_scores_prints_in_columns_and_keeps_its_rows(result, truth):
    scores = metrics.score(result.cube, truth, result.filled)
    lines = str(scores.table()).splitlines()
    assert len(lines) == 1 + len(metrics.LABELS) and len({len(line) for line in lines}) == 1
    assert lines[0].split() == ["all", "gaps"]
    for line, (label, everywhere, gaps) in zip(lines[1:], scores.table(), strict=True):
        assert line.startswith(label)
        shown = [float(text) for text in line.removeprefix(label).split()]
        assert shown == pytest.approx([everywhere, gaps], rel=1e-3)
    assert repr(scores).endswith(str(scores.table())) and len(repr(scores).splitlines()) <= 12


def test_without_a_mask_the_table_has_one_column(result, truth):
    lines = str(metrics.score(result.cube, truth).table()).splitlines()
    assert lines[0].split() == ["all"]


# ── notebook ─────────────────────────────────────────────────────────────────────────────────────


class Tags(HTMLParser):
    """Tags that are open, sources of images, and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.images, self.tags, self.text = [], [], set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "img":
            self.images.append(dict(attrs))
        else:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def picture(image):
    kind, data = image["src"].split(",", 1)
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


def test_a_notebook_shows_the_gaps_the_fill_and_the_error_bars(result):
    page = Tags(result._repr_html_())
    assert not page.open and len(page.images) == 3 and all(i["alt"] for i in page.images)
    before, after, sigma = (picture(image) for image in page.images)
    assert before.shape == after.shape == sigma.shape == (*result.cube.shape[1:], 3)
    gap = (before == plots.GAP_COLOUR).all(axis=-1)
    left = (after == plots.GAP_COLOUR).all(axis=-1)
    changed = (before != after).any(axis=-1)
    assert (gap >= left).all() and np.array_equal(changed, gap & ~left)
    assert np.array_equal((sigma != plots.PLAIN).any(axis=-1), np.isfinite(result.sigma).any(0))
    assert f"NRMSE {result.expected['nrmse']:.3g}" in page.text
    assert all(note in page.text for note in result.notes if not note.startswith("expected"))


def test_text_of_a_file_cannot_become_markup(result):
    page = Tags(replace(result, notes=["<script>alert('1')</script> & more"])._repr_html_())
    assert "script" not in page.tags and "<script>alert('1')</script> & more" in page.text


def test_large_scenes_are_thinned(rng):
    values = rng.random((3, 700, 1000), dtype=np.float32)
    observed = np.ones((700, 1000), bool)
    observed[100:110, 200:210] = False
    page = hydiff.fill(values, observed, method="bandmean")._repr_html_()
    sizes = [picture(image).shape for image in Tags(page).images]
    assert len(sizes) == 2 and max(max(size) for size in sizes) <= notebook.SIDE
    assert len(page) < 1_000_000


def test_error_bars_are_compared_with_the_spread_of_their_band(rng):
    """NumPy's nanstd and nanmean are the oracle."""
    values, sigma = rng.random((4, 6, 5)), rng.random((4, 6, 5))
    observed = rng.random(values.shape) < 0.7
    sigma[observed] = np.nan
    spread = np.nanstd(np.where(observed, values, np.nan), axis=(1, 2), keepdims=True)
    some = np.isfinite(sigma).any(axis=0)
    expected = np.nanmean((sigma / spread)[:, some], axis=0)
    values[~observed] = np.nan
    bars = notebook.relative_bars(sigma, values, observed)
    np.testing.assert_allclose(bars[some], expected)
    assert np.isnan(bars[~some]).all()


# ── figure ───────────────────────────────────────────────────────────────────────────────────────


def test_a_plot_shows_the_fill_and_the_spectrum_of_the_pixel(result, truth):
    import matplotlib.pyplot as plt

    figure = result.plot(truth=truth, pixel=(3, 4))
    titles = [axis.get_title() for axis in figure.axes]
    assert titles[1:] == ["Filled", "Truth", "Row 3, column 4"]
    line = next(line for line in figure.axes[-1].lines if line.get_label() == "Truth")
    drawn = line.get_ydata()[np.isfinite(line.get_ydata())]
    assert sorted(drawn) == sorted(np.asarray(truth.values)[:, 3, 4])
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert not plt.get_fignums()  # nothing is left for pyplot to show again


def test_a_plot_of_nothing_filled_says_what_to_give(truth):
    untouched = hydiff.fill(truth, method="bandmean")
    with pytest.raises(BadValue, match=r"give pixel=\(row, col\)"):
        untouched.plot()
    assert untouched.plot(pixel=(0, 0)).axes


# ── files and xarray ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["out.tif", "out.img", "out.npz"])
def test_a_result_is_saved_as_the_suffix_says(result, tmp_path, name):
    paths = result.save(tmp_path / name)
    assert paths[0] == tmp_path / name and all(path.exists() for path in paths)
    back = hydiff.read(tmp_path / name)
    assert np.array_equal(back.values, result.cube.values) and back.mark is not None
    with pytest.raises(OutputError, match="overwrite"):
        result.save(tmp_path / name)
    assert result.save(tmp_path / name, overwrite=True) == paths


def test_saving_is_what_write_does(result, tmp_path):
    one, other = result.save(tmp_path / "a.tif"), hydiff.write(result, tmp_path / "b.tif")
    assert [re.sub("^a", "b", path.name) for path in one] == [path.name for path in other]
    assert one[0].read_bytes() == other[0].read_bytes()


def test_a_dataset_holds_the_cube_what_was_filled_and_how_sure_it_is(result):
    dataset = result.to_xarray()
    assert dataset.cube.identical(result.cube.to_xarray().rename("cube"))
    assert np.array_equal(dataset.filled, result.filled)
    np.testing.assert_array_equal(dataset.sigma, result.sigma)
    assert dataset.cube.dims == dataset.filled.dims == dataset.sigma.dims == ("band", "y", "x")
    mean = dataset.cube.where(dataset.filled).mean()
    assert float(mean) == pytest.approx(result.cube.values[result.filled].mean())
    assert dataset.attrs["method"] == "auto"


def test_a_dataset_keeps_the_form_of_the_array_that_was_filled(damaged):
    array = damaged.to_xarray().transpose("y", "x", "band").rename("radiance")
    filled = hydiff.fill(array, method="linear")
    dataset = filled.to_xarray()
    assert set(dataset.data_vars) == {"radiance", "filled", "flags", "why"}
    assert dataset.radiance.dims == dataset.filled.dims == ("y", "x", "band")
    assert np.array_equal(dataset.filled.transpose("band", "y", "x"), filled.filled)


# ── while it is made ─────────────────────────────────────────────────────────────────────────────

CELL = """
import numpy as np, hydiff
from hydiff.report import notebook
notebook.DELAY = notebook.EVERY = 0.0
cube = np.fromfunction(lambda b, r, c: b + r + c, (3, 12, 12))
observed = np.ones((12, 12), bool)
observed[:, 5:7] = False
{call}
"""


def shown_by(client, call):
    """What a notebook displays while a cell runs, in order."""
    pages = []

    def keep(message):
        content = message["content"]
        assert message["msg_type"] != "error", content
        if message["msg_type"] in ("display_data", "update_display_data"):
            pages.append(content["data"]["text/html"])

    client.execute_interactive(CELL.format(call=call), output_hook=keep, timeout=300)
    return pages


def test_a_fill_shows_its_progress_in_a_notebook():
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    try:
        first, *_, last = shown_by(client, "hydiff.fill(cube, observed, method='dineof');")
        assert "<progress" in first and "filling" in first and last == ""
        assert not shown_by(client, "hydiff.fill(cube, observed, method='linear', progress=False);")
        own = "steps = []; hydiff.fill(cube, observed, method='linear', progress=steps.append);"
        assert not shown_by(client, own)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_bar_of_a_notebook_is_plain_html():
    drawn = notebook.bar_html(Reading("<b>", 1, 4, 0.25, 61.0))
    assert "&lt;b&gt;" in drawn and 'value="0.250"' in drawn and "25 %, about 61 s left" in drawn
    assert "left" not in notebook.bar_html(Reading("trials", 0, 4, 0.0, None))
