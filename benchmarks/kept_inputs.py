"""Inputs of `kept_fills.py`: crops of the bundled scene with holes, in every format.

They are written by other libraries than hydiff and are seeded, so that they do not depend on the
version of hydiff that is tested.
"""

import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import zarr
from scipy.io import savemat

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import products

LOST = -9999
CODES = {"int16": 2, "float32": 4, "uint16": 12}
AXES = {"bsq": (0, 1, 2), "bil": (1, 0, 2), "bip": (1, 2, 0)}


def envi(path, values, interleave="bil", **entries):
    """Values (bands, rows, cols) with a header; entries of it with _ for spaces."""
    bands, rows, cols = values.shape
    path.write_bytes(np.ascontiguousarray(values.transpose(AXES[interleave])).tobytes())
    size = {"samples": cols, "lines": rows, "bands": bands, "data_type": CODES[values.dtype.name]}
    waves = ", ".join(f"{w:.2f}" for w in products.wavelengths(bands))
    spectrum = {"wavelength_units": "Nanometers", "wavelength": f"{{{waves}}}"}
    said = size | {"interleave": interleave, "byte_order": 0} | spectrum | entries
    lines = ["ENVI", *(f"{key.replace('_', ' ')} = {value}" for key, value in said.items())]
    path.with_name(path.name + ".hdr").write_text("\n".join(lines) + "\n")


def crop(scene, bands, rows, cols, at=(40, 40), dtype="float32"):
    """(bands, rows, cols) of the scene, its bands spread evenly."""
    some = np.linspace(0, len(scene) - 1, bands).astype(int)
    return scene[some][:, at[0] : at[0] + rows, at[1] : at[1] + cols].astype(dtype)


def stripes(shape):
    """(bands, rows, cols) True where a stripe and a block are lost."""
    lost = np.zeros(shape, bool)
    lost[:, :, 10:13] = lost[:, 20:24, 20:24] = True
    return lost


def columns(shape):
    """(bands, rows, cols) True in columns that are dead in a few bands."""
    lost = np.zeros(shape, bool)
    lost[3, :, 5] = lost[7:10, :, 12] = lost[8, :, 13] = lost[5, 4:20, 22] = True
    return lost


def edge(shape):
    """(bands, rows, cols) True in a corner that was never seen, and in a stripe."""
    row, col = np.indices(shape[1:])
    return np.broadcast_to((row + col < 12) | (abs(col - 20) < 2), shape).copy()


def make(folder, scene):
    """All inputs; scene (bands, rows, cols) of integers."""
    folder.mkdir(parents=True)
    _envi_files(folder, scene)
    _arrays(folder, scene)
    _products(folder, scene)


def _envi_files(folder, scene):
    rng, declared = np.random.default_rng(0), {"data_ignore_value": LOST}
    one = crop(scene, 20, 32, 32)
    lost = stripes(one.shape)
    envi(folder / "stripes.img", np.where(lost, LOST, one).astype("float32"), **declared)
    noisy = one + rng.normal(0, 30, one.shape)
    envi(folder / "noisy.img", np.where(lost, LOST, noisy).astype("float32"), **declared)
    envi(folder / "edge.img", np.where(edge(one.shape), LOST, one).astype("float32"), **declared)
    holes = rng.random(one.shape[1:]) < 0.1
    envi(folder / "pixels.img", np.where(holes, LOST, one).astype("float32"), "bip", **declared)
    envi(folder / "bare.img", np.where(lost, LOST, one).astype("int16"))
    other = crop(scene, 24, 28, 30, (60, 70), "uint16")
    dead, good = columns(other.shape), ["1"] * len(other)
    good[5] = good[17] = "0"
    header = {"data_ignore_value": 65535, "bbl": f"{{{', '.join(good)}}}"}
    envi(folder / "columns.bsq", np.where(dead, 65535, other).astype("uint16"), "bsq", **header)
    envi(folder / "stuck.img", np.where(dead, 1000, other).astype("uint16"))
    envi(folder / "whole.img", crop(scene, 16, 30, 34, (20, 90), "uint16"))
    np.savez(folder / "observed.npz", observed=~stripes((1, 30, 34))[0])
    bits = (stripes((16, 30, 34)) | columns((16, 30, 34))).astype("u1")
    envi(folder / "missing.img", bits.astype("int16"))


def _arrays(folder, scene):
    one = crop(scene, 14, 26, 24, (90, 30))
    lost = stripes(one.shape) | columns(one.shape)
    last = np.where(lost, np.nan, one).astype("float32").transpose(1, 2, 0)
    np.save(folder / "array.npy", last)
    np.savez_compressed(folder / "arrays.npz", cube=last, other=np.arange(5))
    dead = np.where(columns(one.shape), np.nan, one).astype("float64").transpose(1, 2, 0)
    savemat(folder / "arrays.mat", {"scene": dead, "other": np.eye(3)}, do_compression=True)
    with (folder / "arrays.mat").open("r+b") as file:
        file.write(b"MATLAB 5.0 MAT-file".ljust(116))  # without a date
    group = zarr.create_group(folder / "store.zarr", zarr_format=3)
    how = {"chunks": (14, 16, 16), "fill_value": np.nan, "dimension_names": ("band", "y", "x")}
    store = group.create_array("cube", shape=one.shape, dtype="float32", **how)
    store[...] = np.where(lost, np.nan, one)


def _products(folder, scene):
    one = crop(scene, 18, 32, 32, (100, 100), "int16")
    lost = stripes(one.shape)
    products.geotiff(folder / "stripes.tif", np.where(lost, LOST, one), LOST)
    mixed = lost | columns(one.shape)
    products.geotiff(folder / "mixed.tif", np.where(mixed, LOST, one), LOST)
    wide = crop(scene, 12, 40, 40, (10, 10), "int16")
    products.geotiff(folder / "wide.tif", np.where(stripes(wide.shape), LOST, wide), LOST)
    share = crop(scene, 15, 30, 28, (50, 20)) / np.float32(1e4)
    share[:, :, 10:13] = LOST
    share[:, 5:8, :] = -9990  # screened for clouds
    share[4, 15:, 20] = LOST
    products.emit(folder / "emit.nc", share)
    radiance = crop(scene, 12, 40, 32, (0, 0)) / np.float32(100)
    radiance[:, :, 10:13] = radiance[:, 30:33, 20:25] = LOST
    products.aviris(folder / "aviris.nc", radiance)
    vnir, swir = (crop(scene, bands, 26, 26, (30, 60), "uint16") for bands in (8, 10))
    vnir[:, :, :4] = swir[:, :, :2] = 0
    codes = [np.zeros(part.shape, "u1") for part in (vnir, swir)]
    codes[0][3, :, 12] = codes[1][5, 10:20, 15:18] = 1
    products.prisma(folder / "prisma.he5", vnir, swir, errors=tuple(codes))
    tile = crop(scene, 16, 26, 28, (70, 0), "int16")
    tile[:, :, 10:13] = -32768
    defective = columns(tile.shape)
    _zipped(products.enmap(folder / "enmap", tile, empty=(2,), defective=defective))
    products.desis(folder, np.where(stripes(tile.shape), -32768, tile).astype("int16"))


def _zipped(folder):
    """A zip file instead of a folder, without dates."""
    with zipfile.ZipFile(folder.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            member = zipfile.ZipInfo(f"{folder.name}/{file.name}")
            archive.writestr(member, file.read_bytes(), zipfile.ZIP_DEFLATED)
    shutil.rmtree(folder)
