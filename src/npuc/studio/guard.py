"""Who may ask: the reader of the address that the command printed, in one browser of this machine.

- The address has a token that works once; it is exchanged for a cookie (HttpOnly, SameSite=Strict), and the address without it
  is what the browser keeps.
- The `Host` of a request must name this machine, whatever its port: a tunnel through SSH has another one. A page of another site
  that has its own name resolve to 127.0.0.1 (DNS rebinding) sends its own name there.
- A request that changes something must come from a page of this server: `Origin` is checked wherever it is
  sent, and has to be on all but GET and HEAD.
- Answers forbid the browser to load anything from anywhere else (content security policy), to show them in a frame of another
  page, and to guess types.

It is an ASGI application around another one, so whatever is added to the server is behind it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qs

ScopeData = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[ScopeData, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "worker-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_TO_PAGE = (b"location", b"/")
_THIS_MACHINE = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")
MOST_BODY = 64 << 20
"""Bytes of a request: an image or a tensor file that is dropped on the page."""


class Guard:
    """The checks before an application."""

    def __init__(self, application: Application, most_body: int = MOST_BODY) -> None:
        self.application, self.most_body = application, most_body
        self.token: str | None = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)
        self._cookie = f"npuc-studio-{secrets.token_hex(4)}"
        """Of its own for each server: two studios on one machine share the host's cookies."""

    async def __call__(self, scope: ScopeData, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        knows = self._knows(headers)
        if scope["path"] == "/" and "token" in (query := parse_qs(scope["query_string"].decode("latin-1"))):
            # Whoever opens the printed address again in the same browser is let in by the cookie.
            await (_answer(send, 303, "", _TO_PAGE) if knows else self._exchange(send, query["token"][0]))
            return
        if not knows:
            await _answer(send, 403, "Open the address that 'npuc studio' printed; it works once.")
            return

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await self.application(scope, self._bounded(receive), guarded)

    def _refusal(self, scope: ScopeData, headers: Mapping[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "").lower()
        if not _THIS_MACHINE.fullmatch(host):
            return 421, "This server answers under the address of its own machine only."
        origin = headers.get("origin")
        if (origin is not None or scope["method"] not in ("GET", "HEAD")) and origin != f"http://{host}":
            return 403, "The request comes from another page."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.most_body:
            return 413, f"At most {self.most_body >> 20} MiB can be sent at once."
        return None

    async def _exchange(self, send: Send, token: str) -> None:
        if self.token is None or not secrets.compare_digest(token.encode(), self.token.encode()):
            await _answer(send, 403, "This address was used before. 'npuc studio' prints a new one.")
            return
        self.token = None
        cookie = f"{self._cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/"
        await _answer(send, 303, "", _TO_PAGE, (b"set-cookie", cookie.encode()))

    def _knows(self, headers: Mapping[str, str]) -> bool:
        # Other servers of this machine share the host's cookies, with values that `http.cookies` stops at.
        for part in headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self._cookie:
                return secrets.compare_digest(value.encode(), self._session.encode())
        return False

    def _bounded(self, receive: Receive) -> Receive:
        """A body without a length is cut off, too."""
        taken = 0

        async def bounded() -> MutableMapping[str, Any]:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            return {"type": "http.disconnect"} if taken > self.most_body else message

        return bounded


async def _answer(send: Send, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    body = text.encode()
    kind = (b"content-type", b"text/plain; charset=utf-8")
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [kind, length, *headers, *_HEADERS]}
    )
    await send({"type": "http.response.body", "body": body})
