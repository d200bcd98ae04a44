"""`make mutants`: faults go where they are said to go, or are reported as stale."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from conftest import ROOT


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "benchmarks" / "mutants.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mutants = loaded()
TEXT = '''"""A module."""


class Box:
    def size(self):
        return 1 + 2

    def other(self):
        return 1 + 2


def size():
    def inner():
        return 3 < 4

    return inner() and "1 + 2"
'''


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "package" / "part"
    folder.mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").write_text("def top():\n    return 1\n")
    (folder / "module.py").write_text(TEXT)
    return tmp_path


@pytest.mark.parametrize(
    ("where", "old", "new", "line"),
    [
        ("package.part.module.Box.size", "1 + 2", "1 - 2", 6),
        ("package.part.module.Box.other", "1 + 2", "1 - 2", 9),
        ("package.part.module.size", "1 + 2", "1 - 2", 16),
        ("package.part.module.size.inner", "<", ">", 14),
        ("package.top", "1", "2", 2),
    ],
)
def test_a_fault_changes_one_line_of_the_function_that_is_named(
    source: Path, where: str, old: str, new: str, line: int
) -> None:
    path, changed = mutants.mutated(mutants.Fault(where, old, new, ""), source)
    before, after = path.read_text().splitlines(), changed.splitlines()
    assert len(before) == len(after)
    assert [n for n, pair in enumerate(zip(before, after, strict=True), 1) if len({*pair}) > 1] == [
        line
    ]
    assert after[line - 1] == before[line - 1].replace(old, new)


@pytest.mark.parametrize(
    ("where", "old", "new", "why"),
    [
        ("elsewhere.module.size", "1", "2", "no file for elsewhere.module.size"),
        ("package.part.module.Box.gone", "1", "2", "no gone in Box"),
        ("package.part.module.Box", "1 + 2", "3", "is there 2 times"),
        ("package.part.module.size", "5", "6", "is there 0 times"),
        ("package.part.module.size", "3 < 4", "3 <", "no Python"),
        ("package.part.module.Box.size", "1 + 2", "(1 + 2)", "changes nothing"),
    ],
)
def test_what_is_no_longer_there_is_stale(
    source: Path, where: str, old: str, new: str, why: str
) -> None:
    with pytest.raises(mutants.Stale, match=re.escape(why)):
        mutants.mutated(mutants.Fault(where, old, new, ""), source)


@pytest.mark.parametrize(
    ("killed", "survived", "stale", "code"), [(19, 1, 0, 0), (18, 2, 0, 1), (20, 0, 1, 1)]
)
def test_the_exit_code_asks_for_most_of_them_killed_and_none_stale(
    killed: int, survived: int, stale: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = mutants.Fault("a.b", "old", "new", "")
    what = [mutants.KILLED] * killed + [mutants.SURVIVED] * survived + [mutants.STALE] * stale
    assert mutants.summary([mutants.Outcome(fault, each) for each in what]) == code
    assert capsys.readouterr().out.count("a.b: old → new") == survived + stale


def test_the_list_is_long_and_reaches_every_folder() -> None:
    faults = mutants.faults()
    assert len({fault[:3] for fault in faults}) == len(faults) >= 120
    assert all(fault.ids and "\n" not in fault.old + fault.new for fault in faults)
    folders = {p.name for p in (ROOT / "src" / "hydiff").iterdir() if (p / "__init__.py").is_file()}
    assert {fault.where.split(".")[1] for fault in faults} >= folders


def test_no_fault_of_the_list_is_stale():
    stale = []
    for fault in mutants.faults():
        try:
            mutants.place_of(fault, ROOT / "src")
        except mutants.Stale as why:
            stale.append(f"{fault}: {why}")
    assert not stale
