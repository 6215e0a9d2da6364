"""The names that users' scripts rely on: packages and functions, commands and options, C functions, error codes, fields of files.

    python tests/promised_names.py           name what is new, and what is gone
    python tests/promised_names.py --write   write tests/promised_names.txt again, at a release

A name in the file stays, or becomes an alias that warns (docs/stability.md). test_promised_names.py holds npuc to it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".txt")
PACKAGES = (
    "npuc", "npuc.compare", "npuc.engine", "npuc.evaluate", "npuc.flow", "npuc.keras", "npuc.lang", "npuc.plugins.api",
    "npuc.quant", "npuc.runtime", "npuc.target", "npuc.tensorflow", "npuc.torch", "npuc.train",
)  # fmt: skip
HEADERS = ("npu.h", "npu_detect.h", "npu_kernel.h", "npu_plugin.h", "npu_static.h")


def names() -> list[str]:
    """Every promised name with its kind, sorted: `option npuc compile --target`."""
    found = {*_python(), *_commands(_app(), "npuc"), *_functions(), *_errors(), *_fields()}
    return sorted(found)


def promised() -> list[str]:
    """What the file has."""
    return LIST.read_text(encoding="utf-8").splitlines()


def _python() -> Iterator[str]:
    for package in PACKAGES:
        for name in import_module(package).__all__:
            yield f"python {package}.{name}"


def _app() -> Any:
    from npuc.cli.app import app

    return typer.main.get_command(app)


def _commands(command: Any, words: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _commands(inner, f"{words} {name}")
        return
    yield f"command {words}"
    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("-"):
                yield f"option {words} {option}"


def _functions() -> Iterator[str]:
    for header in HEADERS:
        text = (ROOT / "native" / "include" / header).read_text(encoding="utf-8")
        for name in re.findall(r"^(?:NPU_API |static inline )?[\w ]+[ *](npu_\w+)\(", text, re.MULTILINE):
            yield f"c {header} {name}"


def _errors() -> Iterator[str]:
    from npuc import errors

    for thing in vars(errors).values():
        if isinstance(thing, type) and issubclass(thing, errors.NpucError):
            yield f"error {thing.code}"


def _fields() -> Iterator[str]:
    from npuc.quant.config import QuantizationConfig
    from npuc.target.model import Target

    yield from _fields_of(Target, "target")
    yield from _fields_of(QuantizationConfig, "quantization")


def _fields_of(model: type[BaseModel], words: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield f"field {words}.{name}"
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields_of(inner, f"{words}.{name}")


def main(arguments: list[str]) -> int:
    """Compare, or write."""
    if arguments == ["--write"]:
        LIST.write_text("\n".join(names()) + "\n", encoding="utf-8")
        print(f"wrote {LIST.name}: {len(names())} names")
        return 0
    now, then = set(names()), set(promised())
    for line in sorted(now - then):
        print(f"new   {line}")
    for line in sorted(then - now):
        print(f"gone  {line}")
    return int(bool(then - now))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
