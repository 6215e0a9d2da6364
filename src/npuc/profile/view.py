"""The pieces of the report's page, without data: what `npuc profile --html` and the studio show alike.

The folder `web` has them as files. Nothing of the compiler is loaded here, so that a server of pages starts at once.
"""

from __future__ import annotations

from importlib.resources import files

_SCRIPTS = ("base", "summary", "table", "timeline", "roofline", "graph")
"""Of a view, in the order in which they run; they share one scope."""


def view_script() -> str:
    """A function `profileView(D, within, onInstruction)` that shows the data of a model in an element with the body of a view.

    What it returns repaints the view, ends it, goes to a time, and marks instructions. `onInstruction`, if there is one, is told
    which instruction was chosen.
    """
    pieces = "\n".join(piece(f"{name}.js") for name in _SCRIPTS)
    return (
        f"function profileView(D, within, onInstruction) {{\n{pieces}\n"
        "return {repaint, end: () => shown.abort(), look, mark, layerNamed};\n}\n"
    )


def theme_script() -> str:
    """What sets the theme of a page, and a function that has its button change it."""
    return piece("theme.js")


def view_body() -> str:
    """The elements of a view, without data."""
    return piece("profile.html")


def view_style() -> str:
    """The style of a view, and of pages around it."""
    return piece("page.css")


def piece(name: str) -> str:
    """A file of the page."""
    return (files("npuc.profile") / "web" / name).read_text(encoding="utf-8")
