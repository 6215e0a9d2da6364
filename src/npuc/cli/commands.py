"""The commands of the `npuc` program: which module is which.

The whole program has them all, with their options and help, and takes 80 ms to make. A command line that begins with the
name of a command needs that one only.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Annotated, Any

import typer

from npuc import __version__
from npuc.cli.once import each_once
from npuc.cli.plugin import with_plugins

_COMMANDS: dict[str, str] = {
    "import": "import_",
    "opt": "opt",
    "calibrate": "calibrate",
    "calib-data": "calib_data",
    "quantize": "quantize",
    "run": "run",
    "run-op": "run_op",
    "show": "show",
    "inspect": "inspect",
    "eval": "eval_",
    "analyze": "analyze",
    "diff": "diff",
    "compile": "compile_",
    "explore": "explore",
    "sim": "sim",
    "profile": "profile",
    "studio": "studio",
    "trace": "trace",
    "objdump": "objdump",
    "combine": "combine",
    "relocate": "relocate",
    "sign": "sign",
    "verify": "verify",
    "doctor": "doctor",
    "ort-compile": "ort_compile",
}
"""Names of commands, and of the modules of this package that run them, in the order of the help."""

_GROUPS = ("tensors", "targets", "export", "train", "compat")
"""Commands that have commands of their own."""

_SETTINGS: dict[str, dict[str, Any]] = {
    "trace": {"context_settings": {"allow_interspersed_args": False}},
    "ort-compile": {"hidden": True},
}


def program(command: str | None = None) -> typer.Typer:
    """The program; with this command only if the command line begins with the name of one, and else with all."""
    return _program(command if command in _COMMANDS else None)


@lru_cache
def _program(only: str | None) -> typer.Typer:
    app = typer.Typer(
        name="npuc",
        help="An open NPU compiler suite: take a trained network, quantize it, compile it, run it.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=only is None,  # its options come before the name of a command
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    for name, module_name in _COMMANDS.items():
        if only in (None, name):
            module = import_module(f"npuc.cli.{module_name}")
            app.command(name, help=module.__doc__, **_SETTINGS.get(name, {}))(module.command)
    for name in _GROUPS if only is None else ():
        module = import_module(f"npuc.cli.{name}")
        app.add_typer(module.app, name=name, help=module.__doc__)
    with_plugins(app)
    each_once(app)
    _whole_summaries(app)
    app.callback()(_options)
    return app


def _whole_summaries(group: typer.Typer) -> None:
    """In lists of commands, the first paragraph of each; what is derived from the help ends where the line does."""
    for info in group.registered_commands:
        words = info.help or getattr(info.callback, "__doc__", None)
        info.short_help = info.short_help or _first_paragraph(words)
    for below in group.registered_groups:
        assert below.typer_instance is not None
        below.short_help = _first_paragraph(below.help if isinstance(below.help, str) else None)
        _whole_summaries(below.typer_instance)


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").strip().split("\n\n")[0].split())


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"npuc {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
