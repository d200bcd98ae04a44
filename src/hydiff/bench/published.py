"""The figures that the paper reports (arXiv 2608.26812), by table, noise level and row.

Each is (MPSNR, MSSIM, SAM, SCC, seconds), None where the paper gives none.
"""

from __future__ import annotations

Figures = tuple[float | None, float | None, float | None, float | None, float | None]


def _f(
    mpsnr: float,
    mssim: float | None = None,
    sam: float | None = None,
    scc: float | None = None,
    seconds: float | None = None,
) -> Figures:
    """Return the figures of one row of a table in the paper."""
    return mpsnr, mssim, sam, scc, seconds


PAPER: dict[str, dict[tuple[float | str, str], Figures]] = {
    "noiseless": {
        (0.0, "input"): _f(23.401, 0.205),
        (0.0, "dhp"): _f(29.695, 0.860, 3.139, 0.985),
        (0.0, "r-dlrhyin"): _f(33.307, 0.906, 2.790, 0.987),
        (0.0, "hir-diff"): _f(33.862, 0.913, 3.270, 0.984),
        (0.0, "share"): _f(34.089, 0.918, 3.041, 0.987),
        (0.0, "dds2m"): _f(34.344, 0.921, 2.264, 0.989),
        (0.0, "hydiff-ei"): _f(35.791, 0.940, 1.224, 0.993),
    },
    "noisy": {
        (0.1, "input"): _f(16.797, 0.167),
        (0.1, "dhp"): _f(27.504, 0.734, 5.193, 0.963),
        (0.1, "dds2m"): _f(30.683, 0.829, 17.595, 0.983),
        (0.1, "r-dlrhyin"): _f(30.848, 0.837, 4.719, 0.964),
        (0.1, "hir-diff"): _f(31.294, 0.867, 3.727, 0.984),
        (0.1, "share"): _f(31.468, 0.878, 3.575, 0.983),
        (0.1, "hydiff-ei"): _f(31.784, 0.883, 3.432, 0.984),
        (0.2, "input"): _f(14.266, 0.154),
        (0.2, "dhp"): _f(26.898, 0.690, 6.10, 0.945),
        (0.2, "dds2m"): _f(29.012, 0.761, 21.30, 0.976),
        (0.2, "r-dlrhyin"): _f(28.485, 0.755, 6.00, 0.945),
        (0.2, "hir-diff"): _f(29.570, 0.828, 4.45, 0.978),
        (0.2, "share"): _f(29.564, 0.840, 4.27, 0.979),
        (0.2, "hydiff-ei"): _f(30.228, 0.847, 4.05, 0.981),
        (0.3, "input"): _f(11.998, 0.140),
        (0.3, "dhp"): _f(24.828, 0.676, 7.35, 0.925),
        (0.3, "dds2m"): _f(27.739, 0.731, 24.80, 0.962),
        (0.3, "r-dlrhyin"): _f(26.332, 0.718, 7.10, 0.928),
        (0.3, "hir-diff"): _f(28.742, 0.814, 5.20, 0.969),
        (0.3, "share"): _f(28.961, 0.819, 5.08, 0.972),
        (0.3, "hydiff-ei"): _f(28.610, 0.802, 5.45, 0.966),
    },
    "emit": {
        (0.0, "input"): _f(22.517, 0.198),
        (0.0, "dhp"): _f(31.319, 0.880, 3.601, 0.968),
        (0.0, "r-dlrhyin"): _f(33.227, 0.878, 4.397, 0.963),
        (0.0, "dds2m"): _f(33.358, 0.905, 3.147, 0.974),
        (0.0, "hir-diff"): _f(33.592, 0.912, 4.454, 0.965),
        (0.0, "share"): _f(34.673, 0.920, 2.782, 0.978),
        (0.0, "hydiff-ei"): _f(35.482, 0.933, 2.095, 0.982),
    },
    "ei-ablation": {
        (0.0, "ei"): _f(34.798, 0.895),
        (0.0, "robust-ei"): _f(34.806, 0.895),
        (0.0, "hydiff-ei"): _f(36.527, 0.904),
        (0.1, "ei"): _f(32.381, 0.880),
        (0.1, "robust-ei"): _f(34.628, 0.892),
        (0.1, "hydiff-ei"): _f(34.242, 0.893),
        (0.2, "ei"): _f(31.660, 0.867),
        (0.2, "robust-ei"): _f(33.121, 0.874),
        (0.2, "hydiff-ei"): _f(33.179, 0.878),
        (0.3, "ei"): _f(29.811, 0.838),
        (0.3, "robust-ei"): _f(31.518, 0.847),
        (0.3, "hydiff-ei"): _f(31.655, 0.861),
    },
    "time": {
        (0.0, "dhp"): _f(28.425, 0.842, seconds=28.12),
        (0.0, "r-dlrhyin"): _f(32.464, 0.889, seconds=31.79),
        (0.0, "hir-diff"): _f(32.812, 0.893, seconds=53.33),
        (0.0, "dds2m"): _f(33.258, 0.905, seconds=178.43),
        (0.0, "share"): _f(34.108, 0.911, seconds=52.00),
        (0.0, "hydiff-ei"): _f(34.326, 0.917, seconds=38.54),
    },
    "alpha": {
        (0.0, "ei_weight 0"): _f(28.436, 0.753),
        (0.0, "ei_weight 0.1"): _f(30.127, 0.879),
        (0.0, "ei_weight 0.5"): _f(33.495, 0.906),
        (0.0, "ei_weight 1"): _f(35.762, 0.932),
        (0.0, "ei_weight 2"): _f(33.355, 0.904),
        (0.2, "ei_weight 0"): _f(15.618, 0.161),
        (0.2, "ei_weight 0.1"): _f(27.356, 0.714),
        (0.2, "ei_weight 0.5"): _f(30.642, 0.839),
        (0.2, "ei_weight 1"): _f(32.071, 0.891),
        (0.2, "ei_weight 2"): _f(28.259, 0.732),
    },
    "transforms": {
        (0.0, "transform shift"): _f(34.602, 0.926),
        (0.0, "transform rotation"): _f(34.439, 0.922),
        (0.0, "transform scaling"): _f(33.477, 0.913),
        (0.0, "transform reflection"): _f(28.334, 0.836),
        (0.0, "transform similarity"): _f(33.161, 0.901),
        (0.0, "transform affine"): _f(32.104, 0.898),
    },
    "offline": {
        (0.0, "input"): _f(20.704, 0.186),
        (0.0, "hydiff-ei"): _f(34.393, 0.927, seconds=38.02),
        (0.0, "offline 50"): _f(31.113, 0.863, seconds=15.15),
        (0.0, "offline 300"): _f(34.540, 0.929, seconds=15.15),
    },
}
