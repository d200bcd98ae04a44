"""The settings under which GDAL runs here, through rasterio."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

CACHE = 128 << 20  # bytes; GDAL would take a twentieth of the memory


@contextmanager
def gdal(**options: str) -> Iterator[None]:
    """Inside the block GDAL's messages go to the log, and rasterio's note on rasters without a
    position is not shown: most cubes have none."""
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    with rasterio.Env(GDAL_CACHEMAX=CACHE, **options), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield
