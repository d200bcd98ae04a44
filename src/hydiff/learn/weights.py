"""Trained weights on disk: a safetensors file that describes its network, with a model card.

MODEL               the weights; a metadata entry in JSON gives layout, bands, channels, scales
MODEL.md            the model card: settings, data with hashes, versions, losses, limits
MODEL.png           the loss curve
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hydiff import io
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.learn import network, weights_file
from hydiff.learn.engine import Tensors

LAYOUT = 1  # version of the file format
KIND = weights_file.Kind("hydiff", LAYOUT, "weights of `hydiff train`")
LARGEST = {"channels": 1 << 14, "scales": 16}  # a file that names more is damaged or hostile

History = list[Mapping[str, float]]


def beside(output: Path, suffix: str) -> Path:
    """Return the path of a file next to `output`, with a suffix added to the name."""
    return output.with_name(output.name + suffix)


def weights_of(state: Tensors) -> dict[str, Tensor]:
    """Return the tensors of the network from those of a state."""
    return {k.removeprefix("network."): v for k, v in state.items() if k.startswith("network.")}


def network_of(path: str | Path) -> dict[str, int]:
    """Return the settings of the network that a file of weights fits: channels and scales."""
    about, _ = _content(Path(path))
    return {"channels": about["channels"], "scales": about["scales"]}


def load_weights(settings: Any, *, bands: int) -> dict[str, Tensor]:
    """Return the tensors of the file `settings.weights`; refuse those of another network."""
    path = Path(settings.weights)
    about, tensors = _content(path)
    _check_fit(path, about, settings, bands)
    with torch.device("meta"):  # only names and shapes are needed
        norm = network.norm_of(tensors)
        fitting = network.SkipNet(bands, settings.channels, settings.scales, norm=norm)
    weights_file.check_tensors(path, KIND, tensors, fitting.state_dict())
    return tensors


def _content(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the description in a file of weights, and its tensors."""
    about, tensors = weights_file.content(path, KIND)
    for name, most in LARGEST.items():
        weights_file.whole_number(path, KIND, name, about.get(name), most)
    return about, tensors


def _check_fit(path: Path, about: Any, settings: Any, bands: int) -> None:
    """Refuse weights of a network with other bands, channels or scales."""
    if about.get("bands") != bands:
        raise ShapeMismatch(
            f"{path}: trained on {about.get('bands')} bands, but the cube has {bands} usable ones; "
            "train on cubes like this one (bad and empty bands do not count)"
        )
    wrong = [k for k in ("channels", "scales") if about.get(k) != getattr(settings, k)]
    if wrong:
        was = " and ".join(f"{about.get(k)} {k}" for k in wrong)
        now = " and ".join(f"{getattr(settings, k)}" for k in wrong)
        named = " and ".join(f"`{k}={about.get(k)}`" for k in wrong)
        raise BadValue(f"{path}: trained with {was}, the settings say {now}; add {named}")


def save_weights(
    weights: Tensors, report: dict[str, Any], history: History, output: Path, overwrite: bool
) -> None:
    """Write weights, model card and loss curve: all of them or, on an error, none."""
    from safetensors.torch import save

    from hydiff.report import plots

    if not all(w.isfinite().all() for w in weights.values()):
        raise BadValue("the weights are no longer finite: train again with a smaller `lr=`")
    about = {k: report[k] for k in ("layout", "bands", "channels", "scales", "settings")}
    with io.staged(output, overwrite=overwrite) as folder:
        content = save(dict(weights), metadata={"hydiff": json.dumps(about)})
        (folder / output.name).write_bytes(content)
        beside(folder / output.name, ".md").write_text(card(report, output.name), "utf-8")
        plots.loss_curve(history, beside(folder / output.name, ".png"))


CARD = """\
# {name}

Weights of the network f_θ of HyDiff-EI, trained by hydiff on damaged cubes alone: no value under
a gap was used, and no clean cube.

**For** filling gaps in cubes of the same sensor, with the same {bands} usable bands and gaps of
the kind it was trained on:

    hydiff fill DAMAGED -o FILLED --weights {name}

That is one forward pass; `--refine 100` lets 100 steps on the cube itself follow.

**Limits.** {updates} updates were made; the paper's training has 1.2 million.  Other sensors,
other scenes and wider gaps are outside what it has seen; hide some observed pixels and score the
fill there before relying on it.  The losses above are of the training itself, on the unit range,
over its first and last tenth; they do not measure the fill.  Curve: {name}.png
"""


def card(report: Mapping[str, Any], name: str) -> str:
    """Return a model card: a YAML head with the facts, then purpose and limits of the model."""

    def plain(value: Any) -> str:  # JSON is YAML
        return json.dumps(value, ensure_ascii=False)

    lines = [f"{k}: {plain(v)}" for k, v in report.items() if k != "data"]
    lines += ["data:", *(f"  - {plain(entry)}" for entry in report["data"])]
    return "\n".join(["---", *lines, "---", "", CARD.format(name=name, **report)])
