"""Options as objects: a class declares a command line, and a command gets one object of it."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any

import pytest
import typer

import npuc.cli
from npuc.cli.command_options import CommandOptions, by_name, from_values, names_of, takes
from npuc.cli.compile_ import CompileCommand
from npuc.cli.ladder import LadderOptions
from npuc.cli.quantization import QuantizationRequest, RangeOptions, SchemeOptions
from npuc.cli.quantize import QuantizeCommand

Count = Annotated[int, typer.Option("--count", "-n", min=1, help="How many.")]


class Colour(CommandOptions):
    """A group."""

    red: Annotated[bool, typer.Option("--red")] = False
    name: Annotated[str | None, typer.Option(metavar="NAME")] = None


@dataclass
class Found:
    """A group that also keeps what a run found."""

    deep: Annotated[bool, typer.Option("--deep")] = False
    path: list[str] = dataclasses.field(default_factory=list)


class Paint(CommandOptions):
    """A command."""

    count: Count
    colour: Colour
    size: Annotated[int, typer.Option(help="How large.")] = 3
    found: Found


@takes(Paint)
def paint(args: Paint) -> Paint:
    """Paint."""
    return args


def test_the_signature_has_the_options_in_the_order_of_the_fields_with_groups_in_their_places() -> None:
    parameters = inspect.signature(paint).parameters
    assert list(parameters) == ["count", "red", "name", "size", "deep"]
    assert parameters["count"].default is inspect.Parameter.empty and parameters["size"].default == 3
    assert parameters["count"].annotation is Count and paint.__doc__ == "Paint."


def test_a_command_gets_one_frozen_object_with_its_groups() -> None:
    args = paint(count=2, red=True, name=None, size=5, deep=False)
    assert args == Paint(count=2, colour=Colour(red=True), size=5, found=Found())
    assert args.colour.red and args.found.path == []
    with pytest.raises(dataclasses.FrozenInstanceError):
        args.size = 6  # type: ignore[misc]
    assert args.changed(size=7) == Paint(count=2, colour=Colour(red=True), size=7, found=Found())
    assert by_name(args) == {"count": 2, "red": True, "name": None, "size": 5, "deep": False, "path": []}


def test_what_is_left_out_has_the_default_of_the_field() -> None:
    assert from_values(Paint, {"count": 1}) == Paint(count=1, colour=Colour(), found=Found())
    with pytest.raises(TypeError, match="count"):
        from_values(Paint, {})


def test_quantization_gets_its_part_of_a_command() -> None:
    values = {"model": "m", "target": "t", "method": "kl", "scheme": "int16", "ladder": "all", "threads": 2}
    args = from_values(CompileCommand, values)
    asked = QuantizationRequest.of(args, random=True)
    assert (asked.method, asked.scheme, asked.threads, asked.random, asked.tune) == (
        "kl",
        "int16",
        2,
        True,
        True,
    )
    assert asked.ladder_options is args.ladder_options and asked.ladder_options.ladder == "all"
    assert asked.changed(floats=("a",)).floats == ("a",)


def test_groups_are_options_of_every_command_that_has_them() -> None:
    """An option that is added to a group is one of all these commands: it is declared once."""
    for kind in (CompileCommand, QuantizeCommand):
        parameters = inspect.signature(takes(kind)(lambda args: None)).parameters
        for group in (RangeOptions, SchemeOptions):
            assert set(names_of(group)) <= set(parameters)
        assert {one.name for one in dataclasses.fields(LadderOptions)} - {"path"} <= set(parameters)


def _commands(app: typer.Typer) -> list[Any]:
    below = [one for group in app.registered_groups for one in _commands(group.typer_instance)]  # type: ignore[arg-type]
    return [*(one.callback for one in app.registered_commands), *below]


def test_every_command_takes_one_object() -> None:
    from npuc.cli.app import app

    for callback in _commands(app):
        function = inspect.unwrap(callback)
        assert list(function.__annotations__) == ["args", "return"], function.__qualname__
    classes = [
        value
        for module in iter_modules(npuc.cli.__path__)
        for value in vars(import_module(f"npuc.cli.{module.name}")).values()
        if isinstance(value, type)
        and value.__name__.endswith("Command")
        and issubclass(value, CommandOptions)
    ]
    assert len({one.__name__ for one in classes}) == len(set(classes)) == len(_commands(app))
