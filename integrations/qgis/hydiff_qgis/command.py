"""Run the `hydiff` program: its progress and messages go to QGIS, its results come back.

QGIS has its own Python, in which pip packages cannot be relied upon, so nothing of hydiff is
imported here.
"""

import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

from processing.core.ProcessingConfig import ProcessingConfig
from qgis.core import QgsProcessingException
from qgis.PyQt.QtCore import QCoreApplication

SETTING = "HYDIFF_PROGRAM"
STATE = (".checkpoint", ".tiles")  # what an interrupted fill keeps beside its output
FRAME = "╭╮╰╯─│ "  # around messages about the use of an option
GRACE = 20  # seconds in which an interrupted program may clean up
# QGIS sets these for itself on some systems; they would lead hydiff to other libraries
OWN = ("PYTHONHOME", "PROJ_LIB", "PROJ_DATA", "GDAL_DATA", "GDAL_DRIVER_PATH")


def program():
    """The path of `hydiff`: as set in the options of Processing, else in PATH."""
    name = ProcessingConfig.getSetting(SETTING) or "hydiff"
    path = shutil.which(name)
    if path is None:
        raise QgsProcessingException(
            f"the program {name} was not found, expected hydiff in PATH; install it, for example "
            "with `pipx install hydiff`, or set its path in Settings > Options > Processing > "
            "Providers > hydiff"
        )
    return path


def run(words, feedback, share=(0, 100)):
    """What `hydiff WORDS` prints on stdout, or None if it was cancelled.

    share: of the progress bar, from and to, in percent.
    """
    command = [program(), *map(str, words)]
    feedback.pushCommandInfo(shlex.join(command))
    environment = {k: v for k, v in os.environ.items() if k not in OWN}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as results:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=results,
            stderr=subprocess.PIPE,
            env={**environment, "PYTHONIOENCODING": "utf-8", "COLUMNS": "1000"},
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C in a terminal is for QGIS, which cancels
        )
        with process:
            try:
                last = _follow(process, feedback, share)
            finally:
                _stop(process)
        if feedback.isCanceled():
            return None
        if process.returncode != 0:
            raise QgsProcessingException(last or f"hydiff ended with code {process.returncode}")
        results.seek(0)
        return results.read()


def _follow(process, feedback, share):
    """Hand on progress and messages until the program ends or is cancelled; the last message."""
    lines, last = queue.Queue(), ""
    threading.Thread(target=_read, args=(process.stderr, lines), daemon=True).start()
    while not feedback.isCanceled():
        QCoreApplication.processEvents()  # or qgis_process does not notice Ctrl-C
        try:
            line = lines.get(timeout=0.1)
        except queue.Empty:
            continue
        if line is None:
            process.wait()
            break
        event = _event(line)
        if event.get("event") == "progress":
            feedback.setProgress(share[0] + (share[1] - share[0]) * event["percent"] / 100)
        elif "text" in event:
            feedback.pushInfo(event["text"])
            last = event["text"].strip(FRAME) or last
    return last


def _event(line):
    """What `hydiff --json` reports as a line of JSON; any other line is a message."""
    if line.startswith('{"event"'):
        return json.loads(line)
    return {"event": "message", "text": line} if line else {}


def _read(stream, lines):
    for line in stream:
        lines.put(line.rstrip())
    lines.put(None)


def _stop(process):
    """End a program that still runs: as Ctrl-C does, so that it removes its temporary files."""
    if process.poll() is not None:
        return
    if os.name == "posix":
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE)
            return
        except subprocess.TimeoutExpired:
            pass
    process.kill()
    process.wait()


def forget(output):
    """Remove what a cancelled fill keeps to go on with: Processing cannot resume it."""
    for suffix in STATE:
        path = Path(f"{output}{suffix}")
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.exists():
            path.unlink()
