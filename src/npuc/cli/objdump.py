"""Show the contents of a compiled model: sections, memory, tensors, instructions.

Each instruction is a line: its number in the stream of its core, its queue, its layer, and what it does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, shorten, size
from npuc.errors import UsageError
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.program.disassemble import Stream
    from npuc.program.model import CompiledModel


class ObjdumpCommand(CommandOptions):
    """The command line of `npuc objdump`."""

    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL.npu", help="A compiled model; a .bmodel of the BM1684X is read too."),
    ]
    entry: options.EntryName = ""
    subgraph: Annotated[
        str, typer.Option(metavar="NAME", help="Only the instructions of this subgraph, by name or number.")
    ] = ""
    core: Annotated[int | None, typer.Option(min=0, help="Only the instructions of this core.")] = None
    layer: Annotated[str, typer.Option(metavar="NAME", help="Only the instructions of this layer.")] = ""
    queue: Annotated[
        str, typer.Option(metavar="load|store|matrix|vector", help="Only the instructions of this queue.")
    ] = ""
    instructions: Annotated[
        bool,
        typer.Option("--instructions/--no-instructions", help="Print the instructions, or only the tables."),
    ] = True
    addresses: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write every buffer of every memory with its address and size to this file, as .csv or .json.",
        ),
    ] = None
    as_json: options.Json = False


@takes(ObjdumpCommand)
def command(args: ObjdumpCommand) -> None:
    """Run the command."""
    from npuc.files import existing_file
    from npuc.frontend.sniff import describe_content
    from npuc.program.disassemble import Selection, printable, select
    from npuc.program.file import named_entry, section_list
    from npuc.program.model import NpuSubgraph

    printer = Printer(quiet=args.as_json, as_json=args.as_json)
    # A .bmodel of model_deploy.py (docs/migrate-tpu-mlir.md) is a compiled model of npuc.
    if args.model.suffix == ".bmodel" and describe_content(existing_file(args.model)).kind != "npu":
        _print_bmodel(printer, args)
        return
    entries = options.compiled_entries(args.model)
    compiled = named_entry(entries, args.entry, str(args.model))
    if args.addresses is not None:
        _write_addresses(printer, compiled, args.addresses)
        return
    cores = max(
        (len(part.streams) for part in compiled.subgraphs if isinstance(part, NpuSubgraph)), default=0
    )
    if args.core is not None and args.core >= cores:
        raise UsageError(
            f"there is no core {args.core}", fix=f"The program has streams for {cores}, counted from 0"
        )
    streams = select(compiled, Selection(args.subgraph, args.core, args.layer, args.queue))
    if args.as_json:
        result = _json(compiled, streams, section_list(args.model), args.instructions)
        printer.result({"entries": list(entries), **result} if len(entries) > 1 else result)
        return
    if len(entries) > 1:
        shown = next(name for name, model in entries.items() if model is compiled)
        printer.say(f"entries: {', '.join(map(printable, entries))}; this is {printable(shown)}")
    _print_tables(printer, compiled, section_list(args.model), args.instructions)
    total: Counter[str] = Counter()
    for stream in streams:
        _print_stream(printer, compiled, stream, args.instructions)
        for kind, counts in stream.counts().items():
            total.update({f"{kind} {name}": count for name, count in counts.items()})
    printer.say()
    for kind in ("queues", "opcodes"):
        counts = {name.split()[1]: n for name, n in total.items() if name.startswith(kind)}
        words = ", ".join(f"{name} {count}" for name, count in counts.items())
        printer.say(f"{kind:8} {words or 'none'}")


def _print_bmodel(printer: Printer, args: ObjdumpCommand) -> None:
    """A file of the BM1684X."""
    from npuc.files import existing_file
    from npuc.program.bm1684x.bmodel import read_bmodel
    from npuc.program.bm1684x.listing import as_json, lines
    from npuc.program.disassemble import printable

    for flag in ("entry", "subgraph", "layer", "queue", "core", "addresses"):
        if getattr(args, flag) not in ("", None):
            raise UsageError(f"--{flag} is for a .npu file, and {args.model} is none", fix="Leave it out")
    model = read_bmodel(existing_file(args.model).read_bytes(), str(args.model))
    if args.as_json:
        printer.result(as_json(model, args.instructions))
        return
    for line in lines(model, args.instructions):
        printer.say(printable(line))


def _write_addresses(printer: Printer, model: CompiledModel, path: Path) -> None:
    """All buffers as a file, instead of what is printed."""
    import csv
    import io
    import json

    from npuc.files import write_atomically
    from npuc.program.addresses import COLUMNS, buffers

    if path.suffix not in (".csv", ".json"):
        raise UsageError(f"--addresses '{path}' is neither .csv nor .json", fix=f"Use {path.stem}.csv")
    rows = [asdict(place) for place in buffers(model)]
    text = io.StringIO()
    if path.suffix == ".json":
        json.dump(rows, text, indent=1)
    else:
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    with write_atomically(path) as out:
        out.write(text.getvalue().encode())
    printer.say(f"{counted(len(rows), 'buffer')} written to {path}")
    printer.result({"buffers": rows, "file": str(path)})


def _print_tables(
    printer: Printer, model: CompiledModel, sections: list[tuple[str, int, int]], instructions: bool
) -> None:
    from npuc.program.bm1684x.bmodel import read_bmodel
    from npuc.program.bm1684x.listing import lines as chip_lines
    from npuc.program.disassemble import memory_rows, printable, tensor_rows
    from npuc.program.model import ChipSubgraph, CpuSubgraph, HostConversion

    printer.say(f"{printable(model.name)} for {model.target['name']}, fingerprint 0x{model.fingerprint:016x}")
    printer.say()
    printer.table(["section", "offset", "bytes"], sections, right=["offset", "bytes"])
    printer.say()
    printer.table(
        ["segment", "name", "kind", "address", "bytes"], memory_rows(model), right=["address", "bytes"]
    )
    printer.say()
    printer.table(
        ["tensor", "type", "order", "value", "place", "bytes", ""], tensor_rows(model), right=["bytes"]
    )
    for number, subgraph in enumerate(model.subgraphs):
        title = f"subgraph {number} {printable(subgraph.name)}"
        if isinstance(subgraph, CpuSubgraph):
            printer.say(f"\n{title} on the CPU, {size(len(subgraph.model))} of ONNX")
            for layer, reason in subgraph.reasons.items():
                printer.say(f"  {printable(layer)}: {printable(reason)}")
        elif isinstance(subgraph, ChipSubgraph):
            printer.say(f"\n{title} on the chip, {size(len(subgraph.program))}")
            for line in chip_lines(read_bmodel(subgraph.program, subgraph.name), instructions):
                printer.say(f"  {printable(line)}")
        elif isinstance(subgraph, HostConversion):
            printer.say(f"\n{title} on the host")
            for conversion in subgraph.conversions:
                printer.say(
                    f"  {printable(conversion.result)} = convert {printable(conversion.source)} {conversion.rounding}"
                )


def _print_stream(printer: Printer, model: CompiledModel, stream: Stream, instructions: bool) -> None:
    from npuc.program.disassemble import lines, printable
    from npuc.program.model import NpuSubgraph

    subgraph = model.subgraphs[stream.subgraph]
    all_records = subgraph.streams[stream.core] if isinstance(subgraph, NpuSubgraph) else stream.records
    of = "" if len(all_records) == len(stream.records) else f" of {len(all_records)}"
    many = f"{len(stream.records)}{of} instructions" if of else counted(len(stream.records), "instruction")
    printer.say()
    printer.say(f"subgraph {stream.subgraph} {printable(stream.name)} core {stream.core}: {many}")
    places = [a for a in getattr(subgraph, "allocations", ()) if a.core == stream.core]
    if places and not of:
        printer.table(
            ["local memory", "address", "bytes", "first", "last"],
            [[shorten(printable(a.name)), f"%0x{a.address:x}", a.size, a.first, a.last] for a in places],
            right=["address", "bytes", "first", "last"],
        )
    if instructions:
        for line in lines(model, stream):
            printer.say(line)


def _json(
    model: CompiledModel, streams: list[Stream], sections: list[tuple[str, int, int]], instructions: bool
) -> dict[str, Any]:
    from npuc.program.disassemble import values

    return {
        "name": model.name,
        "target": model.target["name"],
        "fingerprint": f"0x{model.fingerprint:016x}",
        "sections": [{"name": name, "offset": at, "size": count} for name, at, count in sections],
        "segments": [asdict(segment) for segment in model.segments],
        "tensors": [asdict(tensor) for tensor in model.tensors],
        "inputs": model.inputs,
        "states": {state.input: state.output for state in model.states},
        "outputs": model.outputs,
        "subgraphs": [
            {"device": _DEVICES[type(subgraph).__name__], **_plain(subgraph)} for subgraph in model.subgraphs
        ],
        "streams": [
            {
                "subgraph": stream.name,
                "core": stream.core,
                **stream.counts(),
                **({"instructions": list(values(model, stream))} if instructions else {}),
            }
            for stream in streams
        ],
        "metadata": model.metadata,
    }


_DEVICES = {"NpuSubgraph": "npu", "CpuSubgraph": "cpu", "HostConversion": "host", "ChipSubgraph": "chip"}


def _plain(subgraph: Any) -> dict[str, Any]:
    """A subgraph without its code."""
    fields = {"name": subgraph.name, "inputs": subgraph.inputs, "outputs": subgraph.outputs}
    for key in ("reasons", "allocations", "conversions"):
        value = getattr(subgraph, key, None)
        if value is not None:
            fields[key] = value if isinstance(value, dict) else [asdict(entry) for entry in value]
    return fields
