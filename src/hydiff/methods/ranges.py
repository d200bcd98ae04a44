"""Checks of numeric settings: each function raises BadValue for the first value out of range."""

from __future__ import annotations

from typing import Any

from hydiff.errors import BadValue


def above_zero(settings: Any, *names: str) -> None:
    """Raise BadValue unless all settings are above 0."""
    for name in names:
        if not getattr(settings, name) > 0:
            raise BadValue(f"{name} = {getattr(settings, name)}: expected a number above 0")


def zero_or_more(settings: Any, *names: str) -> None:
    """Raise BadValue unless all settings are at least 0."""
    for name in names:
        if not getattr(settings, name) >= 0:
            raise BadValue(f"{name} = {getattr(settings, name)}: expected 0 or more")


def shares(settings: Any, *names: str) -> None:
    """Raise BadValue unless all settings are from 0 to 1."""
    for name in names:
        if not 0 <= getattr(settings, name) <= 1:
            raise BadValue(f"{name} = {getattr(settings, name)}: expected a share from 0 to 1")


def shares_below_one(settings: Any, *names: str) -> None:
    """Raise BadValue unless all settings are at least 0 and below 1."""
    for name in names:
        if not 0 <= getattr(settings, name) < 1:
            value = getattr(settings, name)
            raise BadValue(f"{name} = {value}: expected a share from 0 to below 1")
