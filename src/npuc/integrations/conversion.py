"""From an imported network and samples to a program: the one way that all live integrations take.

It is the way of `npuc compile`: the same functions of `npuc.flow` with the same defaults, so that a network has the same bits
whichever way it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from npuc.arrays import Array
from npuc.calib.sources import open_data
from npuc.codegen.compile_model import CompileOptions
from npuc.engine import computing_on
from npuc.flow import compile_network, expanded, needs_ranges, quantize_network, quantize_on_data
from npuc.integrations.agreement import agreement_goal, parted
from npuc.integrations.options import IntegrationOptions
from npuc.integrations.report import IntegrationReport, report_of
from npuc.ir import Graph
from npuc.ir.target_rewrites import rewritten_for
from npuc.program.model import CompiledModel
from npuc.quant.ladder.run import kept_samples
from npuc.quant.prequantized import is_quantized
from npuc.schedule.cache import Cache


@dataclass(frozen=True)
class Conversion:
    """A compiled network and what runs where in it."""

    model: CompiledModel
    report: IntegrationReport


def convert(
    graph: Graph,
    samples: Iterable[Mapping[str, Array]],
    options: IntegrationOptions,
    integration: str,
    name: str = "model",
    notes: Iterable[str] = (),
) -> Conversion:
    """Quantize a float network on samples (arrays by the names of its inputs) and compile it.

    A network that brings its own quantization, or a target that computes with floats, needs no samples.
    """
    with computing_on(options.torch_device):
        return _converted(graph, samples, options, integration, name, list(notes))


def _converted(
    graph: Graph,
    samples: Iterable[Mapping[str, Array]],
    options: IntegrationOptions,
    integration: str,
    name: str,
    told: list[str],
) -> Conversion:
    target, config = options.target, options.quantization()
    graph = rewritten_for(expanded(graph), target, "float")
    if is_quantized(graph) or not needs_ranges(graph, config, target):
        quantized = quantize_network(graph, None if is_quantized(graph) else {}, config, target)
    else:
        batches: Iterable[Mapping[str, Array]] = samples
        goal = {}
        if options.accuracy_drop is not None:
            kept = kept_samples(graph, open_data(graph, samples), warn=told.append)
            batches, held = parted(kept)
            goal["goal"] = agreement_goal(
                graph, batches, held, options.accuracy_drop, options.threads, told.append
            )
        quantized, _ = quantize_on_data(
            graph,
            open_data(graph, batches),
            config,
            target,
            options.method,
            threads=options.threads,
            warn=told.append,
            ladder=options.pipeline(**goal),
        )
    settings = CompileOptions(level=options.level, cache=Cache.default())
    compilation = compile_network(quantized.graph, target, settings, name)
    told += quantized.crowded
    return Conversion(
        compilation.model, report_of(integration, quantized.source, compilation, target, notes=told)
    )
