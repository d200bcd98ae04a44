"""The documents are true: tables come from results, and what they say to type runs.

Blocks of `sh` and `python` are run in order, page by page, in a folder of their own that holds the
files the page names.  A block of `text` after a command is its output, `…` standing for anything.
A block behind a mark `<!-- not run: why -->` is only checked for commands and options that exist.
A page that uses another program, or a package that is no dependency, is skipped without it.
"""

import contextlib
import csv
import importlib
import importlib.util
import io as std_io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from rasterio.crs import CRS
from typer.main import get_command
from typer.testing import CliRunner

import hydiff
import products
from conftest import ROOT, without_prior
from hydiff.cli import app
from hydiff.cube import Cube
from hydiff.gaps import simulate
from hydiff.gaps.mask import MASKS
from hydiff.io import provenance

sys.path.insert(0, str(ROOT / "benchmarks"))
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
PAGES = [p for p in PAGES if p.name != "cli.md" and "_build" not in p.parts]  # generated
BLOCK = re.compile(
    r"(?P<mark><!-- not run: (?P<why>[^\n]+) -->\n+)?"
    r"^```(?P<kind>sh|python|text|\{code-cell\} python)\n(?P<text>.*?)^```",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    kind: str
    text: str
    why: str | None  # it is not run


def blocks(page):
    found = (m.groupdict() for m in BLOCK.finditer(page.read_text()))
    cells = [(f["kind"].replace("{code-cell} ", ""), f["text"], f["why"]) for f in found]
    return [Block(k, re.sub(r"^:tags:.*\n", "", text), why) for k, text, why in cells]


def commands(text):
    """The lines of a shell block without their comments."""
    lines = (re.sub(r"\s+#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


# ── what the pages ask for ───────────────────────────────────────────────────────────────────────


def crop(rows=32, cols=32):
    return hydiff.sample().window(rows=slice(0, rows), cols=slice(0, cols))


def emit_files(folder):
    values = products.scene(20, 80, 24).astype(np.float32)
    values[:, 30:38] = -9998  # part of a frame
    values[:, 60] = -9996
    for name in ("EMIT_L2A_RFL.nc", "radiance.nc", "reflectance.nc"):
        products.emit(folder / name, values)
    flagged = np.zeros(values.shape, bool)
    flagged[5, 10:12, 3:6] = True
    products.emit_mask(folder / "EMIT_L2A_MASK.nc", flagged, np.zeros(values.shape[1:], bool))


def prisma_files(folder):
    vnir, swir = (
        (30000 * products.scene(bands, 32, 24, seed)).astype(np.uint16)
        for seed, bands in enumerate((8, 12))
    )
    errors = np.zeros(vnir.shape, "u1"), np.zeros(swir.shape, "u1")
    errors[0][2, 5:8, 4:7] = 1
    products.prisma(folder / "PRS_L2D.he5", vnir, swir, errors=errors)


def striped_file(folder):
    values = np.asarray(crop().values).copy()
    values[20:60, :, 11] = 0
    hydiff.write(Cube(values), folder / "striped.tif")


def noisy_files(folder):
    hydiff.write(crop(), folder / "truth.tif")
    damaged, _ = simulate.simulate(crop(), "stripes", 0.2, noise=0.01, seed=1)
    hydiff.write(damaged, folder / "noisy.tif")


def two_dates(folder):
    """A scene with a wide gap, and five broad bands of it with another gain."""
    truth = crop(48, 40)
    values = np.asarray(truth.values)[::20].astype(np.float32)
    broad = np.stack([part.mean(axis=0) for part in np.array_split(values, 5)])
    values[:, 14:24] = np.nan
    place = {"crs": CRS.from_epsg(32616).to_wkt(), "transform": (20.0, 0.0, 5e5, 0.0, -20.0, 4.5e6)}
    hydiff.write(Cube(values, **place), folder / "scene.tif")
    hydiff.write(Cube(0.5 * broad + 30, **place), folder / "20240712.tif")


def striped_scene(folder):
    truth = crop(24, 24)
    hydiff.write(truth, folder / "truth.tif")
    damaged, _ = simulate.simulate(truth, "stripes", 0.2, seed=1)
    hydiff.write(damaged, folder / "scene.tif")


def filled_files(folder):
    noisy_files(folder)
    result = hydiff.fill(hydiff.read(folder / "noisy.tif"), method="smooth")
    provenance.save(result, folder / "filled.tif")


def envi_files(folder):
    truth = crop(20, 24)
    hydiff.write(truth, folder / "truth.img")
    damaged, _ = simulate.simulate(truth, "stripes", 0.2, seed=1)
    for name in ("scene.img", "flightline.img", "other.img"):
        hydiff.write(damaged, folder / name)


def map_files(folder):
    values = np.asarray(crop(40, 44).values)[:60].astype("f4")
    values[:, :, 20:22] = np.nan
    place = {
        "transform": (10.0, 0.0, 257000.0, 0.0, -10.0, 4112000.0),
        "crs": products.UTM.to_wkt(),
    }
    waves = {"wavelengths": 500 + 10.0 * np.arange(60), "wavelength_units": "nm"}
    hydiff.write(Cube(values, **place, **waves), folder / "scene.tif")
    x0, y0, x1, y1 = 257100, 4111700, 257300, 4111900
    ring = [[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]]
    crs = {"type": "name", "properties": {"name": f"EPSG:{products.UTM.to_epsg()}"}}
    polygon = {"type": "Polygon", "coordinates": [ring], "crs": crs}
    for name in ("field", "clouds"):
        (folder / f"{name}.geojson").write_text(json.dumps(polygon))
    Image.fromarray(np.eye(40, 44).astype("u1") * 255).save(folder / "clouds.png")


def retrieval_files(folder):
    """A scene with two stripes; the function of the page as the file that it says to save."""
    values = np.asarray(crop(40, 30).values)[10:50:2].astype("f4")
    values[:, :, 10:16] = np.nan
    waves = {"wavelengths": 500 + 20.0 * np.arange(20), "wavelength_units": "nm"}
    hydiff.write(Cube(values, **waves), folder / "scene.tif")
    cells = blocks(DOCS / "howto" / "retrievals.md")
    (code,) = [b.text for b in cells if b.kind == "python" and "def score" in b.text]
    (folder / "target.py").write_text(code)


def qgis_files(folder):
    """A scene with two missing columns; QGIS with a profile of its own and our plugin."""
    map_files(folder)
    os.environ |= {
        "QT_QPA_PLATFORM": "offscreen",
        "QGIS_CUSTOM_CONFIG_PATH": str(folder / "profile"),
        "QGIS_PLUGINPATH": str(ROOT / "integrations" / "qgis"),
    }


def granules(folder):
    """Two granules, one file that is none, and the example for Snakemake."""
    shutil.copy(ROOT / "integrations" / "snakemake" / "Snakefile", folder)
    (folder / "granules").mkdir()
    values = np.asarray(crop(20, 20).values)[:12].astype("f4")
    values[:, :, 7] = np.nan
    for name in "ab":
        hydiff.write(Cube(values), folder / "granules" / f"{name}.tif")
    (folder / "granules" / "c.tif").write_bytes(b"II*\0 and no more")


PREPARE = {
    "qgis.md": qgis_files,
    "pipelines.md": granules,
    "openeo.md": lambda folder: shutil.copy(ROOT / "integrations/openeo/fill_udf.py", folder),
    "retrievals.md": retrieval_files,
    "regions.md": map_files,
    "README.md": envi_files,
    "emit.md": emit_files,  # the how-to page and the walk
    "before-or-after-retrieval.md": emit_files,
    "prisma.md": prisma_files,
    "report.md": filled_files,
    "explain-compare.md": striped_scene,
    "flags.md": envi_files,
    "simulate.md": lambda folder: hydiff.write(crop(), folder / "clean.tif"),
    "dead-columns.md": striped_file,
    "noisy-cubes.md": noisy_files,
    "reference.md": two_dates,
    "formats.md": lambda folder: (emit_files(folder), make_fill(folder)),
}


def make_fill(folder):
    result = hydiff.fill(hydiff.read(folder / "EMIT_L2A_RFL.nc"), method="linear")
    hydiff.write(result.cube, folder / "filled.nc")
    hydiff.write(result.cube, folder / "plain.img")
    hydiff.write(result.cube, folder / "scene.nc")


WITH_PRIOR = ("README.md", "tutorial.md")  # what everybody types first is run as they do
# programs that pages call beside hydiff; Debian's qgis_process is a script with a wrong option
PROGRAMS = {"qgis_process": "qgis_process.bin", "snakemake": "snakemake"}
PACKAGES = re.compile(r"^(?:import|from) (deepinv|openeo)\b", re.MULTILINE)


def absent(page):
    """Programs and packages that a page needs and that are not installed."""
    run = [b for b in blocks(page) if not b.why]
    lines = [line for b in run if b.kind == "sh" for line in commands(b.text)]
    programs = {line.split()[0] for line in lines} & set(PROGRAMS)
    packages = {name for b in run if b.kind == "python" for name in PACKAGES.findall(b.text)}
    return sorted(
        {name for name in programs if not shutil.which(name)}
        | {name for name in packages if importlib.util.find_spec(name) is None}
    )


# ── they run ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "document",
    [p for p in PAGES if any(b.kind != "text" and not b.why for b in blocks(p))],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_what_a_page_says_to_type_runs(document, tmp_path, tmp_path_factory, monkeypatch):
    if missing := absent(document):
        pytest.skip(f"not installed: {', '.join(missing)}")
    if document.name not in WITH_PRIOR:
        without_prior(monkeypatch, tmp_path_factory.mktemp("no-weights"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    PREPARE.get(document.name, lambda folder: None)(tmp_path)
    names, said = {"__name__": "page"}, ""
    for block in blocks(document):
        if block.why:
            continue
        if block.kind == "python":
            with contextlib.redirect_stdout(std_io.StringIO()) as stdout:
                exec(compile(block.text, str(document), "exec"), names)
            said = stdout.getvalue()
        elif block.kind == "sh":
            said = "".join(run(command) for command in commands(block.text))
        else:
            assert fits(said, block.text), f"shown:\n{block.text}\nfound:\n{said}"
    for picture in tmp_path.glob("*.png"):
        if (DOCS / picture.name).exists():
            assert alike(picture, DOCS / picture.name)


def run(command):
    """What a command writes to stdout; it must end well."""
    name, *words = shlex.split(command)
    if name in PROGRAMS:
        program = shutil.which(PROGRAMS[name]) or name
        home = str(
            Path(sys.executable).parent
        )  # hydiff is found there; last, as QGIS starts python3
        places = [p for p in os.environ["PATH"].split(":") if p != home]
        path = {"PATH": ":".join([*places, home])}
        ended = subprocess.run(
            [program, *words], env=os.environ | path, capture_output=True, text=True
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
        return ended.stdout
    assert name == "hydiff", f"only hydiff is run: {command}; mark other blocks `not run`"
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, f"{command}\n{done.output}"
    return done.stdout


def fits(said, shown):
    """Whether an output is as shown, `…` standing for anything, spaces for spaces."""

    def plain(text):
        return " ".join(text.split())

    pattern = ".*".join(re.escape(part.strip()) for part in plain(shown).split("…"))
    return re.fullmatch(pattern.replace(r"\ ", r"\s*"), plain(said), re.DOTALL) is not None


def alike(one, other):
    """Whether two pictures look the same: small differences of arithmetic may shift a shade."""
    a, b = (np.asarray(Image.open(p).convert("RGB"), float) for p in (one, other))
    return a.shape == b.shape and np.abs(a - b).mean() < 2


@pytest.mark.parametrize("name", ["xarray", "qgis", "pipelines", "deepinv", "openeo", "regions"])
def test_the_page_of_an_integration_has_a_picture_and_the_versions_that_are_installed(name):
    text = (DOCS / "howto" / f"{name}.md").read_text()
    pictures = re.findall(r"!\[[^]]+\]\(\.\./(.+?)\)", text)
    assert pictures and all((DOCS / picture).exists() for picture in pictures)
    tested = text[text.rindex("Tested with") :].split("\n\n")[0]
    versions = re.findall(r"(\w+) (\d+(?:\.\d+)+)", tested)
    assert versions
    pins = dict(p.split("==") for p in (ROOT / "constraints.txt").read_text().split() if "==" in p)
    assert [v for v in versions if not f"{pins.get(v[0], v[1])}.".startswith(f"{v[1]}.")] == []


@pytest.mark.parametrize(
    ("said", "shown", "fit"),
    [("a 1\nb 2\n", "a …\nb 2", True), ("a 1\nb 3\n", "a …\nb 2", False), ("x", "y", False)],
)
def test_outputs_are_compared(said, shown, fit):
    assert fits(said, shown) == fit


def test_every_command_and_option_exists():
    known = {
        name: {option for p in command.params for option in p.opts}
        for name, command in get_command(app).commands.items()
    }
    found = [
        (document.name, line)
        for document in PAGES
        for block in blocks(document)
        for line in (commands(block.text) if block.kind == "sh" else ())
        if line.startswith("hydiff ")
    ]
    assert len(found) > 50
    for document, line in found:
        _, name, *rest = line.split()
        assert name in known, f"{document}: {line}"
        assert {word for word in rest if word.startswith("-")} <= known[name], f"{document}: {line}"


# options of other programs that pages name: typer's own, dask, podman, SLURM, Snakemake
FOREIGN = {"--install-completion", "--show-completion", "--nworkers", "--resources"} | {
    *("--tls-ca-file", "--tls-cert", "--tls-key", "--build-arg", "--rm", "--userns", "--quiet"),
    *("--ntasks", "--cpus-per-task", "--mem-per-cpu"),
}


def test_options_in_prose_exist_and_each_of_fill_is_explained():
    commands = get_command(app).commands.values()
    known = {option for command in commands for p in command.params for option in p.opts}
    sources = (*ROOT.glob("benchmarks/*.py"), *ROOT.glob("tests/*.py"))
    scripts = "".join(p.read_text() for p in sources if p.name != "test_docs.py")
    named = {o: p for p in PAGES for o in re.findall(r"(?<![\w-])--[a-z][\w-]+", p.read_text())}
    unknown = named.keys() - known - FOREIGN
    assert not {o: str(named[o]) for o in unknown if f'"{o}"' not in scripts}
    of_fill = get_command(app).commands["fill"].params
    shown = {p.opts[0] for p in of_fill if "-o" not in p.opts and not getattr(p, "hidden", False)}
    assert not {option for option in shown if option.startswith("--")} - named.keys()


HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#]*)#?([^)\s]*)\)")


def anchors(page):
    """The anchors that GitHub and Sphinx make of the headings of a page."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in HEADING.findall(prose)}


@pytest.mark.parametrize("name", ["README", "CHANGELOG", "CONTRIBUTING", "SECURITY"])
def test_links_of_pages_that_sphinx_does_not_read_lead_somewhere(name):
    page = ROOT / f"{name}.md"
    links = [link for link in LINK.findall(page.read_text()) if not link[0].startswith("http")]
    assert not [file for file, _ in links if not (ROOT / file).exists()]
    inside = [(ROOT / file if file else page, anchor) for file, anchor in links if anchor]
    assert not [(str(file), anchor) for file, anchor in inside if anchor not in anchors(file)]


def test_few_blocks_are_not_run_and_each_says_why():
    marked = [(p.name, b.why) for p in PAGES for b in blocks(p) if b.why]
    assert len(marked) <= 14 and all(len(why) > 10 for _, why in marked), marked


def test_the_tables_are_those_of_the_results():
    from tables import FOLDER, written

    expected = dict(written())
    for document, text in expected.items():
        assert document.exists(), f"{document.name}: run `python benchmarks/tables.py`"
        assert document.read_text() == text, f"{document.name}: run `python benchmarks/tables.py`"
    assert set(FOLDER.iterdir()) <= set(expected)


def table_rows(page):
    """The rows of the tables of a page, without their headers."""
    lines = page.read_text().splitlines()
    return [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("|") and not {line[:4], following[:4]} & {"|---"}
    ]


def test_no_table_row_stands_twice():
    places = {}
    for page in PAGES:
        for row in table_rows(page):
            places.setdefault(row, []).append(str(page.relative_to(ROOT)))
    assert not {row: pages for row, pages in places.items() if len(pages) > 1}


LONGEST = {  # words, tables included
    "README.md": 900,
    "docs/bench.md": 1500,
    "docs/results.md": 1000,
    "docs/reliability.md": 1000,
    "docs/performance.md": 2000,
    "docs/prior.md": 2000,
    "docs/method.md": 2300,
    "docs/formats.md": 1900,
    "CHANGELOG.md": 1000,
    "docs/scale.md": 2000,
    **{str(p.relative_to(ROOT)): 500 for p in sorted((DOCS / "decisions").glob("0*.md"))},
}


@pytest.mark.parametrize("page", LONGEST)
def test_pages_are_short_enough_to_finish(page):
    words = [w for w in (ROOT / page).read_text().split() if any(c.isalnum() for c in w)]
    assert len(words) <= LONGEST[page]


def test_the_default_fill_is_as_far_above_other_tools_as_two_pages_say():
    with (ROOT / "benchmarks" / "results" / "people.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    mpsnr = {(r["method"], r["scene"], r["mask"]): float(r["mpsnr"]) for r in rows}
    gains = {}
    for (method, *cell), found in mpsnr.items():
        if " " in method:  # ours have one word
            gains.setdefault(method, []).append(mpsnr["auto", *cell] - found)
    for page in ("README.md", "docs/performance.md"):
        (said,) = re.findall(r"on average at least (\d\.\d) dB", (ROOT / page).read_text())
        assert gains and min(map(np.mean, gains.values())) >= float(said)


def test_every_kind_of_mask_is_named():
    text = (DOCS / "howto" / "simulate.md").read_text()
    named = text.replace(
        "`published-1` … `published-4`", "`published-1` `published-2` `published-3` `published-4`"
    )
    assert set(MASKS) <= set(re.findall(r"`([\w-]+)`", named))


def test_every_command_has_a_help_text():
    for name, command in get_command(app).commands.items():
        assert command.help, name
        for parameter in command.params:
            named = parameter.param_type_name == "argument" or getattr(parameter, "help", None)
            assert named, f"{name} {parameter.name}"


def test_the_front_page_is_short_and_its_picture_small():
    assert len(README.splitlines()) <= 110  # a screen and a half, and a table
    assert (DOCS / "opening.png").stat().st_size < 250_000


def test_the_method_of_the_contributing_guide_works(tiny, stripes):
    (block,) = [b for b in blocks(ROOT / "CONTRIBUTING.md") if b.kind == "python"]
    names = {"__name__": "mine"}
    exec(block.text, names)
    result = hydiff.fill(tiny, stripes, method=names["mine"], strength=1.0)
    assert result.filled.sum() == 12 * (~stripes).sum()


EXAMPLES = [
    ".".join(p.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for p in sorted((ROOT / "src" / "hydiff").rglob("*.py"))
    if "    >>> " in p.read_text()
]


@pytest.mark.parametrize("module", EXAMPLES)
def test_docstring_examples(module):
    import doctest

    if module == "hydiff.deepinv":
        pytest.importorskip("deepinv")  # which is no extra: it drags in much
    outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted > 0 and outcome.failed == 0


# ── they build ───────────────────────────────────────────────────────────────────────────────────


# what a browser loads by itself; a link in the text is the reader's to follow
FETCHED = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^>]*>"
)


def test_the_documentation_builds_without_a_warning_and_needs_no_network(tmp_path):
    """Cells are run by the test above; here they are only shown."""
    options = ["-D", "nb_execution_mode=off", "-D", "suppress_warnings=myst-nb.lexer"]
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", *options]
    done = subprocess.run([*build, str(DOCS), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.html")}
    assert {"tutorial.html", "method.html", "reference/cli.html", "gallery/trust.html"} <= pages
    commands_page = (tmp_path / "reference" / "cli.html").read_text()
    assert all(f"hydiff {name}" in commands_page for name in get_command(app).commands)
    assert "hydiff.fill" in (tmp_path / "reference" / "api.html").read_text()
    fetched = [tag for page in pages for tag in FETCHED.findall((tmp_path / page).read_text())]
    styles = "".join(p.read_text() for p in tmp_path.rglob("*.css"))
    assert not fetched + re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", styles)
    assert "</math>" in (tmp_path / "method.html").read_text()
