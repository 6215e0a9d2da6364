"""Show which layers of a network would run on the NPU of a target, and why the others would not.

The network need not be quantized: a float network is quantized for the target, with ranges from --data or --table, or made-up
ones, and placed as 'npuc compile' does it. An integer network is inspected as it is.
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
    min_ops: options.MinOps = 1
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw the network, coloured by device.")
    ] = None
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
    compile_options = CompileOptions(
        devices=parse_devices(args.device or []),
        island_threshold=args.island_threshold,
        least_ops=args.min_ops,
    )
    imported = options.imported_as(args.model, args.input_shape, args.weights, args.add_postprocess)
    graph = load_for_inspection(args.model, imported, force_float=args.force_float)
    options.tell_import(printer, graph)
    request = quant.QuantizationRequest.of(args)
    request.check()
    if is_integer(graph):
        quant.refuse_unused(args.model, request, args.force_float, args.add_postprocess)
    else:
        request = request.changed(floats=float_on_cpu(graph, compile_options.devices))
    settings = None if is_integer(graph) else request.config_for(graph)
    quantized = None
    if settings is not None and any(request.ways):
        quantized = quant.quantized(printer, args.model, graph, request, machine).quantized
    inspection, shown = inspect_graph(graph, machine, compile_options, settings, quantized)
    _print(printer, inspection)
    result = inspection.as_json()
    if args.svg is not None:
        with write_atomically(args.svg) as out:
            out.write(svg_of(shown, inspection).encode())
        printer.say(f"  {'drawing':10} {args.svg}")
        result["picture"] = str(args.svg)
    printer.result(result)


def _print(printer: Printer, inspection: Inspection) -> None:
    rows = []
    for layer in inspection.layers:
        how = f"as {layer.runs_as}" if layer.how == "rewrite" else layer.how
        rows.append(
            [
                shorten(layer.name or layer.layer),
                layer.kind,
                layer.device.upper() if layer.device in ("npu", "cpu") else layer.device,
                "" if layer.subgraph < 0 else layer.subgraph,
                count(layer.macs) if layer.macs else "",
                how or shorten(layer.reason, 90),
            ]
        )
    printer.table(["layer", "op", "device", "part", "MACs", ""], rows, right=["part", "MACs"])
    printer.say()
    npu, cpu = inspection.count("npu"), inspection.count("cpu")
    accelerators = dict.fromkeys(
        layer.device for layer in inspection.layers if layer.device not in ("npu", "cpu", "host", "")
    )
    others = "".join(f", {inspection.count(name)} on the accelerator '{name}'" for name in accelerators)
    share = (
        f"; {100 * inspection.share:.1f} % of {count(inspection.macs)} MACs on the NPU"
        if inspection.macs
        else ""
    )
    printer.say(f"{inspection.target}: {counted(npu, 'layer')} on the NPU, {cpu} on the CPU{others}{share}")
    parts = ", ".join(f"{name} {ops}" for name, ops in inspection.subgraphs[:12])
    more = f", and {len(inspection.subgraphs) - 12} more" if len(inspection.subgraphs) > 12 else ""
    printer.say(f"  {'parts':10} {len(inspection.subgraphs)}: {parts}{more}")
    if inspection.before:
        printer.say(f"  {'before':10} float work before the first integer layer: {inspection.before}")
    if inspection.after:
        printer.say(f"  {'after':10} float work after the last integer layer: {inspection.after}")
    groups: dict[tuple[str, str, str], list[str]] = {}
    for layer in inspection.layers:
        if layer.reason:
            device = "CPU" if layer.device == "cpu" else layer.device
            groups.setdefault((device, layer.reason, layer.lever), []).append(layer.name or layer.layer)
    for (device, reason, lever), names in sorted(groups.items(), key=lambda item: -len(item[1])):
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        printer.say(f"  {device:10} {', '.join(map(shorten, names[:_SHOWN]))}{more}: {reason}")
        if lever:
            printer.say(f"  {'':10} {lever}.")
    for note in inspection.notes:
        printer.note(note)
