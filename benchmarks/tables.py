"""Put the tables that the documents show into them, read from benchmarks/results.

python benchmarks/tables.py            rewrites README.md between its table marks
"""

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARKS = re.compile(r"(<!-- table: (?P<source>\S+) -->\n).*?(<!-- /table -->)", re.DOTALL)


def classical(rows):
    """Methods down, scene and mask across; smooth at its default s only."""
    rows = [r for r in rows if r["method"] != "smooth" or r["s"] == "1.5"]
    cases = list(dict.fromkeys((r["scene"], r["mask"]) for r in rows))
    methods = sorted({r["method"] for r in rows}, key=lambda m: -mean(rows, m))
    yield "| method | " + " | ".join(f"{s}, {m.split('_')[0]}" for s, m in cases) + " | seconds |"
    yield "|---" * (len(cases) + 2) + "|"
    for method in methods:
        mine = {(r["scene"], r["mask"]): r for r in rows if r["method"] == method}
        figures = [f"{float(mine[case]['mpsnr']):.2f}" for case in cases]
        seconds = max(float(r["seconds"]) for r in mine.values())
        yield f"| `{method}` | " + " | ".join(figures) + f" | {seconds:.1f} |"


def mean(rows, method):
    figures = [float(r["mpsnr"]) for r in rows if r["method"] == method]
    return sum(figures) / len(figures)


TABLES = {"benchmarks/results/classical.csv": classical}


def rendered(text):
    """The text of a document with every marked table made anew."""

    def table(match):
        with (ROOT / match["source"]).open(newline="") as file:
            lines = TABLES[match["source"]](list(csv.DictReader(file)))
            return match[1] + "\n".join(lines) + "\n" + match[3]

    return MARKS.sub(table, text)


if __name__ == "__main__":
    for document in (ROOT / "README.md",):
        document.write_text(rendered(document.read_text()))
