"""Every model for every target: compiled, executed, compared with graph mode to the bit, and looked through for races.

Each network is quantized with the arithmetic of the target (ranges of a sample), or with named schemes for edge-4t, which
has all of them. A model that is quantized already is taken as it is, and once more as a float network that is quantized
anew. It is compiled at each level, executed in instruction mode on an image where there are images for it and on random
data otherwise, and given to the sanitizer. A line says how it went, and how much of it is on the CPU.

    python benchmarks/sweep_compile.py [--models mobilenet_v2,...] [--targets edge-4t,... | --schemes int8,...] [--levels 0,2]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench_accuracy import NETWORKS
from peers import SHARED

from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import compile_model
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.errors import NpucError
from npuc.flow import ImportOptions, import_model, input_names, network_to_quantize, quantize_network
from npuc.ir import Graph, top
from npuc.program.model import CompiledModel, CpuSubgraph, NpuSubgraph
from npuc.quant.config import QuantizationConfig
from npuc.sim import Simulator, sanitize, simulate
from npuc.target import available, load_target

FOLDERS = ("onnx", "tflite")
_SHAPES = {"super_resolution": (1, 1, 224, 224)}


@dataclass(frozen=True)
class Case:
    """A network with a sample and ranges."""

    name: str
    graph: Graph
    inputs: Mapping[str, Array]
    ranges: Mapping[str, tuple[float, float]] | None
    """None if it brings its own."""


def files() -> dict[str, Path]:
    """The models by name."""
    paths = {}
    for folder in FOLDERS:
        for path in sorted((SHARED / "models" / folder).glob(f"*.{folder}")):
            paths[path.stem] = path
    return paths


def cases_of(name: str, path: Path) -> list[Case]:
    """Import a model, and find a sample and ranges for it; one that is quantized comes as it is and as a float network."""
    known = next((network for network in NETWORKS.values() if network.file == name), None)
    shape = known.shape if known is not None else _SHAPES.get(name)
    options = ImportOptions(input_shapes={input_names(path)[0]: shape} if shape else {})
    graph = import_model(path, options)
    cases = []
    if any(isinstance(op, top.Quantize | top.Dequantize) for op in graph.ops):
        cases.append(Case(name, graph, random_inputs(graph), None))
        graph = network_to_quantize(path, options, force_float=True)
        name = f"{name} anew"
    inputs = random_inputs(graph)
    if known is not None:
        inputs = {graph.inputs[0].name: known.calibration(1)[0]}
    values = {**inputs, **FloatEngine(graph, fetch=ALL_TENSORS, threads=1).run(inputs)}
    ranges = {
        key: (float(value.min()), float(value.max()))
        for key, value in values.items()
        if value.dtype == np.float32 and value.size and np.isfinite(value).all()
    }
    return [*cases, Case(name, graph, inputs, ranges)]


def differences(
    compiled: CompiledModel, inputs: Mapping[str, Array], expected: Mapping[str, Array]
) -> list[str]:
    """What is wrong with a compiled model."""
    got = Simulator(compiled, 2).run(inputs)
    wrong = [
        f"'{name}' differs in {np.count_nonzero(got[name] != value)} of {value.size}"
        for name, value in expected.items()
        if got[name].dtype != value.dtype
        or not np.array_equal(got[name], value, equal_nan=value.dtype.kind == "f")
    ]
    return wrong + [str(finding) for finding in sanitize(compiled, inputs)[:1]]


def check(case: Case, target_name: str, levels: list[int], scheme: str | None = None) -> int:
    """Compile, execute and compare one network for one target; print a line a level; how many went wrong."""
    target = load_target(target_name)
    head = f"{case.name:28} {scheme or target_name:22}"
    try:
        if scheme is None:
            integers = quantize_network(case.graph, case.ranges, target=target).graph
        else:
            integers = quantize_network(case.graph, case.ranges, QuantizationConfig(scheme=scheme)).graph
    except NpucError as error:
        print(f"{head} --  REFUSED at quantization: {error}", flush=True)
        return 1
    inputs = case.inputs
    expected = IntegerEngine(integers, threads=2).run(inputs)
    failed = 0
    for level in levels:
        start = time.perf_counter()
        try:
            compiled = compile_model(integers, target, level=level)
            seconds = time.perf_counter() - start
            wrong = differences(compiled, inputs, expected)
            cycles = simulate(compiled).total
        except NpucError as error:
            print(f"{head} -O{level} REFUSED {error}", flush=True)
            failed += 1
            continue
        except Exception as error:  # a fault of the compiler: the sweep goes on
            print(f"{head} -O{level} FAULT {type(error).__name__}: {error}", flush=True)
            failed += 1
            continue
        on_cpu = sum(
            len(subgraph.reasons) for subgraph in compiled.subgraphs if isinstance(subgraph, CpuSubgraph)
        )
        parts = sum(isinstance(subgraph, NpuSubgraph) for subgraph in compiled.subgraphs)
        size = sum(
            len(stream)
            for subgraph in compiled.subgraphs
            if isinstance(subgraph, NpuSubgraph)
            for stream in subgraph.streams
        )
        words = "equal" if not wrong else "WRONG " + "; ".join(wrong)
        print(
            f"{head} -O{level} {words:6} {parts:2} parts {size:6} instructions {on_cpu:3} on the CPU"
            f" {cycles:10} cycles {seconds:6.1f} s",
            flush=True,
        )
        failed += bool(wrong)
    return failed


def main() -> int:
    """Sweep."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", default=",".join(files()))
    parser.add_argument("--targets", default=",".join(file.name for file in available()))
    parser.add_argument("--levels", default="0,2")
    parser.add_argument("--schemes", default="", help="on edge-4t, instead of the targets' own arithmetic")
    arguments = parser.parse_args()
    levels = [int(level) for level in arguments.levels.split(",")]
    failed = 0
    for name in arguments.models.split(","):
        try:
            cases = cases_of(name, files()[name])
        except NpucError as error:
            print(f"{name:28} REFUSED at import: {error}", flush=True)
            failed += 1
            continue
        for case in cases:
            if arguments.schemes:
                schemes = arguments.schemes.split(",") if case.ranges is not None else []
                failed += sum(check(case, "edge-4t", levels, scheme) for scheme in schemes)
            else:
                failed += sum(check(case, target, levels) for target in arguments.targets.split(","))
    print(f"{failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
