"""Imports point downward, heavy packages load when used, and the public names are the list."""

import ast
import importlib
import inspect
import re
import subprocess
import sys

import pytest

import hydiff
import lengths
from conftest import ROOT
from sources import PACKAGE, tree

# Pairs of modules that may look upward, each for its reason.
UPWARD = {
    ("io.record", "auto.recipe"),  # a record holds a recipe, which one checker reads
    ("gaps.describe", "gaps.rule"),
    ("learn.weights", "report.plots"),  # the curve of a training, beside its weights
    ("result", "report.notebook"),  # a result draws itself
    ("api", "report.notebook"),  # and a fill shows how far it is
    ("result", "io.provenance"),  # and writes itself
    ("result", "uncertainty.samples"),  # and draws its error
}


def rows():
    """Lines of the list in CONTRIBUTING, top to bottom: the folders and modules of each."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = text.split("<!-- folders -->\n```\n", 1)[1].split("```", 1)[0]
    return [line.split("  ")[0].split() for line in block.splitlines()]


def module_of(path):
    """auto.blend, cube, io for a package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("hydiff."):
            places = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (p if is_module(p) else node.module for p in places)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def is_module(name):
    place = PACKAGE.parent.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").exists()


def sources():
    return [p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.parent != PACKAGE]


def points_downward(own, other, level):
    """Whether the list allows a module to import another; level: the row of each folder."""
    home, there = own.split(".")[0], other.split(".")[0]
    downward = level[there] > level[home] or there == home or (own, other) in UPWARD
    nouns = level[there] == level[home] == max(level.values())
    return downward or nouns or {home, there} <= {"api", "request"}


def test_imports_point_downward():
    level = {name: i for i, row in enumerate(rows()) for name in row}
    pairs = [
        (module_of(path), name.removeprefix("hydiff."))
        for path in sources()
        for name in imports(path)
        if name.startswith("hydiff.") and not module_of(path).startswith("_")
    ]
    assert len(pairs) > 500 and set(UPWARD) <= set(pairs)
    assert not [f"{a} imports {b}" for a, b in pairs if not points_downward(a, b, level)]
    assert not points_downward("maths.noise", "io.masks", level)  # what is looked for is found


def test_few_modules_lie_at_the_top_and_every_folder_is_listed():
    modules = [p.stem for p in PACKAGE.glob("*.py") if not p.stem.startswith("_")]
    assert len(modules) <= 11
    folders = [p.parent.name for p in PACKAGE.glob("*/__init__.py")]
    assert sorted(modules + folders) == sorted(name for row in rows() for name in row)


def test_the_parts_of_auto_are_all_in_its_list():
    """The docstring of the package is the way into it, from bottom to top."""
    text = ast.get_docstring(tree(PACKAGE / "auto" / "__init__.py"), clean=False)
    listed = re.findall(r"^    (\w+)  ", text, re.M)
    assert sorted(listed) == sorted(p.stem for p in (PACKAGE / "auto").glob("[!_]*.py"))


def test_no_module_is_called_utils():
    banned = {"utils", "core", "base", "config", "trainer", "helpers", "common"}
    assert not {p.stem for p in PACKAGE.rglob("*.py")} & banned


def trees():
    return {path: tree(path) for path in sources()}


def test_every_name_of_a_class_or_module_stands_for_one_thing():
    """A command of the terminal has the name of what it calls."""
    classes = [
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    modules = [p.stem for p in sources() if p.stem != "__init__" and p.parent.name != "cli"]
    twice = [name for names in (classes, modules) for name in names if names.count(name) > 1]
    assert not twice


MISREAD = (
    "children launch handoff order job run problem validate cluster archive bars desk looking "
    "working following words"
)


def test_no_module_has_a_name_that_is_misread():
    assert not {p.stem for p in PACKAGE.rglob("*.py")} & set(MISREAD.split())


def test_masks_are_called_observed_and_pixels_complete():
    for path, parsed in trees().items():
        for node in ast.walk(parsed):
            if isinstance(node, ast.arg):
                assert node.arg not in ("seen", "known"), f"{path}:{node.lineno}"


def test_private_names_stay_in_their_module():
    for path, parsed in trees().items():
        for node in ast.walk(parsed):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("hydiff."):
                private = [a.name for a in node.names if a.name.startswith("_")]
                assert not private, f"{path}:{node.lineno} imports {private}"


def test_functions_are_short():
    found = lengths.functions()
    median, most, _ = lengths.summary([f.lines for f in found])
    assert (median <= 8, most <= 30) == (True, True), f"median {median}, 90th percentile {most}"
    long = {f"{f.file}: {f.name}" for f in found if f.lines > 60}
    assert long <= {"cli/bench.py: bench"}  # a list of options


def test_a_long_file_has_its_reason():
    above = {file for file, lines in lengths.files().items() if lines > lengths.LONG_FILE}
    assert above <= set(lengths.REASONS)


def test_docstrings_are_not_counted_and_inner_functions_are(tmp_path):
    docstring = '    """One.\n\n    Two.\n    """\n'
    text = f"def outer():\n{docstring}    def inner(): return 1\n    return inner\n"
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


# of the folder that needs torch, what also reads and writes files
FILES = {"__init__", "weights", "checkpoint", "training"}


def test_the_numerical_core_needs_torch_and_numpy_alone():
    code = "import sys\n"
    code += "".join(f"sys.modules[{name!r}] = None\n" for name in (HEAVY - {"torch"}) | {"typer"})
    core = sorted(p.stem for p in (PACKAGE / "learn").glob("*.py") if p.stem not in FILES)
    code += "".join(f"import hydiff.learn.{name}\n" for name in core)
    assert "torch" in modules_after(code)


def test_a_child_that_tries_folds_imports_no_more_than_it_needs():
    """Every trial waits for it: torch and scipy's optimisers take longer than the trial."""
    code = "import hydiff.auto.crew, hydiff.methods.smooth, sys\n"
    code += "assert not {'scipy.optimize', 'scipy.interpolate', 'scipy.spatial'} & set(sys.modules)"
    assert "torch" not in modules_after(code)


def test_a_fill_by_smooth_does_not_wait_for_torch():
    """Its import takes longer than the fill; with `device="auto"` no GPU is looked for either."""
    code = "import hydiff, numpy as np; observed = np.eye(9) < 1; cube = np.ones((3, 9, 9))\n"
    code += "hydiff.fill(cube, observed, method='smooth')"
    assert "torch" not in modules_after(code)


def test_the_public_names_are_all_of_them():
    public = {name for name in dir(hydiff) if not name.startswith("_")}
    submodules = {p.stem for p in PACKAGE.iterdir()}
    assert set(hydiff.__all__) <= public
    assert public - submodules - set(hydiff.__all__) == set()
    assert all(getattr(hydiff, name) is not None for name in hydiff.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hydiff.nothing  # noqa: B018


def test_names_are_imported_when_they_are_used():
    assert not modules_after("import hydiff; dir(hydiff)") & {"numpy", "scipy", "rich"}
    assert not modules_after("import hydiff.cli") & {"scipy"}


SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_uses_names_that_exist(script):
    """Most of them run only by hand; a name that has moved would be noticed months later."""
    nodes, modules = [*ast.walk(ast.parse(script.read_text()))], {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hydiff":
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):  # else a module of a package
                    importlib.import_module(f"{node.module}.{alias.name}")
                if inspect.ismodule(found := getattr(module, alias.name)):
                    modules[alias.asname or alias.name] = found
    used = [n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    for node in used:
        if (module := modules.get(node.value.id)) and isinstance(node.ctx, ast.Load):
            assert hasattr(module, node.attr), f"{module.__name__}.{node.attr}"
