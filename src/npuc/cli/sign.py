"""Sign a compiled model with a private key (Ed25519), so that others can verify who made it and that nobody changed it.

The key is a PEM file, such as 'openssl genpkey -algorithm ed25519 -out key.pem' writes; 'openssl pkey -in key.pem -pubout -out
public.pem' writes the public key that belongs to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer


class SignCommand(CommandOptions):
    """The command line of `npuc sign`."""

    model: Annotated[Path, typer.Argument(metavar="MODEL.npu", help="A compiled model.")]
    key: Annotated[Path, typer.Option(metavar="FILE.pem", help="The private key.")]
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.npu", help="Where to write the signed model.")
    ]
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(SignCommand)
def command(args: SignCommand) -> None:
    """Run the command."""
    from npuc.program.file import sign_compiled

    printer = Printer(args.quiet, args.as_json)
    options.result(args.output, ".npu")
    options.compiled_entries(args.model)
    public = sign_compiled(args.model, args.key, args.output)
    printer.say(f"{args.model} -> {args.output}, signed by {public.hex()}")
    printer.result({"output": str(args.output), "key": public.hex()})
