"""Give the segments of a compiled model other base addresses, by an ini file.

--dump writes the addresses as they are, to start from. An address of 0 leaves the place to the loader.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.console import Printer
from npuc.errors import UsageError


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.npu", help="A compiled model.")],
    addresses: Annotated[
        Path | None, typer.Argument(metavar="[ADDRESSES.ini]", help="The new base addresses.")
    ] = None,
    dump: Annotated[
        Path | None, typer.Option(metavar="FILE.ini", help="Write the addresses of the model to this file.")
    ] = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run the command."""
    from npuc.files import writable, write_atomically
    from npuc.program.disassemble import memory_rows
    from npuc.program.file import save_compiled
    from npuc.program.relocate import addresses_text, read_addresses, relocate

    printer = Printer(quiet, as_json)
    if (addresses is None) != (output is None):
        raise UsageError("new addresses and -o belong together", fix="Give ADDRESSES.ini and -o FILE.npu")
    if dump is None and addresses is None:
        raise UsageError("nothing is asked for", fix="Give --dump FILE.ini, or ADDRESSES.ini and -o FILE.npu")
    for path in filter(None, (dump, output)):
        writable(path)
    compiled = options.compiled_model(model)
    if addresses is not None and output is not None:
        compiled = relocate(compiled, read_addresses(addresses, compiled))
        save_compiled(compiled, output)
    if dump is not None:
        with write_atomically(dump) as out:
            out.write(addresses_text(compiled).encode())
    printer.table(
        ["segment", "name", "kind", "address", "bytes"], memory_rows(compiled), right=["address", "bytes"]
    )
    for written in filter(None, (output, dump)):
        printer.say(f"written to {written}")
    printer.result({segment.name: segment.address for segment in compiled.segments})
