"""Valid files that lead elsewhere: their tags or neighbours name other files, drivers and hosts.

`corpus(folder)` lays them down, each in a folder of its own, with what they name in
`folder/elsewhere`.  Whoever reads or copies them may open nothing but that folder of theirs.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import rasterio

SHAPE = (2, 16, 16)  # (bands, rows, cols)
HOST = "127.0.0.1:9"  # nobody answers there
LED = "elsewhere"  # the folder that nothing may be opened in


def corpus(folder: Path, host: str = HOST) -> list[Path]:
    """The files to open; all that they lead to lies in `folder/elsewhere` or at `host`."""
    led = folder / LED
    led.mkdir(parents=True)
    (led / "raw.bin").write_bytes(b"precious" * 64)
    image(led / "other.tif", value=9)
    remote = f"/vsicurl/http://{host}/other.tif"
    made = []
    for name, make in MAKERS.items():
        (folder / name).mkdir()
        for i, target in enumerate((str(led / "other.tif"), remote)):
            path = folder / name / f"x{i}.tif"
            image(path)
            make(path, target, led)
            made.append(path)
    return [*made, directory_name(folder / "directory", led), alone(folder / "alone", led)]


def image(path: Path, value: int = 7) -> Path:
    """An image whose pixel (0, 0) is missing."""
    bands, rows, cols = SHAPE
    profile = {"count": bands, "height": rows, "width": cols, "dtype": "int16", "nodata": -1}
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(30, 0, 100, 0, -30, 200)}
    with rasterio.open(path, "w", driver="GTiff", **profile, **place) as dataset:
        values = np.full(SHAPE, value, "int16") + np.arange(16, dtype="int16")
        values[:, 0, 0] = -1
        dataset.write(values)
    return path


# --- masks and overviews: GDAL opens them with any driver -----------------------------------------


def vrt(source: str, bands: str = "") -> str:
    bands = bands or (
        '<VRTRasterBand dataType="Byte" band="1"><SimpleSource>'
        f'<SourceFilename relativeToVRT="0">{source}</SourceFilename>'
        "<SourceBand>1</SourceBand></SimpleSource></VRTRasterBand>"
    )
    return (
        '<VRTDataset rasterXSize="16" rasterYSize="16"><Metadata>'
        f'<MDI key="INTERNAL_MASK_FLAGS_1">2</MDI></Metadata>{bands}</VRTDataset>'
    )


def raw_band(source: str) -> str:
    """A band of a VRT that can be written, too."""
    return (
        '<VRTRasterBand dataType="Byte" band="1" subClass="VRTRawRasterBand">'
        f'<SourceFilename relativetoVRT="0">{source}</SourceFilename><ImageOffset>0</ImageOffset>'
        "<PixelOffset>1</PixelOffset><LineOffset>16</LineOffset></VRTRasterBand>"
    )


def mask_is_a_vrt(path: Path, target: str, led: Path) -> None:
    path.with_name(path.name + ".msk").write_text(vrt(target))


def mask_is_raw(path: Path, target: str, led: Path) -> None:
    source = target if target.startswith("/vsi") else str(led / "raw.bin")
    path.with_name(path.name + ".msk").write_text(vrt("", raw_band(source)))


def mask_has_overviews(path: Path, target: str, led: Path) -> None:
    mask = path.with_name(path.name + ".msk")
    with rasterio.open(
        mask, "w", driver="GTiff", count=1, height=16, width=16, dtype="uint8"
    ) as dataset:
        dataset.write(np.full((1, 16, 16), 255, "uint8"))
        dataset.update_tags(INTERNAL_MASK_FLAGS_1="2", INTERNAL_MASK_FLAGS_2="2")
    overviews_by_tag(mask, target, led)


def overviews_are_a_vrt(path: Path, target: str, led: Path) -> None:
    path.with_name(path.name + ".ovr").write_text(vrt(target))


# --- tags -----------------------------------------------------------------------------------------


def metadata(name: str, target: str) -> bytes:
    item = f'<Item name="{name}" domain="OVERVIEWS">{target}</Item>'
    return f"<GDALMetadata>{item}</GDALMetadata>".encode() + b"\0"


def tagged(path: Path, text: bytes, kind: int = 2) -> None:
    """Put GDAL_METADATA into a small classic TIFF: its page is written again at the end."""
    data = path.read_bytes()
    at = struct.unpack_from("<I", data, 4)[0]
    count = struct.unpack_from("<H", data, at)[0]
    rows = [data[at + 2 + 12 * i :][:12] for i in range(count)]
    rows = [row for row in rows if struct.unpack_from("<H", row)[0] != 42112]
    stored = b"".join(struct.pack("<H", c) for c in text) if kind == 3 else text
    data += bytes(len(data) % 2)
    rows.append(struct.pack("<HHII", 42112, kind, len(text), len(data)))
    data += stored + bytes(len(stored) % 2)
    page = struct.pack("<H", len(rows)) + b"".join(sorted(rows)) + bytes(4)
    path.write_bytes(data[:4] + struct.pack("<I", len(data)) + data[8:] + page)


def overviews_by_tag(path: Path, target: str, led: Path) -> None:
    tagged(path, metadata("OVERVIEW_FILE", target))


def overviews_by_reference(path: Path, target: str, led: Path) -> None:
    tagged(path, metadata("&#79;verview_f&#x49;LE", target))


def overviews_in_shorts(path: Path, target: str, led: Path) -> None:
    tagged(path, metadata("OVERVIEW_FILE", target), kind=3)


# --- descriptions ---------------------------------------------------------------------------------


def pam(path: Path, inside: str) -> None:
    path.with_name(path.name + ".aux.xml").write_text(f"<PAMDataset>{inside}</PAMDataset>")


def overviews_by_pam(path: Path, target: str, led: Path) -> None:
    pam(path, f'<Metadata domain="OVERVIEWS"><MDI key="OVERVIEW_FILE">{target}</MDI></Metadata>')


def reference_by_pam(path: Path, target: str, led: Path) -> None:
    pam(path, f"<SRS>{target}</SRS>")


def source_by_pam(path: Path, target: str, led: Path) -> None:
    pam(path, f'<PAMRasterBand band="1"><SourceFilename>{target}</SourceFilename></PAMRasterBand>')


def erdas(path: Path, target: str, led: Path) -> None:
    """An .aux whose values lie in a file that it names, as Erdas does with large ones."""
    folder = path.parent / "erdas"
    folder.mkdir(exist_ok=True)
    long = folder / ("y" * (len(target) - 4) + ".img")
    with rasterio.open(
        long, "w", driver="HFA", count=2, height=16, width=16, dtype="int16", USE_SPILL="YES"
    ) as dataset:
        dataset.write(np.ones(SHAPE, "int16"))
    spilled = long.with_suffix(".ige").name.encode()
    content = long.read_bytes()
    assert spilled in content
    path.with_suffix(".aux").write_bytes(content.replace(spilled, target.encode()))
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def erdas_of_another(path: Path, target: str, led: Path) -> None:
    """An .aux that says which image it belongs to: GDAL asks whether that is there."""
    auxiliary(path.with_suffix(".aux"), target)


def auxiliary(path: Path, image: str, **said: Any) -> None:
    """An .aux of Erdas Imagine that describes an image."""
    bands, rows, cols = SHAPE
    shape = {"count": bands, "height": rows, "width": cols, "dtype": "int16"}
    options = {"AUX": "YES", "DEPENDENT_FILE": image}
    with rasterio.open(path, "w", driver="HFA", **shape, **options, **said) as dataset:
        for band in dataset.indexes:
            dataset.set_band_description(band, f"layer {band}")


MAKERS = {
    make.__name__: make
    for make in (
        mask_is_a_vrt,
        mask_is_raw,
        mask_has_overviews,
        overviews_are_a_vrt,
        overviews_by_tag,
        overviews_by_reference,
        overviews_in_shorts,
        overviews_by_pam,
        reference_by_pam,
        source_by_pam,
        erdas,
        erdas_of_another,
    )
}


# --- names ----------------------------------------------------------------------------------------


def directory_name(folder: Path, led: Path) -> Path:
    """A file whose name, without its folder, is one of GDAL's for a page of another file."""
    folder.mkdir()
    image(folder / "other.tif", value=9)
    return image(folder / "plain.tif").rename(folder / "GTIFF_DIR:1:other.tif")


def alone(folder: Path, led: Path) -> Path:
    """A VRT that is called a GeoTIFF."""
    folder.mkdir()
    path = folder / "x.tif"
    path.write_text(vrt(str(led / "other.tif")))
    return path
