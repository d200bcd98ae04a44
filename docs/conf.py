"""How Sphinx builds these pages: `make docs`."""

import re
from pathlib import Path

from docutils.nodes import SkipNode
from latex2mathml.converter import convert
from typer.main import get_command

import hydiff
from hydiff.cli import app

HERE = Path(__file__).parent

project = "hydiff"
author = copyright = "The hydiff developers"
release = version = hydiff.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc"]
html_math_renderer = "mathml"  # browsers draw it by themselves: no script is fetched
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "jupyter_execute"]
default_role = "code"  # `name` in a docstring
html_theme = "furo"
html_title = "hydiff"
html_static_path = ["_static"]
html_css_files = ["wrap.css"]
autodoc_typehints = "signature"
maximum_signature_line_length = 88  # longer ones: a line for each parameter
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120


def cli_reference() -> str:
    """Every command with its arguments and options, as Markdown, read from the program."""
    lines = ["# Commands", "", "Generated from the program; `hydiff COMMAND --help` says the same."]
    for name, command in get_command(app).commands.items():
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        needed = [f"{p.opts[0]} …" for p in command.params if p not in arguments and p.required]
        named = ["hydiff", name, *((p.name or "").upper() for p in arguments), *needed]
        summary, *examples = (command.help or "").split("\b")
        lines += ["", f"## hydiff {name}", "", " ".join(summary.split()), ""]
        lines += ["```none", *(examples[0].strip().splitlines() if examples else [" ".join(named)])]
        lines += ["```"]
        for group, options in _groups(command).items():
            lines += ["", *([f"**{group}**", ""] if group else [])]
            lines += ["| option | meaning | default |", "|---|---|---|", *map(_option, options)]
    return "\n".join(lines) + "\n"


def _groups(command) -> dict:
    """The options that a command shows, by the panel of its help."""
    groups: dict = {}
    for option in command.params:
        if option.param_type_name == "option" and not option.hidden:
            groups.setdefault(getattr(option, "rich_help_panel", None), []).append(option)
    return groups


def _option(option) -> str:
    flags = ", ".join(f"`{o}`" for o in option.opts)
    obvious = isinstance(option.default, bool) or option.default in (None, ())
    default = "" if obvious else f"`{option.default}`"
    if isinstance(option.show_default, str):
        default = option.show_default
    return f"| {flags} | {_cell(option.help or '')} | {default} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def plain_docstring(app, what, name, obj, options, lines):
    """Our docstrings are text, not markup: name their arguments in a list, escape the rest."""
    paragraphs = "\n".join(lines).split("\n\n")
    lines[:] = [line for text in paragraphs for line in (*_paragraph(text), "")]


ARGUMENT = re.compile(r"^(\w[\w, ]{0,40}): ")


def _paragraph(text: str) -> list[str]:
    rows = text.split("\n")
    if rows[0].lstrip().startswith(">>>"):
        return rows
    if rows[0].startswith(" ") or any(re.match(r"\d\. |[├└]", row) for row in rows):
        return ["::", "", *("   " + row for row in rows)]
    out: list[str] = []
    for row in rows:
        if found := ARGUMENT.match(row):
            out += ["", f"* **{found[1]}**: {_escaped(row[found.end() :])}"]
        else:
            indent = "  " if any(line.startswith("* ") for line in out) else ""
            out.append(indent + _escaped(row.strip()))
    return out


def _escaped(text: str) -> str:
    """Backslashes before what reStructuredText would read, outside of `code`."""
    parts = text.split("`")
    return "`".join(
        re.sub(r"([*|_\\])", r"\\\1", p) if i % 2 == 0 else p for i, p in enumerate(parts)
    )


def inline_math(page, node):
    """Formulae as MathML, written when the page is built."""
    page.body.append(convert(node.astext()))
    raise SkipNode


def block_math(page, node):
    page.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    (HERE / "reference" / "cli.md").write_text(cli_reference(), encoding="utf-8")
    app.connect("autodoc-process-docstring", plain_docstring)
