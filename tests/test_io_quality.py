"""Quality layers: flags as the product defines them, joined with the cube's own gaps."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

import hydiff
import products
from conftest import DATA
from hydiff import io
from hydiff.cli import app
from hydiff.errors import BadValue, ShapeMismatch, UnknownName
from hydiff.io import emit, provenance, quality

MASK = DATA / "native" / "EMIT_L2A_MASK_001_20220827T060753_9999999_999.nc"


def random(shape: tuple[int, ...], share: float = 0.1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) < share


def test_the_band_mask_of_the_real_file_bit_by_bit(data_dir: Path) -> None:
    """285 bands in 36 bytes; every set bit is counted, and the three spare ones are empty."""
    layer = io.read_quality(MASK, (285, 200, 200))
    missing = ~layer.observed
    with h5py.File(MASK) as file:
        packed = file["band_mask"][()]
    for byte in range(36):
        for bit in range(8):
            band = 8 * byte + bit
            expected = (packed[:, :, byte] >> (7 - bit)) & 1 == 1
            if band < 285:
                assert np.array_equal(missing[band], expected), band
            else:
                assert not expected.any()
    assert layer.counts == {"band": int(np.bitwise_count(packed).sum())} == {"band": 6000}
    # a bad detector element shows as a whole column of one band
    dead = missing.all(axis=1)
    assert dead.sum() == 30 and missing.sum() == dead.sum() * 200


def test_flags_of_the_real_file(data_dir: Path) -> None:
    shape = (285, 200, 200)
    found = quality.layers(MASK, "emit")
    names = ["band", "cloud", "cirrus", "water", "spacecraft", "dilated-cloud", "aggregate"]
    assert list(found) == names
    with h5py.File(MASK) as file:
        aggregate = int((file["mask"][:, :, 7] == 1).sum())
    layer = io.read_quality(MASK, shape, ["aggregate", "cloud"])
    assert layer.counts == {"aggregate": 285 * aggregate, "cloud": 0} and aggregate == 21
    with pytest.raises(UnknownName, match=r"flag.*'clouds'.*did you mean 'cloud'"):
        io.read_quality(MASK, shape, ["clouds"])
    with pytest.raises(ShapeMismatch, match=r"\(200, 200, 36\).*same scene"):
        io.read_quality(MASK, (285, 200, 199))
    with pytest.raises(ShapeMismatch, match=r"expected bytes \(200, 200, 35\)"):
        io.read_quality(MASK, (280, 200, 200))


def test_a_band_mask_is_written_as_emit_does(tmp_path: Path, data_dir: Path) -> None:
    filled = ~io.read_quality(MASK, (285, 200, 200)).observed
    emit.write_band_mask(filled, tmp_path / "m.nc")
    with h5py.File(MASK) as theirs, h5py.File(tmp_path / "m.nc") as ours:
        assert np.array_equal(ours["band_mask"][()], theirs["band_mask"][()])
        assert ours["band_mask"].dtype == theirs["band_mask"].dtype
    again = io.read_quality(tmp_path / "m.nc", filled.shape)
    assert np.array_equal(~again.observed, filled)


@pytest.mark.parametrize("bands", [1, 7, 8, 9, 17])
def test_bits_round_trip_for_any_number_of_bands(tmp_path: Path, bands: int) -> None:
    filled = random((bands, 5, 6), 0.5)
    emit.write_band_mask(filled, tmp_path / "m.nc")
    assert np.array_equal(~io.read_quality(tmp_path / "m.nc", filled.shape).observed, filled)


def test_prisma_error_matrix(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    numbers = (products.scene(11, 8, 9) * 6e4).astype("u2")
    bits = rng.choice([0, 0, 0, 1, 2, 4, 5], numbers.shape).astype("u1")
    path = products.prisma(
        tmp_path / "p.he5", numbers[:4], numbers[4:], errors=(bits[:4], bits[4:])
    )
    shape = io.read(path).shape
    usual = io.read_quality(path, shape)
    assert np.array_equal(usual.observed, bits & 5 == 0)
    assert usual.counts == {"invalid": (bits & 1 > 0).sum(), "saturated": (bits & 4 > 0).sum()}
    negative = io.read_quality(path, shape, ["negative"])
    assert np.array_equal(negative.observed, bits & 2 == 0)
    codes = rng.integers(0, 5, numbers.shape).astype("u1")
    path = products.prisma(
        tmp_path / "q.he5", numbers[:4], numbers[4:], level="L1", errors=(codes[:4], codes[4:])
    )
    level_1 = io.read_quality(path, shape)
    assert np.array_equal(level_1.observed, ~np.isin(codes, (1, 2, 4)))
    wrong = (codes[:4, :5], codes[4:, :5])
    path = products.prisma(tmp_path / "w.he5", numbers[:4], numbers[4:], errors=wrong)
    with pytest.raises(ShapeMismatch, match=r"VNIR_PIXEL_L2_ERR_MATRIX has shape \(5, 4, 9\)"):
        io.read_quality(path, shape)


@pytest.mark.parametrize("zipped", [False, True])
def test_enmap_pixel_masks(tmp_path: Path, zipped: bool) -> None:
    values = (products.scene(6, 8, 9) * 1e4).astype("i2")
    bad, cloud = random(values.shape), random((8, 9), 0.3, 1)
    path = products.enmap(tmp_path / "E", values, defective=bad, cloud=cloud, zipped=zipped)
    assert np.array_equal(io.read_quality(path, values.shape).observed, ~bad)
    both = io.read_quality(path, values.shape, ["cloud", "defective"])
    assert np.array_equal(both.observed, ~(bad | cloud))
    assert both.counts == {"cloud": 6 * cloud.sum(), "defective": bad.sum()}
    if not zipped:
        alone = next(path.glob("*QL_PIXELMASK.TIF"))
        assert np.array_equal(io.read_quality(alone, values.shape).observed, ~bad)


def test_a_pixel_mask_with_the_other_meaning_is_refused(tmp_path: Path) -> None:
    values = (products.scene(6, 8, 9) * 1e4).astype("i2")
    path = products.enmap(tmp_path / "E", values, defective=~random(values.shape))
    with pytest.raises(BadValue, match="% of the entries defective, expected a few"):
        io.read_quality(path, values.shape)


def test_any_mask_is_a_quality_layer(tmp_path: Path) -> None:
    missing = random((5, 6))
    np.savez(tmp_path / "m.npz", missing=missing)
    layer = io.read_quality(tmp_path / "m.npz", (3, 5, 6))
    assert np.array_equal(layer.observed, np.broadcast_to(~missing, (3, 5, 6)))
    assert layer.counts == {"missing": 3 * missing.sum()}
    with pytest.raises(BadValue, match="leave `flags=` out"):
        io.read_quality(tmp_path / "m.npz", (3, 5, 6), ["cloud"])


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


def test_missing_is_what_cube_or_layer_names(tmp_path: Path) -> None:
    """The rule on the command line: the union, filled and listed; files as in the product."""
    values = products.scene(10, 24, 20).astype("f4")
    values[:, 8:10] = -9998
    source = products.emit(tmp_path / "EMIT_L2A_RFL_001_x.nc", values)
    bad = np.zeros(values.shape, bool)
    bad[3, :, 7] = bad[6, 2:5, 11] = True
    layer = products.emit_mask(tmp_path / "EMIT_L2A_MASK_001_x.nc", bad, random((24, 20), 0.2))
    output = run("info", source)
    assert f"--quality {layer} has band, cloud, dilated-cloud" in output
    output = run("info", source, "--quality", layer)
    assert f"band: {bad.sum()} entries" in output and "% together" in output
    facts = json.loads(run("info", source, "--quality", layer, "--flags", "cloud", "--json"))
    assert facts["flagged"][0].startswith("cloud: ")
    census = json.loads(run("mask", source, "--quality", layer, "--json"))
    union = bad.copy()
    union[:, 8:10] = True
    assert census["missing"] == union.sum()
    target, bits = tmp_path / "out.nc", tmp_path / "bits.nc"
    run("fill", source, "-o", target, "--quality", layer, "--band-mask", bits, "--method", "smooth")
    after = np.asarray(io.read(target).values)
    assert np.array_equal(after[~union], values[~union])
    assert (after[union] > 0).all() and (after[bad] != values[bad]).all()
    assert np.array_equal(~io.read_quality(bits, values.shape).observed, union)
    assert np.array_equal(provenance.companions(target, values.shape)["filled"] > 0, union)


def test_a_band_mask_of_nothing(tmp_path: Path) -> None:
    source = products.emit(tmp_path / "e.nc", products.scene(4, 6, 5).astype("f4"))
    run("fill", source, "-o", tmp_path / "o.nc", "--band-mask", tmp_path / "bits.nc")
    assert io.read_quality(tmp_path / "bits.nc", (4, 6, 5)).observed.all()


def test_flags_need_a_layer(tmp_path: Path) -> None:
    source = products.emit(tmp_path / "e.nc", products.scene(4, 6, 5).astype("f4"))
    done = CliRunner().invoke(app, ["info", str(source), "--flags", "cloud"])
    assert isinstance(done.exception, BadValue)
    assert isinstance(done.exception, hydiff.HydiffError)
    with pytest.raises(BadValue, match="choose what to take as missing with `flags=`"):
        clouds = {"cloud": lambda shape: np.zeros(shape, bool)}
        quality.combined(clouds, (4, 6, 5), [], source)
