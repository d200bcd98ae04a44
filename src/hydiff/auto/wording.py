"""The words for a decision of `auto`: notes that say what fills the gaps with one short reason
(`notes_of`), and the gains and verdicts that a recipe lists with all figures, as its `why`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hydiff.auto.candidates import NAME
from hydiff.auto.recipe import KindRecipe, Recipe, Tried
from hydiff.auto.split import SOME

NOTHING = "there is nothing to fill"
LEAST_SHARE = 0.005  # smaller shares are not named
NEIGHBOURS, KEPT = "interpolation from nearby pixels", "regression on the bands that a pixel keeps"
ALONG = "interpolation along the bands"
TRAINED, OWN = "the trained network", "a network trained on this cube"
TRAINED_FURTHER = "the trained network, trained further on this cube"


class Gain(NamedTuple):
    """Gain of a blend on folds that its fit did not use, as a share of the squared error."""

    mean: float
    error: float  # standard error, by bootstrap over folds
    folds: int
    doubt: float = 1.0  # standard errors that a gain, or a loss, must exceed

    @property
    def proven(self) -> bool:
        return self.mean > self.doubt * self.error

    @property
    def loss_proven(self) -> bool:
        return self.mean < -self.doubt * self.error

    def __str__(self) -> str:
        than = "less" if self.mean >= 0 else "more"
        number = f"{100 * abs(self.mean):.1f} ± {100 * self.error:.1f} %"
        return f"{number} {than} squared error on {self.folds} hidden copies"


class Verdict(NamedTuple):
    """Whether a blend of least error on the folds replaces the usual one."""

    gain: Gain  # over the usual blend
    used: bool
    worse_steps: float = 0.0  # share of the loss in the steps between bands for which it is refused
    usual_harms: bool = False  # whether the usual blend is refused for such a loss

    @property
    def harms(self) -> bool:
        """Whether any blend was refused for its steps between bands."""
        return self.usual_harms or self.worse_steps > 0

    def __str__(self) -> str:
        used = ", used" if self.used else ", not used"
        if self.worse_steps:
            used = f", but steps between bands {100 * self.worse_steps:.1f} % worse: not used"
        usual = "; the usual share would make the steps between bands worse" * self.usual_harms
        return f"{self.gain}{used}{usual}"


def notes_of(recipe: Mapping[str, Any] | None) -> list[str]:
    """Return the note of each kind of gaps of a recipe; none without a recipe."""
    if recipe is None:
        return []
    parts = Recipe.of(recipe).parts
    if len(parts) < 2:
        return [note_of(part) for part in parts]
    return [note_of(part, part.gaps) for part in reversed(parts)]


def is_note(note: str) -> bool:
    """Whether a note of a fill is one of `notes_of` its recipe, of this version or an older one."""
    return note.startswith((f"{NAME}: ", f"{NAME}, "))


def note_of(part: KindRecipe, kind: str | None = None) -> str:
    """Return the note of a recipe for gaps of one kind, which it names if `kind` is given."""
    head = NAME if kind is None else f"{NAME}, {kind}"
    if part.reason.startswith(NOTHING):
        return f"{head}: {NOTHING}"
    text, reference = f"by {_shares(part, kind or part.gaps)}", part.with_reference
    if reference is not None and reference.used:
        gain = f"{reference.worth:+.1f} dB on hidden copies of the gaps"
        return f"{head}: by the reference where it helps ({gain}), elsewhere {text}"
    return f"{head}: {text}{part.reason and f'; {part.reason}'}"


def _shares(part: KindRecipe, kind: str | None) -> str:
    """Return what fills the gaps, with shares, largest first: `A (90 %) and B (10 %)`."""
    shares: defaultdict[str, float] = defaultdict(float)
    for tried, weights in zip(part.candidates, part.weights, strict=True):
        shares[_name(tried, kind)] += (
            float(np.mean(weights)) if tried.share is None else tried.share
        )
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    named = [(name, share) for name, share in ordered if share >= LEAST_SHARE] or ordered[:1]
    if len(named) == 1:
        return named[0][0]
    return " and ".join(f"{name} ({100 * share:.0f} %)" for name, share in named)


def _name(tried: Tried, kind: str | None) -> str:
    """Return a candidate in plain words; candidates of one method have the same."""
    if tried.plain:
        known = {"smooth": KEPT if kind == SOME else NEIGHBOURS, "spectral": ALONG}
        return known.get(tried.method, tried.name)
    if tried.weights is None:
        return OWN
    return TRAINED_FURTHER if tried.fits else TRAINED


def reason(
    plain: Verdict | None,
    network: Verdict | None,
    usual: Gain | None,
    networks_used: bool,
    in_doubt: bool = False,
) -> str:
    """Return the reason of a blend in short.

    plain, network: the verdicts on blends of the candidates without a network, and on shares of
    the networks; None if not tried.  usual: gain of the shares that the networks start with.
    in_doubt: whether these are smaller than usual, as a gain is unlikely.
    """
    if networks_used and network is not None:
        if network.used:
            than = "with the usual shares" if usual is not None else "without the network"
            return _gained(network.gain, than)
        if usual is not None and usual.proven:
            return _gained(usual, "without the network")
        if in_doubt:
            return f"{_tests(network.gain)} leave open whether the network helps"
        return f"these are the usual shares: {_tests(network.gain)} proved no others better"
    if plain is not None and plain.used:
        return _gained(plain.gain, "with the first method alone")
    verdicts = [verdict for verdict in (plain, network) if verdict is not None]
    distorts = " without harm to the spectra" * any(verdict.harms for verdict in verdicts)
    return f"{_tests(verdicts[0].gain)} proved nothing else better{distorts}"


def _gained(gain: Gain, than: str) -> str:
    percent = 100 * gain.mean
    number = f"{percent:.{0 if percent >= 1 else 1}f} %"
    return f"{number} less squared error than {than} in {_tests(gain)}"


def _tests(gain: Gain) -> str:
    return f"{gain.folds} test{'s' * (gain.folds != 1)} on hidden copies of the gaps"
