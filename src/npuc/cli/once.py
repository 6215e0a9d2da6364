"""Options that take one value are given once: of two values, neither is dropped without a word.

And those that are not given have their defaults, and plain text and paths are what they are, which needs no look: typer
would make a validator for each of the seventy options of a command, in 20 ms.
"""

from __future__ import annotations

from collections import Counter
from os import R_OK, access
from os.path import exists
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from npuc.errors import UsageError

_DEFAULTED = f"{__name__}.defaulted"
"""The entry of a context with the names of options that have their values."""


class OnceCommand(TyperCommand):
    """A command that refuses a second value of an option that has room for one."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters that have no value yet."""
        defaulted = ctx.meta.get(_DEFAULTED, ())
        return [parameter for parameter in super().get_params(ctx) if parameter.name not in defaulted]

    def make_parser(self, ctx: Any) -> Any:
        """The parser, which looks at what it found."""
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def checked(args: list[str]) -> Any:
            parsed = parse(args)
            for option, number in Counter(map(_single, parsed[2])).items():
                if option is not None and number > 1:
                    raise UsageError(
                        f"{option} is given {number} times and takes one value", fix="Give it once"
                    )
            ctx.params |= _defaults(self.params, parsed[0]) | _plain_values(self.params, parsed[0])
            ctx.meta[_DEFAULTED] = {*ctx.params, *({"help"} - set(parsed[0]))}
            return parsed

        parser.parse_args = checked  # type: ignore[method-assign]
        return parser


def _defaults(parameters: list[Any], given: dict[str, Any]) -> dict[str, Any]:
    """The values of options that are not given and whose default is a plain value: it is of the option's type."""
    values: dict[str, Any] = {}
    for parameter in parameters:
        plain = (
            getattr(parameter, "param_type_name", "") == "option"
            and given.get(parameter.name) is None
            and parameter.expose_value
            and not parameter.required
            and parameter.callback is None
            and parameter.envvar is None
            and parameter.prompt is None
        )
        several = plain and (parameter.multiple or parameter.nargs != 1)
        if plain and parameter.default is None:
            values[parameter.name] = () if several else None
        elif plain and not several and type(parameter.default) in (bool, int, float, str):
            values[parameter.name] = parameter.default
    return values


def _plain_values(parameters: list[Any], given: dict[str, Any]) -> dict[str, Any]:
    """The values of what is given and is plain text, or a path that nothing is asked of but to be readable if it is there."""
    values: dict[str, Any] = {}
    for parameter in parameters:
        value = given.get(parameter.name)
        kind = getattr(parameter, "type_descriptor", None)
        if not isinstance(value, str) or kind is None or parameter.callback is not None:
            continue
        info = kind.parameter_info
        if info.parser is not None or kind.is_choice or not parameter.expose_value:
            continue
        if kind.annotation is str:
            values[parameter.name] = value
        elif kind.annotation is Path and not _asked_of(info) and (access(value, R_OK) or not exists(value)):
            values[parameter.name] = Path(value)
    return values


def _asked_of(info: Any) -> bool:
    """Whether typer is told to look at a path."""
    needs = ("exists", "writable", "resolve_path", "allow_dash", "path_type")
    return any(getattr(info, name) for name in needs) or not (info.file_okay and info.dir_okay)


def _single(parameter: Any) -> str | None:
    """The name of an option that takes one value; None for flags, lists and arguments."""
    if getattr(parameter, "param_type_name", "") != "option":
        return None
    if (
        getattr(parameter, "multiple", False)
        or getattr(parameter, "is_flag", False)
        or getattr(parameter, "count", False)
    ):
        return None
    return str(max(parameter.opts, key=len))


def each_once(app: typer.Typer) -> None:
    """Have every command of a program refuse it."""
    for command in app.registered_commands:
        command.cls = OnceCommand
    for group in app.registered_groups:
        assert group.typer_instance is not None
        each_once(group.typer_instance)
