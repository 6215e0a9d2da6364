"""Run a network, float or integer, on given or random data.

With -o, all outputs go to an .npz file.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from npuc.cli import options
from npuc.cli.console import Printer, progress, shorten
from npuc.errors import UsageError


def command(
    model: options.Model,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="[NAME=]FILE",
            help="An .npz, .npy or picture file; repeat it for several. Samples beyond the batch run in batches.",
        ),
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Run on random data.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Which random data.")] = 0,
    output: options.Output = None,
    dump_all_tensors: Annotated[
        bool, typer.Option("--dump-all-tensors", help="Write the inputs and every intermediate tensor too.")
    ] = False,
    fetch: Annotated[
        str | None, typer.Option(metavar="A,B", help="Write these tensors (or outputs of these layers) too.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the tensors of an integer network as integers, not reals.")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads to use. Without it, all cores.")] = None,
    input_shape: options.InputShapes = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run the command."""
    if bool(inputs) == random:
        raise UsageError(
            "--input and --random contradict each other"
            if random
            else "there is nothing to run the network on",
            fix="Give data with --input FILE, or --random",
        )
    if output is not None and output.suffix != ".npz":
        raise UsageError(
            f"-o '{output}' is not the name of an .npz file", fix=f"Use -o {output.with_suffix('.npz')}"
        )
    from npuc.calib.random_inputs import random_inputs
    from npuc.calib.samples import load_samples, parse_assignments, single_run
    from npuc.engine import ALL_TENSORS
    from npuc.evaluate.batches import run_batches
    from npuc.files import existing_file, writable
    from npuc.flow import load_model
    from npuc.quant.report import is_integer

    printer = Printer(quiet, as_json)
    existing_file(model)
    if output is not None:
        writable(output)
    shapes = options.import_options(model, input_shape or [], None, None, {}) if input_shape else None
    graph = load_model(model, shapes)
    if raw and not is_integer(graph):
        raise UsageError(f"--raw is for integer networks, and {model} is a float one", fix="Leave it out")
    if random:
        samples = single_run(random_inputs(graph, seed))
    else:
        samples = load_samples(graph, parse_assignments(inputs or [], [port.name for port in graph.inputs]))
    for note in samples.notes:
        printer.note(note)
    with progress(printer, "running", samples.runs) as step:
        results = run_batches(
            graph,
            samples,
            output,
            fetch=ALL_TENSORS if dump_all_tensors else options.names(fetch),
            with_inputs=dump_all_tensors,
            step=step,
            threads=threads,
            raw=raw,
        )
    what = "random data" if random else f"{samples.total} sample{'s' if samples.total != 1 else ''}"
    printer.say(
        f"{model}: {what} in {samples.runs} run{'s' if samples.runs != 1 else ''}, {results.seconds:.2f} s"
    )
    printer.say()
    printer.table(
        ["output", "shape", "type", "min", "max", "mean"],
        [
            [
                shorten(s.name),
                "x".join(map(str, s.shape)) or "scalar",
                s.dtype,
                *_figures(s.minimum, s.maximum, s.mean),
            ]
            for s in results.statistics
        ],
        right=["min", "max", "mean"],
    )
    for name, best in results.top.items():
        printer.say()
        printer.say(f"{shorten(name)}: top {len(best)} of the first sample")
        printer.table(
            ["class", "value"], [[index, f"{value:.6g}"] for index, value in best], right=["class", "value"]
        )
    if output is not None:
        printer.say()
        plural = "" if len(results.written) == 1 else "s"
        printer.say(f"{len(results.written)} tensor{plural} written to {output}")
    printer.result(
        {
            "samples": samples.total,
            "runs": samples.runs,
            "seconds": results.seconds,
            "outputs": [vars(entry) for entry in results.statistics],
            "top": {name: [list(pair) for pair in best] for name, best in results.top.items()},
            "file": str(output) if output else None,
            "tensors": {name: list(shape) for name, shape in results.written.items()},
            "notes": list(samples.notes),
        }
    )


def _figures(*values: float) -> list[Any]:
    return [f"{value:.5g}" for value in values]
