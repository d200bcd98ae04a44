"""Arithmetic on bands, `(b50 - b30) / (b50 + b30)`: parsed, never run as code.

b50 is the band of number 50, from 0; w860 the good band nearest to 860 nm.  Numbers, + - * / **,
one comparison (1 where it holds, else 0) and the functions of `FUNCTIONS` are all there is.
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

LONGEST = 400  # characters, so that no nesting is too deep
FAR = 10.0  # nm that a band may lie beside a wavelength, or one step between bands if that is more
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
    """constant + Σ terms[band] · band; what it cannot express is a TypeError."""

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
        one, factor = (self, other.constant) if self.terms else (other, self.constant)
        return Affine(factor * one.constant, {b: factor * c for b, c in one.terms.items()})

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
    return value if isinstance(value, Affine) else Affine(float(value), {})


class Expression(NamedTuple):
    """A formula of bands, checked."""

    text: str
    tree: ast.expr
    names: Mapping[str, int]  # as written → band number

    @property
    def bands(self) -> list[int]:
        return sorted(set(self.names.values()))

    def __call__(self, values: Array) -> Floats:
        """(rows, cols) of a cube (bands, rows, cols); NaN where it is not a finite number."""
        planes = {name: np.asarray(values[b], np.float64) for name, b in self.names.items()}
        with np.errstate(all="ignore"):
            found = np.asarray(_evaluated(self.tree, planes), np.float64)
        found = np.broadcast_to(found, values.shape[1:])
        gaps = np.isnan(np.stack(list(planes.values()))).any(axis=0)  # a comparison hides them
        return np.where(np.isfinite(found) & ~gaps, found, np.nan)

    @property
    def affine(self) -> Affine | None:
        """The same as a linear function of the bands; None where it is none."""
        bands = {name: Affine(0.0, {b: 1.0}) for name, b in self.names.items()}
        try:
            with np.errstate(all="ignore"):
                return _affine(_evaluated(self.tree, bands))
        except TypeError:
            return None


def parsed(text: str, cube: Cube) -> Expression:
    """Refuse whatever is not arithmetic on bands that the cube has."""
    if len(text) > LONGEST:
        raise BadValue(f"a formula of {len(text)} characters, expected at most {LONGEST}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        found = list(_names(tree, text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refused(text, "cannot be read") from None
    names = {name: _band(name, text, cube) for name in found}
    if not names:
        raise BadValue(f"`of='{text}'`: no band in it; name one, such as b50 or w860")
    return Expression(text, tree, names)


def _names(node: ast.AST, text: str) -> Iterator[str]:
    """The bands of a formula; BadValue for any other thing in it."""
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


def _refused(text: str, found: str) -> BadValue:
    return BadValue(
        f"`of='{text}'`: {found}; expected numbers, bands such as b50 or w860, + - * / ** < > and "
        f"{', '.join(FUNCTIONS)}"
    )


def _evaluated(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """Of a tree that `_names` has been through."""
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
    kind, number = name[0], int(name[1:])
    if kind == "b":
        if number >= cube.bands:
            raise BadValue(f"`of='{text}'`: bands are b0 to b{cube.bands - 1}, found {name}")
        return number
    waves = nanometers(cube, f"`of='{text}'`", "b50")
    away = np.where(cube.good_bands & np.isfinite(waves), np.abs(waves - number), np.inf)
    band = int(np.argmin(away))
    steps = np.abs(np.diff(np.sort(waves[np.isfinite(waves)])))
    if not away[band] <= max(FAR, float(np.median(steps)) if steps.size else 0.0):
        raise BadValue(
            f"`of='{text}'`: no good band near {number} nm; the nearest is b{band} at "
            f"{waves[band]:g} nm"
        )
    return band
