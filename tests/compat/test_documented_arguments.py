"""Python functions of the vendors' documents: every argument is there, has an example, and is honoured, refused or told."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import pytest
import yaml

from npuc.compat.registry import vendor_named
from support.paths import TESTS

DOCUMENTED: dict[str, dict[str, str]] = yaml.safe_load((TESTS / "compat" / "documented.yaml").read_text())
CASES = [
    pytest.param(vendor, name, text, id=name)
    for vendor, names in DOCUMENTED.items()
    for name, text in names.items()
]
EMPTY = (None, (), [], {})


def resolved(vendor: str, name: str) -> Any:
    """What a vendor's dotted name stands for here."""
    modules = vendor_named(vendor).modules
    place = max((known for known in modules if name.startswith(f"{known}.")), key=len)
    thing: Any = import_module(modules[place])
    for word in name.removeprefix(f"{place}.").split("."):
        thing = getattr(thing, word)
    return thing


def parameters(text: str) -> list[tuple[str, str, str | None]]:
    """Kind, name and default of each argument of a signature."""
    (function,) = ast.parse(f"def f({text}): pass").body
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + [
        ast.unparse(d) for d in arguments.defaults
    ]
    plain = [("plain", arg.arg, default) for arg, default in zip(arguments.args, defaults, strict=True)]
    star = [("star", arguments.vararg.arg, None)] if arguments.vararg else []
    return [*plain, *star, *([("stars", arguments.kwarg.arg, None)] if arguments.kwarg else [])]


@pytest.mark.parametrize(("vendor", "name", "text"), CASES)
def test_a_function_takes_what_its_document_says(vendor: str, name: str, text: str) -> None:
    thing = resolved(vendor, name)
    own = dict(inspect.signature(thing).parameters)
    kinds = {parameter.kind for parameter in own.values()}
    plain = [(word, default) for kind, word, default in parameters(text) if kind == "plain"]
    if inspect.isclass(thing):
        plain = [(word, default) for word, default in plain if word != "self"]
    known = [word for word in own if word in {name for name, _ in plain}]
    assert known == [word for word, _ in plain], "an argument is missing, or in another place"
    for word, default in plain:
        if default is None or default == "Ellipsis" or default == "...":
            continue
        given = own[word].default
        try:
            wanted = ast.literal_eval(default)
        except ValueError:
            assert f"{type(given).__name__}.{given.name}" == default, word
            continue
        if inspect.isclass(thing) and not isinstance(given, type(wanted)) and is_dataclass(thing):
            (factory,) = [entry.default_factory for entry in fields(thing) if entry.name == word]
            given = factory() if callable(factory) else given
        same = given == wanted or (given in EMPTY and wanted in EMPTY) or list(given) == list(wanted)
        assert same, f"{word} is {given!r}, not {wanted!r}"
    for kind, form in (("star", inspect.Parameter.VAR_POSITIONAL), ("stars", inspect.Parameter.VAR_KEYWORD)):
        assert form in kinds or kind not in {entry[0] for entry in parameters(text)}


@pytest.mark.parametrize("vendor", DOCUMENTED)
def test_every_argument_of_a_function_occurs(vendor: str) -> None:
    """An argument without an example may be passed over, and nobody would see it."""
    files = [
        *(TESTS / "compat").glob(f"examples_{vendor}.yaml"),
        *(TESTS / "compat").glob(f"test_{vendor}*.py"),
        *(TESTS / "compat" / "programs").glob(f"{vendor}*"),
    ]
    written = "\n".join(path.read_text(encoding="utf-8") for path in files)
    missing = [
        f"{name}({word})"
        for name, text in DOCUMENTED[vendor].items()
        for kind, word, default in parameters(text)
        if kind == "plain" and default is not None and not re.search(rf"\b{word}\b\s*=|\"{word}\":", written)
    ]
    methods = [
        name
        for name in DOCUMENTED[vendor]
        if not re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", written)
    ]
    assert not missing and not methods, (missing, methods)
