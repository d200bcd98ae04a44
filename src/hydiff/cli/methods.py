"""`hydiff methods`: what can fill, and with which settings."""

from __future__ import annotations

from hydiff.cli.options import Json
from hydiff.cli.terminal import out, print_json


def methods(json_: Json = False) -> None:
    """List the methods with their settings and defaults."""
    from hydiff.methods import AUTO, DEFAULT, METHODS, choose, settings_dict

    settings = {name: settings_dict(choose(name).settings) for name in METHODS}
    if json_:
        rows = {n: m.facts() | {"settings": settings[n]} for n, m in METHODS.items()}
        rows[DEFAULT] = AUTO.facts() | {"settings": {"budget": "normal"}}
        print_json({"default": DEFAULT, "methods": rows})
        return
    out.print(f"{DEFAULT:12} {AUTO.summary}  (--budget fast | normal | best)", markup=False)
    for name, method in METHODS.items():
        defaults = ", ".join(f"{k}={v}" for k, v in settings[name].items())
        text = f"{name:12} {method.summary}"
        out.print(text + (f"  [{defaults}]" if defaults else ""), markup=False)
