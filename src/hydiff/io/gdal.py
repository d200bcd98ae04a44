"""The settings under which GDAL runs here, through rasterio."""

from __future__ import annotations

import os
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

CACHE = 128 << 20  # bytes; GDAL would take a twentieth of the memory
STDERR = 2
_holding = threading.Lock()


@contextmanager
def gdal(**options: str) -> Iterator[None]:
    """Inside the block GDAL's messages go to the log, and rasterio's note on rasters without a
    position is not shown: most cubes have none."""
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    with rasterio.Env(GDAL_CACHEMAX=CACHE, **options), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


@contextmanager
def lines_held() -> Iterator[None]:
    """What libtiff prints on stderr inside the block appears after it; or not at all when it ends
    with an error, which says the same in one line.  Of several threads, that of the first."""
    if not _holding.acquire(blocking=False):
        yield
        return
    with tempfile.TemporaryFile() as held:
        before = os.dup(STDERR)
        os.dup2(held.fileno(), STDERR)
        try:
            yield
        finally:
            os.dup2(before, STDERR)
            os.close(before)
            _holding.release()
        held.seek(0)
        os.write(STDERR, held.read())
