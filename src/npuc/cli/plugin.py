"""The option --plugin of every command: loads plugins before the command runs, those of installed packages first."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py|MODULE",
        help="Load a plugin, Python code of your own, first (docs/plugins.md). Repeat it for several.",
    ),
]


def with_plugins(app: typer.Typer) -> None:
    """Give every command of a program the option."""
    for command in app.registered_commands:
        assert command.callback is not None
        command.callback = _with_option(command.callback)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        with_plugins(group.typer_instance)


def _with_option(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def command(*arguments: Any, plugin: list[str] | None = None, **options: Any) -> Any:
        from npuc.plugins import load

        load(*(plugin or ()))
        return function(*arguments, **options)

    shown = inspect.signature(function, eval_str=True)
    own = inspect.Parameter("plugin", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Plugins)
    made: Any = command
    made.__signature__ = shown.replace(parameters=[*shown.parameters.values(), own])
    made.__annotations__ = {one.name: one.annotation for one in made.__signature__.parameters.values()}
    return command
