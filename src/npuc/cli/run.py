"""Run a network (float, integer or compiled) on given or random data.

A compiled model (.npu) is executed instruction by instruction, and its results have the exact bits of the NPU. With -o, all
outputs are written to an .npz file. --dump-layers stores every tensor of the network, and --golden compares a run with such
a dump, layer by layer. The states of a streaming network (--state) begin with zeros and are carried from run to run: the
samples are the chunks of one sequence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuc.cli import debugging, options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, progress, shorten
from npuc.errors import UsageError
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.debug.layers import Layers
    from npuc.debug.sample import SampleWriter
    from npuc.evaluate.batches import OnRun, RunResults
    from npuc.ir import Graph
    from npuc.sim.functional import Simulator


class RunCommand(CommandOptions):
    """The command line of `npuc run`."""

    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="An .mlir or .npu file of npuc's own, or a model of any format that is imported.",
        ),
    ]
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="[NAME=]PATH",
            help="An .npz, .npy or image file, a folder of them, or a list of samples, one per line (.txt, .json, "
            "...); repeat the option for several. More samples than the batch size are run in several batches.",
        ),
    ] = None
    random: Annotated[bool, typer.Option("--random", help="Run on random data.")] = False
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random data.")] = 0
    output: options.Output = None
    dump_all_tensors: Annotated[
        bool, typer.Option("--dump-all-tensors", help="Also write the inputs and every intermediate tensor.")
    ] = False
    fetch: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Also write these tensors, or the outputs of these layers."),
    ] = None
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the tensors of an integer network as integers, not reals.")
    ] = False
    dump_layers: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Store every tensor of the network in this folder, as integers and as reals."
        ),
    ] = None
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="A,B*",
            help="Store and compare only these layers or tensors; * and ? match any characters. "
            "For --dump-layers and --golden.",
        ),
    ] = None
    golden: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Compare every tensor with this dump; without --input, on the dump's own inputs.",
        ),
    ] = None
    stop_at_mismatch: Annotated[
        bool, typer.Option("--stop-at-mismatch", help="End a golden run at the first tensor that differs.")
    ] = False
    save_sample: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Store inputs and outputs as raw binary files, to run on a board."),
    ] = None
    entry: options.EntryName = ""
    subgraph: options.SubgraphName = ""
    key: options.Key = None
    threads: options.Threads = None
    torch_device: options.TorchDevice = None
    input_shape: options.InputShapes = None
    weights: options.Weights = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(RunCommand)
def command(args: RunCommand) -> None:
    """Run the command."""
    from npuc.files import existing_model

    existing_model(args.model)
    by_layer = args.dump_layers is not None or args.golden is not None
    if bool(args.inputs) == args.random and (args.random or args.golden is None):
        raise UsageError(
            "--input and --random contradict each other"
            if args.random
            else "there is nothing to run the network on",
            fix="Give data with --input FILE, or --random",
        )
    if args.layers is not None and not by_layer:
        raise UsageError("--layers chooses what a run by layers stores", fix="Add --dump-layers DIR")
    if args.output is not None:
        options.result(args.output, ".npz")
    from npuc.calib.random_inputs import random_inputs
    from npuc.calib.samples import single_run, with_states
    from npuc.calib.several import load_given
    from npuc.debug.sample import SampleWriter
    from npuc.engine.compute_device import check_device
    from npuc.frontend.sniff import describe_content
    from npuc.ir.states import data_inputs

    printer = Printer(args.quiet, args.as_json)
    compiled = describe_content(args.model).kind == "npu"
    chosen = {
        "--dump-layers": args.dump_layers,
        "--golden": args.golden,
        "--fetch": args.fetch,
        "--dump-all-tensors": args.dump_all_tensors,
        "--input-shape": args.input_shape,
        "--weights": args.weights,
        "--entry": args.entry,
        "--subgraph": args.subgraph,
        "--key": args.key,
        "--torch-device": args.torch_device,
    }
    check_device(args.torch_device or "cpu", "--torch-device")
    if by_layer or args.stop_at_mismatch:
        debugging.check_options(
            args.golden,
            args.stop_at_mismatch,
            args.output,
            args.save_sample,
            args.dump_all_tensors,
            args.fetch,
            args.raw,
        )
    opened = _compiled if compiled else _program
    work = opened(
        args.model, {name: value for name, value in chosen.items() if value}, args.raw, args.threads
    )
    if args.output is None and (args.fetch or args.dump_all_tensors):
        raise UsageError(
            f"{'--fetch' if args.fetch else '--dump-all-tensors'} writes to a file, and none is given",
            fix="Add -o FILE.npz",
        )
    graph = work.graph
    if graph is not None:
        options.tell_import(printer, graph)
    if args.golden is not None and not args.inputs and not args.random:
        samples = None
    elif args.random:
        drawn = random_inputs(graph, args.seed)
        samples = single_run({port.name: drawn[port.name] for port in data_inputs(graph)})
    else:
        samples = load_given(graph, args.inputs or [])
    if samples is not None and by_layer:
        samples = with_states(samples, graph)
    for note in samples.notes if samples is not None else ():
        printer.note(note)
    if by_layer:
        debugging.run_by_layer(
            printer,
            args.model,
            graph,
            work.layers,
            samples,
            args.dump_layers,
            args.golden,
            stop=args.stop_at_mismatch,
            outputs=work.outputs,
            chosen=options.names(args.layers),
        )
        return
    assert samples is not None
    store = SampleWriter(args.save_sample, args.model.name) if args.save_sample is not None else None
    with progress(printer, "running", samples.runs) as step:
        results = work.execute(
            samples, args.output, step, work.stored(store) if store is not None else _unseen
        )
    what = "random data" if args.random else counted(samples.total, "sample")
    printer.say(
        f"{args.model}: {what} in {samples.runs} run{'s' if samples.runs != 1 else ''}, {results.seconds:.2f} s"
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
    if args.output is not None:
        printer.say()
        plural = "" if len(results.written) == 1 else "s"
        printer.say(f"{len(results.written)} tensor{plural} written to {args.output}")
    if store is not None:
        printer.say()
        printer.say(f"sample written to {store.finish()}")
    printer.result(
        {
            "samples": samples.total,
            "runs": samples.runs,
            "seconds": results.seconds,
            "outputs": [vars(entry) for entry in results.statistics],
            "top": {name: [list(pair) for pair in best] for name, best in results.top.items()},
            "file": str(args.output) if args.output else None,
            "tensors": {name: list(shape) for name, shape in results.written.items()},
            "notes": list(samples.notes),
        }
    )


Execute = Callable[[Any, Path | None, Callable[[], None], "OnRun"], "RunResults"]
"""Runs samples and writes the results."""


@dataclass(frozen=True)
class _Work:
    """A network and the ways to run it."""

    graph: Graph
    """Of a compiled model, its inputs only."""
    execute: Execute
    layers: Callable[[], Layers]
    """Makes what runs it layer by layer."""
    quantization: Mapping[str, tuple[float, int]]
    """Scale and zero point of outputs that are given as integers."""
    outputs: Sequence[str]
    simulator: Callable[[], Simulator] | None = None
    """Makes the simulator of a compiled model, whose DRAM goes into a sample."""

    def stored(self, store: SampleWriter) -> OnRun:
        """What writes the runs to a sample; a compiled model runs once more, in memory that can be looked at."""
        simulator = None if self.simulator is None else self.simulator()

        def on_run(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
            if simulator is not None:
                simulator.run(inputs)
            store.add(inputs, outputs, self.quantization, simulator)

        return on_run


def _unseen(inputs: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """What watches a run that nobody watches."""


def _program(model: Path, chosen: Mapping[str, Any], raw: bool, threads: int | None) -> _Work:
    """A program, in the engine that it needs."""
    from npuc.debug.layers import FloatLayers, IntegerLayers
    from npuc.engine import ALL_TENSORS, computing_on
    from npuc.evaluate.batches import output_scales, run_batches
    from npuc.flow import load_model
    from npuc.quant.report import is_integer
    from npuc.transform.claim_custom_ops import claimed

    for name in ("--entry", "--subgraph", "--key"):
        if name in chosen:
            raise UsageError(f"{name} is for a compiled model, and {model} is none", fix="Leave it out")
    imported = options.imported_as(model, chosen.get("--input-shape"), chosen.get("--weights"))
    graph = claimed(load_model(model, imported))
    if raw and not is_integer(graph):
        raise UsageError(f"--raw is for integer networks, and {model} is a float one", fix="Leave it out")
    device = chosen.get("--torch-device", "cpu")
    if device != "cpu" and is_integer(graph):
        raise UsageError(
            f"--torch-device is for float networks, and {model} is an integer one", fix="Leave it out"
        )
    every = "--dump-all-tensors" in chosen
    fetch = ALL_TENSORS if every else options.names(chosen.get("--fetch"))

    def execute(samples: Any, output: Path | None, step: Callable[[], None], on_run: OnRun) -> RunResults:
        with computing_on(device):
            return run_batches(
                graph,
                samples,
                output,
                fetch=fetch,
                with_inputs=every,
                step=step,
                threads=threads,
                raw=raw,
                on_run=on_run,
            )

    def layers() -> Layers:
        with computing_on(device):
            return (IntegerLayers if is_integer(graph) else FloatLayers)(graph, cores)

    cores = threads or len(os.sched_getaffinity(0))
    scales = output_scales(graph) if raw else {}
    return _Work(graph, execute, layers, scales, [port.name for port in graph.outputs])


def _compiled(model: Path, chosen: Mapping[str, Any], raw: bool, threads: int | None) -> _Work:
    """A compiled model, in the runtime."""
    from npuc.calib.compiled import interface_of
    from npuc.debug.chip import simulator_of
    from npuc.debug.compiled import CompiledLayers
    from npuc.evaluate.batches import run_engine
    from npuc.program.file import load_compiled
    from npuc.program.subgraph import only_subgraph
    from npuc.runtime.engine import CompiledEngine, integers_of

    for name in chosen:
        if name in _NOT_COMPILED:
            raise UsageError(
                f"{name} is not for a compiled model: {_NOT_COMPILED[name]}",
                fix="Give the .mlir file for that",
            )
    compiled = load_compiled(model, entry=chosen.get("--entry", ""), key=chosen.get("--key"))
    alone = "--subgraph" in chosen
    if alone:
        for name in ("--dump-layers", "--golden"):
            if name in chosen:
                raise UsageError(f"{name} runs the whole model", fix="Leave out --subgraph")
        compiled = only_subgraph(compiled, chosen["--subgraph"])
    engine = CompiledEngine(compiled, threads=threads or 1, raw=raw, raw_inputs=alone)

    scales = {}
    for name, source in integers_of(compiled).items() if raw else ():
        kind = compiled.tensor(source)
        scales[name] = kind.scale, kind.zero_point

    def execute(samples: Any, output: Path | None, step: Callable[[], None], on_run: OnRun) -> RunResults:
        states = engine.states(scales)
        return run_engine(engine, compiled.outputs, samples, output, step=step, on_run=on_run, states=states)

    return _Work(
        interface_of(compiled),
        execute,
        lambda: CompiledLayers(compiled, threads or 1),
        scales,
        compiled.outputs,
        lambda: simulator_of(compiled, threads or 1),
    )


_NOT_COMPILED = {
    "--fetch": "most of its tensors are never in memory as a whole (--dump-layers puts them together)",
    "--dump-all-tensors": "most of its tensors are never in memory as a whole (--dump-layers puts them together)",
    "--input-shape": "its shapes are fixed",
    "--weights": "it has its weights",
    "--torch-device": "it computes with the integers of the NPU",
}


def _figures(*values: float) -> list[Any]:
    return [f"{value:.5g}" for value in values]
