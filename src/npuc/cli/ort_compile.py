"""Compile what the execution provider for ONNX Runtime asks for; it starts this command in programs that are not Python's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from npuc.cli.command_options import CommandOptions, takes


class OrtCompileCommand(CommandOptions):
    """The command line of `npuc ort-compile`."""

    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The provider's request.")]


@takes(OrtCompileCommand)
def command(args: OrtCompileCommand) -> None:
    """Run the command."""
    from npuc.integrations.onnxruntime.compile_request import run_request

    status = run_request(str(args.folder), lambda text: print(text, file=sys.stderr))
    if status:
        raise typer.Exit(status)
