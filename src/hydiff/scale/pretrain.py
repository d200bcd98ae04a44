"""Train a network on the damaged scene itself, from which the fit of every tile starts.

No clean scene is needed: it is trained like `hydiff train`, on the observed entries of some crops.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

from hydiff.methods.devices import torch_device
from hydiff.scale import ledger, scene_decision, tile
from hydiff.scale.layout import Scene, window
from hydiff.scale.scene_decision import spread_over
from hydiff.workers import Run

CROPS = 8  # number of windows to train on


def train(scene: Scene, run: Run) -> None:
    """Have a worker train the network of a scene, if it is requested and not on disk yet."""
    if (
        not scene.request.pretrain
        or not scene.planned
        or scene_decision.prior_path(scene.work).exists()
    ):
        return
    tiles = [tile.Tagged(t, "") for t in spread_over(scene.planned, CROPS)]
    glance = ledger.glance(scene.cube.path or scene.path)
    for outcome in run(work, [tile.task(scene, tiles, glance)], 1):
        if outcome.error is not None:
            raise outcome.error


def work(task: tile.TileTask) -> None:
    """Train on the windows of the tiles of a task, and write the weights."""
    from hydiff.learn.training import Training, updates
    from hydiff.learn.weights import weights_of

    chosen = task.request.chosen
    assert chosen is not None
    settings = chosen.settings
    training = Training(
        batch=1,
        lr=settings.lr,
        steps=settings.steps,
        beta_start=settings.beta_start,
        beta_end=settings.beta_end,
        ei_weight=settings.ei_weight,
        transform=settings.transform,
        n_transforms=settings.n_transforms,
        channels=settings.channels,
        scales=settings.scales,
        norm="image",  # a tile continues from these weights alone, without a batch
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
    """Return squares of one size from the windows, on the scene's unit range, as training items."""
    from hydiff.learn.training import item

    scene, decided = tile.checked(task), scene_decision.read(task.work)
    scale, bands = decided.common.scale, decided.common.bands
    sigma = (np.asarray(decided.sigma_y) / scale.spans)[bands]
    side = min(s.stop - s.start for t, _ in task.tiles for s in t.window)
    items = []
    for crop_tile, _ in task.tiles:
        cube, observed, _ = window(scene, task.observed, task.target, crop_tile)
        values = scale.to_unit(np.asarray(cube.values, np.float64))[bands, :side, :side]
        observed = observed[bands, :side, :side]
        items.append(item(np.where(observed, values, 0.0).astype(np.float32), observed, sigma))
    return items
