"""Sensor products as their makers lay them out, small and full of random numbers.

The layouts are those of the product guides; where a real file was at hand (EMIT's MASK and OBS),
the groups, names and storage follow it.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import h5py
import numpy as np
import rasterio
from rasterio.transform import from_origin

UTM = rasterio.CRS.from_epsg(32633)
WGS84 = rasterio.CRS.from_epsg(4326).to_wkt()


def scene(bands: int, rows: int, cols: int, seed: int = 0) -> np.ndarray:
    """(bands, rows, cols) float64 between 0.1 and 0.9: two smooth spectra, two smooth maps."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:rows, :cols] / 8
    maps = np.stack([np.sin(x + rng.random()), np.cos(y + x / 2 + rng.random())])
    spectra = np.cos(np.arange(bands)[:, None] / bands * 3 + rng.random(2))
    cube = np.tensordot(spectra, maps, 1) + rng.normal(0, 0.01, (bands, rows, cols))
    return 0.1 + 0.8 * (cube - cube.min()) / np.ptp(cube)


def wavelengths(bands: int, first: float = 381.0, last: float = 2493.0) -> np.ndarray:
    return np.linspace(first, last, bands)


def emit(path: Path, values: np.ndarray, name: str = "reflectance", *, good: bool = True) -> Path:
    """values (bands, rows, cols) float32; a lookup table that turns and mirrors the scene a bit."""
    bands, rows, cols = values.shape
    with h5py.File(path, "w") as file:
        file.attrs["title"] = np.bytes_(b"EMIT L2A Estimated Surface Reflectance 60 m V001")
        file.attrs["geotransform"] = np.array([61.64, 5e-4, -0.0, 36.39, -0.0, -5e-4])
        file.attrs["spatial_ref"] = np.bytes_(WGS84)
        file.attrs["flight_line"] = np.bytes_(b"emit20220827t060753")
        scales = {}
        for dim, n in zip(("downtrack", "crosstrack", "bands"), (rows, cols, bands), strict=True):
            scales[dim] = file.create_dataset(dim, data=np.arange(n, dtype="f4"))
            scales[dim].make_scale(dim)
        cube = file.create_dataset(
            name,
            data=values.transpose(1, 2, 0).astype("f4"),
            chunks=tuple(min(n, c) for n, c in zip((rows, cols, bands), (16, 16, 8), strict=True)),
            compression="gzip",
            compression_opts=4,
            shuffle=True,
            fillvalue=np.float32(-9999),
        )
        cube.attrs["_FillValue"] = np.array([-9999], "f4")
        cube.attrs["units"] = np.bytes_(b"unitless")
        for axis, dim in enumerate(scales):
            cube.dims[axis].attach_scale(scales[dim])
        group = file.create_group("sensor_band_parameters")
        group["wavelengths"] = wavelengths(bands).astype("f4")
        group["wavelengths"].attrs["units"] = np.bytes_(b"nm")
        group["fwhm"] = np.full(bands, 8.5, "f4")
        if good:
            flags = np.ones(bands, "u1")
            flags[bands // 2] = 0
            group["good_wavelengths"] = flags
        place = file.create_group("location")
        down, across = np.mgrid[: rows + 4, : cols + 3]
        glt_x, glt_y = cols - across + 1, down - across % 2
        outside = (glt_x < 1) | (glt_x > cols) | (glt_y < 1) | (glt_y > rows)
        for key, table in (("glt_x", glt_x), ("glt_y", glt_y)):
            sign = np.where((down + across) % 5 == 0, -1, 1)  # interpolated by its maker
            data = np.where(outside, 0, table * sign).astype("i4")
            place.create_dataset(key, data=data, compression="gzip", chunks=True)
        place["elev"] = np.zeros((rows, cols))
    return path


def emit_mask(path: Path, flagged: np.ndarray, cloud: np.ndarray) -> Path:
    """flagged (bands, rows, cols), cloud (rows, cols); bools."""
    with h5py.File(path, "w") as file:
        file["band_mask"] = np.packbits(flagged.transpose(1, 2, 0), axis=-1)
        layers = np.stack([cloud, ~cloud, cloud * 0.3], axis=-1).astype("f4")
        file["mask"] = layers
        names = ["Cloud flag", "Dilated Cloud Flag", "AOD550"]
        file["sensor_band_parameters/mask_bands"] = np.array(names, h5py.string_dtype())
    return path


def prisma(
    path: Path,
    vnir: np.ndarray,
    swir: np.ndarray,
    *,
    level: str = "L2D",
    errors: tuple[np.ndarray, np.ndarray] | None = None,
) -> Path:
    """vnir and swir (bands, rows, cols) uint16, upward; the last VNIR band is unused."""
    swath = f"HDFEOS/SWATHS/PRS_{level}_HCO"
    _, rows, cols = vnir.shape
    with h5py.File(path, "w") as file:
        fields = file.create_group(f"{swath}/Data Fields")
        ends = {"VNIR": (402.0, 1010.0), "SWIR": (920.0, 2497.0)}
        for i, (name, cube) in enumerate((("VNIR", vnir), ("SWIR", swir))):
            stored = cube[::-1].transpose(1, 0, 2)
            fields.create_dataset(f"{name}_Cube", data=stored, chunks=True, compression="gzip")
            word = "SAT" if level == "L1" else "L2"
            codes = np.zeros(cube.shape, "u1") if errors is None else errors[i]
            fields[f"{name}_PIXEL_{word}_ERR_MATRIX"] = codes[::-1].transpose(1, 0, 2)
            title = name.capitalize()
            centres = wavelengths(len(cube), *ends[name])[::-1].astype("f4")
            if name == "VNIR":
                centres[0] = 0
            file.attrs[f"List_Cw_{title}"] = centres
            file.attrs[f"List_Fwhm_{title}"] = np.where(centres > 0, 10, 0).astype("f4")
            file.attrs[f"List_Cw_{title}_Flags"] = (centres > 0).astype("i4")
            if level == "L1":
                file.attrs[f"ScaleFactor_{title}"] = np.float32(100 + i)
                file.attrs[f"Offset_{title}"] = np.float32(i)
            else:
                file.attrs[f"L2Scale{title}Min"] = np.float32(0)
                file.attrs[f"L2Scale{title}Max"] = np.float32(1.5 + i)
        file[f"{swath}/Geolocation Fields/Latitude"] = np.zeros((rows, cols), "f4")
        file.attrs["Product_Name"] = np.bytes_(b"PRS_L2D_STD_20200413023942.he5")
        file.attrs["Epsg_Code"] = np.int64(32633)
        corners = {
            "UL": (0, 0),
            "UR": (0, cols - 1),
            "LL": (rows - 1, 0),
            "LR": (rows - 1, cols - 1),
        }
        for corner, (row, col) in corners.items():  # centres of the outer pixels
            file.attrs[f"Product_{corner}corner_easting"] = np.float64(500015 + 30 * col)
            file.attrs[f"Product_{corner}corner_northing"] = np.float64(5000015 - 30 * row)
    return path


def geotiff(path: Path, values: np.ndarray, nodata: float | None = None) -> Path:
    bands, rows, cols = values.shape
    profile = {"driver": "GTiff", "count": bands, "height": rows, "width": cols, "nodata": nodata}
    options = {"tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "deflate"}
    place = {"crs": UTM, "transform": from_origin(500000, 5000000, 30, 30)}
    with rasterio.open(path, "w", dtype=values.dtype, **profile, **options, **place) as dataset:
        dataset.write(values)
        dataset.update_tags(PRODUCT="a tag of the maker")
    return path


def enmap_metadata(bands: int, empty: tuple[int, ...] = (), vnir: int | None = None) -> str:
    split = bands // 2 if vnir is None else vnir
    centres = np.concatenate([wavelengths(split, 418, 993), wavelengths(bands - split, 902, 2445)])
    rows = "".join(
        f'<bandID number="{i + 1}"><wavelengthCenterOfBand>{w:.3f}</wavelengthCenterOfBand>'
        f"<FWHMOfBand>7.5</FWHMOfBand><GainOfBand>0.0001</GainOfBand>"
        f"<OffsetOfBand>0</OffsetOfBand></bandID>"
        for i, w in enumerate(centres)
    )
    statistics = "".join(
        f'<bandID number="{i + 1}"><meanReflectance>{-1000000 if i in empty else 0.2}'
        f"</meanReflectance><stdDeviation>{0 if i in empty else 0.1}</stdDeviation></bandID>"
        for i in range(bands)
    )
    channels = [",".join(str(i + 1) for i in part) for part in (range(split), range(split, bands))]
    return (
        f"<level_X><product><bandStatistics>{statistics}</bandStatistics></product><specific>"
        f"<bandCharacterisation>{rows}</bandCharacterisation>"
        f"<vnirProductQuality><expectedChannelsList>{channels[0]}</expectedChannelsList>"
        f"</vnirProductQuality><swirProductQuality><expectedChannelsList>{channels[1]}"
        "</expectedChannelsList></swirProductQuality></specific></level_X>"
    )


def enmap(
    folder: Path,
    values: np.ndarray,
    *,
    empty: tuple[int, ...] = (),
    defective: np.ndarray | None = None,
    cloud: np.ndarray | None = None,
    zipped: bool = False,
) -> Path:
    """values (bands, rows, cols) int16; a folder, or a zip of that name."""
    folder.mkdir()
    stem = "ENMAP01-____L2A-DT0000001867_20220724T104526Z_008_V010302_20230628T165614Z"
    geotiff(folder / f"{stem}-SPECTRAL_IMAGE.TIF", values, -32768)
    (folder / f"{stem}-METADATA.XML").write_text(enmap_metadata(len(values), empty))
    bad = np.zeros(values.shape, bool) if defective is None else defective
    geotiff(folder / f"{stem}-QL_PIXELMASK.TIF", bad.astype("u1"))
    clouds = np.zeros(values.shape[1:], bool) if cloud is None else cloud
    geotiff(folder / f"{stem}-QL_QUALITY_CLOUD.TIF", clouds[None].astype("u1"))
    (folder / f"{stem}-HISTORY.XML").write_text("<history/>")
    if not zipped:
        return folder
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"{stem}/{file.name}")
            file.unlink()
    folder.rmdir()
    return path


def desis(folder: Path, values: np.ndarray) -> Path:
    """values (bands, rows, cols) int16; the image, with its header beside it."""
    stem = "DESIS-HSI-L2A-DT0456789012_003-20200713T094130-V0210-SPECTRAL_IMAGE"
    bands, rows, cols = values.shape
    listed = {
        "wavelength": wavelengths(bands, 402, 999),
        "fwhm": np.full(bands, 3.5),
        "data gain values": np.full(bands, 0.0001),
        "data offset values": np.zeros(bands),
    }
    lines = [
        "ENVI",
        f"samples = {cols}",
        f"lines = {rows}",
        f"bands = {bands}",
        "data type = 2",
        "interleave = bsq",
        "byte order = 0",
        "wavelength units = nanometers",
        *(f"{key} = {{{', '.join(map(str, table))}}}" for key, table in listed.items()),
    ]
    (folder / f"{stem}.hdr").write_text("\n".join(lines) + "\n")
    return geotiff(folder / f"{stem}.tif", values, -32768)


def aviris(path: Path, values: np.ndarray, name: str = "radiance") -> Path:
    """AVIRIS-3 netCDF: values (bands, rows, cols) float32 in a group of their own."""
    with h5py.File(path, "w") as file:
        file.attrs["instrument"] = "AVIRIS-3"
        group = file.create_group(name)
        cube = group.create_dataset(name, data=values.astype("f4"), chunks=True, compression="gzip")
        cube.attrs["_FillValue"] = np.array([-9999], "f4")
        group["wavelength"] = wavelengths(len(values)).astype("f4")
        group["fwhm"] = np.full(len(values), 7.4, "f4")
        mapping = file.create_dataset("transverse_mercator", data=np.int8(0))
        mapping.attrs["spatial_ref"] = UTM.to_wkt()
        mapping.attrs["GeoTransform"] = "500000 4.9 0 5000000 0 -4.9"
    return path


def neon(path: Path, values: np.ndarray, classes: np.ndarray | None = None) -> Path:
    """NEON AOP: values (bands, rows, cols) int16, scaled by 10000; classes (rows, cols) of ATCOR.

    The band in the middle lies in a window of water vapour.
    """
    bands, rows, cols = values.shape
    with h5py.File(path, "w") as file:
        group = file.create_group("SJER/Reflectance")
        middle = wavelengths(bands)[bands // 2]
        group.attrs["Band_Window_1_Nanometers"] = np.array([middle - 0.1, middle + 0.1], "f4")
        group.attrs["Product"] = np.bytes_(b"Reflectance")
        cube = group.create_dataset(
            "Reflectance_Data", data=values.transpose(1, 2, 0), chunks=True, compression="gzip"
        )
        cube.attrs["Data_Ignore_Value"] = np.array([-9999.0])
        cube.attrs["Scale_Factor"] = np.array([10000.0])
        group["Metadata/Spectral_Data/Wavelength"] = wavelengths(bands)
        group["Metadata/Spectral_Data/FWHM"] = np.full(bands, 5.9)
        text = (
            "UTM, 1.000, 1.000, 257000.00, 4112000.0, 1.0, 1.0, 11, North, WGS-84, units=Meters, 0"
        )
        group["Metadata/Coordinate_System/Map_Info"] = np.bytes_(text.encode())
        group["Metadata/Coordinate_System/EPSG Code"] = np.bytes_(b"32611")
        group["Metadata/Logs/Solar_Zenith_Angle"] = np.float32(31.5)
        layers = np.full((rows, cols), 5, "u1") if classes is None else classes.astype("u1")
        group["Metadata/Ancillary_Imagery/Haze_Cloud_Water_Map"] = layers
    return path


def envi(path: Path, values: np.ndarray, **entries: str) -> Path:
    """Values (bands, rows, cols) as bil beside a header with a few more entries."""
    codes = {"int16": 2, "float32": 4}
    bands, rows, cols = values.shape
    path.write_bytes(np.ascontiguousarray(values.transpose(1, 0, 2)).tobytes())
    header = {
        "samples": cols,
        "lines": rows,
        "bands": bands,
        "data type": codes[values.dtype.name],
        "interleave": "bil",
        "byte order": 0,
        **entries,
    }
    text = "\n".join(["ENVI", *(f"{key} = {value}" for key, value in header.items())])
    path.with_name(path.name + ".hdr").write_text(text + "\n")
    return path
