"""Give a float network N:M sparse weights: of every M input channels at most N that are not zero, for machines that skip zeros.

Channels are brought into an order that loses less, the smallest weights of each block are masked, more and more of them, and what
is left is trained; with --epochs 0 weights are masked and not trained. The network keeps its layer names; quantize and
compile it for a target that states the pattern in compute.sparsity.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, shorten
from npuc.cli.training import (
    KerasCopy,
    SampleOptions,
    TrainingRunOptions,
    require_keras_copy,
    require_network_file,
    write_network,
)
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.train import Epoch
    from npuc.train.sparsity import SparsityResult


class TrainSparsifyCommand(CommandOptions):
    """The command line of `npuc train sparsify`."""

    model: options.Model
    samples: SampleOptions
    pattern: Annotated[
        str,
        typer.Option(metavar="N:M", help="Values that stay of each block: 2:4, 1:4, 4:8, 4:16 and so on."),
    ] = "2:4"
    gradual: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="PART",
            help="The part of the training over which masks grow; 0: all at once.",
        ),
    ] = 0.5
    permute: Annotated[
        bool, typer.Option("--permute/--no-permute", help="Order channels so that masks lose less.")
    ] = True
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="LAYER", help="Keep this layer dense; repeat it for several."),
    ] = None
    activation_sparsity: Annotated[
        float,
        typer.Option(metavar="0|0.5", help="Train with the larger half of each block of activations only."),
    ] = 0.0
    activation_block: Annotated[
        int, typer.Option(metavar="4|8|16", help="Channels of a block of activations.")
    ] = 4
    held: Annotated[
        int | None,
        typer.Option(
            "--validation-count",
            min=1,
            help="Samples, the last of --data, that measure and do not train.  [default: 500, or a tenth of fewer than 5000]",
        ),
    ] = None
    run: TrainingRunOptions
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.safetensors", help="Written after each epoch; an interrupted run goes on."
        ),
    ] = None
    input_shape: options.InputShapes = None
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.mlir|.onnx", help="Write the sparse network here."),
    ] = None
    keras: KerasCopy = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(TrainSparsifyCommand)
def command(args: TrainSparsifyCommand) -> None:
    """Run the command."""
    from npuc.flow import network_to_quantize

    printer = Printer(args.quiet, args.as_json)
    require_network_file(args.output)
    require_keras_copy(args.model, args.keras)
    imported_as = options.imported_as(args.model, args.input_shape)
    graph = network_to_quantize(args.model, imported_as)
    from npuc.train.sparsity import sparsify

    training = args.run.training()
    train, held = args.samples.split(graph, args.held, printer)
    trained = []

    def report(epoch: Epoch) -> None:
        trained.append(epoch)
        printer.say(epoch.line)

    result = sparsify(
        graph,
        train,
        held,
        args.pattern,
        training,
        gradual=args.gradual,
        permute=args.permute,
        exclude=args.exclude or (),
        activation_sparsity=args.activation_sparsity,
        activation_block=args.activation_block,
        checkpoint=args.checkpoint,
        report=report,
    )
    if args.output is not None:
        write_network(result.graph, args.output)
    if args.keras is not None:
        from npuc.train.keras import write_keras

        write_keras(args.model, result.graph, args.keras, imported_as=imported_as)
        printer.say(f"sparse weights written to {args.keras}")
    _tell(printer, args.model, result, args.output, len(result.history) - len(trained))
    printer.result(
        {
            "pattern": str(result.pattern),
            "layers": {entry.layer: entry.reason or str(result.pattern) for entry in result.weights},
            "magnitude": result.magnitude,
            "magnitude_unordered": result.magnitude_unordered,
            "history": [{"loss": epoch.loss, "validation": epoch.score} for epoch in result.history],
            "output": str(args.output) if args.output else None,
            "keras": str(args.keras) if args.keras else None,
        }
    )


def _tell(printer: Printer, model: Path, result: SparsityResult, output: Path | None, earlier: int) -> None:
    if earlier:
        printer.say(f"{counted(earlier, 'epoch')} done before, in the checkpoint")
    printer.say(
        f"{model}: {counted(len(result.sparse), 'layer')} with {result.pattern} weights; masks keep {result.magnitude:.1%} of "
        f"their magnitude ({result.magnitude_unordered:.1%} in the order before)"
    )
    for entry in result.weights:
        if entry.reason:
            printer.say(f"  dense: {shorten(entry.layer)}, {entry.reason}")
    if output is not None:
        printer.say(f"sparse network written to {output}")
