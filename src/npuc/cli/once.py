"""Options that take one value are given once: of two values, neither is dropped without a word."""

from __future__ import annotations

from collections import Counter
from typing import Any

import typer
from typer.core import TyperCommand

from npuc.errors import UsageError


class OnceCommand(TyperCommand):
    """A command that refuses a second value of an option that has room for one."""

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
            return parsed

        parser.parse_args = checked  # type: ignore[method-assign]
        return parser


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
