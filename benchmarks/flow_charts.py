"""Draw the paper's algorithms, docs/algorithm-1.png and -2.png, and the loop, docs/loop.gif.

python benchmarks/flow_charts.py             (the loop takes two minutes on a CPU)
"""

from itertools import pairwise
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).parents[1]
INK, GROUND, NOISY = "#222222", "#eef3f8", "#fbe9dd"
START = "1  measurement $y$, mask M\n$x_T$: $y$ diffused to step $T$"
UPDATE = (
    "2  one update of $\\theta$\n"
    "data: $\\|x_t - \\sqrt{1-\\bar\\alpha_t}\\,\\epsilon_0 "
    "- \\sqrt{\\bar\\alpha_t}\\,f_\\theta(y)\\|^2$\n"
    "equivariance: $\\alpha_{EI}\\,\\|T_g f_\\theta(y) "
    "- f_\\theta(\\mathrm{M}\\,T_g f_\\theta(y))\\|^2$"
)
CONSISTENT = {
    1: "3  keep what was measured\n$\\tilde x_{0|t} = \\mathrm{M}^\\dagger y"
    " + (\\mathrm{I} - \\mathrm{M}^\\dagger\\mathrm{M})\\, f_\\theta(y)$",
    2: "3  believe $y$ by the share $\\lambda_t$\n$\\tilde x_{0|t} = f_\\theta(y)"
    " - \\Sigma_t\\, \\mathrm{M}^\\dagger(\\mathrm{M} f_\\theta(y) - y)$",
}
SAMPLE = {
    1: "4  one step down the chain\n$x_{t-1} = a\\,\\tilde x_{0|t} + b\\,x_t"
    " + \\sigma_t\\,\\epsilon$",
    2: "4  one step down the chain, with the noise still lacking\n$x_{t-1} = a\\,\\tilde x_{0|t}"
    " + b\\,x_t + \\sqrt{\\Gamma_t}\\,\\epsilon$",
}


def chart(number):
    """One algorithm; what differs with noise has another ground."""
    figure, axes = plt.subplots(figsize=(6.4, 6.6), layout="constrained")
    ground = GROUND if number == 1 else NOISY
    boxes = [
        (5.9, 0.8, START, GROUND),
        (4.3, 1.3, UPDATE, GROUND),
        (2.75, 1.0, CONSISTENT[number], ground),
        (1.4, 1.0, SAMPLE[number], ground),
        (0.1, 0.6, "filled cube $x_0$", GROUND),
    ]
    for centre, height, text, colour in boxes:
        box = FancyBboxPatch(
            (-2.3, centre - height / 2), 4.6, height, boxstyle="round,pad=0.06", fc=colour, ec=INK
        )
        axes.add_patch(box)
        axes.text(0, centre, text, ha="center", va="center", color=INK, fontsize=10.5)
    for (one, tall, *_), (other, low, *_) in pairwise(boxes):
        ends = {"xytext": (0, one - tall / 2 - 0.07), "xy": (0, other + low / 2 + 0.07)}
        axes.annotate("", **ends, arrowprops={"arrowstyle": "-|>", "color": INK})
    axes.plot([2.37, 2.8, 2.8], [1.4, 1.4, 4.3], color=INK, lw=1)
    back = {"xytext": (2.8, 4.3), "xy": (2.37, 4.3)}
    axes.annotate("", **back, arrowprops={"arrowstyle": "-|>", "color": INK})
    axes.text(2.9, 2.85, "$t = T, \\ldots, 1$", rotation=90, va="center", color=INK)
    axes.set(xlim=(-2.6, 3.3), ylim=(-0.35, 6.5))
    axes.set_title(f"Algorithm {number}: {'without noise' if number == 1 else 'with noise'}")
    axes.axis("off")
    figure.savefig(ROOT / "docs" / f"algorithm-{number}.png", dpi=110)


def loop():
    """The estimate of the small network for a CPU, every twentieth step."""
    import numpy as np
    from PIL import Image

    import hydiff
    from hydiff.gaps.mask import make_mask
    from hydiff.report.plots import stretch

    cube = hydiff.sample().window(slice(40, 112), slice(40, 112))
    values = np.asarray(cube.values, dtype=float)
    observed = make_mask("stripes", values.shape, 0.3, np.random.default_rng(3))
    frames = []

    def keep(step):
        if step.x is not None and step.done % 20 == 0:
            frames.append((step.done, step.total, step.x.cpu().numpy()))

    hydiff.fill(values, observed, method="hydiff-ei", preset="fast", device="cpu", progress=keep)
    bands = (28, 16, 8)
    figure, axes = plt.subplots(1, 2, figsize=(4.4, 2.5), dpi=70, layout="constrained")

    everywhere = np.ones(observed.shape, bool)

    def image(x, like):
        """Steps are on the unit range, the cube is in its own unit: each has its limits."""
        low, high = np.asarray(stretch(like, bands, everywhere))[:, :, None, None].swapaxes(0, 1)
        shown = (x[list(bands)] - low) / (high - low)
        return shown.clip(0, 1).transpose(1, 2, 0)

    axes[0].imshow(image(np.where(observed, values, 0.0), values))
    axes[0].set_title("measured", fontsize=10)
    picture = axes[1].imshow(image(frames[0][2], frames[-1][2]))
    for each in axes:
        each.set(xticks=[], yticks=[])

    pages = []
    for done, total, x in frames:
        picture.set_data(image(x, frames[-1][2]))
        axes[1].set_title(f"estimate, step {done} of {total - 1}", fontsize=10)
        figure.canvas.draw()
        page = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])
        pages.append(page.quantize(64))
    times = [250] * (len(pages) - 1) + [2500]  # ms
    target = ROOT / "docs" / "loop.gif"
    pages[0].save(target, save_all=True, append_images=pages[1:], duration=times, loop=0)


if __name__ == "__main__":
    for number in (1, 2):
        chart(number)
    loop()
