"""Arithmetic on bands, such as `(b50 - b30) / (b50 + b30)`, which is parsed, never run as code.

b50 is band number 50, counted from 0; w860 is the good band nearest to 860 nm.  A formula may
contain numbers, + - * / **, comparisons of two values (1 if true, else 0), and FUNCTIONS.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Cube, Floats
from hydiff.errors import BadValue
from hydiff.gaps.regions import nanometers

LONGEST = 400  # characters of a formula, so that no nesting is too deep
FAR = 10.0  # nm: largest distance of a band from a wavelength, or one step between bands if larger
NAME = re.compile(r"([bw])(\d+)")
FUNCTIONS: Mapping[str, tuple[Callable[..., Any], int]] = {
    "abs": (np.abs, 1),
    "exp": (np.exp, 1),
    "log": (np.log, 1),
    "sqrt": (np.sqrt, 1),
    "min": (np.minimum, 2),
    "max": (np.maximum, 2),
}  # name → function, number of arguments
OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: lambda x: x,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@dataclass(frozen=True, eq=False)
class Affine:
    """constant + Σ terms[band] · band; operations with another result raise TypeError."""

    constant: float
    terms: Mapping[int, float]
    __array_ufunc__ = None  # numpy leaves the arithmetic to the methods below

    def __add__(self, other: Any) -> Affine:
        other = _affine(other)
        bands = {**self.terms, **other.terms}
        terms = {b: self.terms.get(b, 0.0) + other.terms.get(b, 0.0) for b in bands}
        return Affine(self.constant + other.constant, terms)

    def __mul__(self, other: Any) -> Affine:
        other = _affine(other)
        if self.terms and other.terms:
            raise TypeError("a product of bands")
        affine, factor = (self, other.constant) if self.terms else (other, self.constant)
        return Affine(factor * affine.constant, {b: factor * c for b, c in affine.terms.items()})

    def __truediv__(self, other: Any) -> Affine:
        divisor = _affine(other)
        if divisor.terms or not divisor.constant:
            raise TypeError("a division by a band")
        return self * (1 / divisor.constant)

    def __rtruediv__(self, other: Any) -> Affine:
        return Affine(float(other), {}) / self

    def __neg__(self) -> Affine:
        return self * -1.0

    def __sub__(self, other: Any) -> Affine:
        return self + -_affine(other)

    def __rsub__(self, other: Any) -> Affine:
        return _affine(other) + -self

    __radd__, __rmul__ = __add__, __mul__


def _affine(value: Any) -> Affine:
    """Return a number as a constant function; an `Affine` is returned unchanged."""
    return value if isinstance(value, Affine) else Affine(float(value), {})


class Expression(NamedTuple):
    """A checked formula of bands."""

    text: str
    tree: ast.expr
    names: Mapping[str, int]  # name in the formula → band number

    @property
    def bands(self) -> list[int]:
        """Numbers of the bands in the formula, ascending."""
        return sorted(set(self.names.values()))

    def __call__(self, values: Array) -> Floats:
        """(rows, cols) values of the formula for a cube (bands, rows, cols); NaN if not finite."""
        planes = {name: np.asarray(values[b], np.float64) for name, b in self.names.items()}
        with np.errstate(all="ignore"):
            result = np.asarray(_evaluated(self.tree, planes), np.float64)
        result = np.broadcast_to(result, values.shape[1:])
        gaps = np.isnan(np.stack(list(planes.values()))).any(axis=0)  # comparisons with NaN are 0
        return np.where(np.isfinite(result) & ~gaps, result, np.nan)

    @property
    def affine(self) -> Affine | None:
        """The formula as an affine function of the bands; None if it is not affine."""
        bands = {name: Affine(0.0, {b: 1.0}) for name, b in self.names.items()}
        try:
            with np.errstate(all="ignore"):
                return _affine(_evaluated(self.tree, bands))
        except TypeError:
            return None


def parsed(text: str, cube: Cube) -> Expression:
    """Return the expression of a formula; refuse all but arithmetic on bands that the cube has."""
    if len(text) > LONGEST:
        raise BadValue(f"a formula of {len(text)} characters, expected at most {LONGEST}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        names_found = list(_names(tree, text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refused(text, "cannot be read") from None
    names = {name: _band(name, text, cube) for name in names_found}
    if not names:
        raise BadValue(f"`f='{text}'`: no band in it; name one, such as b50 or w860")
    return Expression(text, tree, names)


def _names(node: ast.AST, text: str) -> Iterator[str]:
    """Yield the names of the bands in a formula; BadValue if it contains anything not allowed."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return
        case ast.Name(id=name) if NAME.fullmatch(name):
            yield name
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            parts = [left, right]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            parts = [operand]
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPERATORS:
            parts = [left, right]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            if len(args) != FUNCTIONS[name][1]:
                raise _refused(text, f"{name} takes {FUNCTIONS[name][1]}, found {len(args)} values")
            parts = args
        case _:
            raise _refused(text, f"found {ast.get_source_segment(text.strip(), node)}")
    for part in parts:
        yield from _names(part, text)


def _refused(text: str, reason: str) -> BadValue:
    """Return the error for a formula that is not allowed."""
    return BadValue(
        f"`f='{text}'`: {reason}; expected numbers, bands such as b50 or w860, + - * / ** < > and "
        f"{', '.join(FUNCTIONS)}"
    )


def _evaluated(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """Return the value of a tree that `_names` has checked."""
    match node:
        case ast.Constant(value=value):
            return np.float64(float(value))  # type: ignore[arg-type]  # overflows to infinity instead of taking all memory
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(op=op, operand=operand):
            return OPERATORS[type(op)](_evaluated(operand, names))
        case (
            ast.BinOp(left=left, op=op, right=right)
            | ast.Compare(left=left, ops=[op], comparators=[right])
        ):
            return OPERATORS[type(op)](_evaluated(left, names), _evaluated(right, names))
        case ast.Call(func=ast.Name(id=name), args=args):
            return FUNCTIONS[name][0](*(_evaluated(part, names) for part in args))
    raise TypeError(node)


def _band(name: str, text: str, cube: Cube) -> int:
    """Return the number of the band with a name such as b50 or w860; BadValue if there is none."""
    kind, number = name[0], int(name[1:])
    if kind == "b":
        if number >= cube.bands:
            raise BadValue(f"`f='{text}'`: bands are b0 to b{cube.bands - 1}, found {name}")
        return number
    waves = nanometers(cube, f"`f='{text}'`", "b50")
    distance = np.where(cube.good_bands & np.isfinite(waves), np.abs(waves - number), np.inf)
    band = int(np.argmin(distance))
    steps = np.abs(np.diff(np.sort(waves[np.isfinite(waves)])))
    if not distance[band] <= max(FAR, float(np.median(steps)) if steps.size else 0.0):
        raise BadValue(
            f"`f='{text}'`: no good band near {number} nm; the nearest is b{band} at "
            f"{waves[band]:g} nm"
        )
    return band
