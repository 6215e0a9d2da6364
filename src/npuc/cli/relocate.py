"""Change the base addresses of the segments of a compiled model.

The new addresses come from an ini file; --dump writes one with the present addresses, to start from. An address of 0 lets the
loader choose.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer
from npuc.errors import UsageError


class RelocateCommand(CommandOptions):
    """The command line of `npuc relocate`."""

    model: Annotated[Path, typer.Argument(metavar="MODEL.npu", help="A compiled model.")]
    addresses: Annotated[
        Path | None, typer.Argument(metavar="[ADDRESSES.ini]", help="The new base addresses.")
    ] = None
    dump: Annotated[
        Path | None, typer.Option(metavar="FILE.ini", help="Write the addresses of the model to this file.")
    ] = None
    output: options.Output = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(RelocateCommand)
def command(args: RelocateCommand) -> None:
    """Run the command."""
    from npuc.files import writable, write_atomically
    from npuc.program.disassemble import memory_rows
    from npuc.program.file import save_compiled
    from npuc.program.relocate import addresses_text, read_addresses, relocate

    printer = Printer(args.quiet, args.as_json)
    if (args.addresses is None) != (args.output is None):
        raise UsageError("new addresses and -o belong together", fix="Give ADDRESSES.ini and -o FILE.npu")
    if args.dump is None and args.addresses is None:
        raise UsageError("nothing is asked for", fix="Give --dump FILE.ini, or ADDRESSES.ini and -o FILE.npu")
    for path in filter(None, (args.dump, args.output)):
        writable(path)
    entries = options.compiled_entries(args.model)
    if len(entries) > 1:
        raise UsageError(
            f"the program has {len(entries)} entries, and addresses are those of one model",
            where=str(args.model),
            fix="Relocate the models, then combine them",
        )
    compiled = next(iter(entries.values()))
    if args.addresses is not None and args.output is not None:
        compiled = relocate(compiled, read_addresses(args.addresses, compiled))
        save_compiled(compiled, args.output)
    if args.dump is not None:
        with write_atomically(args.dump) as out:
            out.write(addresses_text(compiled).encode())
    printer.table(
        ["segment", "name", "kind", "address", "bytes"], memory_rows(compiled), right=["address", "bytes"]
    )
    for written in filter(None, (args.output, args.dump)):
        printer.say(f"written to {written}")
    printer.result({segment.name: segment.address for segment in compiled.segments})
