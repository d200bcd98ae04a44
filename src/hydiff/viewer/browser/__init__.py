"""Style sheets and JavaScript that the page sends to the browser, each in its own file."""

from importlib.resources import files


def code(name: str) -> str:
    """Return the text of a file in this folder."""
    return (files(__name__) / name).read_text("utf-8")
