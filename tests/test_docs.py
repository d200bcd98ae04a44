"""The documents tell the truth: tables come from results, commands exist, examples run."""

import re
import sys

import pytest
from typer.main import get_command

import hydiff
from conftest import ROOT
from hydiff.cli import app
from hydiff.mask import MASKS

sys.path.insert(0, str(ROOT / "benchmarks"))
README = (ROOT / "README.md").read_text()


def test_the_tables_are_those_of_the_results():
    from tables import DOCUMENTS, rendered

    for document in DOCUMENTS:
        text = document.read_text()
        assert rendered(text) == text, f"{document.name}: run `python benchmarks/tables.py`"


def test_every_command_and_option_in_the_readme_exists():
    commands = get_command(app).commands
    for line in re.findall(r"^hydiff (.*)$", README, re.MULTILINE):
        name, *rest = line.split("#")[0].split()
        options = {o for p in commands[name].params for o in p.opts}
        assert {word for word in rest if word.startswith("-")} <= options


def test_every_kind_of_mask_is_named():
    named = README.replace(
        "`published-1` … `published-4`", "`published-1` `published-2` `published-3` `published-4`"
    )
    assert set(MASKS) <= set(re.findall(r"`([\w-]+)`", named))


def test_every_command_has_a_help_text():
    for name, command in get_command(app).commands.items():
        assert command.help, name
        for parameter in command.params:
            named = parameter.param_type_name == "argument" or getattr(parameter, "help", None)
            assert named, f"{name} {parameter.name}"


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, tiny, stripes):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    hydiff.write(hydiff.Cube(tiny.astype(np.float32)), "truth.bil")
    damaged = np.where(stripes, tiny, -9999).astype(np.float32)
    hydiff.write(hydiff.Cube(damaged, nodata=-9999.0), "scene.bil")
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(block, {})
    assert not (np.asarray(hydiff.read("scene_filled.bil").values)[:, 1:-1, 1:-1] == -9999).any()


def test_the_method_of_the_contributing_guide_works(tiny, stripes):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {"__name__": "mine"}
    exec(block, names)
    result = hydiff.fill(tiny, stripes, method=names["mine"], strength=1.0)
    assert result.filled.sum() == 12 * (~stripes).sum()


@pytest.mark.parametrize("module", ["hydiff", "hydiff.api"])
def test_docstring_examples(module):
    import doctest
    import importlib

    outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted > 0 and outcome.failed == 0
