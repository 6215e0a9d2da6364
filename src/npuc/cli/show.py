"""List the layers of a network, or draw it.

Each layer is printed with its shape, its parameters and its multiply-accumulates (MACs). For a compiled model (.npu), the
subgraph and the device of each layer are printed; 'npuc objdump' shows its instructions and 'npuc profile' its time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, count, shorten, size
from npuc.cli.import_ import print_summary
from npuc.errors import UsageError


class ShowCommand(CommandOptions):
    """The command line of `npuc show`."""

    model: options.Model
    graph_file: Annotated[
        Path | None,
        typer.Option(
            "--graph", metavar="FILE", help="Draw the network as .svg or .png (with graphviz) or .dot."
        ),
    ] = None
    entry: options.EntryName = ""
    input_shape: options.InputShapes = None
    weights: options.Weights = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(ShowCommand)
def command(args: ShowCommand) -> None:
    """Run the command."""
    from npuc.files import existing_model
    from npuc.flow import load_model
    from npuc.frontend.sniff import describe_content
    from npuc.profile.network_drawing import write_drawing
    from npuc.profile.summary import summarize

    printer = Printer(args.quiet, args.as_json)
    existing_model(args.model)
    if describe_content(args.model).kind == "npu":
        for name, value in (
            ("--graph", args.graph_file),
            ("--input-shape", args.input_shape),
            ("--weights", args.weights),
        ):
            if value:
                raise UsageError(
                    f"{name} is not for a compiled model", fix="Leave it out; 'npuc profile --html' draws one"
                )
        _show_compiled(printer, args.model, args.entry)
        return
    options.check_entry(args.entry, [args.model])
    graph = load_model(args.model, options.imported_as(args.model, args.input_shape, args.weights))
    options.tell_import(printer, graph)
    summary = summarize(graph)
    drawing = write_drawing(graph, args.graph_file) if args.graph_file is not None else None
    printer.table(
        ["layer", "op", "output", "parameters", "MACs"],
        [
            [
                shorten(layer.name),
                layer.kind,
                shorten(", ".join(layer.outputs), 60),
                layer.parameters or "",
                count(layer.macs) if layer.macs else "",
            ]
            for layer in summary.layers
        ],
        right=["parameters", "MACs"],
    )
    printer.say()
    printer.say(str(args.model))
    print_summary(printer, summary)
    kinds = ", ".join(f"{kind} {number}" for kind, number in summary.kinds.items())
    printer.say(f"  {'ops':8} {kinds or 'none'}")
    result = summary.as_json()
    if drawing is not None:
        written, reason = drawing
        printer.say(f"  {'graph':8} {written}")
        if reason:
            printer.note(reason)
        result["graph"] = str(written)
    printer.result(result)


_DEVICES = {"npu": "NPU", "cpu": "CPU", "convert": "host"}


def _show_compiled(printer: Printer, path: Path, entry: str) -> None:
    """What a compiled model is made of: its layers by device, what it takes and gives, and its memory."""
    from npuc.profile.network import network_of
    from npuc.profile.work import sparse_layers
    from npuc.program.disassemble import printable
    from npuc.program.file import load_entries, named_entry

    entries = load_entries(path)
    compiled = named_entry(entries, entry, str(path))
    layers = [node for node in network_of(compiled).nodes if node.device in _DEVICES]
    numbered = sparse_layers(compiled)
    patterns = {
        node.name: numbered[at] for node in layers if (at := node.layer) is not None and at in numbered
    }
    printer.table(
        ["layer", "op", "output", "part", "device"],
        [
            [
                shorten(printable(node.name)),
                " ".join(filter(None, (node.kind, patterns.get(node.name)))) if node.device == "npu" else "",
                node.type,
                node.subgraph,
                _DEVICES[node.device],
            ]
            for node in layers
        ],
    )
    printer.say()
    printer.say(f"{path}, compiled for {compiled.target['name']}")
    if len(entries) > 1:
        shown = [
            f"{printable(name)}{' (shown)' if model is compiled else ''}" for name, model in entries.items()
        ]
        printer.say(f"  {'entries':8} {', '.join(shown)}")
    ports = {}
    for label, names in (("inputs", compiled.inputs), ("outputs", compiled.outputs)):
        kinds = {name: compiled.tensor(name) for name in names}
        ports[label] = {name: "x".join([*map(str, kind.shape), kind.dtype]) for name, kind in kinds.items()}
        shown = [f"{printable(name)} {kind}" for name, kind in list(ports[label].items())[:8]]
        more = f", and {len(kinds) - 8} more" if len(kinds) > 8 else ""
        printer.say(f"  {label:8} {', '.join(shown)}{more}")
    numbers = {device: sum(node.device == device for node in layers) for device in ("npu", "cpu")}
    words = [f"{number} on the {_DEVICES[device]}" for device, number in numbers.items()]
    parts = len(compiled.subgraphs)
    printer.say(f"  {'layers':8} {', '.join(words)}, in {parts} part{'s' * (parts != 1)}")
    memory = {segment.name: segment.size for segment in compiled.segments}
    printer.say(
        f"  {'memory':8} " + ", ".join(f"{printable(name)} {size(used)}" for name, used in memory.items())
    )
    printer.result(
        {
            "target": compiled.target["name"],
            **ports,
            "layers": [
                {
                    "name": n.name,
                    "op": n.kind,
                    "type": n.type,
                    "part": n.subgraph,
                    "device": n.device,
                    **({"sparsity": patterns[n.name]} if n.name in patterns else {}),
                }
                for n in layers
            ],
            "memory": memory,
            **({"entries": list(entries)} if len(entries) > 1 else {}),
        }
    )
