"""How the command line says numbers, shares and ends."""

import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from rich.text import Text
from typer.testing import CliRunner

from hydiff.cli import app, options, terminal
from hydiff.errors import BadValue
from hydiff.result import Meter, Step


def test_a_number_has_four_digits_or_two_places() -> None:
    said = {0.123456: "0.1235", 9.99991: "10", 10.0: "10.00", -123.456: "-123.46"}
    assert {value: terminal.number(value) for value in said} == said
    assert terminal.number(None) == terminal.number(float("nan")) == "–"


def test_a_share_is_said_in_percent() -> None:
    assert terminal.share(np.array([True, False, False, False])) == "25.0 % of the entries"


def test_settings_are_pairs_and_a_value_may_hold_the_sign() -> None:
    assert options.key_values(["s=1.25", "path=a=b"]) == {"s": "1.25", "path": "a=b"}
    with pytest.raises(BadValue, match="expected key=value"):
        options.key_values(["s"])


def test_what_no_terminal_shows_is_replaced() -> None:
    said = terminal.Clean().render_str("a\x1b[31mb\nc")
    assert isinstance(said, Text) and said.plain == "a\ufffd[31mb\nc"


@pytest.mark.parametrize(
    ("typed", "found"), [("hydiff expl", "explain"), ("hydiff compare --tr", "--truth")]
)
def test_a_shell_completes_commands_and_options(typed, found) -> None:
    word = str(len(typed.split()) - 1)
    asked = {"_HYDIFF_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": word}
    done = CliRunner().invoke(app, [], env=asked, prog_name="hydiff")
    assert done.stdout.split() == [found]


def test_events_say_each_phase_and_each_percent_once(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.progress_bar(events=True) as progress:
        assert progress is not None
        progress(Step(0, 400, None, phase="networks"))
        for done in range(1, 401):
            progress(Step(done, 400, None, phase="trials"))
    said = capsys.readouterr()
    events = [json.loads(line) for line in said.err.splitlines()]
    assert said.out == "" and events[0]["phase"] == "networks"
    assert [e["percent"] for e in events[1:]] == list(range(101))
    assert {e["event"] for e in events} == {"progress"} and events[-1]["seconds_left"] == 0


def test_a_bar_shows_phase_share_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = terminal.Clean(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr(terminal, "err", console)
    with terminal.progress_bar(Meter(expected=100.0), "tiles") as progress:
        assert progress is not None
        progress(Step(3, 12, None, how="one", phase="tiles"))
    shown = Text.from_ansi(screen.getvalue()).plain
    assert re.search(r"tiles .*\d+ % 3 of 12 tiles about \d+ s left by worker one:1", shown)


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.progress_bar() as progress:
        assert progress is None
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("closed", [(2,), (0, 2), (0, 1, 2)])
def test_no_file_gets_the_number_of_a_closed_stream(closed, tmp_path):
    """What libraries print would go into that file; workers need the streams, too."""
    code = f"""
import os, subprocess, sys
from hydiff.cli.terminal import prepare_streams
prepare_streams()
print("said", file=sys.stdout), print("said", file=sys.stderr)
child = subprocess.run([sys.executable, "-c", "import os; [os.fstat(n) for n in range(3)]"])
number = os.open({str(tmp_path / "file")!r}, os.O_CREAT | os.O_WRONLY)
os.write(number, str((number > 2, child.returncode)).encode())
"""
    without = {"preexec_fn": lambda: [os.close(number) for number in closed]}
    subprocess.run([sys.executable, "-c", code], check=True, **without)
    assert (tmp_path / "file").read_text() == "(True, 0)"


def test_characters_that_stdout_lacks_are_replaced():
    code = "from hydiff.cli.terminal import out, prepare_streams\nprepare_streams()\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "out.print('2 × 3')"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.split() == [b"2", b"?", b"3"] and not done.stderr
