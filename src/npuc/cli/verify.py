"""Check that a compiled model is sound: its form, its checksums and, with --key, its signature.

Without --key it tells whether the model is signed and by which key, but a key that the file itself names proves nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer


class VerifyCommand(CommandOptions):
    """The command line of `npuc verify`."""

    model: Annotated[Path, typer.Argument(metavar="MODEL.npu", help="A compiled model.")]
    key: options.Key = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(VerifyCommand)
def command(args: VerifyCommand) -> None:
    """Run the command."""
    from npuc.program.file import load_entries, signer

    printer = Printer(args.quiet, args.as_json)
    options.compiled_entries(args.model)
    if args.key is not None:
        load_entries(args.model, key=args.key)
    public = signer(args.model)
    named = "not signed" if public is None else f"signed by {public.hex()}"
    proof = "" if public is None or args.key is not None else ", which is not verified (--key)"
    printer.say(f"{args.model}: sound, {named}{proof}")
    printer.result({"key": None if public is None else public.hex(), "verified": args.key is not None})
