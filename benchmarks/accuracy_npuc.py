"""npuc's entries of the accuracy benchmark: the default, and the whole ladder from there.

The ladder begins with the types that the default chose (16 bits next to outputs, where no scheme is stated) and keeps them.
Beside each result lies a JSON file with what was done and how long it took.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from accuracy_networks import Network
from peers import MODELS

from npuc.calib.sources import open_data
from npuc.flow import ImportOptions, import_model, quantize_on_data, save_graph
from npuc.ir import Graph
from npuc.quant.config import QuantizationConfig
from npuc.quant.ladder import QuantizationContext, StepResult, run_steps
from npuc.quant.ladder.context import carried
from npuc.quant.tuning import METHODS

_CHEAP = ("equalize", "smooth", "ranges")
"""With the ranges and corrected biases of the start, the steps 1 to 4 of the ladder."""


def network_of(network: Network) -> Graph:
    """The float network in canonical form."""
    name = onnx.load(network.float_file, load_external_data=False).graph.input[0].name
    options = ImportOptions(input_shapes={name: network.shape})
    return import_model(MODELS / f"{network.file}.onnx", options)


def quantize_default(network: Network, scheme: str | None, target: Path, count: int, threads: int) -> None:
    """What `npuc quantize --data` makes, with `--scheme` where one is stated."""
    graph, begun = network_of(network), time.perf_counter()
    source = open_data(graph, network.calibration(count))
    config = None if scheme is None else QuantizationConfig(scheme=scheme)
    done, _ = quantize_on_data(graph, source, config, threads=threads)
    save_graph(done.graph, target)
    wide = wide_layers(done.source, done.scheme_of)
    _note(target, {"notes": done.graph.notes, "seconds": time.perf_counter() - begun, "wide": wide})


def quantize_ladder(
    network: Network,
    scheme: str | None,
    target: Path,
    count: int,
    threads: int,
    device: str,
    steps: Sequence[str] | None,
) -> None:
    """The ladder from the default: all steps, or those that are named."""
    graph = network_of(network)
    samples = network.calibration(count)
    begun, worked = time.perf_counter(), time.process_time()
    config = None if scheme is None else QuantizationConfig(scheme=scheme)
    default, _ = quantize_on_data(graph, open_data(graph, samples), config, threads=threads)
    context = QuantizationContext(
        graph,
        [{graph.inputs[0].name: sample} for sample in samples],
        carried(default.scheme_of, default.source, graph),
        methods=("mse",) if scheme == "pow2" else METHODS,
        threads=threads,
        device=device,
    )
    results: list[StepResult] = []
    cheap: dict[str, float] = {}

    def heard(step_result: StepResult) -> None:
        results.append(step_result)
        if step_result.name in _CHEAP:
            cheap.update(wall=time.perf_counter() - begun, cpu=time.process_time() - worked)

    best = run_steps(context, steps, start=context.start(), report=heard)
    save_graph(best.quantized, target)
    _note(
        target,
        {
            "notes": list(best.notes),
            "rungs": [str(step_result) for step_result in results],
            "seconds": time.perf_counter() - begun,
            "cheap": cheap,
            "wide": wide_layers(default.source, default.scheme_of),
            "device": device,
        },
    )


def wide_layers(graph: Graph, scheme_of: Any) -> list[int]:
    """How many layers give 16 bits, and how many layers with a scheme there are."""
    schemes = [scheme for op in graph.ops if (scheme := scheme_of(op)) is not None]
    return [sum(scheme.activation == "i16" for scheme in schemes), len(schemes)]


def _note(target: Path, words: dict[str, Any]) -> None:
    target.with_suffix(".json").write_text(json.dumps(words, indent=1))
