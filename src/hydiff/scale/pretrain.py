"""A scene's own prior: a network trained on the damaged scene, which every tile starts from.

No clean scene is needed: it learns as `hydiff train` does, from the observed entries of some crops.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

from hydiff.methods.estimate import torch_device
from hydiff.scale import ledger, scene_decision, tile
from hydiff.scale.layout import Scene, window
from hydiff.scale.scene_decision import spread_over
from hydiff.workers import Run

CROPS = 8  # windows that it learns from


def train(scene: Scene, run: Run) -> None:
    """Let someone train the network of a scene, unless none is wanted or it is on disk."""
    if (
        not scene.request.pretrain
        or not scene.planned
        or scene_decision.prior_path(scene.work).exists()
    ):
        return
    some = [tile.Tagged(t, "") for t in spread_over(scene.planned, CROPS)]
    glance = ledger.glance(scene.cube.path or scene.path)
    for outcome in run(work, [tile.task(scene, some, glance)], 1):
        if outcome.error is not None:
            raise outcome.error


def work(task: tile.TileTask) -> None:
    """Train on the windows of the tiles of a task, and keep the weights."""
    from hydiff.learn.training import Training, updates
    from hydiff.learn.weights import weights_of

    chosen = task.request.chosen
    assert chosen is not None
    own = chosen.settings
    training = Training(
        batch=1,
        lr=own.lr,
        steps=own.steps,
        beta_start=own.beta_start,
        beta_end=own.beta_end,
        ei_weight=own.ei_weight,
        transform=own.transform,
        n_transforms=own.n_transforms,
        channels=own.channels,
        scales=own.scales,
        norm="image",  # each tile goes on from it alone
        seed=task.request.seed,
    )
    for step in updates(_crops(task), training, torch_device(task.request.device), None):
        if step.done == task.request.pretrain:
            break
    assert step.state is not None
    weights: dict[str, Any] = {k: v.numpy() for k, v in weights_of(step.state()).items()}
    content = BytesIO()
    np.savez(content, **weights)
    ledger.write_whole(scene_decision.prior_path(task.work), content.getvalue())


def _crops(task: tile.TileTask) -> list[Any]:
    """Squares of one size from the windows, on the scene's unit range: items of `train`."""
    from hydiff.learn.training import item

    scene, decided = tile.checked(task), scene_decision.read(task.work)
    scale, bands = decided.common.scale, decided.common.bands
    sigma = (np.asarray(decided.sigma_y) / scale.spans)[bands]
    side = min(s.stop - s.start for t, _ in task.tiles for s in t.window)
    items = []
    for one, _ in task.tiles:
        cube, observed, _ = window(scene, task.observed, task.target, one)
        values = scale.to_unit(np.asarray(cube.values, np.float64))[bands, :side, :side]
        observed = observed[bands, :side, :side]
        items.append(item(np.where(observed, values, 0.0).astype(np.float32), observed, sigma))
    return items
