"""The studio at an address of this machine, until it is interrupted."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Callable

from npuc.errors import MissingExtraError, OutputError
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
    if browser:
        webbrowser.open(address)
    config = uvicorn.Config(
        guard, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _listening(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise OutputError(
            f"cannot listen at 127.0.0.1:{port}: {error.strerror}", fix="Choose another --port, or none"
        ) from error
    return listening
