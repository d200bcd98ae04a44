"""Quality of a fill for its uses: land-cover classification, and absorption features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Floats
from hydiff.metrics import band_depth, band_ratio

SHRINKAGE = 0.1  # of the covariance towards its diagonal, to keep it invertible
FEWEST = 5  # smallest number of observed pixels of a class that is used
# Band numbers of the bundled scene (AVIRIS, 200 bands): the red edge for a ratio, and shoulders and
# centre of the chlorophyll absorption near 670 nm for a depth.
RATIO = (50, 27)
DEPTH = (16, 27, 36)

COLUMNS = ("landcover_accuracy", "landcover_kappa", "landcover_truth", "ratio_rmse", "depth_rmse")


def errors(
    x: Floats, truth: Floats, observed: Bools, labels: Array | None
) -> dict[str, float | None]:
    """Land-cover accuracy and kappa, and errors of a band ratio and a band depth, on filled pixels.

    x, truth, observed: (bands, rows, cols); labels (rows, cols), 0 = none.  The classifier is
    trained on complete pixels and applied to those with missing entries; `landcover_truth` is its
    accuracy on their true spectra, the reference for a fill.
    """
    result: dict[str, float | None] = dict.fromkeys(COLUMNS)
    filled = ~observed.all(axis=0)
    if labels is None or not filled.any():
        return result
    test = filled & (labels > 0)
    training = ~filled & (labels > 0)
    if len(truth) > max(RATIO + DEPTH):
        difference = _features(x[:, filled]) - _features(truth[:, filled])
        rmse = np.sqrt(np.mean(difference**2, axis=1))
        result |= {"ratio_rmse": float(rmse[0]), "depth_rmse": float(rmse[1])}
    classes, counts = np.unique(labels[training], return_counts=True)
    classes = classes[counts >= FEWEST]
    test &= np.isin(labels, classes)
    training &= np.isin(labels, classes)
    if len(classes) < 2 or not test.any():
        return result
    model = train(x[:, training].T, labels[training])
    predicted, on_truth = (model.classify(v[:, test].T) for v in (x, truth))
    accuracy, kappa = agreement(predicted, labels[test])
    return result | {
        "landcover_accuracy": accuracy,
        "landcover_kappa": kappa,
        "landcover_truth": agreement(on_truth, labels[test])[0],
    }


def _features(spectra: Floats) -> Floats:
    """(2, pixels) band ratio and band depth of spectra (bands, pixels)."""
    return np.stack([band_ratio(spectra, *RATIO), band_depth(spectra, *DEPTH)])


class Classifier(NamedTuple):
    """Linear discriminant analysis."""

    classes: Array  # (k,)
    weights: Floats  # (bands, k)
    offsets: Floats  # (k,)

    def classify(self, spectra: Floats) -> Array:
        """Return the classes (n,) of spectra (n, bands)."""
        chosen: Array = self.classes[np.argmax(spectra @ self.weights + self.offsets, axis=1)]
        return chosen


def train(spectra: Floats, labels: Array) -> Classifier:
    """Fit to spectra (n, bands) of known classes (n,), with a shared, shrunk covariance."""
    classes = np.unique(labels)
    means = np.stack([spectra[labels == c].mean(axis=0) for c in classes])
    residual = spectra - means[np.searchsorted(classes, labels)]
    covariance = residual.T @ residual / len(spectra)
    diagonal = np.diag(np.diag(covariance) + 1e-9)
    covariance = (1 - SHRINKAGE) * covariance + SHRINKAGE * diagonal
    weights = np.linalg.solve(covariance, means.T)
    share = np.array([(labels == c).mean() for c in classes])
    return Classifier(classes, weights, np.log(share) - 0.5 * (means * weights.T).sum(axis=1))


def agreement(cover: Array, truth: Array) -> tuple[float, float]:
    """Return the overall accuracy and Cohen's kappa, the agreement beyond chance."""
    accuracy = float((cover == truth).mean())
    classes = np.union1d(cover, truth)
    chance = float(sum((cover == c).mean() * (truth == c).mean() for c in classes))
    return accuracy, (accuracy - chance) / (1 - chance) if chance < 1 else 1.0
