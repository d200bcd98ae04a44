"""`hydiff methods`: list the methods and their settings."""

from __future__ import annotations

from hydiff.cli.options import Json
from hydiff.cli.terminal import out, print_json

LEARN = 'torch: pip install "hydiff[learn]"'  # requirement of the learned methods


def methods(json_: Json = False) -> None:
    """List the methods with their settings and defaults."""
    from hydiff.errors import has_torch
    from hydiff.methods import AUTO, DEFAULT, METHODS, choose
    from hydiff.methods.settings import settings_dict

    available = {n: has_torch() or not m.needs_torch for n, m in METHODS.items()}
    settings = {n: settings_dict(choose(n).settings) if available[n] else {} for n in METHODS}
    if json_:
        rows = {n: m.facts() | {"settings": settings[n]} for n, m in METHODS.items()}
        for name in (n for n in METHODS if not available[n]):
            rows[name]["needs"] = LEARN
        rows[DEFAULT] = AUTO.facts() | {"settings": {"budget": "normal"}}
        print_json({"default": DEFAULT, "methods": rows})
        return
    out.print(f"{DEFAULT:12} {AUTO.summary}  (--budget fast | normal | best)", markup=False)
    for name, method in METHODS.items():
        defaults = ", ".join(f"{k}={v}" for k, v in settings[name].items())
        text = f"{name:12} {method.summary}"
        needs = "" if available[name] else f"  (needs {LEARN})"
        out.print(text + needs + (f"  [{defaults}]" if defaults else ""), markup=False)
