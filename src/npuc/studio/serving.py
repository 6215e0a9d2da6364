"""The studio at an address of this machine, until it is interrupted."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import parse_qsl

from npuc.errors import MissingExtraError, NpucError, OutputError
from npuc.studio.guard import Guard
from npuc.studio.jobs import Jobs
from npuc.studio.page import page_text
from npuc.studio.server import application
from npuc.studio.studio import Studio


def serve(studio: Studio, port: int, start: str, *, browser: bool, say: Callable[[str], None]) -> None:
    """Answer requests to 127.0.0.1 until Ctrl-C; `start` is what the page opens with, as a query."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtraError(
            "the studio is served by uvicorn, which is not installed",
            fix="Install it with: pip install 'npuc[studio]'",
        ) from error
    page_text()
    jobs = Jobs(studio.project.folder)
    guard = Guard(application(studio, jobs))
    listening = _listening(port)
    address = (
        f"http://127.0.0.1:{listening.getsockname()[1]}/?token={guard.token}{f'#{start}' if start else ''}"
    )
    say(f"npuc studio shows {studio.project.folder}")
    say(f"open {address}")
    say("the address works once, from this machine; Ctrl-C ends the server")
    # The browser will ask for it; reading a large model takes longer than starting a browser.
    threading.Thread(target=_read_ahead, args=(studio, dict(parse_qsl(start))), daemon=True).start()
    if browser and _has_screen(os.environ):
        # A thread, because some browsers come back only when they are closed.
        threading.Thread(target=_show, args=(address,), daemon=True).start()
    config = uvicorn.Config(
        guard,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        ws="none",
    )
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _read_ahead(studio: Studio, start: Mapping[str, str]) -> None:
    """Compute what the page shows first, in its form; what is wrong with a file is told when the page asks for it."""
    names = [start[key] for key in ("a", "b") if start.get(key)]
    for name in names:
        with suppress(NpucError):
            studio.graph(name, "original" if len(set(names)) == 1 else "canonical")


def _has_screen(environment: Mapping[str, str]) -> bool:
    """Whether a browser would open a window: not through SSH without a display, where one for the terminal would take it over.

    >>> _has_screen({"DISPLAY": ":0"})
    True
    """
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in environment
    return any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _show(address: str) -> None:
    with suppress(webbrowser.Error, OSError):
        webbrowser.open(address)


def _listening(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        # The browser may ask before the server is there to answer.
        listening.listen()
    except OSError as error:
        listening.close()
        raise OutputError(
            f"cannot listen at 127.0.0.1:{port}: {error.strerror}", fix="Choose another --port, or none"
        ) from error
    return listening
