"""Measure the accuracy of one or several models on the same samples of a data set.

A model may be the original file, an .mlir file (float or integer), or a compiled .npu file. Every figure is printed with a
confidence interval; with several models, also the difference from the first model, with its own (paired) interval. The options
from --resize-dims to --interpolation say how images become inputs, instead of the preprocessing stored in the models.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuc.cli import calibration_data as given
from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, json_text, progress, shorten
from npuc.errors import UsageError
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.evaluate.report import EvaluationReport, Measured

Text = str | None


class EvalCommand(CommandOptions):
    """The command line of `npuc eval`."""

    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL...", help="The models; the others are compared with the first."),
    ]
    data: Annotated[
        Path,
        typer.Option(metavar="PATH", help="A data set: a folder, a list of files and labels, an .npz file."),
    ]
    metric: Annotated[
        Text,
        typer.Option(
            metavar="NAME[:OPTION=VALUE],...", help="The metrics.  [default: those of the data set]"
        ),
    ] = None
    dataset: Annotated[
        Text, typer.Option(metavar="NAME", help="The kind of data set.  [default: recognized from --data]")
    ] = None
    annotations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="COCO annotations, the list of files and labels, or a file of labels alone."
        ),
    ] = None
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The folder with the images or other files, if it is not beside the labels."
        ),
    ] = None
    classes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The names of the classes, one per line, in the order of the model's scores."
        ),
    ] = None
    label_offset: Annotated[int, typer.Option(help="A number to add to every label.")] = 0
    postprocess: Annotated[
        Text,
        typer.Option(
            metavar="KIND[:NAME=VALUE,...]",
            help="How outputs become boxes: yolov2 to yolov11 and variants such as yolov3_tiny, yolox, fastestdet, ssd, rows or "
            "rows8.",
        ),
    ] = None
    preprocess: given.Preprocess = None
    resize_dims: Annotated[Text, typer.Option(metavar="H,W", help="Resize the image to this size first.")] = (
        None
    )
    keep_aspect_ratio: Annotated[
        bool,
        typer.Option(
            "--keep-aspect-ratio",
            help="Keep the aspect ratio when resizing, and pad the rest (with --crop: cut it off).",
        ),
    ] = False
    pad_value: Annotated[Text, typer.Option(metavar="0..255", help="The pixel value of the padding.")] = None
    pad_type: Annotated[
        Text,
        typer.Option(
            metavar="center|corner", help="Pad on all sides, or only at the right and at the bottom."
        ),
    ] = None
    crop: Annotated[
        Text, typer.Option(metavar="H,W", help="After resizing, crop the center to this size.")
    ] = None
    mean: Annotated[
        Text, typer.Option(metavar="M,M,M", help="Subtract this from each channel (pixels are 0..255).")
    ] = None
    scale: Annotated[Text, typer.Option(metavar="S,S,S", help="Then multiply each channel by this.")] = None
    pixel_format: Annotated[
        Text, typer.Option(metavar="rgb|bgr|gray|rgba", help="The pixel format that the networks take.")
    ] = None
    interpolation: Annotated[Text, typer.Option(metavar="KIND", help=options.INTERPOLATION_HELP)] = None
    input_shape: options.InputShapes = None
    max_count: given.MaxCount = None
    seed: given.Seed = None
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Skip samples that cannot be read, and report them.")
    ] = False
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="The samples are one sequence in their order: the states of a streaming network are carried from sample to "
            "sample. Without it, each sample is a sequence that begins with states of zero.",
        ),
    ] = False
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="The confidence level of the intervals.")
    ] = 0.95
    resamples: Annotated[
        int,
        typer.Option(
            min=0,
            max=100_000,
            help="The number of bootstrap resamples, for metrics that are not proportions.",
        ),
    ] = 500
    resample_seed: Annotated[int, typer.Option(min=0, help="The seed of the bootstrap.")] = 0
    device: Annotated[str, typer.Option(metavar="NAME", help="The device that runs compiled models.")] = (
        "simulated"
    )
    torch_device: options.TorchDevice = None
    entry: options.EntryName = ""
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            callback=options.at_most_cores,
            help="The number of processes, at most one per core.  [default: all cores, if that is faster]",
        ),
    ] = None
    cluster: Annotated[
        Text, typer.Option(metavar="ADDRESS", help="Run on a Dask cluster, such as tcp://host:8786.")
    ] = None
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep a journal of the results in this file; an interrupted run continues from it.",
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.json", help="Also write the report as JSON."),
    ] = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(EvalCommand)
def command(args: EvalCommand) -> None:
    """Run the command."""
    if args.cluster is not None and args.workers is not None:
        raise UsageError("--cluster and --workers contradict each other: a cluster has its own workers")
    texts = {
        "resize": args.resize_dims,
        "keep_aspect_ratio": "yes" if args.keep_aspect_ratio else None,
        "pad_value": args.pad_value,
        "pad_type": args.pad_type,
        "crop": args.crop,
        "mean": args.mean,
        "scale": args.scale,
        "pixel_format": args.pixel_format,
        "interpolation": args.interpolation,
    }
    fields = options.preprocess_fields({name: text for name, text in texts.items() if text is not None})
    if fields and args.preprocess is not None:
        raise UsageError("--preprocess is in place of --mean, --scale and their like: give one or the other")
    from npuc.engine.compute_device import check_device
    from npuc.evaluate import Confidence, DataLocation, ModelFile, evaluate
    from npuc.files import existing_file, writable, write_atomically

    printer = Printer(args.quiet, args.as_json)
    for path in (args.output, args.resume):
        if path is not None:
            writable(path)
    if args.resume is not None and args.resume.exists():
        existing_file(args.resume)
    if len(set(args.models)) < len(args.models):
        raise UsageError("a model is given twice")
    options.check_entry(args.entry, args.models)
    place = args.torch_device or "cpu"
    check_device(place, "--torch-device")
    if place != "cpu" and (args.cluster is not None or (args.workers or 1) > 1):
        raise UsageError("a GPU is used by one process", fix="Leave out --cluster and --workers")
    files = [
        ModelFile(path, _import_options(path, args.input_shape or []), args.device, args.entry, place)
        for path in args.models
    ]
    with ExitStack() as stack:

        def begin(total: int) -> Callable[[], None]:
            step: Callable[[], None] = stack.enter_context(progress(printer, "evaluating", total))
            return step

        report = evaluate(
            files,
            DataLocation(args.data, args.annotations, args.images, args.classes, args.label_offset),
            options.names(args.metric),
            dataset=args.dataset,
            max_count=args.max_count,
            seed=args.seed,
            preprocess=fields or args.preprocess,
            postprocess=args.postprocess,
            skip_unreadable=args.skip_unreadable,
            stream=args.stream,
            confidence=Confidence(args.confidence, args.resamples, args.resample_seed),
            workers=args.workers if place == "cpu" else 1,
            cluster=args.cluster,
            resume=args.resume,
            warn=printer.note,
            begin=begin,
        )
    _show(printer, report)
    if args.output is not None:
        with write_atomically(args.output) as out:
            out.write(json_text(report.as_json()).encode() + b"\n")
        printer.say(f"written to {args.output}")
    printer.result(report.as_json())


def _import_options(path: Path, input_shape: list[str]) -> Any:
    """What an import needs to know; files of npuc's own have their shapes."""
    from npuc.files import existing_model
    from npuc.frontend.options import ImportOptions
    from npuc.frontend.sniff import describe_content

    if not input_shape or describe_content(existing_model(path)).kind in ("mlir", "npu"):
        return ImportOptions()
    return options.import_options(path, input_shape, None, None, {})


def _show(printer: Printer, report: EvaluationReport) -> None:
    for reason in report.skipped[:20]:
        printer.note(f"passed over: {reason}")
    count = counted(report.samples, "sample")
    count += f" ({report.resumed} from the journal)" if report.resumed else ""
    count += f", {len(report.skipped)} passed over" if report.skipped else ""
    printer.say(f"{report.data} ({report.dataset}): {count}, {report.seconds:.1f} s")
    printer.say()
    names = _names(report)
    level = f"{100 * report.confidence.level:g} %"
    several = len(report.models) > 1
    header = ["figure", "model", "value", f"{level} interval"]
    header += ["less the first", f"its {level} interval", "p"] if several else []
    rows = []
    for figure in report.figures:
        for number, (name, measured) in enumerate(zip(names, figure.models, strict=True)):
            row = [figure.name if number == 0 else "", name, *_value(measured, figure.unit)]
            rows.append([*row, *_less(measured, figure.unit)] if several else row)
    printer.table(header, rows, right=["value", "less the first", "p"])


def _names(report: EvaluationReport) -> list[str]:
    short = [Path(path).name for path in report.models]
    return [shorten(a if short.count(a) == 1 else b, 40) for a, b in zip(short, report.models, strict=True)]


def _value(measured: Measured, unit: str) -> list[str]:
    return [_number(measured.value, unit), _ends(measured.interval, unit)]


def _less(measured: Measured, unit: str) -> list[str]:
    less = measured.difference
    if less is None:
        return ["", "", ""]
    p = "" if less.p_value is None else f"{less.p_value:.2g}"
    return [_number(less.value, unit, sign=True), _ends(less.interval, unit, sign=True), p]


def _ends(interval: tuple[float, float] | None, unit: str, sign: bool = False) -> str:
    if interval is None or not all(math.isfinite(end) for end in interval):
        return ""
    return " to ".join(_number(end, unit, sign) for end in interval)


def _number(value: float, unit: str, sign: bool = False) -> str:
    if math.isnan(value) or (sign and math.isinf(value)):
        return "-"
    plus = "+" if sign else ""
    if unit == "%":
        return f"{100 * value:{plus}.2f} %"
    return f"{value:{plus}.2f} dB" if unit == "dB" else f"{value:{plus}.6f}"
