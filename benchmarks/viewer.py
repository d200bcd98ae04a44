"""Time that the viewer takes to show another band of a large file, in a real browser.

    python benchmarks/viewer.py            # makes 1.8 GB files in a temporary folder

Measures the time from the press of a key to the frame after the new picture is complete, ten times
for each layout of a 1280 × 1242 × 285 float32 ENVI file, alone and with a fill.  Its parts are the
time until the first message about the new picture (server), until the picture has arrived
(sending), and until it is shown (painting).  The CPU seconds of viewer and browser do not depend on
the load of the machine.  `results/viewer_whole.csv` is of an older version, which sent every pixel.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import psutil
from playwright.sync_api import sync_playwright

from hydiff.bench import records

RESULTS = Path(__file__).parent / "results" / "viewer.csv"
ROWS, COLS, BANDS = 1280, 1242, 285
ORDER = {"bsq": "brc", "bil": "rbc", "bip": "rcb"}
HEAR = """
window.heard = []
window.WebSocket = class extends WebSocket {
    constructor(...address) {
        super(...address)
        this.addEventListener("message", ({data}) =>
            window.heard.push([performance.now(), data.byteLength ?? data.size ?? data.length]))
    }
}
"""
WATCH = """() => {
    for (const model of Bokeh.documents[0]._all_models.values())
        if (model.name == "picture")
            model.change.connect(() => requestAnimationFrame(
                () => setTimeout(() => { window.painted = performance.now() }, 0)))
}"""


def made(path: Path) -> Path:
    """An ENVI file of noise with a gap, in the layout of its suffix."""
    lengths = {"b": BANDS, "r": ROWS, "c": COLS}
    order = ORDER[path.suffix[1:]]
    values = np.memmap(path, np.float32, "w+", shape=tuple(lengths[axis] for axis in order))
    cube = values.transpose([order.index(axis) for axis in "brc"])
    picture = np.random.default_rng(0).random((ROWS, COLS), dtype=np.float32)
    picture[100:140, 200:600] = np.nan
    gain = np.linspace(0.5, 2.0, BANDS, dtype=np.float32)
    for rows in np.array_split(np.arange(ROWS), 40):
        part = picture[rows[0] : rows[-1] + 1]
        cube[:, rows[0] : rows[-1] + 1] = gain[:, None, None] * part
    values.flush()
    lines = ["ENVI", f"samples = {COLS}", f"lines = {ROWS}", f"bands = {BANDS}", "data type = 4"]
    lines += ["header offset = 0", f"interleave = {path.suffix[1:]}", "byte order = 0"]
    lines += ["wavelength units = Nanometers"]
    lines += ["wavelength = {" + ", ".join(f"{w:.1f}" for w in np.linspace(381, 2493, BANDS)) + "}"]
    path.with_suffix(".hdr").write_text("\n".join(lines) + "\n")
    return path


def measured(files: list[Path], changes: int = 10) -> list[tuple[float, ...]]:
    """Seconds from the key to the new picture, those of its three parts, megabytes sent,
    and seconds of processor time, of viewer and browser together."""
    command = [sys.executable, "-m", "hydiff", "view", *map(str, files), "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as viewer:
        try:
            assert viewer.stderr is not None
            lines = (re.search(r"http://\S+", line) for line in viewer.stderr)
            found = band_changes(next(line[0] for line in lines if line), changes)
        finally:
            viewer.terminate()
    return found


def band_changes(url: str, changes: int) -> list[tuple[float, ...]]:
    """What `measured` tells, of a page at this address."""
    found = []
    with sync_playwright() as driver:
        chromium = shutil.which("chromium")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(300_000)  # long, as the machine may be busy
        page.add_init_script(HEAR)
        page.goto(url)
        page.get_by_label("Show", exact=True).select_option("One band")
        page.locator(".state p", has_text="One band").wait_for()
        page.wait_for_timeout(3000)
        page.evaluate(WATCH)
        page.get_by_label("Band", exact=True).focus()
        for _ in range(changes):
            spent = cpu()
            began = page.evaluate("window.painted = 0, window.heard = [], performance.now()")
            page.keyboard.press("ArrowRight")
            page.wait_for_function("window.painted > 0")
            end, heard = page.evaluate("[window.painted, window.heard]")
            page.wait_for_timeout(500)
            found.append((*parts(began, heard, end), cpu() - spent))
        browser.close()
    return found


def cpu() -> float:
    """Seconds of processor time that the viewer and the browser have taken so far."""
    times = (p.cpu_times() for p in psutil.Process().children(recursive=True))
    return sum(t.user + t.system for t in times)


def parts(began: float, heard: list[list[float]], end: float) -> tuple[float, ...]:
    """What `measured` tells, from times in ms and sizes in bytes of what was heard."""
    heard = [(at, size) for at, size in heard if at <= end]
    head = next(at for at, size in heard if size > 500)  # the message that names the pictures
    last = max(at for at, size in heard if size > 100_000)
    times = (end - began, head - began, last - head, end - last)
    return (*(t / 1000 for t in times), sum(size for _, size in heard) / 1e6)


def main() -> None:
    table = []
    for layout in ORDER:
        with tempfile.TemporaryDirectory() as folder:
            file = made(Path(folder) / f"scene.{layout}")
            fill = shutil.copy(file, Path(folder) / f"filled.{layout}")
            shutil.copy(file.with_suffix(".hdr"), Path(folder) / "filled.hdr")
            for shown, files in (("alone", [file]), ("beside its fill", [file, Path(fill)])):
                columns = zip(*measured(files), strict=True)
                seconds, server, sending, painting, megabytes, cpu_s = columns
                row = {
                    "layout": layout,
                    "shown": shown,
                    "median_s": f"{statistics.median(seconds):.3f}",
                    "least_s": f"{min(seconds):.3f}",
                    "most_s": f"{max(seconds):.3f}",
                    "server_s": f"{statistics.median(server):.3f}",
                    "sending_s": f"{statistics.median(sending):.3f}",
                    "painting_s": f"{statistics.median(painting):.3f}",
                    "cpu_s": f"{statistics.median(cpu_s):.3f}",
                    "megabytes": f"{statistics.median(megabytes):.1f}",
                    "load_average": f"{os.getloadavg()[0]:.1f}",
                    "cores": os.cpu_count(),
                }
                table.append(row)
                print(*row.values(), flush=True)
    records.write(RESULTS, table)


if __name__ == "__main__":
    main()
