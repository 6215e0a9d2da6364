"""From a network in float to one in integers: by ranges, by a calibration method, or on data with the ladder of steps."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from npuc.arithmetic.kinds import Rounding, Scales
from npuc.arrays import Array
from npuc.errors import QuantizationError
from npuc.ir import Graph, dtype_of, result_names, shown_name

if TYPE_CHECKING:
    from npuc.calib.sources import Source
    from npuc.calib.statistics import Statistics
    from npuc.calib.table import CalibrationTable
    from npuc.compare import OutputFigures
    from npuc.quant.accuracy import OutputAccuracy
    from npuc.quant.config import QuantizationConfig
    from npuc.quant.ladder.run import PipelineOptions
    from npuc.quant.layer_schemes import LayerSchemes
    from npuc.quant.report import Outcome
    from npuc.quant.scheme import Scheme
    from npuc.quant.validation import OutputValidator
    from npuc.quant.widening import Widening
    from npuc.target import Target

_LOG = logging.getLogger(__name__)
_BETTER = "float serves the outputs better"
"""The reason reported for a layer that the search of a step left in float."""
_MOVES_STATE = "it moves a state, which keeps its bits so"


@dataclass(frozen=True)
class Quantized:
    """An integer network and how it was made."""

    graph: Graph
    source: Graph
    """The float network with the same names."""
    scheme_of: LayerSchemes
    """The scheme of each layer of `source`; None for a layer that stays float."""
    outcome: Outcome
    corrected: bool = False
    """Whether biases were corrected."""
    steps_applied: bool = False
    """Whether steps of the ladder also changed weights."""
    own_arithmetic: str = ""
    """How the arithmetic of a prequantized network was kept, in words; empty if there is none or a scheme was stated."""
    accuracy: OutputAccuracy | None = None
    """How close the outputs are to float on calibration data; None if it was not measured."""
    crowded: tuple[str, ...] = ()
    """One sentence for each tensor whose parts differ in magnitude by more than its bits can represent."""


def quantize_network(
    graph: Graph,
    ranges: Mapping[str, Any] | None = None,
    config: QuantizationConfig | None = None,
    target: Target | None = None,
    weight_scales: Mapping[str, Array] | None = None,
) -> Quantized:
    """The integer network of a float network, or of a prequantized one (then without `ranges`).

    `ranges` is a calibration table, or a mapping from tensor names to (min, max). `weight_scales` has the scales of the weights
    of layers by the names of their results, one or one for each output channel; the others come from the weights.
    """
    from npuc.errors import QuantizationError
    from npuc.quant import quantize
    from npuc.quant.config import QuantizationConfig
    from npuc.quant.from_target import scheme_for
    from npuc.quant.own_arithmetic import own_arithmetic
    from npuc.quant.prequantized import Prequantized
    from npuc.quant.target_encoding import TargetEncoding

    if config is not None and (config.per_channel_outputs or config.output_method):
        what = (
            "per_channel_outputs: the magnitudes of channels are measured"
            if config.per_channel_outputs
            else "output_method: the ranges of outputs are chosen"
        )
        raise QuantizationError(
            f"{what} on data" + (", and the network brings its own quantization" if ranges is None else ""),
            fix="Leave it out"
            if ranges is None
            else "Give data rather than a table of ranges, or leave it out",
        )
    if ranges is None:
        network = Prequantized(graph)
        words = ""
        if config is None or "scheme" not in config.model_fields_set:
            own = own_arithmetic(network.follows_tflite, target, network.stated)
            base = own.scheme
            if target is not None and scheme_for(target).needs_ranges:
                base = scheme_for(target).to_dict() | base
            config = (config or QuantizationConfig()).model_copy(update={"scheme": base})
            words = own.words
        types = network.types(None if target is None else TargetEncoding(target))
        scheme_of = schemes_of(network.graph, config, target, types)
        if target is None:
            integers = network.lower(scheme_of)
        else:
            from npuc.quant.rewritten import rewrite_for

            own = own_arithmetic(network.follows_tflite, target, network.stated)
            rewritten = rewrite_for(network, target, scheme_of, own, may_widen=bool(words))
            integers = rewritten.graph
            integers.notes = [*integers.notes, *rewritten.notes]
        outcome = _outcome(network.graph, integers, scheme_of, target, types)
        return Quantized(integers, network.graph, scheme_of, outcome, own_arithmetic=words)
    from npuc.quant.activation_forms import with_activation_forms
    from npuc.quant.adaquant.lowering import lower_learned
    from npuc.quant.overflow import within_f16
    from npuc.quant.stated_scales import stated_layers

    graph, forms = with_activation_forms(graph, config, target)
    scheme_of, notes = within_f16(graph, schemes_of(graph, config, target), ranges, target)
    if weight_scales:
        stated = stated_layers(graph, weight_scales, scheme_of)
        integers = lower_learned(graph, ranges, scheme_of, stated)
    else:
        integers = quantize(graph, ranges, scheme_of)
    integers.notes = [*integers.notes, *forms, *notes]
    outcome = _outcome(graph, integers, scheme_of, target)
    return Quantized(
        integers, graph, scheme_of, outcome, crowded=_crowded(graph, integers, ranges, scheme_of, target)
    )


def _crowded(
    graph: Graph,
    integers: Graph,
    ranges: Mapping[str, Any],
    scheme_of: LayerSchemes,
    target: Target | None,
) -> tuple[str, ...]:
    """One sentence for each tensor whose parts differ in magnitude by more than its bits can represent."""
    from npuc.quant.crowding import crowded, spans_of
    from npuc.quant.from_target import has_wide_activations

    return crowded(graph, integers, spans_of(ranges), scheme_of, wide=has_wide_activations(target))


def _outcome(
    source: Graph,
    integers: Graph,
    scheme_of: LayerSchemes,
    target: Target | None,
    types: Mapping[Any, Any] | None = None,
    configured: Collection[str] = (),
) -> Outcome:
    """The outcome of quantizing each layer, with reasons for layers that stay float.

    `configured` names the layers that the configuration makes integer; a step's search may have left some of them float.
    """
    from npuc.ir.states import moves_of_states
    from npuc.partition import to_keep_float
    from npuc.quant.report import outcome

    reasons = {
        name: _BETTER
        for op in source.ops
        if op.results and (name := result_names(op)[0]) in configured and scheme_of(op) is None
        if name not in integers.float_reasons
    }
    reasons |= {result_names(op)[0]: _MOVES_STATE for op in moves_of_states(source)}
    if target is not None:
        kept = to_keep_float(source, target, types)
        reasons |= {result_names(op)[0]: fit.reason for op, fit in kept.items()}
    for line in str(scheme_of).splitlines():
        _LOG.info("scheme %s", line)
    return outcome(source, integers, scheme_of, reasons)


def schemes_of(
    graph: Graph,
    config: QuantizationConfig | None = None,
    target: Target | None = None,
    types: Mapping[Any, Any] | None = None,
) -> LayerSchemes:
    """The scheme of each layer, or None for float; `QuantizationError` if the target cannot run a configured scheme.

    `types` are the tensor types of a prequantized model.
    """
    from npuc.ir.states import moves_of_states
    from npuc.partition import to_keep_float
    from npuc.quant.config import QuantizationConfig
    from npuc.quant.from_target import fitted, misfit, scheme_for
    from npuc.quant.layer_schemes import LayerSchemes

    if target is not None and (config is None or "scheme" not in config.model_fields_set):
        base = scheme_for(target).to_dict()
        config = (config or QuantizationConfig()).model_copy(update={"scheme": base})
    configured = (config or QuantizationConfig()).resolve(graph).as_float(moves_of_states(graph))
    if target is None:
        return configured
    nowhere = to_keep_float(graph, target, types)
    rounding = None if config is None else config.options.get("constant_rounding")
    schemes: dict[Any, Scheme | None] = {}
    for op in graph.ops:
        scheme = configured(op) if op not in nowhere else None
        scheme = None if scheme is None else fitted(scheme, target)
        if scheme is not None and rounding is not None:
            # Constants are rounded offline: the machine never sees how.
            scheme = replace(scheme, constant_rounding=Rounding(rounding))
        schemes[op] = scheme
        reason = None if scheme is None else misfit(scheme, target)
        if reason is not None:
            raise QuantizationError(
                f"layer '{shown_name(op)}' asks for what the target '{target.name}' does not have: {reason}",
                fix=f"'npuc targets show {target.name}' shows what it has",
            )
    return LayerSchemes(schemes)


def needs_ranges(
    graph: Graph, config: QuantizationConfig | None = None, target: Target | None = None
) -> bool:
    """Whether some layer needs the ranges of tensors to compute its scales."""
    scheme_of = schemes_of(graph, config, target)
    return any((scheme := scheme_of(op)) is not None and scheme.needs_ranges for op in graph.ops)


def ranges_from(
    graph: Graph,
    source: Source,
    scheme_of: LayerSchemes,
    method: str | None = None,
    *,
    threads: int | None = None,
    strict: bool = False,
    warn: Callable[[str], None] | None = None,
    step: Callable[[], None] | None = None,
    output_method: str | None = None,
) -> CalibrationTable:
    """Calibrate for the given schemes; the outputs by a method of their own, if there is one.

    Tensors of more than 8 bits and of f16, and those with inserted constants, keep their full range.
    """
    from npuc.calib.calibration import DEFAULT_METHOD, calibrate
    from npuc.quant.inserted import tensors_with_chosen_constants
    from npuc.quant.tuning import output_overrides

    wide = dict.fromkeys(tensors_with_chosen_constants(graph), "max") | {
        name: "max"
        for op in graph.ops
        if (scheme := scheme_of(op)) is not None
        and (scheme.has_wide_activations or scheme.activation == "f16")
        for name in result_names(op)
        if name and dtype_of(op.results[0].type).name == "f32"
    }
    return calibrate(
        graph,
        source,
        method or DEFAULT_METHOD,
        overrides=wide | output_overrides(graph, output_method),
        threads=threads,
        strict=strict,
        warn=warn,
        step=step,
    )


def quantize_by_method(
    graph: Graph,
    source: Source,
    config: QuantizationConfig | None = None,
    target: Target | None = None,
    method: str | None = None,
    *,
    threads: int | None = None,
    strict: bool = False,
    warn: Callable[[str], None] | None = None,
    step: Callable[[], None] | None = None,
) -> tuple[Quantized, CalibrationTable]:
    """Calibrate by one method and quantize, with nothing chosen by the outputs and no bias corrected; also the ranges used."""
    from npuc.quant.channel_outputs import FLOAT_REASON, with_channel_outputs
    from npuc.quant.config import QuantizationConfig

    config = config or QuantizationConfig()
    floats: tuple[str, ...] = ()
    if config.per_channel_outputs:
        changed, source = with_channel_outputs(
            graph, source, config, threads=threads, strict=strict, warn=warn
        )
        graph, config, floats = changed.graph, changed.config, changed.floats
        if warn is not None:
            for words in changed.notes:
                warn(words)
    table = ranges_from(
        graph,
        source,
        schemes_of(graph, config, target),
        method,
        threads=threads,
        strict=strict,
        warn=warn,
        step=step,
        output_method=config.output_method,
    )
    done = quantize_network(graph, table, config.model_copy(update={"output_method": None}), target)
    done.graph.float_reasons |= dict.fromkeys(floats, FLOAT_REASON)
    return done, table


def quantize_on_data(
    graph: Graph,
    source: Source,
    config: QuantizationConfig | None = None,
    target: Target | None = None,
    method: str | None = None,
    *,
    correct: bool = True,
    widen: bool = True,
    threads: int | None = None,
    strict: bool = False,
    warn: Callable[[str], None] | None = None,
    step: Callable[[], None] | None = None,
    ladder: PipelineOptions | None = None,
) -> tuple[Quantized, CalibrationTable]:
    """Calibrate and quantize, choosing among alternatives by the measured outputs (`npuc.quant.tuning`); also the ranges used.

    Without a `method`, the best of several is chosen. `correct` corrects biases, and runs the quick steps of the ladder if
    per-tensor scales or few bits degrade the outputs too much (`npuc.quant.ladder.fallback`). If the configuration states no
    scheme, outputs whose parts differ much in magnitude are concatenated in float, and `widen` gives 16 bits to layers next to
    an output and to tensors that degrade the outputs with 8 bits, on a target where that is worth its cycles
    (`npuc.quant.widening`). With a `ladder`, its steps follow (`npuc.quant.ladder`); the ranges are those of the float network
    that they produce.
    """
    from npuc.calib.collection import collect
    from npuc.calib.keeping import Keeper
    from npuc.calib.ranges import observer_options
    from npuc.ir.target_rewrites import rewritten_for
    from npuc.layer_costs import REFERENCE, TargetCostModel
    from npuc.quant.accuracy import accuracy_of
    from npuc.quant.activation_forms import cost_of_forms, with_activation_forms
    from npuc.quant.channel_outputs import FLOAT_REASON, ChannelOutputs, with_channel_outputs
    from npuc.quant.config import QuantizationConfig
    from npuc.quant.ladder.fallback import default_steps
    from npuc.quant.tuning import KEPT, METHODS, PLAIN, tune, with_wide_tail
    from npuc.target import load_target

    note = warn or (lambda text: None)
    graph = graph if target is None else rewritten_for(graph, target, "float")
    channel_outputs = ChannelOutputs(graph, config or QuantizationConfig())
    if config is not None and config.per_channel_outputs:
        channel_outputs, source = with_channel_outputs(
            graph, source, config, threads=threads, strict=strict, warn=warn
        )
        graph, config = channel_outputs.graph, channel_outputs.config
    original = graph
    graph, forms = with_activation_forms(graph, config, target)
    scheme_of = plain_of = schemes_of(graph, config, target)
    configured = {result_names(op)[0] for op in graph.ops if op.results and scheme_of(op) is not None}
    stated = config is not None and "scheme" in config.model_fields_set
    widening: Widening | None = None
    may_widen = widen and (config is None or config.widen)
    if not stated:
        widening = _widening(target, may_widen)
        if target is None and widening.is_allowed:
            scheme_of = with_wide_tail(graph, scheme_of)
    threads = threads or len(os.sched_getaffinity(0))
    schemes = [scheme for op in graph.ops if (scheme := scheme_of(op)) is not None]
    shifts = any(scheme.activation_scales is Scales.POWER_OF_TWO for scheme in schemes)
    methods = [method] if method else ["mse", PLAIN] if shifts else METHODS

    def finished(
        source: Graph,
        integers: Graph,
        schemes: LayerSchemes,
        table: CalibrationTable,
        figures: OutputFigures | None,
        validator: OutputValidator | None,
        statistics: Callable[[], Statistics],
        *,
        corrected: bool = True,
        steps_applied: bool = False,
    ) -> tuple[Quantized, CalibrationTable]:
        """The finished network with its outcome and accuracy."""
        integers.notes = [*integers.notes, *channel_outputs.notes, *forms]
        integers.float_reasons |= dict.fromkeys(channel_outputs.floats, FLOAT_REASON)
        quantized = Quantized(
            integers,
            source,
            schemes,
            _outcome(source, integers, schemes, target, configured=configured),
            corrected,
            steps_applied,
            accuracy=accuracy_of(
                source, integers, schemes, figures, validator, statistics, target, learned=ladder is not None
            ),
            crowded=_crowded(source, integers, table, schemes, target),
        )
        return quantized, table

    if ladder is not None:
        from npuc.quant.ladder import QuantizationContext
        from npuc.quant.ladder.run import kept_samples, run_pipeline_steps

        samples = kept_samples(graph, source, strict=strict, warn=warn, step=step)
        if forms:
            forms = (*forms, cost_of_forms(original, graph, samples, threads))
        cost_model = TargetCostModel(target or load_target(REFERENCE))
        context = QuantizationContext(
            graph,
            samples,
            scheme_of,
            methods,
            threads,
            ladder.device,
            ladder.seed,
            target=target,
            cost_model=cost_model,
        )
        if config is not None:
            context.adaquant = config.ladder.adaquant
            context.output_method = config.output_method
        best = run_pipeline_steps(
            context,
            ladder,
            cost_model,
            widen=widening or False,
            fixed=stated,
            may_widen=may_widen,
            plain_of=plain_of,
        )
        return finished(
            best.source, best.quantized, best.scheme_of, best.table, context.figures(best.quantized), context.validator,
            lambda: context.statistics(best.source), steps_applied=True,
        )  # fmt: skip
    kept = Keeper(graph, source, KEPT)
    recorded = observer_options(methods)
    statistics = collect(
        graph, source, options=recorded, threads=threads, strict=strict, warn=warn, step=step, seen=kept.keep
    )
    if forms:
        forms = (*forms, cost_of_forms(original, graph, kept.first, threads))
    done = tune(
        graph,
        statistics,
        kept.first,
        scheme_of,
        methods,
        correct=correct,
        widen=widening or False,
        threads=threads,
        others=kept.others,
        plain_of=plain_of,
        output_method=None if config is None else config.output_method,
    )
    for words in done.graph.notes[len(graph.notes) :]:
        _LOG.info("quantized: %s", words)
    costs = TargetCostModel(target or load_target(REFERENCE)) if may_widen else None
    better = (
        default_steps(
            graph, done, kept.first, kept.others, scheme_of, methods, threads,
            target=target, cost_model=costs, note=note,
        )
        if correct
        else None
    )  # fmt: skip
    if better is not None:
        best, figures = better
        recollect = partial(collect, best.source, kept.first, options=recorded, threads=threads)
        return finished(
            best.source, best.quantized, best.scheme_of, best.table, figures, done.validator, recollect, steps_applied=True
        )  # fmt: skip
    return finished(
        graph, done.graph, done.scheme_of, done.table, done.figures, done.validator, lambda: statistics,
        corrected=done.corrected,
    )  # fmt: skip


def _widening(target: Target | None, is_allowed: bool) -> Widening:
    """The rule for 16-bit tensors: their cost is only considered if there is a target."""
    from npuc.layer_costs import TargetCostModel
    from npuc.quant.widening import Widening

    return Widening(target, None if target is None else TargetCostModel(target), is_allowed)
