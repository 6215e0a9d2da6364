"""Caffe's text form of a message: `name: value` and `name { ... }`, with comments after #. It needs no schema."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from npuc.errors import FileFormatError, ResourceLimitError
from npuc.frontend.caffe.message import CaffeMessage, Name

_MAX_BYTES = 16 << 20
_MAX_FIELDS = 1 << 17
_MAX_DEPTH = 32
_TOKEN = re.compile(
    r"""(?P<space>\s++|\#[^\n]*+)
    |(?P<number>[-+]?(?:0[xX][0-9a-fA-F]++|(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?)[fFuU]?(?![\w.]))
    |(?P<name>-?[A-Za-z_][\w.\-/]*+)
    |(?P<string>"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+')
    |(?P<mark>[{}<>:\[\],;])""",
    re.VERBOSE,
)
_CLOSES = {"{": "}", "<": ">"}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.fields = 0
        self.kind = ""
        self.token = ""
        self.next()

    def bad(self, reason: str) -> FileFormatError:
        line = self.text.count("\n", 0, self.at) + 1
        return FileFormatError(
            f"is not valid prototxt: line {line}: {reason}", fix="Mend that line, or download the file again"
        )

    def next(self) -> None:
        while True:
            if self.at >= len(self.text):
                self.kind, self.token = "end", ""
                return
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                raise self.bad(f"'{self.text[self.at : self.at + 20]}' is neither a name nor a value")
            self.at = match.end()
            if match.lastgroup != "space":
                self.kind, self.token = str(match.lastgroup), match.group()
                return

    def message(self, close: str, depth: int) -> CaffeMessage:
        if depth > _MAX_DEPTH:
            raise self.bad(f"messages are nested more than {_MAX_DEPTH} deep")
        fields: dict[str, list[Any]] = {}
        while self.token != close or self.kind == "string":
            if self.kind == "end":
                raise self.bad(f"the end came where '{close}' was expected")
            if self.kind != "name":
                raise self.bad(f"'{self.token[:40]}' where a field was expected")
            name = self.token
            self.next()
            colon = self.token == ":" and self.kind == "mark"
            if colon:
                self.next()
            values = self.listed(depth) if self.token == "[" else [self.value(colon, depth)]
            fields.setdefault(name, []).extend(values)
            while self.kind == "mark" and self.token in ",;":
                self.next()
        return CaffeMessage(fields)

    def listed(self, depth: int) -> list[Any]:
        self.next()
        values = []
        while self.token != "]":
            values.append(self.value(True, depth))
            if self.token == ",":
                self.next()
            elif self.token != "]":
                raise self.bad("a list without its ']'")
        self.next()
        return values

    def value(self, colon: bool, depth: int) -> Any:
        self.fields += 1
        if self.fields > _MAX_FIELDS:
            raise ResourceLimitError(f"the prototxt has more than {_MAX_FIELDS} fields")
        kind, token = self.kind, self.token
        if kind == "mark" and token in _CLOSES:
            self.next()
            inner = self.message(_CLOSES[token], depth + 1)
            self.next()
            return inner
        if not colon:
            raise self.bad(f"'{token[:40]}' where ':' or '{{' was expected")
        if kind == "string":
            parts = []
            while self.kind == "string":
                parts.append(_ESCAPE.sub(_unescaped, self.token[1:-1]))
                self.next()
            return "".join(parts)
        if kind == "end":
            raise self.bad("the end came where a value was expected")
        if kind not in ("number", "name"):
            raise self.bad(f"'{token[:40]}' where a value was expected")
        self.next()
        return _number(token) if kind == "number" else Name(token)


def _unescaped(match: re.Match[str]) -> str:
    octal, hexadecimal, letter = match.groups()
    if octal:
        return chr(int(octal, 8))
    return chr(int(hexadecimal, 16)) if hexadecimal else _LETTERS.get(letter, letter)


def _number(token: str) -> int | float:
    bare = token.lower()
    if "0x" in bare:
        return int(bare.rstrip("u"), 16)
    bare = bare.rstrip("fu")
    return float(bare) if any(c in bare for c in ".e") or len(bare) > 20 else int(bare)


def parse(data: bytes) -> CaffeMessage:
    """The message that a text says."""
    return _Parser(data.decode(errors="replace")).message("", 0)


def parse_file(path: Path) -> CaffeMessage:
    """The message that a file says."""
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ResourceLimitError(f"a prototxt of {size} bytes", where=str(path))
    return parse(path.read_bytes())


def written(message: CaffeMessage, leave_out: tuple[str, ...] = (), indent: str = "") -> str:
    """A message as text, without some fields; what `parse` reads."""
    lines = []
    for name, values in message.fields.items():
        for value in values if name not in leave_out else ():
            if isinstance(value, CaffeMessage):
                lines.append(f"{indent}{name} {{\n{written(value, leave_out, indent + '  ')}{indent}}}\n")
            else:
                lines.append(f"{indent}{name}: {_written(name, value)}\n")
    return "".join(lines)


def _written(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and not isinstance(value, Name):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return str(value)
