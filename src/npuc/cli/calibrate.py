"""Find the range of values of every tensor of a network on typical data.

The result is a calibration table, a text file with one line per tensor. --save-stats keeps the statistics, so that another
method can be tried without the data.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import calibration_data as given
from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, progress, shorten
from npuc.errors import UsageError
from npuc.words import counted


class CalibrateCommand(CommandOptions):
    """The command line of `npuc calibrate`."""

    model: options.Model
    data: given.Data = None
    random: given.Random = False
    method: Annotated[
        str,
        typer.Option(
            metavar="METHOD[:OPTION=VALUE,...]",
            help="The calibration method: max, percentile, max-percentile, moving-average, mean, trimmed-mean, median, "
            "mode, std, kl, mse, aciq, pow2, pow2-min-diff or auto.",
        ),
    ] = "mse"
    tensor_method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=METHOD", help="The method for one tensor or layer; repeat the option for several."
        ),
    ] = None
    bits: Annotated[
        int, typer.Option(min=2, max=16, help="The number of bits that the ranges are chosen for.")
    ] = 8
    preprocess: given.Preprocess = None
    annotations: given.Annotations = None
    dataset: given.Dataset = None
    max_count: given.MaxCount = None
    seed: given.Seed = None
    strict: given.Strict = False
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.cali", help="The table to write.")
    ] = None
    save_stats: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Also write the statistics.")
    ] = None
    stats: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Use statistics written by --save-stats instead of data."),
    ] = None
    input_shape: options.InputShapes = None
    weights: options.Weights = None
    torch_device: options.TorchDevice = None
    threads: options.Threads = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(CalibrateCommand)
def command(args: CalibrateCommand) -> None:
    """Run the command."""
    if args.stats is not None and (
        args.data or args.random or args.save_stats is not None or args.dataset is not None
    ):
        raise UsageError(
            "--stats is in place of data: leave out --data, --dataset, --random and --save-stats"
        )
    from npuc.calib.calibration import calibrate, check_statistics, resolve_overrides
    from npuc.calib.collection import collect
    from npuc.calib.ranges import observer_options, parse_method
    from npuc.calib.statistics import load_statistics, save_statistics
    from npuc.calib.table import save_table
    from npuc.engine.compute_device import check_device, computing_on
    from npuc.files import writable
    from npuc.flow import network_to_quantize

    printer = Printer(args.quiet, args.as_json)
    parse_method(args.method)
    check_device(args.torch_device or "cpu", "--torch-device")
    for path in (args.output, args.save_stats):
        if path is not None:
            writable(path)
    graph = network_to_quantize(args.model, options.imported_as(args.model, args.input_shape, args.weights))
    options.tell_import(printer, graph)
    overrides = dict(map(_override, args.tensor_method or []))
    resolve_overrides(graph, overrides)
    start = time.perf_counter()
    if args.stats is not None:
        statistics = load_statistics(args.stats)
        check_statistics(graph, statistics)
    else:
        source = given.source(
            graph,
            args.data,
            args.random,
            args.preprocess,
            args.annotations,
            args.max_count,
            args.seed,
            args.dataset,
        )
        with (
            computing_on(args.torch_device or "cpu"),
            progress(printer, "calibrating", source.total or 0) as step,
        ):
            statistics = collect(
                graph,
                source,
                options=observer_options([args.method, *overrides.values()]),
                threads=args.threads,
                strict=args.strict,
                warn=printer.note,
                step=step,
            )
        if args.random:
            printer.note("the ranges are those of random data: good for a smoke run only")
    table = calibrate(graph, statistics=statistics, method=args.method, overrides=overrides, bits=args.bits)
    for note in table.notes[len(statistics.notes) :]:
        printer.note(note)
    seconds = time.perf_counter() - start
    if args.save_stats is not None:
        save_statistics(statistics, args.save_stats)
        printer.say(f"statistics of {counted(len(statistics), 'tensor')} written to {args.save_stats}")
    if args.output is not None:
        save_table(table, args.output)
    samples = counted(statistics.samples, "sample")
    printer.say(
        f"{args.model}: {counted(len(table), 'range')} from {samples} by {args.method}, {seconds:.1f} s"
    )
    if statistics.skipped:
        printer.say(f"{counted(statistics.skipped, 'sample', 'was', 'were')} passed over")
    if args.output is not None:
        printer.say(f"written to {args.output}")
    else:
        printer.table(
            ["tensor", "threshold", "min", "max", "method"],
            [
                [shorten(e.name), *(f"{v:.6g}" for v in (e.threshold, e.min, e.max)), e.method]
                for e in table.values()
            ],
            right=["threshold", "min", "max"],
        )
    printer.result(
        {
            "samples": statistics.samples,
            "skipped": statistics.skipped,
            "seconds": seconds,
            "file": str(args.output) if args.output else None,
            "tensors": [vars(entry) for entry in table.values()],
            "notes": list(table.notes),
        }
    )


def _override(text: str) -> tuple[str, str]:
    # Names may hold '=', methods hold it only after a colon.
    head, colon, tail = text.rpartition(":") if ":" in text else (text, "", "")
    name, separator, method = head.rpartition("=")
    if not separator or not name:
        raise UsageError(f"--tensor-method '{text}' is not NAME=METHOD")
    return name, method + colon + tail
