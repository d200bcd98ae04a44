"""What a fill is asked for: one record for the plain fill, the fill by tiles and an archive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydiff import auto
from hydiff.cube import Nodata
from hydiff.errors import BadValue
from hydiff.gaps.rule import Sigma
from hydiff.methods import WITH_WEIGHTS, Chosen, choose, declared, settings_dict

# what `api.fill` is told by the same names
ARGUMENTS = (
    "method",
    "preset",
    "budget",
    "recipe",
    "max_error",
    "sigma_y",
    "nodata",
    "nodata_in",
    "bad_bands",
    "max_gap",
    "outside",
    "fill_clouds",
    "denoise",
    "clip",
    "seed",
    "device",
    "deterministic",
)
# where missing entries are told of: what they come to is in the masks, whoever told it
MASKS = ("observed", "missing", "quality", "flags", "detect")


@dataclass(frozen=True)
class Request:
    """Everything that a fill is asked for, but where it reads and writes."""

    method: str = auto.NAME
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    budget: str = "normal"
    recipe: Mapping[str, Any] | None = None  # what an earlier `auto` decided
    max_error: float | None = None
    sigma_y: Sigma = 0.0
    nodata: Nodata = None
    nodata_in: str | None = None  # all | any: bands of a pixel that must have it to be missing
    bad_bands: str = "fill"
    max_gap: float | None = None
    outside: str = "keep"
    fill_clouds: bool = False
    denoise: bool = False
    clip: str = "none"  # none | observed | physical
    seed: int = 0
    device: str = "auto"
    deterministic: bool = False
    var: str | None = None  # of files that hold several cubes
    observed: Path | None = None  # mask files
    missing: Path | None = None
    quality: Path | None = None
    flags: str | None = None  # of the quality layer, between commas; None = its usual ones
    detect: bool = False  # also fill suspected damage
    report: bool = False  # also write a page about the fill
    unmarked: bool = False  # allow a file that cannot say that it is filled (.npy)
    prior: int = 0  # updates of a network on the scene, which its tiles start from; 0 = none

    def __post_init__(self) -> None:
        if self.prior < 0:
            raise BadValue(f"`prior={self.prior}`: expected a number of updates, 0 or more")
        if self.prior and not declared(self.method).weights:
            names = " or ".join(f"`method='{name}'`" for name in WITH_WEIGHTS)
            raise BadValue(f"`prior=` goes with {names}, not with {self.method}")
        if self.prior and self.settings.get("weights") is not None:
            raise BadValue("`prior=` trains a network, `weights=` names one: give one of them")

    @property
    def chosen(self) -> Chosen | None:
        """The one method, or None for `auto`."""
        if self.method == auto.NAME:
            return None
        return choose(self.method, self.preset, self.settings)

    @property
    def shown(self) -> dict[str, Any]:
        """The settings in full, as a record tells them."""
        chosen = self.chosen
        if chosen is not None:
            return settings_dict(chosen.settings)
        return {"budget": auto.budget_used(self.recipe, self.budget)}

    @property
    def learned(self) -> bool:
        """Whether a network is fitted, which a GPU does faster."""
        return declared(self.method).learned

    @property
    def arguments(self) -> dict[str, Any]:
        """What `api.fill` is called with."""
        return {name: getattr(self, name) for name in ARGUMENTS} | dict(self.settings)
