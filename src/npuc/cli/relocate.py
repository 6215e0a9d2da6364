"""Change the base addresses of the segments of a compiled model.

The new addresses come from an ini file; --dump writes one with the present addresses, to start from. An address of 0 lets the
loader choose. Of a program with several entries, the segments are those of one of them (--entry); the address of the weights,
which they share, is that of all.
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
    entry: options.EntryName = ""
    output: options.Output = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(RelocateCommand)
def command(args: RelocateCommand) -> None:
    """Run the command."""
    from npuc.files import writable, write_atomically
    from npuc.program.disassemble import memory_rows
    from npuc.program.file import named_entry, save_compiled
    from npuc.program.relocate import addresses_text, read_addresses, relocate_entry

    printer = Printer(args.quiet, args.as_json)
    if (args.addresses is None) != (args.output is None):
        raise UsageError("new addresses and -o belong together", fix="Give ADDRESSES.ini and -o FILE.npu")
    if args.dump is None and args.addresses is None:
        raise UsageError("nothing is asked for", fix="Give --dump FILE.ini, or ADDRESSES.ini and -o FILE.npu")
    for path in filter(None, (args.dump, args.output)):
        writable(path)
    entries = options.compiled_entries(args.model)
    compiled = named_entry(entries, args.entry, str(args.model))
    if args.addresses is not None and args.output is not None:
        addresses = read_addresses(args.addresses, compiled)
        entries = relocate_entry(entries, args.entry or next(iter(entries)), addresses)
        compiled = named_entry(entries, args.entry, str(args.model))
        save_compiled(entries if len(entries) > 1 else compiled, args.output)
    if args.dump is not None:
        with write_atomically(args.dump) as out:
            out.write(addresses_text(compiled).encode())
    printer.table(
        ["segment", "name", "kind", "address", "bytes"], memory_rows(compiled), right=["address", "bytes"]
    )
    for written in filter(None, (args.output, args.dump)):
        printer.say(f"written to {written}")
    printer.result({segment.name: segment.address for segment in compiled.segments})
