"""Train a network on the integers that the target will compute: weights and scales are learned (quantization-aware training).

The result is an integer network, ready for 'npuc compile'. A run that was interrupted goes on where it was, if --checkpoint
names the same file again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, json_text
from npuc.cli.training import KerasCopy, SampleOptions, TrainingRunOptions, require_keras_copy
from npuc.words import counted


class TrainQatCommand(CommandOptions):
    """The command line of `npuc train qat`."""

    model: options.Model
    samples: SampleOptions
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT.mlir", help="The integer network to write.")
    ]
    validation: Annotated[
        int,
        typer.Option(
            "--validation-count", min=0, help="Samples, the last of --data, that measure and do not train."
        ),
    ] = 0
    target: options.Target = "edge-4t"
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE.yaml", help="A quantization configuration: schemes and widths by layer."),
    ] = None
    run: TrainingRunOptions
    patience: Annotated[
        int, typer.Option(min=0, help="Stop after so many epochs that bring nothing better; 0 runs them all.")
    ] = 0
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.safetensors",
            help="Written after every epoch; if it is there, the run goes on from it.",
        ),
    ] = None
    log_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write event files of TensorBoard, if it is installed.")
    ] = None
    keras: KerasCopy = None
    input_shape: options.InputShapes = None
    weights: options.Weights = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(TrainQatCommand)
def command(args: TrainQatCommand) -> None:
    """Run the command."""
    from npuc.extras import require_torch
    from npuc.files import writable
    from npuc.flow import network_to_quantize, save_graph

    printer = Printer(args.quiet, args.as_json)
    options.result(args.output, ".mlir")
    if args.checkpoint is not None:
        writable(args.checkpoint)
    chosen = args.run.training()
    best = {"patience": args.patience, "keep": "best"} if args.patience else {}
    chosen = chosen.model_copy(update={"clip": 1.0, **best})
    require_torch("training needs PyTorch, which is not installed")
    from npuc.target import load_target
    from npuc.train.checkpoint import fingerprint
    from npuc.train.loop import accuracy, device_of, fit
    from npuc.train.network import TrainableNetwork
    from npuc.train.qat.prepare import prepare

    require_keras_copy(args.model, args.keras, args.weights)
    device = device_of(chosen.device)
    imported_as = options.imported_as(args.model, args.input_shape, args.weights)
    graph = network_to_quantize(args.model, imported_as)
    options.tell_import(printer, graph)
    data = args.samples.load(graph, printer)
    train, held = data.split(args.validation) if args.validation else (data, None)
    machine = load_target(args.target)
    qat = prepare(graph, train, target=machine, config=args.config)
    teacher = None if chosen.loss == "labels" else TrainableNetwork(qat.plan.source).requires_grad_(False)
    measured = held is not None and held.labels is not None
    before = accuracy(qat, held) if measured else None
    try:
        result = fit(
            qat,
            train,
            held,
            chosen,
            teacher=teacher,
            parameters=qat.parameter_groups(chosen.weight_decay),
            checkpoint=args.checkpoint,
            log_dir=args.log_dir,
            settings={
                "network": fingerprint(graph),
                "target": machine.name,
                "config": args.config.read_text() if args.config else "",
            },
            report=lambda epoch: printer.say(epoch.line),
        )
    except KeyboardInterrupt:
        if args.checkpoint is not None and args.checkpoint.exists():
            printer.note(
                f"{args.checkpoint} has the epochs that are done: the same command goes on from there"
            )
        raise
    if result.resumed:
        printer.say(f"{counted(result.resumed, 'epoch')} done before, in {args.checkpoint}")
    after = accuracy(qat, held, device) if measured else None
    save_graph(qat.export(), args.output)
    if args.keras is not None:
        from npuc.train.keras import write_keras

        write_keras(
            args.model,
            qat.to_float(),
            args.keras,
            target=machine,
            config=args.config,
            imported_as=imported_as,
        )
    if before is not None and after is not None:
        printer.say(
            f"integers on the validation samples: {100 * before:.2f} % before, {100 * after:.2f} % after"
        )
    written = [args.output, *([args.keras] if args.keras is not None else [])]
    printer.say(f"written to {' and '.join(map(str, written))}")
    if args.as_json:
        record = {
            "model": str(args.model),
            "output": str(args.output),
            "keras": None if args.keras is None else str(args.keras),
            "before": before,
            "after": after,
            "resumed": result.resumed,
            "stopped_early": result.stopped_early,
            "epochs": [{"loss": e.loss, "validation": e.score, "rate": e.rate} for e in result.history],
        }
        print(json_text(record))
