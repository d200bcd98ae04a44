"""Check that a change of structure leaves 40 small fills as they are: compare before and after.

    python benchmarks/kept_fills.py --before OLD/src --after NEW/src [-o FOLDER] [--only NAME ...]

The fills cover every method, format and kind of run (whole, by tiles, with workers, an archive,
replayed, resumed).  Each fill runs in a new process, `python -m hydiff fill …`, with one of the two
folders on PYTHONPATH; nothing else of the code is used, so names may change.

All files that a fill writes are compared byte by byte.  If the bytes of a file with a record of the
fill differ (OUT.fill.json, the summary of an archive, a filled file with its mark), its contents
are compared: every array, attribute, tag and member, and the record without the fields WORDS, which
hold wording, paths and durations.  Zip files are compared without the dates of their members; all
other dates are that of SOURCE_DATE_EPOCH.  Reports only have to exist.

Prints a line for each fill, and exits with 1 if any differs.  Both versions need the same
`__version__`, which filled files contain.
"""

import argparse
import hashlib
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np
import rasterio
from pyarrow import parquet
from rasterio.errors import NotGeoreferencedWarning
from scipy.io import loadmat

import kept_inputs

TEXTS = ("notes", "note", "error", "command", "path")
TIMES = ("time", "seconds", "versions", "version")
PRINTS = ("request", "order", "stale")  # fingerprints of requests, which depend on their format
WORDS = (*TEXTS, *TIMES, *PRINTS)
RECORDS, MARK = (
    ("hydiff_record", "hydiff_filled"),
    "hydiff_filled",
)  # names of records and marks in files
REPORT = ".report.html"
DERIVED = "DERIVED_SUBDATASETS"  # tags that GDAL generates, with a path in memory
NET = "--set channels=4 --set scales=2 --set steps=3"
TINY = f"{NET} --set hidden=8 --set chain=6"

# name -> arguments of `hydiff fill`, one entry per process; IN/ is the folder of inputs
FILLS = {
    "linear-npy": ["IN/array.npy -o out.npy --method linear --unmarked"],
    "nearest-nodata": ["IN/bare.img -o out.img --method nearest --nodata -9999 --nodata-in any"],
    "biharmonic-tif": ["IN/stripes.tif -o out.tif --method biharmonic"],
    "idw-outside": ["IN/edge.img -o out.img --method idw --outside fill"],
    "rbf-bip": ["IN/pixels.img -o out.img --method rbf"],
    "dineof-to-tif": ["IN/pixels.img -o out.tif --method dineof"],
    "halrtc-tif": ["IN/mixed.tif -o out.tif --method halrtc --set steps=60"],
    "exemplar-observed-to-zarr": [
        "IN/whole.img -o out.zarr --method exemplar --observed IN/observed.npz"
    ],
    "fixbad-bsq-bad-bands": ["IN/columns.bsq -o out.bsq --method fixbad --bad-bands keep"],
    "subspace-mat": ["IN/arrays.mat -o out.mat --method subspace --var scene"],
    "subspace-fill-denoise": [
        "IN/noisy.img -o out.img --method subspace-fill --sigma-y 30 --denoise"
    ],
    "smooth-report": ["IN/stripes.img -o out.hdr --method smooth --report"],
    "smooth-bars-tif": ["IN/mixed.tif -o out.tif --method smooth --set error_bars=true"],
    "smooth-detect": ["IN/stuck.img -o out.img --method smooth --detect"],
    "smooth-npz-noise": ["IN/arrays.npz -o out.npz --var cube --method smooth --sigma-y 2%"],
    "smooth-tiles-zarr": ["IN/store.zarr -o out.zarr --method smooth --tile 16"],
    "smooth-tiles-missing": [
        "IN/whole.img -o out.img --method smooth --missing IN/missing.img --tile 16 --overlap 4"
    ],
    "smooth-tiles-workers": ["IN/wide.tif -o out.tif --method smooth --tile 16 --workers 2"],
    "auto-envi": ["IN/stripes.img -o out.img --budget fast"],
    "auto-tif-max-error": ["IN/mixed.tif -o out.tif --budget fast --max-error 0.6"],
    "auto-noise": ["IN/noisy.img -o out.img --budget fast --sigma-y auto --seed 3"],
    "auto-recipe": [
        "IN/columns.bsq -o first.bsq --budget fast",
        "IN/columns.bsq -o out.bsq --recipe first.bsq.fill.json",
        "IN/edge.img -o other.img --recipe first.bsq.fill.json",
    ],
    "auto-tiles": ["IN/wide.tif -o out.tif --budget fast --tile 20"],
    "auto-tiles-workers": ["IN/stripes.img -o out.img --budget fast --tile 16 --workers 2"],
    "hydiff-ei-noise": [f"IN/noisy.img -o out.img --method hydiff-ei --sigma-y 30 {NET}"],
    "hydiff-ei-tiles-prior-clip": [
        f"IN/wide.tif -o out.tif --method hydiff-ei --tile 20 --pretrain 3 --refine 2 {NET} "
        "--clip observed"
    ],
    "ei-tif": [f"IN/stripes.tif -o out.tif --method ei --set transform=shift {NET}"],
    "robust-ei": [f"IN/noisy.img -o out.img --method robust-ei --sigma-y 30 {NET}"],
    "dhp-clip": [f"IN/pixels.img -o out.img --method dhp --clip observed {NET}"],
    "r-dlrhyin": [f"IN/stripes.img -o out.img --method r-dlrhyin --seed 1 {NET}"],
    "dds2m-clip": [f"IN/stripes.img -o out.img --method dds2m --clip physical {TINY}"],
    "share": [
        "IN/arrays.npz -o out.npz --var cube --method share --sigma-y 30 --set steps=2 "
        "--set channels=16 --set memory=8"
    ],
    "hir-diff": ["IN/stripes.tif -o out.tif --method hir-diff --set steps=3"],
    "anchored": [f"IN/stripes.img -o out.img --method anchored {NET}"],
    "emit-harmonic-clouds-band-mask": [
        "IN/emit.nc -o out.nc --method harmonic --max-gap 3 --fill-clouds --band-mask bits.nc"
    ],
    "prisma-detectors-quality": [
        "IN/prisma.he5 -o out.he5 --method smooth --sigma-y VNIR=20,SWIR=30 --quality IN/prisma.he5"
    ],
    "enmap-spectral-quality": [
        "IN/enmap.zip -o out.zip --method spectral --quality IN/enmap.zip --flags defective"
    ],
    "aviris-tiles-resumed": [
        "IN/aviris.nc -o out.nc --method linear --tile 16",
        "IN/aviris.nc -o out.nc --method linear --tile 16 --resume",
    ],
    "archive-resumed": [
        "IN/stripes.img IN/stripes.tif IN/emit.nc -o out --method linear",
        "IN/stripes.img IN/stripes.tif IN/emit.nc IN/wide.tif -o out --method linear --resume",
    ],
    "archive-workers": [
        "IN/DESIS*.tif IN/arrays.npz IN/whole.img -o out --method bandmean --workers 2"
    ],
}


# --- running --------------------------------------------------------------------------------------


def ran(source, folder, lines):
    """The files that a fill makes in a new folder, by name; RuntimeError where it fails."""
    folder.mkdir(parents=True)
    env = environment(source)
    for line in lines:
        words = [word.replace("IN/", "../../inputs/") for word in shlex.split(line)]
        command = [sys.executable, "-m", "hydiff", "fill", *words]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        if done.returncode:
            why = " ".join(done.stderr.strip().splitlines()[-1:])
            raise RuntimeError(f"hydiff fill {line} ends with {done.returncode}: {why}")
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}


def environment(source):
    """One thread, as sums are rounded otherwise by several; one date for all marks."""
    fixed = {"OMP_NUM_THREADS": "1", "SOURCE_DATE_EPOCH": "1767225600", "COLUMNS": "200"}
    return os.environ | fixed | {"PYTHONPATH": str(source)}


def check_source(source):
    """SystemExit unless this folder, and no installed copy, is what its processes import."""
    code = "import hydiff; print(hydiff.__file__)"
    command = [sys.executable, "-c", code]
    found = subprocess.check_output(command, env=environment(source), text=True).strip()
    if not Path(found).is_relative_to(source):
        sys.exit(f"{source}: expected the folder that holds hydiff, but it is read from {found}")


# --- comparing ------------------------------------------------------------------------------------


def differences(before, after):
    """What differs between the files of two fills, one line each."""
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            yield f"{name} is made only {'before' if name in before else 'after'}"
        elif before[name] != after[name] and not name.endswith(REPORT):
            yield from unequal(name, before[name], after[name])


def unequal(name, one, other):
    """What differs in a file whose bytes do."""
    (held, words), (held_after, words_after) = held_by(name, one), held_by(name, other)
    parts = sorted(k for k in {*held, *held_after} if held.get(k) != held_after.get(k))
    if parts:
        yield f"{name} ({', '.join(parts)})" if any(parts) else name
    elif words == words_after:
        yield f"{name} (laid out otherwise)"


def held_by(name, data):
    """What a file holds: SHA-256 by the name of each part; and the words of records among them."""
    parts, words = {}, []
    for part, content in contents(name, data):
        parts[part] = sha256(content if isinstance(content, bytes) else plain(content, words))
    return parts, words


def contents(name, data):
    """(part, bytes or record) of all that a file holds."""
    base = Path(name).name.lower()
    if base.endswith(".json"):
        yield "", json.loads(data)
    elif base == "summary.parquet":
        for i, row in enumerate(parquet.read_table(io.BytesIO(data)).to_pylist()):
            yield f"row {i}", row | {"input": None}
    elif base == "summary.md":
        yield from of_table(data)
    elif data.startswith(b"PK\x03\x04"):
        yield from of_zip(data)
    elif data.startswith(b"\x89HDF"):
        yield from of_hdf5(data)
    elif data.startswith((b"II*\0", b"MM\0*")):
        yield from of_tiff(data)
    elif data.startswith(b"MATL"):
        for key, value in loadmat(io.BytesIO(data)).items():
            if not key.startswith("__"):
                yield key, marked(key, value) or array(value)
    else:
        yield "", data


def of_table(data):
    head, _, *rows = ([c.strip() for c in line.split("|")[1:-1]] for line in text(data).split("\n"))
    for i, row in enumerate(row for row in rows if row):
        yield f"row {i}", dict(zip(head, row, strict=True)) | {"input": None}


def of_zip(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            inner, key = archive.read(info), info.filename.removesuffix(".npy")
            yield f"date of {info.filename}", {"time": info.date_time}
            if key == MARK:
                yield key, marked(key, np.load(io.BytesIO(inner)))
            else:
                for part, content in contents(info.filename, inner):
                    yield f"{info.filename} {part}".strip(), content


def of_hdf5(data):
    with h5py.File(io.BytesIO(data)) as file:
        found = [("/", file)]
        file.visititems(lambda name, item: found.append((name, item)))
        for name, item in found:
            for key, value in item.attrs.items():
                said = "references" if is_reference(value) else value
                yield f"{name}@{key}", marked(key, said) or array(said)
            if isinstance(item, h5py.Dataset):
                how = (item.dtype, item.shape, item.chunks, item.compression, item.shuffle)
                yield name, f"{how}".encode() + array(item[()])


def is_reference(value):
    """To other parts of an HDF5 file: places in it, which are parts themselves."""
    kind = getattr(value, "dtype", np.dtype(object))
    fields = [kind[i] for i in range(len(kind))] if kind.names else [kind]
    return any(h5py.check_ref_dtype(f) or h5py.check_vlen_dtype(f) for f in fields)


def of_tiff(data):
    with rasterio.MemoryFile(data) as memory, memory.open() as image:
        yield "profile", f"{sorted(image.profile.items(), key=str)}".encode()
        yield "values", image.read().tobytes()
        yield "masks", image.read_masks().tobytes()
        for band in range(image.count + 1):
            for space in {None, *image.tag_namespaces(band)} - {DERIVED}:
                for key, value in image.tags(band, ns=space).items():
                    yield (
                        f"{space or ''}:{key} of band {band}",
                        marked(key, value) or value.encode(),
                    )
        said = (image.descriptions, image.scales, image.offsets, image.colorinterp, image.units)
        yield "bands", f"{said}".encode()


def marked(key, value):
    """The record in the mark of a filled file, where there is one under this name."""
    try:
        return json.loads(text(np.asarray(value).ravel()[0])) if key in RECORDS else None
    except ValueError:  # a line of plain text, not JSON
        return None


def text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def array(value):
    values = np.asarray(value)
    return f"{values.dtype}{values.shape}".encode() + (
        f"{values.tolist()}".encode() if values.dtype.hasobject else values.tobytes()
    )


def plain(record, words):
    """A record as bytes without WORDS, which are added to the list."""

    def kept(value):
        if isinstance(value, dict):
            words.extend(f"{value[key]}" for key in value if key in WORDS)
            return {key: kept(item) for key, item in value.items() if key not in WORDS}
        if isinstance(value, list):
            return [kept(item) for item in value]
        return value

    return json.dumps(kept(opened(record)), sort_keys=True).encode()


def opened(value, key=None):
    """A JSON value with the records that it holds as text, in attributes of a mark, read."""
    if isinstance(value, dict):
        return {name: opened(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [opened(item) for item in value]
    return (marked(key, value) or value) if isinstance(value, str) else value


def sha256(data):
    return hashlib.sha256(data).hexdigest()


# --- all of them ----------------------------------------------------------------------------------


def scene_of(source):
    """The bundled scene, (bands, rows, cols), from the code in this folder."""
    sys.path.insert(0, str(source))
    import hydiff

    return np.asarray(hydiff.sample().values)


def compared(sources, folder, names):
    """Runs and prints each fill; how many differ."""
    wrong, seconds = 0, dict.fromkeys(sources, 0.0)
    for number, name in enumerate(names, 1):
        made, found = {label: {} for label in sources}, []
        for label, source in sources.items():
            began = time.perf_counter()
            try:
                made[label] = ran(source, folder / label / name, FILLS[name])
            except RuntimeError as error:
                found.append(f"{label}, {error}")
            seconds[label] += time.perf_counter() - began
        found = found or list(differences(made["before"], made["after"]))
        wrong += bool(found)
        said = f"differs: {'; '.join(found)}" if found else "equal"
        print(f"{number:2} {name:32} {said}", flush=True)
    took = ", ".join(f"{label} {value:.0f} s" for label, value in seconds.items())
    print(f"{len(names) - wrong} of {len(names)} fills are equal; {took}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="folder that holds hydiff")
    parser.add_argument("--after", type=Path, required=True, help="folder that holds hydiff")
    parser.add_argument("-o", "--output", type=Path, help="keep the files here, in a new folder")
    parser.add_argument("--only", nargs="+", choices=FILLS, help="of these fills")
    args = parser.parse_args()
    warnings.simplefilter("ignore", NotGeoreferencedWarning)
    sources = {label: getattr(args, label).resolve() for label in ("before", "after")}
    for source in sources.values():
        check_source(source)
    with tempfile.TemporaryDirectory() as spare:
        folder = args.output or Path(spare)
        kept_inputs.make(folder / "inputs", scene_of(sources["before"]))
        wrong = compared(sources, folder.resolve(), args.only or list(FILLS))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
