"""Which missing entries lie outside the observed ones, in the image and along the spectrum.

A dead column at the edge of the image that few bands lack is inside: bands before and after them
measured its pixels.  Where the detectors of a sensor are shifted against each other, all bands of
one of them lack the outermost columns, and no band on its other side measured them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np

from hydiff.cube import Bools, Ints
from hydiff.gaps.mask import band_groups, outside


class MeasuredBands(NamedTuple):
    """The good bands of each detector that measured a pixel; arrays (detectors, rows, cols)."""

    detector: Ints  # (bands,) number of the detector of each band
    first: Ints  # lowest number of these bands; that of all bands if there is none
    last: Ints  # highest number; -1 if there is none
    most: Bools  # whether they are more than half of the good bands with data

    @classmethod
    def of(
        cls,
        groups: Iterable[tuple[Ints, Bools]],
        good: Bools,
        detectors: Sequence[str] | None = None,
    ) -> Self:
        """groups: band numbers and the mask (rows, cols) that they share, True = measured; good and
        detectors: (bands,)."""
        bands, masks = len(good), [group for group in groups if group[1].any()]
        names = np.unique(["all"] * bands if detectors is None else detectors, return_inverse=True)
        number, shape = names[1], (len(names[0]), *masks[0][1].shape)
        first, last = np.full(shape, bands, np.int16), np.full(shape, -1, np.int16)
        count, total = np.zeros(shape, np.int16), np.zeros((shape[0], 1, 1), np.int16)
        for group, observed in masks:
            for d in np.unique(number[group]):
                members = group[good[group] & (number[group] == d)]
                if len(members):
                    first[d][observed & (first[d] > members[0])] = members[0]
                    last[d][observed & (last[d] < members[-1])] = members[-1]
                    count[d] += observed * np.int16(len(members))
                    total[d] += len(members)
        return cls(number, first, last, 2 * count > total)

    def around(self, bands: Ints) -> Bools:
        """(bands, rows, cols) where most bands of the detector measured a pixel, bands before and
        after each of `bands` among them."""
        of, number = self.detector[bands], bands[:, None, None]
        joined: Bools = self.most[of] & (self.first[of] < number) & (number < self.last[of])
        return joined


def outside_entries(
    missing: Bools, bands: Ints, measured: Callable[[], MeasuredBands]
) -> Iterator[tuple[Ints, Bools]]:
    """Yield bands and the missing pixels (rows, cols) in them that no line joins to observed ones
    on both sides, in the image or along the spectrum.  missing: (rows, cols) of `bands`."""
    outer = outside(missing)
    if not outer.any() or not (measured().most & outer).any():
        yield bands, outer
        return
    for members, pixels in band_groups(outer & ~measured().around(bands)):
        yield bands[members], pixels
