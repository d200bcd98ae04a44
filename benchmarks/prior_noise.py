"""Which components of a noisy cube gain from the network, on places held back from its training.

    python benchmarks/prior_noise.py       3 CPU minutes

Crops of 96 × 96 px; the 60 bands are mixtures of ten, so most components contain only noise.
Writes benchmarks/results/prior_noise.csv, a row for each component: its variance divided by that of
the strongest component of pure noise, and the gain in dB of one pass of the network over kriging,
in measured pixels and in the gaps.
"""

from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from hydiff.bench import records
from hydiff.gaps.mask import make_mask
from hydiff.learn import prior_weights
from hydiff.methods import prior
from hydiff.methods.smooth import coordinates
from prior_parts import MASKS, MISSING, held_back

RESULTS = Path(__file__).parent / "results" / "prior_noise.csv"
SIDE, BANDS, SIGMAS = 96, 60, (0.02, 0.05, 0.1, 0.2, 0.4)
FIELDS = ["place", "sigma_y", "component", "variance", "measured", "gaps"]


def gains(truth, observed, sigma, rng):
    """Of each component of a cube (bands, rows, cols): variance, and the two gains in dB."""
    y = np.where(observed, truth + sigma * rng.standard_normal(truth.shape), 0.0)
    c = coordinates(y, observed, np.full(len(truth), sigma), prior.Prior().components)
    with patch.object(prior, "SIGNAL", 0.0):
        parts = prior.parts_of(c, prior.Prior().planes)
    shown = prior.network_input(parts, c, torch.device("cpu"))
    network = prior_weights.network_of(prior_weights.packaged("full"), "cpu")
    spectra = (c.weight[:, None, None] * truth).reshape(len(truth), -1)
    z = c.space.project(spectra).reshape(-1, *observed.shape)
    true = np.tensordot(parts.axes[parts.some], z, 1)
    kriged, found = (x - true for x in (parts.kriged, prior.corrected_planes(shown, network)))
    variance = parts.p[:, c.complete].var(axis=1) / parts.sigma**2 / c.noise_edge
    each = [
        10 * np.log10((kriged**2)[:, where].mean(axis=1) / (found**2)[:, where].mean(axis=1))
        for where in (observed, ~observed)
    ]
    return zip(variance, *each, strict=True)


def main():
    rows = []
    for i, (place, x) in enumerate(held_back()):
        rng = np.random.default_rng(i)
        x = x[:, :SIDE, :SIDE]
        x = np.tensordot(rng.dirichlet(np.full(len(x), 0.7), BANDS), (x - x.min()) / np.ptp(x), 1)
        observed = make_mask(MASKS[i % 3], x.shape, MISSING, rng)
        for sigma in SIGMAS:
            for k, found in enumerate(gains(x, observed, sigma, rng)):
                row = (place, sigma, k, *(f"{value:.3f}" for value in found))
                rows.append(dict(zip(FIELDS, row, strict=True)))
    records.write(RESULTS, rows)


if __name__ == "__main__":
    main()
