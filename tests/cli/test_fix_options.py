"""Every option and command that an error, a note or a reason names is there, and belongs to the command that it is named with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

import npuc
from npuc.cli.app import app

ROOT = Path(npuc.__file__).parent
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_COMMAND = re.compile(r"\bnpuc ([a-z][a-z-]*)")
_QUOTED = re.compile(r"'(npuc [^']*)'")
_FOREIGN = {"--force-reinstall"}
"""Options of other programs."""


@cache
def declared() -> dict[str, set[str]]:
    """The options of each command, by its name; a group has those of its commands, too."""
    root: Any = typer.main.get_command(app)

    def of(command: Any) -> set[str]:
        own = {name for p in command.params for name in (*p.opts, *p.secondary_opts) if name.startswith("--")}
        return own.union({"--help"}, *(of(one) for one in getattr(command, "commands", {}).values()))

    every = {name for p in root.params for name in (*p.opts, *p.secondary_opts) if name.startswith("--")}
    return {name: of(command) | every for name, command in root.commands.items()}


def texts(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may give, with X for what is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for left in list(texts(node.left)) or [""]:
            yield from (left + right for right in list(texts(node.right)) or [""])
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from texts(value)


@cache
def said() -> tuple[tuple[str, str, int], ...]:
    """Fixes and messages of errors, levers and notes: the text, and where it stands."""
    return tuple(_said())


def _said() -> Iterator[tuple[str, str, int]]:
    for path in sorted(ROOT.rglob("*.py")):
        if "compat" in path.relative_to(ROOT).parts:  # these name options of the vendors' tools
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            values = [
                keyword.value for keyword in node.keywords if keyword.arg in ("fix", "lever", "message")
            ]
            if name.endswith("Error") or name in ("note", "warn", "Fit"):
                values += node.args
            for value in values:
                for text in texts(value):
                    yield text, str(path.relative_to(ROOT)), node.lineno


def wrong(text: str, module: str) -> str | None:
    """An option that is not there, or not in the command that it is named with."""
    commands = declared()
    for quoted in _QUOTED.findall(text):
        if bad := wrong(quoted, module):
            return bad
    parts = _COMMAND.split(_QUOTED.sub("", text))
    own = Path(module).stem.rstrip("_").replace("_", "-") if module.startswith("cli/") else ""
    for number in range(0, len(parts), 2):
        command = parts[number - 1] if number else own
        if number and command not in commands:
            # A word after the name of the program, as in "npuc compiles".
            command = own
        known = commands.get(command) or set().union(*commands.values())
        for option in _OPTION.findall(parts[number]):
            if option not in known | _FOREIGN:
                return f"{option} of npuc {command}" if command else option
    return None


def test_options_that_messages_name_are_there() -> None:
    found = [
        f"{module}:{line}: {bad}: {text}" for text, module, line in said() if (bad := wrong(text, module))
    ]
    assert not found, "\n".join(found)


def test_the_check_sees_a_wrong_option() -> None:
    assert wrong("Give --tabel FILE", "calib/x.py") == "--tabel"
    assert wrong("Add --target NAME", "cli/show.py") == "--target of npuc show"
    assert (
        wrong("Quantize it: npuc quantize --keep-float X --svg Y", "codegen/x.py") == "--svg of npuc quantize"
    )
    assert wrong("Quantize it: npuc quantize --keep-float X", "cli/show.py") is None
    assert len(said()) > 500
