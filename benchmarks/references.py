"""The loss by wrong references, and the coverage of error bars where the place has changed.

python benchmarks/references.py [--side 72] [--pair s2_rennes …]      continues an interrupted run
python benchmarks/references.py --picture docs/howto/reference.png   only a picture, bundled scene

Writes benchmarks/results/references.csv, a row for each pair of images, mask and reference, and
prints a summary.  Pairs are crops of those in HYDIFF_DATA (default ../shared/data), budget `fast`
on a CPU, without a prior.  References: the original image; the image with blocks on 5 % of its area
replaced by other parts of it, half of them only under gaps; its shuffled pixels; noise; and the
image of another pair.
"""

import argparse
from pathlib import Path

import numpy as np

import hydiff
from hydiff.bench import records, scenes
from hydiff.errors import BadValue
from hydiff.report.plots import GAP_COLOUR

RESULTS = Path(__file__).parent / "results" / "references.csv"
PAIRS = tuple(name for name in scenes.PAIRS if name != scenes.SAME_MOMENT)
MASKS = ("slc-off", scenes.CLOUDS)
KINDS = ("as it is", "changed", "shuffled", "noise", "elsewhere")
CHANGED, BLOCK = 0.05, 6  # share of the area, px
NORMAL_80 = 1.2816
NAMES = (
    *("pair", "mask", "reference", "side", "gain_db", "share", "inside_80", "changed_entries"),
    "changed_inside_80",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=72)
    parser.add_argument("--pair", nargs="*", default=PAIRS, choices=PAIRS)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    if options.picture is not None:
        picture(options.picture)
        return
    done = records.read(RESULTS)
    keys = {(r["pair"], r["mask"], r["reference"], r["side"]) for r in done}
    for name in options.pair:
        for mask in MASKS:
            wanted = [k for k in KINDS if (name, mask, k, str(options.side)) not in keys]
            for row in judged(name, mask, wanted, options.side) if wanted else ():
                done.append(row)
                records.write(RESULTS, done, NAMES)
    _summary(done)


def judged(name, mask, kinds, side):
    """A row for each kind of reference of a pair."""
    truth, other = (v[:, :side, :side] for v in scenes.pair(name))
    observed = scenes.observed_of(mask, truth.shape)
    how = {"device": "cpu", "budget": "fast", "no_prior": True}
    without = hydiff.fill(truth, observed, **how)
    gaps = without.filled
    for kind in kinds:
        reference, changed = disturbed(other, kind, observed, name)
        try:
            result = hydiff.fill(truth, observed, reference=reference, **how)
        except (
            BadValue
        ):  # too large a shift: the reference was refused, and nothing was filled with it
            result = without
        error = [
            np.square(r.values - truth).mean(axis=(1, 2), where=gaps) for r in (without, result)
        ]
        inside = np.abs(result.values - truth) <= NORMAL_80 * result.sigma
        there = gaps & changed
        yield {
            "pair": name,
            "mask": mask,
            "reference": kind,
            "side": str(side),
            "gain_db": f"{np.mean(10 * np.log10(error[0] / error[1])):.3f}",
            "share": result.references[0]["share"] if result.references else "refused",
            "inside_80": f"{inside[gaps].mean():.4f}",
            "changed_entries": int(there.sum()),
            "changed_inside_80": f"{inside[there].mean():.4f}" if there.any() else "",
        }


def disturbed(reference, kind, observed, name):
    """A reference (R, rows, cols) made wrong, and where it shows a change, (rows, cols)."""
    rng, size = np.random.default_rng(0), reference.shape[1:]
    nowhere = np.zeros(size, bool)
    if kind == "shuffled":
        flat = reference.reshape(len(reference), -1)
        return rng.permutation(flat, axis=1).reshape(reference.shape), nowhere
    if kind == "noise":
        spread = reference.std(axis=(1, 2))[:, None, None]
        return spread * rng.standard_normal(reference.shape), nowhere
    if kind == "elsewhere":
        another = PAIRS[(PAIRS.index(name) + 1) % len(PAIRS)]
        return scenes.pair(another)[1][:, : size[0], : size[1]], nowhere
    if kind == "changed":
        changed = implanted(~observed, size, rng) | implanted(np.ones(size, bool), size, rng)
        from_elsewhere = np.roll(reference, (size[0] // 2, size[1] // 2), axis=(1, 2))
        return np.where(changed, from_elsewhere, reference), changed
    return reference, nowhere


def implanted(allowed, size, rng):
    """(rows, cols) blocks that lie where it is allowed, on half of CHANGED of the area."""
    changed = np.zeros(size, bool)
    for _ in range(10_000):
        if changed.mean() >= CHANGED / 2:
            break
        row, col = (int(rng.integers(n - BLOCK)) for n in size)
        block = np.s_[row : row + BLOCK, col : col + BLOCK]
        changed[block] |= allowed[block]
    return changed


def picture(path):
    """A part of the bundled scene with a wide gap, filled with and without a simulated reference:
    four broad bands, other light, half a pixel off."""
    from matplotlib import pyplot as plt

    truth = np.asarray(hydiff.sample().values, dtype=np.float64)[10:90:10, 20:92, 30:102]
    broad = np.stack([part.mean(axis=0) for part in np.array_split(truth, 4)])
    other = 0.3 * 0.5 * (broad + np.roll(broad, 1, axis=2)) + 50 * np.linspace(0, 1, 72)[:, None]
    rows, cols = np.mgrid[:72, :72]
    observed = np.hypot(rows - 38, cols - 34) > 20
    how = {"device": "cpu", "budget": "fast", "no_prior": True}
    without = hydiff.fill(truth, observed, **how)
    filled = hydiff.fill(truth, observed, reference=other, **how)
    shown = {
        "with a gap": np.where(observed, truth[4], np.nan),
        "the reference": other[2],
        "filled without it": without.values[4],
        "filled with it": filled.values[4],
        "the truth": truth[4],
    }
    figure, axes = plt.subplots(1, len(shown), figsize=(12, 2.7), layout="constrained")
    colours = plt.colormaps["gray"].with_extremes(bad=np.array(GAP_COLOUR) / 255)
    for ax, (title, plane) in zip(axes, shown.items(), strict=True):
        own = plane if title == "the reference" else truth[4]
        ax.imshow(plane, cmap=colours, vmin=np.percentile(own, 1), vmax=np.percentile(own, 99))
        ax.set_title(title, fontsize=10)
        ax.set_axis_off()
    figure.savefig(path, dpi=110)


def _summary(rows):
    for kind in KINDS:
        own = [r for r in rows if r["reference"] == kind]
        if not own:
            continue
        gain, inside = (np.array([float(r[k]) for r in own]) for k in ("gain_db", "inside_80"))
        words = f"{kind}: {gain.mean():+.2f} dB in the mean, {gain.min():+.2f} at worst; "
        words += f"{100 * inside.mean():.0f} % inside 80 % intervals"
        if kind == "changed":
            entries = np.array([int(r["changed_entries"]) for r in own])
            there = np.array([float(r["changed_inside_80"]) for r in own])
            words += f", {100 * np.average(there, weights=entries):.0f} % where it has changed"
        print(words)


if __name__ == "__main__":
    main()
