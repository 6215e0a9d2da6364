"""Quantize a network: turn it into an integer network.

The ranges of the tensors come from a calibration table (--table), or from calibration data (--data). With data, several
calibration methods are compared by their effect on the network's outputs, biases are corrected, and 16 bits are used for
layers where 8 are not accurate enough (unless --no-widen). --no-tune skips all of this and uses the ranges of one method.

--ladder adds further steps that reduce the loss of accuracy. --accuracy-drop adds steps until a metric on labelled data
loses no more than is allowed, at as few cycles as possible.

--plan writes nothing: it prints what the default gives on a few samples, and the accuracy, time and memory that each step of
the ladder is expected to give and take. --expected-drop ends the ladder as soon as that expectation is good enough.

A model that is already quantized needs neither table nor data: it keeps its own scales and zero points, unless --force-float
is given. The configuration that was used is written beside the result; --config reads it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import calibration_data as given
from npuc.cli import ladder, options, quantization_plan
from npuc.cli import quantization as quant
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer
from npuc.errors import UsageError

_OTHER_FORM = (
    "its ranges are those of the network whose channels the ladder scaled, and do not fit the model as it was"
)


class QuantizeCommand(CommandOptions):
    """The command line of `npuc quantize`."""

    model: options.Model
    table: quant.Table = None
    data: ladder.Data = None
    random: given.Random = False
    ranges: quant.RangeOptions
    calib: ladder.Calib = None
    ladder_options: ladder.LadderOptions
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Print the accuracy, time and memory that each step of the ladder is expected to give and take, and write "
            "nothing.",
        ),
    ] = False
    save_table: Annotated[
        Path | None,
        typer.Option(metavar="FILE.cali", help="Write the ranges that were used, as a calibration table."),
    ] = None
    schemes: quant.SchemeOptions
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE.yaml", help="Quantize with the arithmetic of this target."),
    ] = None
    force_float: quant.ForceFloat = False
    state: options.States = None
    input_shape: options.InputShapes = None
    weights: options.Weights = None
    threads: options.Threads = None
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.mlir",
            help="Where to write the result.  [default: MODEL.int.mlir beside the model]",
        ),
    ] = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(QuantizeCommand)
def command(args: QuantizeCommand) -> None:
    """Run the command."""
    from npuc.files import existing_model, writable, write_atomically
    from npuc.flow import network_to_quantize, save_graph
    from npuc.ir.states import parse_states, set_states
    from npuc.quant.report import effective_yaml
    from npuc.target import load_target

    printer = Printer(args.quiet, args.as_json)
    start = time.perf_counter()
    existing_model(args.model)
    to = args.output or args.model.with_name(f"{args.model.stem}.int.mlir")
    options.result(to, ".mlir")
    if to.exists() and to.samefile(args.model):
        raise UsageError("the result would replace the network that it is made of", fix="Give another -o")
    effective = to.with_suffix(".quant.yaml")
    for path in (effective, *((args.save_table,) if args.save_table else ())):
        writable(path)
    request = quant.QuantizationRequest.of(args)
    request.check(planned=args.plan)
    machine = load_target(args.target) if args.target else None
    imported = options.imported_as(args.model, args.input_shape, args.weights)
    graph = network_to_quantize(args.model, imported, force_float=args.force_float)
    options.tell_import(printer, graph)
    set_states(graph, {**graph.states, **parse_states(args.state or [])})
    if args.plan:
        quantization_plan.print_plan(printer, args.model, graph, request, machine)
        return
    run = quant.quantized(printer, args.model, graph, request, machine)
    done = run.quantized
    other_form = done.steps_applied and done.source is not graph
    if args.save_table is not None and run.table is not None:
        from npuc.calib.table import save_table as write_table

        whose = (_OTHER_FORM,) if other_form else ()
        write_table(replace(run.table, comments=(*run.table.comments, *whose)), args.save_table)
        if other_form:
            printer.note(
                f"{args.save_table}: {_OTHER_FORM}; with --table it would spoil {args.model.name}. "
                "--no-tune saves ranges that fit"
            )
    files = save_graph(done.graph, to)
    same = "'npuc quantize --config' makes the same of the same ranges"
    same += ", but for the corrected biases" if done.corrected and not done.steps_applied else ""
    same += ", but for what the ladder did to weights and biases" if done.steps_applied else ""
    comments = [
        f"what every layer of {to.name} got; {_OTHER_FORM if other_form else same}",
        f"ranges: {run.origin}",
        *([f"target: {args.target}"] if args.target else []),
    ]
    text = effective_yaml(done.source, done.outcome, done.scheme_of, comments)
    with write_atomically(effective) as out:
        out.write(text.encode())
    seconds = time.perf_counter() - start
    printer.say(f"{args.model} -> {to} ({seconds:.1f} s)")
    quant.print_outcome(printer, done.outcome, run.scheme, run.origin)
    printer.say(f"  {'config':8} {effective}")
    quant.print_accuracy(printer, done)
    printer.result(
        {
            "files": [*map(str, files), str(effective)],
            "seconds": seconds,
            "ranges": run.origin,
            "integer": done.outcome.integer,
            "layers": [vars(layer) for layer in done.outcome.layers],
            "bytes_before": done.outcome.bytes_before,
            "bytes_after": done.outcome.bytes_after,
            "notes": list(done.outcome.notes),
            "path": request.ladder_options.path,
            **quant.accuracy_json(done),
        }
    )
