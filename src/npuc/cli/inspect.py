"""Tell which layers of a network would run on the NPU of a target, and why others would not.

It works before any quantization: a float network is quantized for the target with made-up ranges, or those of --data or --table,
and compiled as 'npuc compile' does it. An integer network (`npuc quantize`) is inspected as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import calibration_data as given
from npuc.cli import options
from npuc.cli import quantization as quant
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, count, shorten
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.inspect.inspection import Inspection

_SHOWN = 3


class InspectCommand(CommandOptions):
    """The command line of `npuc inspect`."""

    model: options.Model
    target: options.Target
    device: options.Devices = None
    island_threshold: options.IslandThreshold = 1.0
    svg: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the network by device.")] = None
    data: quant.TypicalData = None
    table: quant.Table = None
    method: quant.Method = None
    tune: quant.Tune = True
    widen: quant.Widen = True
    preprocess: given.Preprocess = None
    max_count: given.MaxCount = None
    schemes: quant.SchemeOptions
    force_float: quant.ForceFloat = False
    input_shape: options.InputShapes = None
    add_postprocess: options.Postprocess = None
    weights: options.Weights = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(InspectCommand)
def command(args: InspectCommand) -> None:
    """Run the command."""
    from npuc.codegen.compile_model import CompileOptions
    from npuc.files import existing_model, write_atomically
    from npuc.inspect.inspection import inspect_graph, load_for_inspection
    from npuc.inspect.svg import svg_of
    from npuc.partition import float_on_cpu
    from npuc.partition.overrides import parse_devices
    from npuc.quant.report import is_integer
    from npuc.target import load_target

    printer = Printer(args.quiet, args.as_json)
    existing_model(args.model)
    if args.svg is not None:
        options.result(args.svg, ".svg", "--svg")
    machine = load_target(args.target)
    wanted = CompileOptions(devices=parse_devices(args.device or []), island_threshold=args.island_threshold)
    imported = options.imported_as(args.model, args.input_shape, args.weights, args.add_postprocess)
    graph = load_for_inspection(args.model, imported, force_float=args.force_float)
    options.tell_import(printer, graph)
    asked = quant.Asked.of(args)
    asked.check()
    if is_integer(graph):
        quant.refuse_unused(args.model, asked, args.force_float, args.add_postprocess)
    else:
        asked = asked.changed(floats=float_on_cpu(graph, wanted.devices))
    settings = None if is_integer(graph) else asked.wanted(graph)
    made = None
    if settings is not None and any(asked.ways):
        made = quant.quantized(printer, args.model, graph, asked, machine).quantized
    found, shown = inspect_graph(graph, machine, wanted, settings, made)
    _print(printer, found)
    result = found.as_json()
    if args.svg is not None:
        with write_atomically(args.svg) as out:
            out.write(svg_of(shown, found).encode())
        printer.say(f"  {'picture':10} {args.svg}")
        result["picture"] = str(args.svg)
    printer.result(result)


def _print(printer: Printer, found: Inspection) -> None:
    rows = []
    for layer in found.layers:
        how = f"as {layer.runs_as}" if layer.how == "rewrite" else layer.how
        rows.append(
            [
                shorten(layer.name or layer.layer),
                layer.kind,
                layer.device.upper() if layer.device != "host" else "host",
                "" if layer.subgraph < 0 else layer.subgraph,
                count(layer.macs) if layer.macs else "",
                how or shorten(layer.reason, 90),
            ]
        )
    printer.table(["layer", "op", "device", "part", "MACs", ""], rows, right=["part", "MACs"])
    printer.say()
    npu, cpu = found.count("npu"), found.count("cpu")
    share = f"; {100 * found.share:.1f} % of {count(found.macs)} MACs on the NPU" if found.macs else ""
    printer.say(f"{found.target}: {counted(npu, 'layer')} on the NPU, {cpu} on the CPU{share}")
    parts = ", ".join(f"{name} {ops}" for name, ops in found.subgraphs[:12])
    more = f", and {len(found.subgraphs) - 12} more" if len(found.subgraphs) > 12 else ""
    printer.say(f"  {'parts':10} {len(found.subgraphs)}: {parts}{more}")
    if found.before:
        printer.say(f"  {'before':10} float work before the first integer layer: {found.before}")
    if found.after:
        printer.say(f"  {'after':10} float work after the last integer layer: {found.after}")
    groups: dict[tuple[str, str], list[str]] = {}
    for layer in found.layers:
        if layer.reason:
            groups.setdefault((layer.reason, layer.lever), []).append(layer.name or layer.layer)
    for (reason, lever), names in sorted(groups.items(), key=lambda item: -len(item[1])):
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        printer.say(f"  {'CPU':10} {', '.join(map(shorten, names[:_SHOWN]))}{more}: {reason}")
        if lever:
            printer.say(f"  {'':10} {lever}.")
    for note in found.notes:
        printer.note(note)
