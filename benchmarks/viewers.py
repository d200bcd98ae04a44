"""Eight viewers of one scene at once: do all of them answer, and how much memory does each take?

`python benchmarks/viewers.py` writes results/viewers.csv.  Each viewer is a process (`hydiff view`)
with one open page.  `resident_mb` is its resident memory; in `own_mb`, pages that n processes share
count by 1/n.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import panel  # noqa: F401  the models of its pages
from bokeh.client import pull_session

import hydiff

COUNT = 8
HERE = Path(__file__).parent


def memory(process: int) -> tuple[float, float]:
    """MB resident, and MB with pages that n processes share counted by 1/n."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    resident, share = (int(re.search(rf"^{key}: +(\d+)", text, re.M)[1]) for key in ("Rss", "Pss"))
    return resident / 1024, share / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        scene = hydiff.write(hydiff.sample(), Path(folder) / "scene.bsq")[0]
        command = [sys.executable, "-m", "hydiff", "view", str(scene), "--no-browser"]
        viewers = [
            subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(COUNT)
        ]
        try:
            urls = [re.search(r"http://\S+", viewer.stderr.readline())[0] for viewer in viewers]
            rows, sessions = [], []
            for url in urls:
                began = time.perf_counter()
                sessions.append(pull_session(url=url))
                assert sessions[-1].document.roots
                rows.append([round(time.perf_counter() - began, 1)])
            for row, viewer in zip(rows, viewers, strict=True):
                row += [round(mb) for mb in memory(viewer.pid)]
        finally:
            for viewer in viewers:
                viewer.terminate()
    rows = [[i + 1, *row] for i, row in enumerate(sorted(rows, key=lambda row: row[1:]))]
    with (HERE / "results" / "viewers.csv").open("w", newline="") as file:
        head = ["viewer", "page_seconds", "resident_mb", "own_mb"]
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


if __name__ == "__main__":
    main()
