"""The page of the studio: served in parts, or written as one file that asks the network for nothing.

`web` has our own parts. Libraries from npm are put into `web/vendor` when the page is built (`make studio`); they are part of
the wheel with their licences, and never of the source.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from importlib.resources import files
from typing import Any

from npuc.errors import MissingExtraError
from npuc.profile.view import theme_script, view_body, view_script, view_style

SCRIPTS = (
    "core", "graph-folding", "graph-layout", "graph-canvas", "details", "numbers", "picture", "instructions", "time", "placement",
    "ranges", "schedule", "frontier", "act", "main",
)  # fmt: skip
"""In the order in which they run; they share one scope."""
_LIBRARIES = ("dagre.js",)
_TYPES = {
    "studio.js": "text/javascript",
    "studio.css": "text/css",
    "vendor.js": "text/javascript",
}


def asset(name: str) -> tuple[str, str] | None:
    """A part of the page and its media type."""
    if name not in _TYPES:
        return None
    text = {"studio.js": script_text, "studio.css": style_text, "vendor.js": library_text}[name]()
    return text, _TYPES[name]


def page_text() -> str:
    """The page as the server sends it."""
    library_text()
    head = '<link rel="stylesheet" href="/static/studio.css">'
    scripts = '<script src="/static/vendor.js"></script><script src="/static/studio.js"></script>'
    return _piece("studio.html").replace("<!--HEAD-->", head).replace("<!--SCRIPTS-->", scripts)


def packed(answer: Any) -> str:
    """An answer as a page carries it: JSON, compressed, as text. The page unpacks it when it is asked for."""
    text = json.dumps(answer, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def exported_page(data: dict[str, Any]) -> str:
    """The page with all its parts and with packed answers to what it would ask a server."""
    # In a script element only "<" can end the text; JSON may spell it otherwise.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    scripts = [library_text(), script_text()]
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{style_text()}</style>'
    body = f'<script type="application/json" id="answers">{text}</script>'
    body += "".join(f"<script>{script}</script>" for script in scripts)
    return _piece("studio.html").replace("<!--HEAD-->", head).replace("<!--SCRIPTS-->", body)


def script_text() -> str:
    """Our scripts as one."""
    body = f"const PROFILE_BODY = {json.dumps(view_body())};".replace("<", "\\u003c")
    parts = "\n".join([theme_script(), view_script(), body, *(_piece(f"{name}.js") for name in SCRIPTS)])
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


def style_text() -> str:
    """The style of the profile page, which has the colours and the tables, and what the studio adds."""
    return view_style() + _piece("studio.css")


def library_text() -> str:
    """The libraries from npm, with their licences."""
    folder = files("npuc.studio") / "web" / "vendor"
    if not all((folder / name).is_file() for name in _LIBRARIES):
        raise MissingExtraError(
            "this installation has no page for the studio: its libraries were not built",
            fix="In the source of npuc, 'make studio' fetches them with npm; wheels have them",
        )
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in _LIBRARIES)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _piece(name: str) -> str:
    return (files("npuc.studio") / "web" / name).read_text(encoding="utf-8")
