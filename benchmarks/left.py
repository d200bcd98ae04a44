"""Cells of the paper's tables that are still to be run, and their time on a GPU; for tables.py."""

from pathlib import Path
from statistics import fmean

from hydiff.bench import records, scenes
from hydiff.bench.choice import SuiteChoice
from hydiff.bench.runner import split
from hydiff.bench.tables import cell_of

HOME = Path(__file__).parent / "results" / "bench"
TABLES = (
    "noiseless", "noisy", "emit", "ei-ablation", "time", "alpha", "transforms", "offline",
    "readings", "precision", "epsilon",
)  # fmt: skip
CORE = ("hydiff-ei", "ei", "robust-ei", "hir-diff")  # `gpu.sh core-matrix`, in ten lanes
CORE_TABLES = ("noiseless", "noisy", "emit", "ei-ablation", "alpha", "transforms", "epsilon")
GPU = "NVIDIA"
TRAINING = 90.0  # seconds that gpu.sh gives to each network of the table `offline`


def seconds_by_entry(tables):
    """Method and its steps → seconds for an entry of the cube, of rows that a GPU made; and the
    entries of each scene."""
    found, sizes = {}, {}
    for row in (row for rows in tables.values() for row in rows if row.get("settings_hash")):
        cell = cell_of(row)
        sizes[cell.scene] = int(row["bands"]) * int(row["rows"]) * int(row["cols"])
        if row["device"].startswith(GPU) or not cell.learned:
            of = float(row["spent"] or row["seconds"]) / sizes[cell.scene]
            found.setdefault((cell.method, cell.changes.get("steps")), []).append(of)
    for scene in scenes.PARTS:
        sizes.setdefault(scene, scenes.load(scene).size)
    return {key: fmean(each) for key, each in found.items()}, sizes


def left(_):
    """Rows down: the tables that lack cells of a method, how many, and the expected minutes."""
    tables = records.read_folder(HOME)
    rate, sizes = seconds_by_entry(tables)
    choice = SuiteChoice((scenes.BUNDLED, *scenes.DEVELOPMENT), offline_minutes=1.5)
    lacking = {}
    for table in TABLES:
        for cell in split(table, tables, choice)[1]:
            known = lacking.setdefault((cell.method, cell.changes.get("steps")), {})
            known.setdefault(table, []).append(cell)
    yield "| method | tables: cells without a row | cells | minutes on a GPU, one after the other |"
    yield "|---" * 4 + "|"
    total, cells = 0.0, 0
    for key, known in lacking.items():
        name = f"`{key[0]}`" + (f", {key[1]} steps" if key[1] else "")
        every = [cell for found in known.values() for cell in found]
        where = ", ".join(f"{table} {len(found)}" for table, found in known.items())
        minutes = (
            sum(
                rate.get(key, 0.0) * sizes[cell.scene] + (TRAINING if cell.own("offline") else 0.0)
                for cell in every
            )
            / 60
        )
        total, cells = total + minutes, cells + len(every)
        yield f"| {name} | {where} | {len(every)} | {f'{minutes:.0f}' if key in rate else '–'} |"
    yield f"| all | | {cells} | {total:.0f} |"
    spent = [
        float(row["spent"] or row["seconds"])
        for name in CORE_TABLES
        for row in tables.get(name, ())
        if row["method"] in CORE and row["device"].startswith(GPU)
    ]
    yield f"| the core matrix once more | – | {len(spent)} | {sum(spent) / 60:.0f} |"
