"""Laws of the notes of `auto`: what fills the gaps, then one short reason, then what to expect."""

import copy
import re
from dataclasses import replace

import numpy as np
import pytest

import hydiff
from errors_on_folds import ONE_CLASS, trial
from hydiff.auto import Candidate, blend, notes_of, wording
from hydiff.auto.recipe import Recipe
from hydiff.auto.wording import Gain, Verdict
from hydiff.cube import Cube
from hydiff.request import Request
from hydiff.scale import execute
from hydiff.scale.scene import Limits

LONGEST = 230  # characters of a note
NAMES = ("thin plate", "membrane", "±", "other than")  # for the recipe alone


@pytest.fixture(scope="module")
def truth():
    """(8, 40, 40): smooth fields and one that no neighbour shows."""
    y, x = np.mgrid[:40, :40] / 40
    rng = np.random.default_rng(0)
    fields = np.stack([np.sin(5 * x + y), np.cos(7 * y - x), rng.standard_normal((40, 40))])
    return 10 + np.tensordot(rng.random((8, 3)), fields, 1)


@pytest.fixture(scope="module")
def damaged(truth):
    """The same with a gap in all bands and one in two of them."""
    values = truth.copy()
    values[:, 10:15, 8:16] = np.nan
    values[2:4, 28:31, 20:26] = np.nan
    return values


@pytest.fixture(scope="module")
def fill(damaged):
    return hydiff.fill(damaged, budget="fast", device="cpu")


def test_a_fill_says_first_what_was_done_then_what_to_expect(fill):
    done, (expected, *rest) = fill.notes[:2], fill.notes[2:]
    assert done == notes_of(fill.recipe) and len(done) == 2
    assert [note.split(": by ")[0] for note in done] == [
        "auto, pixels that keep some bands",
        "auto, pixels without any band",
    ]
    assert expected.startswith("expected in the filled entries: NRMSE")
    assert not any(wording.is_note(note) for note in rest)


def test_a_note_is_short_and_leaves_the_figures_to_the_recipe(fill):
    for note, part in zip(
        notes_of(fill.recipe), reversed(Recipe.of(fill.recipe).parts), strict=True
    ):
        assert len(note) < LONGEST and not any(name in note for name in NAMES)
        assert "±" in part.why and part.why not in note


def test_the_shares_of_a_note_are_those_of_the_recipe(fill):
    part = Recipe.of(fill.recipe).parts[0]
    shares = (0.25, 0.125, 0.0, 0.625)
    tried = [
        replace(part.candidates[i % len(part.candidates)], share=share)
        for i, share in enumerate((*shares, *[0.0] * 9)[: len(part.candidates)])
    ]
    plain = sum(c.share for c in tried if c.plain)
    note = wording.note_of(replace(part, candidates=tuple(tried)))
    found = dict(re.findall(r"(?:by|and) ([a-z ]+) \((\d+) %\)", note))
    if len(tried) > 3:
        assert found == {wording.TRAINED: "62", wording.NEIGHBOURS: f"{100 * plain:.0f}"}
    else:
        assert note.startswith(f"auto: by {wording.NEIGHBOURS}")


@pytest.mark.parametrize(
    ("plain", "network", "usual", "used", "said"),
    [
        (
            Verdict(Gain(0.1, 0.02, 12), True),
            None,
            None,
            False,
            "10 % less squared error than with",
        ),
        (Verdict(Gain(0, 0.1, 12), False), None, None, False, "12 tests on hidden copies of the g"),
        (Verdict(Gain(0, 0.1, 1), False), None, None, False, "1 test on hidden copies of the gaps"),
        (Verdict(Gain(0.1, 0, 12), False, 0.3), None, None, False, "without harm to the spectra"),
        (
            None,
            Verdict(Gain(0, 1, 6), False),
            Gain(0.2, 0.01, 6),
            True,
            "20 % less squared error t",
        ),
        (
            None,
            Verdict(Gain(0, 1, 6), False),
            Gain(0.2, 0.9, 6),
            True,
            "these are the usual shares",
        ),
        (None, Verdict(Gain(0.004, 0, 6), True), None, True, "0.4 % less squared error than witho"),
    ],
)
def test_the_reason_is_the_figure_that_decided(plain, network, usual, used, said):
    assert said in wording.reason(plain, network, usual, used)


def test_a_network_in_doubt_is_said_to_be_so_unless_a_gain_decided():
    open_, proven = Verdict(Gain(0, 1, 6), False), Verdict(Gain(0.2, 0.01, 6), True)
    for network, usual, said in (
        (open_, Gain(0.2, 0.9, 6), "6 tests on hidden copies of the gaps leave open whether"),
        (open_, Gain(0.2, 0.01, 6), "20 % less squared error than without the network"),
        (proven, Gain(0.2, 0.9, 6), "20 % less squared error than with the usual shares"),
    ):
        assert wording.reason(None, network, usual, True, in_doubt=True).startswith(said)


def test_too_few_trials_are_the_reason_where_nothing_could_be_tried(rng):
    both = [Candidate("one", "smooth"), Candidate("two", "smooth", {"s": 1.0})]
    some = [trial(rng.standard_normal((2, 100)))]
    assert "too few observed pixels" in blend.weights_of(some, ONE_CLASS, both, 0).reason


def test_a_recipe_of_an_older_version_has_no_reason(fill):
    older = copy.deepcopy(fill.recipe)
    del older["reason"], older["partial"]["reason"]
    pairs = zip(notes_of(older), notes_of(fill.recipe), strict=True)
    assert all(new.startswith(note) for note, new in pairs)
    assert all(";" not in note for note in notes_of(older))


def test_a_reference_comes_first(truth, damaged):
    other = Cube(2.0 * truth[:4])
    found = hydiff.fill(damaged, budget="fast", device="cpu", reference=other, no_prior=True)
    used = [p.with_reference and p.with_reference.used for p in Recipe.of(found.recipe).parts]
    notes = [note for note in found.notes if wording.is_note(note)]
    assert any(used)
    for note, is_used in zip(notes, reversed(used), strict=True):
        assert ("by the reference where it helps (+" in note) == bool(is_used)


def test_a_fill_by_tiles_has_the_same_notes_in_the_same_order(damaged, tmp_path):
    hydiff.write(Cube(damaged.astype(np.float32)), tmp_path / "in.bsq")
    request = Request(budget="fast", device="cpu", no_prior=True)
    limits = Limits(8e9, tile=24, overlap=4)
    record = execute.fill_file(tmp_path / "in.bsq", tmp_path / "out.bsq", request, limits).record
    done, rest = record["notes"][:2], record["notes"][2:]
    assert done == notes_of(record["recipe"]) and rest[0].startswith("expected in the filled")
    assert not any(wording.is_note(note) for note in rest)
