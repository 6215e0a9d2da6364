"""Combine compiled models into one program with several entries, which share the weights that they have in common.

The models may be several networks, or one network compiled for several batch sizes or resolutions; all are for one target.
The entry to run is chosen by name, or by the shapes of the inputs. --extract does the opposite: it writes one entry of a
program as a model of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, shorten, size
from npuc.errors import UsageError

if TYPE_CHECKING:
    from npuc.program.model import CompiledModel


_LITTLE = 0.9
"""An entry of the same layers that shares less than this of its weights could share more."""


class CombineCommand(CommandOptions):
    """The command line of `npuc combine`."""

    models: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]MODEL.npu...",
            help="Compiled models, the default entry first. NAME is what the entry is called.  [default: the name of the file]",
        ),
    ]
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.npu", help="Where to write the result.")
    ]
    extract: Annotated[
        str, typer.Option(metavar="NAME", help="Write this entry of the one program that is given.")
    ] = ""
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(CombineCommand)
def command(args: CombineCommand) -> None:
    """Run the command."""
    from npuc.program.combine import combine, extract
    from npuc.program.file import named_entry, save_compiled

    printer = Printer(args.quiet, args.as_json)
    options.result(args.output, ".npu")
    if args.extract:
        if len(args.models) != 1:
            raise UsageError("--extract takes one program", fix="Give one MODEL.npu")
        path = Path(args.models[0])
        entry = named_entry(options.compiled_entries(path), args.extract, str(path))
        save_compiled(extract(entry), args.output)
        printer.say(f"{path}, entry {args.extract} -> {args.output}")
        printer.result({"entries": [args.extract], "output": str(args.output)})
        return
    models = _models(args.models)
    combined = combine(models)
    save_compiled(combined.entries, args.output)
    weights = next(iter(combined.entries.values())).weights.size
    alone = sum(model.weights.size for model in models.values())
    printer.table(
        ["entry", "inputs", "weights", "shared"],
        [
            [shorten(name), _inputs(model), size(model.weights.size), size(combined.shared[name])]
            for name, model in models.items()
        ],
        right=["weights", "shared"],
    )
    printer.say()
    printer.say(f"{len(models)} entries -> {args.output}: weights {size(weights)}, {size(alone)} apart")
    (_, first), *others = models.items()
    for name, model in others:
        if model.layers == first.layers and combined.shared[name] < _LITTLE * model.weights.size:
            printer.note(
                f"entry {name} has the layers of the first and shares little of its weights: 'npuc compile --table TABLE' "
                "makes both with one calibration table; the choices of their schedules must be the same, too "
                "(docs/file-format.md, Entries)"
            )
    printer.result(
        {
            "entries": {name: {"shared": combined.shared[name]} for name in models},
            "weights": weights,
            "weights_apart": alone,
            "output": str(args.output),
        }
    )


def _inputs(model: CompiledModel) -> str:
    shapes = (model.tensor(name).shape for name in model.inputs)
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)


def _models(words: list[str]) -> dict[str, CompiledModel]:
    """Models by the names of their entries; a program with several is taken apart."""
    models: dict[str, CompiledModel] = {}
    for word in words:
        name, equals, rest = word.partition("=")
        path = Path(rest if equals else word)
        entries = options.compiled_entries(path)
        if equals and len(entries) > 1:
            raise UsageError(
                f"{path} has {len(entries)} entries, which have names of their own", fix=f"Write {path} alone"
            )
        for own, model in entries.items():
            title = name if equals else own if len(entries) > 1 else path.stem
            if title in models:
                raise UsageError(f"two entries are called '{title}'", fix=f"Write NAME={path}")
            models[title] = model
    if len(models) < 2:
        raise UsageError("there is one model, and nothing to combine it with", fix="Give two models or more")
    return models
