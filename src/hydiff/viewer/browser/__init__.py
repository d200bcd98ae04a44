"""Style sheets and JavaScript that the page sends to the browser, each in its own file."""

from importlib.resources import files


def code(name: str) -> str:
    """The text of one of the files beside this one."""
    return (files(__name__) / name).read_text("utf-8")
