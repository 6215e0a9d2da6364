"""The options of commands that quantize, and what they do with them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuc.cli import calibration_data as given
from npuc.cli import options
from npuc.cli.command_options import CommandOptions, by_name, names_of
from npuc.cli.console import Printer, progress, shorten, size
from npuc.cli.ladder import LadderOptions
from npuc.errors import UsageError
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.calib.sources import Source
    from npuc.calib.table import CalibrationTable
    from npuc.datasets.data import DataLocation
    from npuc.flow import Quantized
    from npuc.ir import Graph
    from npuc.quant.config import QuantizationConfig
    from npuc.quant.ladder.run import PipelineOptions
    from npuc.quant.report import Outcome
    from npuc.target import Target

SHOWN = 12

Table = Annotated[
    Path | None,
    typer.Option(
        "--table", "-t", metavar="FILE.cali", help="A calibration table, written by 'npuc calibrate'."
    ),
]
TypicalData = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="[INPUT=]PATH",
        help="Calibration data, as for 'npuc compile', to quantize the network with. Without it, ranges are made "
        "up.",
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD[:OPTION=VALUE,...]",
        help="The calibration method; 'npuc calibrate --help' lists them. Without it, several are tried and the "
        "best is kept.",
    ),
]
Tune = Annotated[
    bool,
    typer.Option(
        "--tune/--no-tune",
        help="With --data: choose the ranges by their effect on the network's outputs, correct biases, and use 16 "
        "bits where 8 are not accurate enough.",
    ),
]
Widen = Annotated[
    bool,
    typer.Option(
        "--widen/--no-widen",
        help="With --data and without --scheme: use 16 bits for layers where 8 are not accurate enough; with a "
        "target, where this gains at least 3 dB for at most 10 % more cycles. Also with --scheme: for at most a fifth of "
        "the layers, where per-tensor scales leave less than 10 dB, and 8-bit weights for few small layers, where fewer bits do.",
    ),
]
Scheme = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The quantization scheme: int8 (the default), int8-symmetric, uint8, uint8-weights, int16, "
        "int16-weights, int4-weights, pow2, dfp16, tflite, bf16, f16, f32, mx9 or mx6.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.yaml",
        help="A quantization configuration: the scheme of each layer (docs/quantization.md).",
    ),
]
WeightMethod = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD[:OPTION=VALUE]",
        help="How far the integers of weights reach: max (the default), percentile, std or mse.",
    ),
]
SchemeOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=VALUE",
        help="Change one field of the scheme, such as full_range=true or constant_rounding=half_down; repeat the option "
        "for several (docs/quantization.md).",
    ),
]
Only = Annotated[
    str | None,
    typer.Option(
        metavar="CLASS,...",
        help="Quantize only these tensors: weights, activations, bias. Layers then compute in float: on the NPU if weights "
        "alone are quantized and the target has bf16 or f16, otherwise on the CPU.",
    ),
]
ActivationForms = Annotated[
    str | None,
    typer.Option(
        metavar="FORM,...",
        help="Hardware forms of activations: hard-sigmoid, hard-swish, relu6-to-relu, leaky-26-256, or none; without it those "
        "that the target states. They change what the network computes, and what that costs is reported.",
    ),
]
PerChannelOutputs = Annotated[
    bool,
    typer.Option(
        "--per-channel-outputs",
        help="Give each channel of outputs that a convolution or a product with weights makes a scale of its own; they are "
        "multiplied by it in float behind the NPU.",
    ),
]
OutputMethod = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD[:OPTION=VALUE]",
        help="The range method of the network's outputs: 'sigmoid' is for scores that a sigmoid outside of the network follows. "
        "Without it they hold all that data showed.",
    ),
]
KeepFloat = Annotated[
    str | None,
    typer.Option(metavar="L1,L2", help="Layers to keep in float; * and ? match any characters."),
]
FirstLast = Annotated[
    str | None,
    typer.Option(
        metavar="SCHEME", help="The scheme (or float) of the first and the last layer with weights."
    ),
]
ForceFloat = Annotated[
    bool,
    typer.Option(
        "--force-float", help="Discard the quantization stored in the model, and quantize it again."
    ),
]


class RangeSources(CommandOptions):
    """Where ranges come from: one of these."""

    table: Table = None
    data: Sequence[str] | None = None
    random: given.Random = False


class RangeOptions(CommandOptions):
    """How ranges are found; a group of options of commands that quantize."""

    method: Method = None
    tune: Tune = True
    widen: Widen = True
    preprocess: given.Preprocess = None
    annotations: given.Annotations = None
    max_count: given.MaxCount = None
    seed: given.Seed = None
    strict: given.Strict = False


class SchemeOptions(CommandOptions):
    """Which numbers each layer gets; a group of options of commands that quantize."""

    scheme: Scheme = None
    scheme_option: SchemeOption = None
    weight_method: WeightMethod = None
    only: Only = None
    config: Config = None
    keep_float: KeepFloat = None
    first_last: FirstLast = None
    activation_forms: ActivationForms = None
    per_channel_outputs: PerChannelOutputs = False
    output_method: OutputMethod = None


class QuantizationRequest(SchemeOptions, RangeOptions, RangeSources):
    """What the options of quantization say."""

    threads: int | None = None
    calib: Sequence[str] | None = None
    ladder_options: LadderOptions = field(default_factory=LadderOptions)
    floats: tuple[str, ...] = ()
    """Layers that stay float because of where they run."""

    @staticmethod
    def of(args: CommandOptions, **changes: Any) -> QuantizationRequest:
        """The options of a command, as far as they are about quantization."""
        groups = {name: value for name, value in vars(args).items() if isinstance(value, LadderOptions)}
        values = {**by_name(args), **groups, **changes}
        return QuantizationRequest(
            **{name: values[name] for name in names_of(QuantizationRequest) if name in values}
        )

    def check(self, *, planned: bool = False) -> None:
        """Options that contradict each other are an error, before any work; `planned` says that a plan was asked for."""
        if sum(self.ways) > 1:
            raise UsageError("--table, --data and --random contradict each other", fix="Give one of them")
        self.ladder_options.check(planned=planned)
        drop = self.ladder_options.accuracy_drop is not None
        if self.ladder_options.requested and (self.table is not None or self.random or not self.tune):
            wrong = "--table" if self.table is not None else "--random" if self.random else "--no-tune"
            raise UsageError(
                f"the ladder looks at what networks do with typical data, and {wrong} rules that out",
                fix=f"Leave {wrong} out, and give --data",
            )
        if drop and not self.data:
            raise UsageError(
                "--accuracy-drop has nothing to measure on",
                fix="Give labelled data: --data PATH, as for 'npuc eval'",
            )
        if drop and self.data and len(self.data) > 1:
            raise UsageError(
                f"--accuracy-drop measures on one labelled data set, and --data names {len(self.data)}",
                fix="Give --data once, and other typical data with --calib",
            )
        if self.data and self.calib and not drop:
            raise UsageError(
                "--data and --calib are one and the same without --accuracy-drop",
                fix="Give one of them; with --accuracy-drop, --data is the labelled data",
            )

    @property
    def typical(self) -> Sequence[str]:
        """The data to calibrate with."""
        return self.calib or self.data or ()

    @property
    def ways(self) -> list[bool]:
        """Which sources of ranges are given."""
        return [self.table is not None, bool(self.typical), self.random]

    @cached_property
    def _stated(self) -> QuantizationConfig:
        """What the file says; it is read once, for a pipe gives it once."""
        from npuc.quant.config import QuantizationConfig

        return (
            QuantizationConfig.load(self.config)
            if self.config is not None
            else QuantizationConfig.model_construct()
        )

    def config_for(self, graph: Graph) -> QuantizationConfig:
        """The file, then the shortcuts."""
        from npuc.quant.config import first_and_last, parse_options

        config = self._stated
        if self.scheme is not None:
            config = config.model_copy(update={"scheme": self.scheme})
        changes = parse_options(self.scheme_option or ())
        if self.weight_method is not None:
            changes |= parse_options([f"weight_method={self.weight_method}"])
        if self.only is not None:
            changes |= parse_options([f"classes={self.only}"])
        if changes:
            config = config.with_options(changes)
        if self.activation_forms is not None:
            forms = () if self.activation_forms == "none" else options.names(self.activation_forms)
            config = config.model_copy(update={"activation_forms": forms})
        if self.per_channel_outputs:
            config = config.model_copy(update={"per_channel_outputs": True})
        if self.output_method is not None:
            config = config.model_copy(update={"output_method": self.output_method})
        if self.first_last is not None:
            config = config.with_layers(first_and_last(graph), self.first_last)
        return config.with_layers((*options.names(self.keep_float), *self.floats), "float")


def refuse_unused(
    model: Path, request: QuantizationRequest, force_float: bool, postprocess: str | None
) -> None:
    """An integer network has its numbers: to ask for others is an error, not a wish that is passed over."""
    stated: dict[str, Any] = {
        f"--{name.replace('_', '-')}": value
        for name, value in vars(request).items()
        if name not in ("tune", "widen", "threads", "ladder_options")
    }
    stated |= request.ladder_options.given() | {
        "--no-widen": not request.widen,
        "--force-float": force_float,
        "--add-postprocess": postprocess,
    }
    unused = [name for name, value in stated.items() if value]
    if unused:
        raise UsageError(
            f"{model} is an integer network already, so {', '.join(unused)} cannot be followed",
            fix=f"Leave {'it' if len(unused) == 1 else 'them'} out, or give the float network that it was made of, "
            "or the original model",
        )


@dataclass(frozen=True)
class QuantizationRun:
    """A quantized network and where its ranges came from."""

    quantized: Quantized
    origin: str
    scheme: str
    """In words."""
    table: CalibrationTable | None


def quantized(
    printer: Printer, model: Path, graph: Graph, request: QuantizationRequest, target: Target | None
) -> QuantizationRun:
    """Quantize a network as the options say."""
    from npuc.flow import needs_ranges, quantize_network
    from npuc.ir.target_rewrites import rewritten_for
    from npuc.quant.prequantized import is_quantized

    graph = graph if target is None else rewritten_for(graph, target, "float")
    own = is_quantized(graph)
    if own and any(request.ways):
        raise UsageError(
            f"{model} brings its own quantization, so there is nothing to calibrate",
            fix="Leave out the data to keep it, or add --force-float to quantize anew",
        )
    config = request.config_for(graph)
    ranged = not own and needs_ranges(graph, config, target)
    if ranged and not any(request.ways):
        raise UsageError(
            "there are no ranges to quantize with",
            fix="Give --table FILE or --data PATH, or --random for a smoke run",
        )
    if request.ladder_options.requested and not ranged:
        what = "keeps its own quantization" if own else "gets no integers"
        raise UsageError(
            f"the network {what}, so there is nothing to climb for",
            fix="Leave --ladder and --accuracy-drop out"
            + (", or add --force-float and --data" if own else ""),
        )
    table: CalibrationTable | None = None
    if request.table is not None:
        table = _read_table(request.table, graph, printer)
    if not own and not ranged and not any(request.ways):
        origin, done = "none needed", quantize_network(graph, {}, config, target)
    elif request.typical or request.random:
        source = data_of(printer, graph, request)
        # Short floats have no ranges to choose: data tell which layers leave those of f16.
        from npuc.engine.compute_device import computing_on

        work = _tuned if ranged and request.tune and not request.random else _plain
        with computing_on(request.ladder_options.torch_device or "cpu"):
            done, table = work(printer, graph, source, config, target, request)
        origin = ", ".join(table.comments)
        if request.random:
            printer.note("the ranges are those of random data: good for a smoke run only")
    else:
        origin = str(request.table) if request.table else "the model's own quantization"
        done = quantize_network(graph, table, config, target)
    return QuantizationRun(
        done, origin, done.own_arithmetic or _scheme_words(config, request.scheme, target, own), table
    )


def data_of(printer: Printer, graph: Graph, request: QuantizationRequest) -> Source:
    """The data to calibrate with; where only labelled data is given, that without its labels."""
    if request.ladder_options.accuracy_drop is None:
        return given.source(
            graph,
            request.typical,
            request.random,
            request.preprocess,
            request.annotations,
            request.max_count,
            request.seed,
        )
    if request.calib:
        return given.source(
            graph, request.calib, False, request.preprocess, None, request.max_count, request.seed
        )
    from itertools import islice

    from npuc.calib.sources import open_data
    from npuc.evaluate.goal import unlabelled
    from npuc.quant.ladder.run import MOST_SAMPLES

    printer.note(
        "the network is calibrated on the data that measures it, but for samples that are held back; "
        "--calib names other data"
    )
    count = request.ladder_options.eval_count
    samples = unlabelled(graph, _labelled(request), request.preprocess, max_count=count)
    return open_data(graph, list(islice(samples, request.max_count or MOST_SAMPLES)))


def _labelled(request: QuantizationRequest) -> DataLocation:
    from npuc.datasets.data import DataLocation

    assert request.data
    return DataLocation(Path(request.data[0]), request.annotations)


def print_outcome(printer: Printer, outcome: Outcome, scheme: str, origin: str) -> None:
    """What became of the layers."""
    printer.say(f"  {'layers':8} {outcome.counts()}")
    for kind, reason, names in outcome.float_groups()[:SHOWN]:
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        shown = ", ".join(shorten(name) for name in names[:2])
        printer.say(f"  {'':8} float: {kind} {shown}{more}: {reason}")
    printer.say(f"  {'scheme':8} {scheme}")
    printer.say(f"  {'ranges':8} {origin}")
    printer.say(f"  {'weights':8} {size(outcome.bytes_before)} -> {size(outcome.bytes_after)}")
    for note in outcome.notes[:SHOWN]:
        printer.note(note)


def print_accuracy(printer: Printer, done: Quantized) -> None:
    """How close the outputs are to float, the worst slice by name, and what is lost."""
    if done.accuracy is not None:
        printer.say(f"  {'accuracy':8} {done.accuracy}")
        for warning in done.accuracy.warnings:
            printer.note(warning)
    for text in done.crowded:
        printer.note(text)


def accuracy_json(done: Quantized) -> dict[str, Any]:
    """The same as plain values."""
    accuracy = None if done.accuracy is None else done.accuracy.as_json()
    return {"accuracy": accuracy, "crowded": list(done.crowded)}


def _read_table(path: Path, graph: Graph, printer: Printer) -> CalibrationTable:
    from npuc.calib.table import load_table

    table = load_table(path)
    missing = table.check(graph)
    if missing:
        printer.note(f"{path} has no range for {counted(len(missing), 'tensor')}, such as '{missing[0]}'")
    return table


def _tuned(
    printer: Printer,
    graph: Graph,
    source: Source,
    config: QuantizationConfig,
    target: Target | None,
    request: QuantizationRequest,
) -> tuple[Quantized, CalibrationTable]:
    from npuc.flow import quantize_on_data

    ladder = None
    with ExitStack() as stack:
        if request.ladder_options.requested:
            pipeline_options = _pipeline_options(printer, graph, target, request)

            def report(step_result: Any) -> None:
                stack.close()  # the bar has done its work
                pipeline_options.report(step_result)

            ladder = replace(pipeline_options, report=report)
        step = stack.enter_context(progress(printer, "calibrating", source.total or 0))
        return quantize_on_data(
            graph,
            source,
            config,
            target,
            request.method,
            threads=request.threads,
            strict=request.strict,
            warn=printer.note,
            step=step,
            ladder=ladder,
            widen=request.widen,
        )


def _pipeline_options(
    printer: Printer, graph: Graph, target: Target | None, request: QuantizationRequest
) -> PipelineOptions:
    from npuc.layer_costs import REFERENCE

    return request.ladder_options.pipeline_options(
        printer,
        graph,
        _labelled(request) if request.ladder_options.accuracy_drop is not None else None,
        target.name if target is not None else REFERENCE,
        preprocess=request.preprocess,
        workers=request.threads,
    )


def _plain(
    printer: Printer,
    graph: Graph,
    source: Source,
    config: QuantizationConfig,
    target: Target | None,
    request: QuantizationRequest,
) -> tuple[Quantized, CalibrationTable]:
    from npuc.flow import quantize_by_method

    with progress(printer, "calibrating", source.total or 0) as step:
        return quantize_by_method(
            graph,
            source,
            config,
            target,
            request.method,
            threads=request.threads,
            strict=request.strict,
            warn=printer.note,
            step=step,
        )


def _scheme_words(config: QuantizationConfig, scheme: str | None, target: Target | None, own: bool) -> str:
    if own:
        return "the model's own"
    if target is not None and "scheme" not in config.model_fields_set:
        return f"that of {target.name}"
    name = config.scheme if isinstance(config.scheme, str) else "of the configuration"
    special = len(config.types) + len(config.layers)
    return f"{name}, {special} exception{'s' * (special != 1)}" if special else name
