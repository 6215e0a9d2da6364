"""Find out which layers lose accuracy when a network is quantized, and why.

The network is quantized as 'npuc quantize' does it with the same options, or given with --quantized. The rounding of each
tensor is tried alone, and its cost at the outputs is reported, the worst first, with a remedy. --hybrid writes a
configuration with more bits for the layers that cost most; edit it and pass it to 'npuc quantize --config'.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import calibration_data as given
from npuc.cli import options
from npuc.cli import quantization as quant
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, progress, shorten
from npuc.errors import UsageError
from npuc.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from npuc.calib.table import CalibrationTable
    from npuc.ir import Graph
    from npuc.quant.analysis import Analysis, Hybrid
    from npuc.quant.analysis.levels import SchemeChange
    from npuc.quant.analysis.measurements import TensorMeasure
    from npuc.quant.config import Level, QuantizationConfig
    from npuc.quant.layer_schemes import LayerSchemes
    from npuc.target import Target

_PLOTTED = 6
"""Histograms that --plot draws if none is asked for."""


class AnalyzeCommand(CommandOptions):
    """The command line of `npuc analyze`."""

    model: options.Model
    data: given.Data = None
    random: given.Random = False
    quantized: Annotated[
        Path | None,
        typer.Option(metavar="FILE.mlir", help="The quantized network, if it was quantized before."),
    ] = None
    table: quant.Table = None
    method: quant.Method = None
    tune: quant.Tune = True
    preprocess: given.Preprocess = None
    annotations: given.Annotations = None
    max_count: given.MaxCount = None
    seed: given.Seed = None
    schemes: quant.SchemeOptions
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE.yaml", help="Quantize with the arithmetic of this target."),
    ] = None
    force_float: quant.ForceFloat = False
    input_shape: options.InputShapes = None
    weights: options.Weights = None
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Print at most this many findings; 0 prints all.")
    ] = 10
    hybrid: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml", help="Write a configuration with more bits for the layers that cost most."
        ),
    ] = None
    histogram: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYER", help="Print the histogram of a tensor's values; repeat the option for several."
        ),
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg", help="Plot the histograms; without --histogram, those of the worst tensors."
        ),
    ] = None
    advise: Annotated[
        bool,
        typer.Option(
            "--advise",
            help="Also say whether pruning, quantization-aware training and sparsity fit the network, and what to expect.",
        ),
    ] = False
    threads: options.Threads = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(AnalyzeCommand)
def command(args: AnalyzeCommand) -> None:
    """Run the command."""
    from npuc.files import existing_model, writable, write_atomically
    from npuc.quant.analysis import analyze, hybrid_yaml
    from npuc.quant.analysis.histogram import svg_histograms, text_histogram
    from npuc.quant.from_target import has_wide_activations
    from npuc.target import load_target

    printer = Printer(args.quiet, args.as_json)
    begun = time.perf_counter()
    existing_model(args.model)
    if args.plot is not None:
        options.result(args.plot, ".svg", "--plot")
    if args.hybrid is not None:
        writable(args.hybrid)
    if args.quantized is not None and (args.table is not None or args.method is not None):
        raise UsageError(
            "--quantized brings its own ranges", fix="Leave out --table and --method, or --quantized"
        )
    request = quant.QuantizationRequest.of(
        args, data=None if args.table else args.data, random=args.random and not args.table
    )
    request.check()
    machine = load_target(args.target) if args.target else None
    shapes = options.imported_as(args.model, args.input_shape, args.weights)
    pair = _networks(
        printer, args.model, args.quantized, request, machine, shapes, args.force_float, args.histogram or ()
    )
    _check_histograms(pair.source, args.histogram or (), pair.integer)
    source = given.source(
        pair.source, args.data, args.random, args.preprocess, args.annotations, args.max_count, args.seed
    )
    with progress(printer, "analysing", pair.roundings) as step:
        analysis = analyze(
            pair.source,
            pair.integer,
            source,
            pair.scheme_of,
            threads=args.threads,
            warn=printer.note,
            step=step,
            wide=has_wide_activations(machine),
        )
    plotted = [analysis.tensor(pair.source.tensor_called(name)) for name in args.histogram or []]
    result, written = analysis.as_json(), []
    if args.plot is not None:
        with write_atomically(args.plot) as out:
            out.write(svg_histograms(plotted or _worst(analysis)).encode())
        written.append(f"plot written to {args.plot}")
    if args.hybrid is not None:
        suggested = _suggested(analysis, pair, machine)
        promise = _promise(suggested, machine)
        comments = [
            f"layers of {args.model.name} that are worth more bits: edit this, then 'npuc quantize {args.model.name} --config "
            f"{args.hybrid.name}' with the data and target of before",
            promise,
        ]
        text = hybrid_yaml(suggested, analysis.measurements, pair.config, pair.beyond(), comments)
        with write_atomically(args.hybrid) as out:
            out.write(text.encode())
        written.append(f"{args.hybrid}: {promise}")
        result["hybrid"] = {
            "file": str(args.hybrid),
            "layers": dict(suggested.layers),
            "expected_sqnr": suggested.expected,
            "refused": list(suggested.refused),
        }
    seconds = time.perf_counter() - begun
    printer.say(f"{args.model}: {counted(analysis.measurements.samples, 'sample')}, {seconds:.1f} s")
    _tell(printer, analysis, args.limit)
    for tensor in plotted:
        printer.say()
        printer.say(text_histogram(tensor))
    for line in written:
        printer.say(line)
    if args.advise:
        from npuc.quant.analysis.measurements import decibels
        from npuc.train.advice import TrainingAdvice, advise_qat, advise_sparsity
        from npuc.train.pruning import PruningAdvice, advise

        advised: dict[str, PruningAdvice | TrainingAdvice] = {
            "pruning": advise(pair.source, machine),
            "qat": advise_qat(pair.scheme_of, decibels(analysis.measurements.output_noise)),
            "sparsity": advise_sparsity(pair.source, machine),
        }
        for method, advice in advised.items():
            printer.say(advice.text)
            result[method] = advice.as_json()
    printer.result(result)


def _check_histograms(source: Graph, names: Sequence[str], quantized: Graph | None = None) -> None:
    """Names that no tensor has are errors before the work; those of tensors without integers (`quantized`) right after it."""
    from npuc.ir import layer_name, top, value_name
    from npuc.ir.definition import TopOp
    from npuc.quant.analysis.analyze import no_such_tensor
    from npuc.quant.analysis.measuring import rounded_tensors
    from npuc.quant.mixed_precision.sensitivity import tensor_types

    if not names:
        return
    if quantized is not None:
        values = list(rounded_tensors(source, tensor_types(quantized)))
    else:
        ops = [op for op in source.ops if not isinstance(op, top.WeightOp)]
        values = [*(port.value for port in source.inputs), *(value for op in ops for value in op.results)]
    known = {value_name(value) for value in values}
    layers = {layer_name(value.owner) for value in values if isinstance(value.owner, TopOp)}
    for name in names:
        if source.tensor_called(name) not in known | layers:
            raise no_such_tensor(name, sorted(known))


def _worst(analysis: Analysis) -> list[TensorMeasure]:
    """The tensors of the worst findings."""
    known = {tensor.name: tensor for tensor in analysis.measurements.tensors}
    names = dict.fromkeys(finding.layer for finding in analysis.findings)
    return [known[name] for name in names if name in known][:_PLOTTED]


def _promise(hybrid: Hybrid, target: Target | None) -> str:
    count, refused = len(hybrid.layers), len(hybrid.refused)
    words = "no layer costs so much that more bits for it would be worth it"
    if count:
        layers = counted(count, "layer")
        words = f"{layers} with more bits: the outputs should get from {hybrid.before:.1f} to about {hybrid.expected:.1f} dB"
    if not refused or target is None:
        return words
    some = f"{counted(refused, 'layer')} worth more bits ({shorten(hybrid.refused[0])}"
    some += f" and {refused - 1} more)" if refused > 1 else ")"
    cannot = f"{target.name} does not run {some} with them"
    return f"{words}; {cannot}" if count else f"nothing is proposed: {cannot}"


def _suggested(analysis: Analysis, pair: _NetworkPair, target: Target | None) -> Hybrid:
    """More bits for layers, in types that the target runs: those that it has, in layers that it then still takes."""
    from npuc.quant.analysis import suggest
    from npuc.quant.analysis.levels import SchemeChange
    from npuc.quant.from_target import fitted, misfit
    from npuc.quant.scheme import SCHEMES
    from npuc.quant.widening import wider

    if target is None:
        return suggest(analysis.measurements)
    tried: Counter[str] = Counter()

    def choose(layer: str, change: SchemeChange) -> Level | None:
        # An array that multiplies 16 bits by 16 need not multiply 8 by 16.
        more = SchemeChange(change.old, wider(change.new))
        ways = [step.level for step in (change, more) if misfit(fitted(step.new, target), target) is None]
        ways += [name for name in ("bf16", "f16") if misfit(SCHEMES[name], target) is None]
        return ways[tried[layer]] if tried[layer] < len(ways) else None

    while True:
        suggested = suggest(analysis.measurements, choose)
        fallen = _off_the_npu(pair, suggested, target)
        if not fallen:
            return suggested
        tried.update(fallen)


def _off_the_npu(pair: _NetworkPair, suggested: Hybrid, target: Target) -> set[str]:
    """The layers of a suggestion that the target takes as they are, and not as suggested."""
    from npuc.errors import NpucError
    from npuc.flow import quantize_network
    from npuc.partition import partition

    if pair.table is None or not suggested.layers:
        return set()
    config = pair.config
    for name, level in {**pair.beyond(), **suggested.layers}.items():
        config = config.with_layers((name,), level)
    try:
        widened = quantize_network(pair.source, pair.table, config, target).graph
    except NpucError:
        return set()  # ranges of another form of the network: types are all that can be looked at
    now, before = (set(partition(network, target).reasons) for network in (widened, pair.integer))
    return (now - before) & set(suggested.layers)


@dataclass(frozen=True, eq=False)
class _NetworkPair:
    """A float network, the integer one made of it, and what was asked for."""

    source: Graph
    integer: Graph
    config: QuantizationConfig
    requested_scheme_of: LayerSchemes
    scheme_of: LayerSchemes
    """What its layers really got."""
    table: CalibrationTable | None = None
    """The ranges, if they are known."""

    @property
    def roundings(self) -> int:
        """About how many roundings there are to try."""
        from npuc.quant.layers import integer_layers
        from npuc.quant.mixed_precision.sensitivity import tensor_types

        return len(tensor_types(self.integer)) + len(
            integer_layers(self.source, self.integer, self.scheme_of)
        )

    def beyond(self) -> dict[str, Level]:
        """What layers got beyond what was asked for: quantization that looks at its result gives some 16 bits."""
        from npuc.ir import result_names
        from npuc.quant.analysis.levels import SchemeChange

        levels: dict[str, Level] = {}
        for op in self.source.ops:
            old, new = self.requested_scheme_of(op), self.scheme_of(op)
            if old is not None and new is not None and old != new:
                levels[result_names(op)[0]] = SchemeChange(old, new).level
        return levels


def _networks(
    printer: Printer,
    model: Path,
    quantized: Path | None,
    request: quant.QuantizationRequest,
    machine: Target | None,
    shapes: Any,
    force_float: bool,
    histograms: Sequence[str] = (),
) -> _NetworkPair:
    """Quantize as the options say, or load what was quantized."""
    from npuc.flow import network_to_quantize, schemes_of
    from npuc.quant.prequantized import is_quantized

    graph = network_to_quantize(model, shapes, force_float=force_float)
    options.tell_import(printer, graph)
    _check_histograms(graph, histograms)
    if is_quantized(graph):
        # Its ranges may stand for a relu that nothing else tells of.
        raise UsageError(
            f"{model} brings its own quantization, and the float network that it was made of is not in it",
            fix="Give that float network, or add --force-float to quantize anew",
        )
    if quantized is None:
        outcome = quant.quantized(printer, model, graph, request, machine)
        done = outcome.quantized
        config = request.config_for(graph)
        requested_scheme_of = schemes_of(done.source, config, machine)
        return _NetworkPair(
            done.source, done.graph, config, requested_scheme_of, done.scheme_of, outcome.table
        )
    integer = _integer_network(quantized)
    beside = quantized.with_suffix(".quant.yaml")
    if request.config is None and request.scheme is None and machine is None and beside.is_file():
        # What 'npuc quantize' wrote about it.
        request = replace(request, config=beside)
    config = request.config_for(graph)
    scheme_of = schemes_of(graph, config, machine)
    return _NetworkPair(graph, integer, config, scheme_of, scheme_of)


def _integer_network(path: Path) -> Graph:
    from npuc.files import existing_model
    from npuc.flow import load_model
    from npuc.frontend.sniff import describe_content
    from npuc.quant.report import is_integer

    existing_model(path)
    graph = load_model(path) if describe_content(path).kind == "mlir" else None
    if graph is None or not is_integer(graph):
        raise UsageError(
            f"{path} is not an integer network in npuc's own form",
            fix="Give the .mlir file that 'npuc quantize' wrote",
        )
    return graph


def _tell(printer: Printer, analysis: Analysis, limit: int) -> None:
    from npuc.quant.analysis.finding import percent

    for sentence in analysis.summary():
        printer.say(sentence)
    shown = analysis.findings[:limit] if limit else analysis.findings
    first_with: dict[str, int] = {}
    for number, finding in enumerate(shown, 1):
        cost = f", {percent(finding.severity)} of the noise" if finding.severity > 0 else ""
        printer.say()
        printer.say(f"{number}. {finding.layer}: {finding.kind}{cost}")
        printer.say(f"   {finding.words[0].upper()}{finding.words[1:]}.")
        # Advice that differs in the layer's name only is not repeated.
        first = first_with.setdefault(finding.remedy.replace(finding.layer, ""), number)
        printer.say(f"   Try: {finding.remedy}." if first == number else f"   Try: as for {first}.")
    if len(shown) < len(analysis.findings):
        printer.say()
        printer.say(f"{len(shown)} of {len(analysis.findings)} findings; --limit 0 tells all")
    plan = analysis.plan()
    if plan:
        printer.say()
        printer.say("What to try first:")
        for kind, severity, words in plan:
            printer.say(f"  {percent(severity):>6}  {kind}: {words}")
