"""Find the range of every tensor of a network on typical data.

The result is a table of text, one line a tensor. --save-stats keeps the statistics, so that another method
needs no data.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import calibration_data as given
from npuc.cli import options
from npuc.cli.console import Printer, progress, shorten
from npuc.errors import UsageError
from npuc.words import counted


def command(
    model: options.Model,
    data: given.Data = None,
    random: given.Random = False,
    method: Annotated[
        str,
        typer.Option(
            metavar="METHOD[:OPTION=VALUE,...]",
            help="max, percentile, max-percentile, moving-average, mean, std, kl, mse, aciq, pow2, pow2-min-diff "
            "or auto.",
        ),
    ] = "mse",
    tensor_method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=METHOD", help="Another method for a tensor or layer; repeat it for several."
        ),
    ] = None,
    bits: Annotated[int, typer.Option(min=2, max=16, help="The width that the ranges are for.")] = 8,
    preprocess: given.Preprocess = None,
    annotations: given.Annotations = None,
    dataset: given.Dataset = None,
    max_count: given.MaxCount = None,
    seed: given.Seed = None,
    strict: given.Strict = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.cali", help="Where to write the table.")
    ] = None,
    save_stats: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Write the statistics too.")
    ] = None,
    stats: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Use statistics that were saved, in place of data."),
    ] = None,
    input_shape: options.InputShapes = None,
    weights: options.Weights = None,
    threads: options.Threads = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run the command."""
    if stats is not None and (data or random or save_stats is not None or dataset is not None):
        raise UsageError(
            "--stats is in place of data: leave out --data, --dataset, --random and --save-stats"
        )
    from npuc.calib.calibration import calibrate, check_statistics, resolve_overrides
    from npuc.calib.collection import collect
    from npuc.calib.ranges import parse_method
    from npuc.calib.statistics import load_statistics, save_statistics
    from npuc.calib.table import save_table
    from npuc.files import writable
    from npuc.flow import network_to_quantize

    printer = Printer(quiet, as_json)
    parse_method(method)
    for path in (output, save_stats):
        if path is not None:
            writable(path)
    graph = network_to_quantize(model, options.imported_as(model, input_shape, weights))
    options.tell_import(printer, graph)
    overrides = dict(map(_override, tensor_method or []))
    resolve_overrides(graph, overrides)
    start = time.perf_counter()
    if stats is not None:
        statistics = load_statistics(stats)
        check_statistics(graph, statistics)
    else:
        source = given.source(graph, data, random, preprocess, annotations, max_count, seed, dataset)
        with progress(printer, "calibrating", source.total or 0) as step:
            statistics = collect(graph, source, threads=threads, strict=strict, warn=printer.note, step=step)
        if random:
            printer.note("the ranges are those of random data: good for a smoke run only")
    table = calibrate(graph, statistics=statistics, method=method, overrides=overrides, bits=bits)
    for note in table.notes[len(statistics.notes) :]:
        printer.note(note)
    seconds = time.perf_counter() - start
    if save_stats is not None:
        save_statistics(statistics, save_stats)
        printer.say(f"statistics of {counted(len(statistics), 'tensor')} written to {save_stats}")
    if output is not None:
        save_table(table, output)
    samples = counted(statistics.samples, "sample")
    printer.say(f"{model}: {counted(len(table), 'range')} from {samples} by {method}, {seconds:.1f} s")
    if statistics.skipped:
        printer.say(f"{counted(statistics.skipped, 'sample', 'was', 'were')} passed over")
    if output is not None:
        printer.say(f"written to {output}")
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
            "file": str(output) if output else None,
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
