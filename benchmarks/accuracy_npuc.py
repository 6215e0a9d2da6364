"""npuc's entries of the accuracy benchmark: what `npuc quantize` makes by default, and with `--ladder`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from accuracy_networks import Network
from peers import MODELS

from npuc.calib.sources import open_data
from npuc.engine.compute_device import computing_on
from npuc.flow import ImportOptions, network_to_quantize, quantize_on_data, save_graph
from npuc.ir import Graph, dtype_of
from npuc.quant.config import QuantizationConfig
from npuc.quant.ladder.run import PipelineOptions


def network_of(network: Network) -> Graph:
    """The float network as the command quantizes it: in canonical form, with attention spelled out as products and a softmax."""
    name = onnx.load(network.float_file, load_external_data=False).graph.input[0].name
    options = ImportOptions(input_shapes={name: network.shape})
    return network_to_quantize(MODELS / f"{network.file}.onnx", options)


def quantize_default(
    network: Network, scheme: str | None, target: Path, count: int, threads: int
) -> dict[str, Any]:
    """What `npuc quantize --data` makes, with `--scheme` where one is stated; also what was done."""
    return _quantized(network, scheme, target, count, threads, None)


def quantize_ladder(
    network: Network,
    scheme: str | None,
    target: Path,
    count: int,
    threads: int,
    device: str,
    steps: Sequence[str] | None,
    seed: int = 0,
) -> dict[str, Any]:
    """What `npuc quantize --data --ladder` makes: all steps, or those that are named; also what each did."""
    heard: list[str] = []
    options = PipelineOptions(
        None if steps is None else tuple(steps),
        device,
        seed=seed,
        report=lambda event: heard.append(str(event)),
    )
    return {**_quantized(network, scheme, target, count, threads, options), "steps": heard}


def _quantized(
    network: Network,
    scheme: str | None,
    target: Path,
    count: int,
    threads: int,
    ladder: PipelineOptions | None,
) -> dict[str, Any]:
    graph = network_of(network)
    source = open_data(graph, network.calibration(count))
    config = None if scheme is None else QuantizationConfig(scheme=scheme)
    # As the command does it: calibration is on the device, too.
    with computing_on("cpu" if ladder is None else ladder.device):
        done, _ = quantize_on_data(graph, source, config, threads=threads, ladder=ladder)
    target.parent.mkdir(parents=True, exist_ok=True)
    save_graph(done.graph, target)
    warnings = [] if done.accuracy is None else list(done.accuracy.warnings)
    return {
        "notes": list(done.graph.notes),
        "warnings": warnings,
        "wide": wide_layers(done.source, done.scheme_of),
        "finer": finer_weights(done.source, done.scheme_of) if scheme == "int4-weights" else 0,
    }


def wide_layers(graph: Graph, scheme_of: Any) -> list[int]:
    """How many layers give 16 bits, and how many layers with a scheme there are."""
    schemes = _schemes(graph, scheme_of)
    return [sum(scheme.has_wide_activations for scheme in schemes), len(schemes)]


def finer_weights(graph: Graph, scheme_of: Any) -> int:
    """How many layers have weights of 8 bits or more."""
    return sum(dtype_of(scheme.weight).bits >= 8 for scheme in _schemes(graph, scheme_of))


def _schemes(graph: Graph, scheme_of: Any) -> list[Any]:
    return [scheme for op in graph.ops if op.results and (scheme := scheme_of(op)) is not None]
