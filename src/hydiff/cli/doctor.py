"""`hydiff doctor`: show what is installed on this machine, and test whether it works."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from hydiff.cli.options import Json
from hydiff.cli.terminal import number, out, print_json

if TYPE_CHECKING:
    from hydiff.cube import Cube

PACKAGES = ("numpy", "scipy", "rasterio", "h5py", "zarr", "spectral", "matplotlib", "torch",
            "triton", "xarray", "dask", "panel")  # fmt: skip
EXTRAS = {
    "learn": ("torch", "safetensors"),
    "xarray": ("xarray",),
    "scene": ("dask", "distributed", "pyarrow"),
    "view": ("panel", "bokeh", "skimage"),
}  # import names of the packages of each extra
# test of each format: the suffix of a file to write and read again, or the library to test
PROBES = {
    "emit": "hdf5", "aviris": "hdf5", "prisma": "hdf5", "neon": "hdf5", "zarr": ".zarr",
    "desis": ".tif", "enmap": ".tif", "geotiff": ".tif", "raster": ".tif", "mat": ".mat",
    "npz": ".npz", "envi": ".img",
}  # fmt: skip
SIDE = 32  # rows and columns of the scene's corner
SEND = (
    "for a bug report, send the output of `hydiff doctor --json`, the command and its message, "
    "`hydiff info FILE --json`, and the record OUT.fill.json if there is one"
)

Facts = dict[str, Any]


def doctor(json_: Json = False) -> None:
    """Show versions, GPU, folders, extras and formats, and fill a small scene as a test.

    Exit code 1 if something that is installed does not work.
    """
    facts = examined()
    if json_:
        print_json(facts)
    else:
        _print(facts)
    if facts["problems"]:
        raise typer.Exit(1)


def examined() -> Facts:
    """Return everything that `doctor` prints; JSON-able.

    `problems` has a line for each failed check.
    """
    from hydiff.io.versions import versions

    problems: list[str] = []

    def check(name: str, work: Callable[[], Any]) -> Any:
        """Return the result of a check; if it raises, add a problem and return None."""
        try:
            return work()
        except Exception as error:
            problems.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())}")
            return None

    facts: Facts = {
        "system": f"{platform.platform()}, {os.cpu_count()} cores",
        "versions": versions(*PACKAGES) | (check("libraries", libraries) or {}),
        "gpu": check("GPU", gpu),
        "folders": check("folders", folders),
        "extras": {name: not missing(packages) for name, packages in EXTRAS.items()},
    }
    works = {p: check(p, partial(probe, p)) for p in dict.fromkeys(PROBES.values())}
    facts["formats"] = {name: bool(works[p]) for name, p in PROBES.items()}
    facts["self_test"] = check("self-test", self_test)
    return facts | {"problems": problems}


def libraries() -> dict[str, str]:
    """Return the versions of the C libraries that the packages use."""
    import h5py
    import rasterio

    c_libraries = {"GDAL": rasterio.__gdal_version__, "HDF5": h5py.version.hdf5_version}
    if not missing(("torch",)):
        import torch

        c_libraries |= {"CUDA": torch.version.cuda} if torch.version.cuda else {}
    return c_libraries


def missing(packages: tuple[str, ...]) -> list[str]:
    """Return the packages that are not installed, without importing any."""
    return [name for name in packages if find_spec(name) is None]


def gpu() -> str:
    """Return the GPU that learned methods use, after a test sum on it, or why there is none."""
    if missing(("torch",)):
        return 'none: torch is not installed (pip install "hydiff[learn]")'
    import torch

    if not torch.cuda.is_available():
        return "none that torch finds: learned methods run on the CPU"
    if float(torch.ones(1000, device="cuda").sum()) != 1000:
        raise ArithmeticError("1000 ones on the GPU do not add up to 1000")
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30
    return f"{torch.cuda.get_device_name()}, {memory:.0f} GiB"


def folders() -> dict[str, str]:
    """Return the folders of cached and of temporary files."""
    from hydiff.scale.fill_history import cache_folder, home_folder, read_history

    with tempfile.TemporaryFile() as file:  # raises if the folder is not writable
        file.write(b"hydiff")
    triton = Path(os.environ.get("TRITON_CACHE_DIR", home_folder() / ".triton" / "cache"))
    timed, state = len(read_history().fills), "there" if triton.is_dir() else "not made yet"
    return {
        "cache": f"{_short(cache_folder())}: how long {timed} earlier fills took, for forecasts",
        "kernels": f"{_short(triton)} ({state}): what Triton compiled",
        "temporary": _short(Path(tempfile.gettempdir())),
    }


def _short(path: Path) -> str:
    """Return a path without the name of the user, because the report is sent to others."""
    from hydiff.scale.fill_history import home_folder

    home = home_folder()
    below = home.is_dir() and path.is_relative_to(home)
    return f"~/{path.relative_to(home)}" if below else str(path)


def probe(kind: str) -> bool:
    """Write and read again a small cube as a file with this suffix, or an array in HDF5.

    Returns True, or raises an error.
    """
    from hydiff import io
    from hydiff.cube import Cube

    values = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    if kind == "hdf5":
        return _hdf5_holds(values)
    with tempfile.TemporaryDirectory(prefix="hydiff-doctor-") as folder:
        path = io.write(Cube(values), Path(folder) / f"probe{kind}")[0]
        same = np.array_equal(np.asarray(io.read(path).values), values)
    if not same:
        raise ValueError("values that were read differ from those written")
    return True


def _hdf5_holds(values: Any) -> bool:
    """Return True if HDF5 in memory returns the values written; raise an error otherwise."""
    import h5py

    with h5py.File(BytesIO(), "w") as file:
        file.create_dataset("values", data=values, compression="gzip")
        file.flush()
        if not np.array_equal(file["values"][...], values):
            raise ValueError("values that were read differ from those written")
    return True


def self_test() -> Facts:
    """Damage a corner of the bundled scene, fill it with `smooth`, and score the fill.

    Measured values must be unchanged, all gaps filled, and the fill better than the band means.
    """
    from hydiff import api
    from hydiff.gaps import simulate
    from hydiff.io import bundled

    began = time.perf_counter()
    truth = bundled.sample().window(slice(0, SIDE), slice(0, SIDE))
    damaged, observed = simulate.simulate(truth, "stripes", 0.2)
    fills = {name: api.fill(damaged, method=name) for name in ("smooth", "bandmean")}
    values = np.asarray(fills["smooth"].cube.values)
    if not np.array_equal(values[:, observed], np.asarray(truth.values)[:, observed]):
        raise ArithmeticError("a fill changed measured values")
    if not (fills["smooth"].filled == ~observed).all():
        raise ArithmeticError("a fill left gaps")
    smooth, mean = (_nrmse(fill.cube, truth, ~observed) for fill in fills.values())
    if not smooth < mean:
        raise ArithmeticError(
            f"NRMSE {smooth:.3g} by smooth, but {mean:.3g} by the mean of the band"
        )
    seconds = round(time.perf_counter() - began, 2)
    return {"nrmse": smooth, "nrmse_of_band_mean": mean, "seconds": seconds}


def _nrmse(cube: Cube, truth: Cube, gaps: Any) -> float:
    """Return the mean NRMSE over bands in the gaps."""
    from hydiff import metrics

    scores = metrics.score(cube, truth, gaps).missing
    assert scores is not None  # gaps are given
    return scores["nrmse"]


def _print(facts: Mapping[str, Any]) -> None:
    """Print the facts, a line for each."""
    rows = [("system", facts["system"])]
    rows.append(("versions", ", ".join(f"{k} {v}" for k, v in facts["versions"].items())))
    rows.append(("GPU", facts["gpu"] or "failed"))
    rows += list((facts["folders"] or {}).items())
    for name, installed in facts["extras"].items():
        absent = f'not installed (pip install "hydiff[{name}]")'
        rows.append((f"[{name}]", "installed" if installed else absent))
    for works, label in ((True, "formats"), (False, "unreadable")):
        if names := [name for name, state in facts["formats"].items() if state == works]:
            rows.append((label, ", ".join(names)))
    if (test := facts["self_test"]) is not None:
        scores = f"NRMSE {number(test['nrmse'])}, band mean {number(test['nrmse_of_band_mean'])}"
        rows.append(("self-test", f"passed in {test['seconds']:.1f} s: {scores}"))
    rows += [("problem", line) for line in facts["problems"]]
    for label, text in rows:
        out.print(f"{label:12} {text}", style="bold red" if label == "problem" else None)
    out.print(f"\n{'something fails' if facts['problems'] else 'all is well'}; {SEND}")
