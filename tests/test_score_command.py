"""`hydiff score` compares what belongs together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import rasterio

from command import run
from hydiff import io
from hydiff.cube import Cube


def on_map(path: Path, first: float = 400.0, east: float = 5e5, down: float = -30.0) -> Path:
    """A scene with wavelengths, at a place on a map."""
    cube = Cube(
        np.random.default_rng(0).random((4, 9, 8), np.float32),
        wavelengths=first + 10 * np.arange(4.0),
        wavelength_units="nm",
        transform=(30.0, 0.0, east, 0.0, down, 5e6),
        crs=rasterio.CRS.from_epsg(32633).to_wkt(),
    )
    io.write(cube, path)
    return path


def test_a_truth_from_another_place_is_refused(tmp_path: Path) -> None:
    scene = on_map(tmp_path / "scene.tif")
    assert run("score", scene, on_map(tmp_path / "same.img")).returncode == 0  # another text of CRS
    for name, place in (("shifted", {"east": 5e5 + 60}), ("mirrored", {"down": 30.0})):
        scored = run("score", scene, on_map(tmp_path / f"{name}.tif", **place))
        assert scored.returncode == 2
        assert "does not lie on the grid of the cube" in scored.stderr


def test_a_truth_with_other_wavelengths_is_scored_with_a_warning(tmp_path: Path) -> None:
    scene = on_map(tmp_path / "scene.tif")
    near = run("score", scene, on_map(tmp_path / "near.tif", 400.4))
    far = run("score", scene, on_map(tmp_path / "far.tif", 700.0))
    assert near.returncode == far.returncode == 0
    assert "wavelengths" not in near.stderr
    assert "other wavelengths, by up to 300 nm" in far.stderr
