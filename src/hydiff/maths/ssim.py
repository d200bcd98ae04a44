"""Structural similarity of images with gaps, for each entry, in float64."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from hydiff.cube import Array, Floats

RADIUS = 5  # of the 11 x 11 SSIM window
TAPS = np.exp(-0.5 * (np.arange(-RADIUS, RADIUS + 1) / 1.5) ** 2)
TAPS /= TAPS.sum()


def ssim_map(x: Array, truth: Array) -> Floats:
    """(bands, rows, cols) structural similarity of the window centred on each entry.

    Gaussian 11 x 11 windows of sigma 1.5, K 0.01 and 0.03, data range 1, population covariance.
    NaN where the window leaves the image or its centre is not finite in both images; other such
    entries have no weight in the windows that contain them.
    """
    result = np.full(np.shape(truth), np.nan)
    for band, (a, b) in enumerate(zip(x, truth, strict=True)):
        result[band] = _ssim_of_band(np.asarray(a, np.float64), np.asarray(b, np.float64))
    return result


def _ssim_of_band(x: Floats, truth: Floats) -> Floats:
    """(rows, cols) `ssim_map` of one band."""
    observed = np.isfinite(x) & np.isfinite(truth)
    a, b = np.where(observed, x, 0.0), np.where(observed, truth, 0.0)
    # > 0 wherever the centre is observed; elsewhere the result is NaN anyway
    weight = np.maximum(_blur(observed.astype(np.float64)), np.finfo(float).tiny)

    def local(v: Floats) -> Floats:
        result: Floats = _blur(v) / weight
        return result

    mean_a, mean_b = local(a), local(b)
    var_a, var_b = local(a * a) - mean_a**2, local(b * b) - mean_b**2
    covariance = local(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    similarity = luminance * (2 * covariance + c2) / (var_a + var_b + c2)
    inner = np.zeros(observed.shape, bool)
    inner[RADIUS:-RADIUS, RADIUS:-RADIUS] = True  # windows that lie inside the image
    return np.where(observed & inner, similarity, np.nan)


def _blur(image: Floats) -> Floats:
    """Return an image (rows, cols) blurred by the SSIM window; 0 outside the image."""
    rows = ndimage.correlate1d(image, TAPS, axis=0, mode="constant")
    return ndimage.correlate1d(rows, TAPS, axis=1, mode="constant")
