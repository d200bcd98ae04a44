"""Words that a reader stumbles over do not occur, in prose or in names."""

import re

import pytest

from conftest import ROOT

WORDS = ("told", "foretell", "foretells", "foretold", "anew", "mended", "mends")
LEFT_OUT = {"test_words.py", "cli.md"}  # this list; a page generated from src
PROSE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")

PATTERN = re.compile(rf"(?<![a-z])({'|'.join(WORDS)})(?![a-z])", re.IGNORECASE)
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # foundTold, ToldBy: names are several words


def places():
    files = [ROOT / name for name in PROSE]
    for folder, kind in (("docs", "*.md"), ("docs", "*.py"), ("src", "*.py"), ("tests", "*.py")):
        files += (ROOT / folder).rglob(kind)
    files += (ROOT / "benchmarks").glob("*.py")
    return sorted(p for p in files if p.name not in LEFT_OUT and "_build" not in p.parts)


def found(text):
    """Line and word, for each word of the list."""
    return [
        (number, match[0])
        for number, line in enumerate(text.splitlines(), 1)
        for match in PATTERN.finditer(CAMEL.sub(" ", line))
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("it is told", ["told"]),
        ("told_by = Told()", ["told", "Told"]),
        ("class WasTold: anew", ["Told", "anew"]),
        ("untold amends recommended", []),
    ],
)
def test_words_are_found_in_prose_and_names(text, words):
    assert [word for _, word in found(text)] == words


def test_no_page_or_name_uses_a_word_of_the_list():
    read = {path.relative_to(ROOT): path.read_text() for path in places()}
    assert {"README.md", "docs", "src", "tests", "benchmarks"} <= {p.parts[0] for p in read}
    assert not {str(path): words for path, text in read.items() if (words := found(text))}
