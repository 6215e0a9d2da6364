"""Turn a network into an integer network.

The ranges come from a calibration table, or from typical data. A model that was quantized before needs neither: it
keeps its own scales and zero points, unless --force-float has it quantized anew. Beside the result, its effective
configuration is written, which --config reads.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuc.cli import calibration_data as given
from npuc.cli import options
from npuc.cli.console import Printer, progress, shorten, size
from npuc.errors import UsageError

if TYPE_CHECKING:
    from npuc.calib.table import CalibrationTable
    from npuc.ir import Graph
    from npuc.quant.config import QuantizationConfig
    from npuc.quant.report import Outcome

_SHOWN = 12


def command(
    model: options.Model,
    table: Annotated[
        Path | None, typer.Option("--table", "-t", metavar="FILE.cali", help="A calibration table.")
    ] = None,
    data: given.Data = None,
    random: given.Random = False,
    method: Annotated[
        str | None,
        typer.Option(metavar="METHOD[:OPTION=VALUE,...]", help="How ranges are found; see 'npuc calibrate'."),
    ] = None,
    preprocess: given.Preprocess = None,
    annotations: given.Annotations = None,
    max_count: given.MaxCount = None,
    seed: given.Seed = None,
    strict: given.Strict = False,
    save_table: Annotated[
        Path | None, typer.Option(metavar="FILE.cali", help="Write the ranges that were found.")
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="int8 (the default), int8-symmetric, uint8, int16, int16-weights, int4-weights, pow2, dfp16 or "
            "tflite.",
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE.yaml", help="What each layer gets.")] = None,
    keep_float: Annotated[
        str | None,
        typer.Option(metavar="L1,L2", help="Layers that stay float; * and ? match any characters."),
    ] = None,
    first_last: Annotated[
        str | None,
        typer.Option(
            metavar="SCHEME", help="Another scheme, or float, for the first and the last layer with weights."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="NAME|FILE.yaml", help="Use the arithmetic of a target.")
    ] = None,
    force_float: Annotated[
        bool,
        typer.Option("--force-float", help="Drop the quantization that the model brings, and quantize anew."),
    ] = False,
    input_shape: options.InputShapes = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads to use. Without it, all cores.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.mlir", help="Where to write the result.")
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run the command."""
    from npuc.files import existing_file, writable, write_atomically
    from npuc.flow import network_to_quantize, quantize_network, save_graph, schemes_of
    from npuc.quant.prequantized import is_quantized
    from npuc.quant.report import effective_yaml
    from npuc.target import load_target

    printer = Printer(quiet, as_json)
    start = time.perf_counter()
    existing_file(model)
    to = output or model.with_name(f"{model.stem}.int.mlir")
    if to.suffix != ".mlir":
        raise UsageError(
            f"-o '{to}' is not the name of an .mlir file", fix=f"Use -o {to.with_suffix('.mlir')}"
        )
    if to.exists() and to.samefile(model):
        raise UsageError("the result would replace the network that it is made of", fix="Give another -o")
    effective = to.with_suffix(".quant.yaml")
    for path in (to, effective, *((save_table,) if save_table else ())):
        writable(path)
    ways = [bool(table), data is not None, random]
    if sum(ways) > 1:
        raise UsageError("--table, --data and --random contradict each other", fix="Give one of them")
    machine = load_target(target) if target else None
    shapes = options.import_options(model, input_shape or [], None, None, {}) if input_shape else None
    graph = network_to_quantize(model, shapes, force_float=force_float)
    own = is_quantized(graph)
    if own and any(ways):
        raise UsageError(
            f"{model} brings its own quantization, so there is nothing to calibrate",
            fix="Leave out the data to keep it, or add --force-float to quantize anew",
        )
    if not own and not any(ways):
        raise UsageError(
            "there are no ranges to quantize with",
            fix="Give --table FILE or --data PATH, or --random for a smoke run",
        )
    wanted = _config(graph, config, scheme, keep_float, first_last)
    if own:
        done = quantize_network(graph, None, wanted, machine)
        origin = "the model's own quantization"
    else:
        if table is not None:
            found = _read_table(table, graph, printer)
            origin = str(table)
        else:
            found = _calibrate(
                printer, graph, schemes_of(graph, wanted, machine), method, threads, strict,
                data, random, preprocess, annotations, max_count, seed,
            )  # fmt: skip
            origin = ", ".join(found.comments)
        if save_table is not None:
            from npuc.calib.table import save_table as write_table

            write_table(found, save_table)
        done = quantize_network(graph, found, wanted, machine)
    files = save_graph(done.graph, to)
    comments = [
        f"what every layer of {to.name} got; 'npuc quantize --config' makes the same of the same ranges",
        f"ranges: {origin}",
        *([f"target: {target}"] if target else []),
    ]
    text = effective_yaml(done.source, done.outcome, done.scheme_of, comments)
    with write_atomically(effective) as out:
        out.write(text.encode())
    seconds = time.perf_counter() - start
    printer.say(f"{model} -> {to} ({seconds:.1f} s)")
    _print(printer, done.outcome, _scheme_words(wanted, scheme, target, own), origin)
    printer.say(f"  {'config':8} {effective}")
    printer.result(
        {
            "files": [*map(str, files), str(effective)],
            "seconds": seconds,
            "ranges": origin,
            "integer": done.outcome.integer,
            "layers": [vars(layer) for layer in done.outcome.layers],
            "bytes_before": done.outcome.bytes_before,
            "bytes_after": done.outcome.bytes_after,
            "notes": list(done.outcome.notes),
        }
    )


def _config(
    graph: Graph, config: Path | None, scheme: str | None, keep_float: str | None, first_last: str | None
) -> QuantizationConfig:
    """The file, then the shortcuts."""
    from npuc.quant.config import QuantizationConfig, first_and_last

    wanted = QuantizationConfig.load(config) if config is not None else QuantizationConfig()
    if scheme is not None:
        wanted = wanted.model_copy(update={"scheme": scheme})
    if first_last is not None:
        wanted = wanted.with_layers(first_and_last(graph), first_last)
    return wanted.with_layers(options.names(keep_float), "float")


def _read_table(path: Path, graph: Graph, printer: Printer) -> CalibrationTable:
    from npuc.calib.table import load_table

    table = load_table(path)
    missing = table.check(graph)
    if missing:
        printer.note(f"{path} has no range for {len(missing)} tensors, such as '{missing[0]}'")
    return table


def _calibrate(
    printer: Printer,
    graph: Graph,
    scheme_of: Any,
    method: str | None,
    threads: int | None,
    strict: bool,
    data: Path | None,
    random: bool,
    *choices: Any,
) -> CalibrationTable:
    from npuc.flow import ranges_from

    source = given.source(graph, data, random, *choices)
    with progress(printer, "calibrating", source.total or 0) as step:
        found = ranges_from(
            graph, source, scheme_of, method, threads=threads, strict=strict, warn=printer.note, step=step
        )
    if random:
        printer.note("the ranges are those of random data: good for a smoke run only")
    return found


def _scheme_words(config: QuantizationConfig, scheme: str | None, target: str | None, own: bool) -> str:
    if own:
        return "the model's own"
    if target and "scheme" not in config.model_fields_set:
        return f"that of {target}"
    name = config.scheme if isinstance(config.scheme, str) else "of the configuration"
    special = len(config.types) + len(config.layers)
    return f"{name}, {special} exception{'s' * (special != 1)}" if special else name


def _print(printer: Printer, found: Outcome, scheme: str, origin: str) -> None:
    floats = len(found.layers) - found.integer
    printer.say(f"  {'layers':8} {found.integer} integer, {floats} float")
    for kind, reason, names in found.float_groups()[:_SHOWN]:
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        shown = ", ".join(shorten(name) for name in names[:2])
        printer.say(f"  {'':8} float: {kind} {shown}{more}: {reason}")
    printer.say(f"  {'scheme':8} {scheme}")
    printer.say(f"  {'ranges':8} {origin}")
    printer.say(f"  {'weights':8} {size(found.bytes_before)} -> {size(found.bytes_after)}")
    for note in found.notes[:_SHOWN]:
        printer.note(note)
