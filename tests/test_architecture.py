"""Imports point downward, heavy packages load when used, and the public names are the list."""

import ast
import subprocess
import sys

import pytest

import hydiff
import lengths
from conftest import ROOT

PACKAGE = ROOT / "src" / "hydiff"

# Each row imports from rows below it; inside a row only as ALLOWED says.
ROWS = [
    {"__main__"},
    {"cli"},
    {"bench", "terminal", "viewer"},
    {"archive"},
    {"job"},
    {"handoff", "scene", "report"},
    {"api", "provenance", "record", "simulate", "info", "order"},
    {"auto"},
    {"run", "train_files"},
    {"methods", "train", "problem", "reach"},
    {"engine", "weights"},
    {"fused"},
    {
        "kernels",
        "launch",
        "losses",
        "diffusion",
        "network",
        "layers",
        "transforms",
        "degrade",
        "subspace",
        "noise",
        "gaussian",
        "validate",
        "tiles",
    },
    {"checkpoint"},
    {"io", "mask", "census", "detect", "result", "metrics", "ssim", "plots", "bundled", "ortho"},
    {"cluster", "loopback", "children"},
    {"cube", "errors", "mark", "versions"},
]
ALLOWED = {
    ("cube", "errors"),
    ("cube", "mark"),
    ("api", "provenance"),
    ("census", "mask"),
    ("detect", "mask"),
    ("detect", "census"),
    ("metrics", "ssim"),
    ("plots", "metrics"),
    ("launch", "kernels"),
    ("losses", "diffusion"),
    ("losses", "transforms"),
    ("gaussian", "subspace"),
    ("provenance", "record"),
    ("cluster", "loopback"),
}
TORCH_CORE = {
    "degrade",
    "transforms",
    "network",
    "layers",
    "losses",
    "diffusion",
    "engine",
    "fused",
    "launch",
    "kernels",
}


def module_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path, *, top_only=False):
    tree = ast.parse(path.read_text())
    for node in tree.body if top_only else ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "hydiff":
            yield from (f"hydiff.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def sources():
    return [p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.parent != PACKAGE]


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downward(path):
    level = {name: i for i, row in enumerate(ROWS) for name in row}
    own = module_of(path)
    assert own in level, f"{own} has no row in the drawing"
    for name in imports(path):
        if name.startswith("hydiff."):
            other = name.split(".")[1]
            downward = level[other] > level[own] or other == own or (own, other) in ALLOWED
            assert downward, f"{own} imports {other}"


def test_no_module_is_called_utils():
    banned = {"utils", "core", "base", "config", "trainer", "helpers", "common"}
    assert not {p.stem for p in PACKAGE.rglob("*.py")} & banned


def test_functions_are_short():
    median, most, _ = lengths.summary([f.lines for f in lengths.functions()])
    assert (median <= 8, most <= 30) == (True, True), f"median {median}, 90th percentile {most}"


def test_a_long_file_has_its_reason():
    above = {file for file, lines in lengths.files().items() if lines > lengths.LONG_FILE}
    assert above <= set(lengths.REASONS)


def test_docstrings_are_not_counted_and_inner_functions_are(tmp_path):
    told = '    """One.\n\n    Two.\n    """\n'
    text = f"def outer():\n{told}    def inner(): return 1\n    return inner\n"
    (tmp_path / "a.py").write_text(text)
    assert lengths.functions(tmp_path) == [("a.py", "outer", 3), ("a.py", "inner", 1)]


def modules_after(code):
    """The top-level packages loaded in a fresh process by `code`."""
    probe = f"{code}\nimport sys; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


HEAVY = {
    "torch",
    "rasterio",
    "xarray",
    "h5py",
    "matplotlib",
    "skimage",
    "spectral",
    "pandas",
    "zarr",
    "panel",
    "bokeh",
    "dask",
    "distributed",
    "pyarrow",
}


def test_importing_hydiff_loads_nothing_heavy():
    assert not modules_after("import hydiff, hydiff.cli") & HEAVY


def test_the_numerical_core_needs_torch_and_numpy_alone():
    code = "import sys\n"
    code += "".join(f"sys.modules[{name!r}] = None\n" for name in (HEAVY - {"torch"}) | {"typer"})
    code += "".join(f"import hydiff.{name}\n" for name in TORCH_CORE)
    assert "torch" in modules_after(code)


def test_the_public_names_are_all_of_them():
    public = {name for name in dir(hydiff) if not name.startswith("_")}
    submodules = {p.stem for p in PACKAGE.iterdir()}
    tools = {"annotations", "import_module", "TYPE_CHECKING", "Any"}
    assert set(hydiff.__all__) <= public
    assert public - submodules - tools - set(hydiff.__all__) == set()
    assert all(getattr(hydiff, name) is not None for name in hydiff.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hydiff.nothing  # noqa: B018


def test_names_are_imported_when_they_are_used():
    assert not modules_after("import hydiff; dir(hydiff)") & {"numpy", "scipy", "rich"}
    assert not modules_after("import hydiff.cli") & {"scipy"}
