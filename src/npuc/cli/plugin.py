"""The options of every command: --plugin loads plugins before the command runs, those of installed packages first; -v,
--log-level and --color say what is told on the way (`verbosity`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from npuc.cli import verbosity

Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py|LIB.so|MODULE",
        help="Load a plugin (your own code, docs/plugins.md) before the command runs. Repeat the option for"
        " several.",
    ),
]


def with_plugins(app: typer.Typer) -> None:
    """Give every command of a program the options."""
    for command in app.registered_commands:
        assert command.callback is not None
        command.callback = _with_option(command.callback)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        with_plugins(group.typer_instance)


def _with_option(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def command(
        *arguments: Any,
        plugin: list[str] | None = None,
        verbose: int = 0,
        log_level: str | None = None,
        color: str | None = None,
        **options: Any,
    ) -> Any:
        verbosity.apply(verbose, log_level, color, bool(options.get("quiet")))
        from npuc.plugins import load

        load(*(plugin or ()))
        return function(*arguments, **options)

    shown = inspect.signature(function, eval_str=True)
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, default, annotation in (
            ("plugin", None, Plugins),
            ("verbose", 0, verbosity.Verbose),
            ("log_level", None, verbosity.LogLevel),
            ("color", None, verbosity.Color),
        )
    ]
    wrapped: Any = command
    wrapped.__signature__ = shown.replace(parameters=[*shown.parameters.values(), *own])
    wrapped.__annotations__ = {}  # the signature has them; typer would go through each once more
    return command
