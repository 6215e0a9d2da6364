"""`model_runner.py`: run a model on an .npz file: compiled, .mlir (float or quantized), or of its own framework."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.compiled import interface_of
from npuc.compat.arguments import VendorParser
from npuc.compat.names import NameMap
from npuc.compat.running import warn
from npuc.compat.tpumlir.inputs import as_float, read_inputs, real_tensors
from npuc.compat.tpumlir.names import TOOL, names_of, names_of_compiled, operator_names
from npuc.debug.compiled import CompiledLayers
from npuc.engine import ALL_TENSORS, IntegerEngine
from npuc.engine.compute_device import check_device, computing_on, float_engine
from npuc.errors import ExportError
from npuc.files import existing_file, existing_model, writable
from npuc.flow import load_model
from npuc.frontend.options import ImportOptions
from npuc.frontend.sniff import describe_content
from npuc.ir import Graph
from npuc.program.file import load_compiled
from npuc.quant.report import is_integer
from npuc.runtime.engine import CompiledEngine
from npuc.tensors import write_npz
from npuc.words import counted


def parser() -> VendorParser:
    """The options of the command."""
    own = VendorParser("model_runner.py", "Run a model on an .npz file.")
    own.add("--input", required=True, help="an .npz file, an image, or files for all inputs, between commas")
    own.add("--model", required=True, help="a compiled model, .mlir, .onnx, .tflite, .pt or .prototxt")
    own.add("--weight", help="the .caffemodel of a .prototxt")
    own.add("--output", default="_output.npz", help="the .npz file to write")
    own.add("--dump_all_tensors", action="store_true", help="every tensor, not the outputs alone")
    own.add("--out_fixed", action="store_true", help="integers of quantized tensors as they are")
    own.add_ignored("--debug", "there is nothing more to keep", action="store_true")
    own.add_ignored("--disable_mask", "every tensor is computed whole", action="store_true")
    own.add_ignored("--decrypt_lib", "compiled models are signed here, not encrypted")
    own.add("--cuda", action="store_true", help="compute an .mlir file on a GPU, with torch")
    return own


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parser().parse(arguments)
    model = existing_model(options.model)
    writable(options.output)
    compiled = describe_content(model).kind == "npu"
    if options.cuda and compiled:
        warn("model_runner.py: --cuda has no effect here: a compiled model is executed by the simulator")
    elif options.cuda:
        check_device("cuda", "--cuda")
    tensors, names = _run_compiled(model, options) if compiled else _run_network(model, options)
    stored = tensors if options.out_fixed else as_float(tensors)
    write_npz(options.output, names.outward(stored))
    for name, array in stored.items():
        if len(stored) <= 8:
            print(f"{names.vendor_name(name)} {list(array.shape)} {array.dtype}")
    print(f"{counted(len(stored), 'tensor')} written to {options.output}")
    return 0


def _run_network(model: Path, options: Namespace) -> tuple[dict[str, Array], NameMap]:
    weights = existing_file(options.weight) if options.weight else None
    graph = load_model(model, ImportOptions(weights=weights) if weights else None)
    if not graph.names_for(TOOL):
        graph.set_names_for(TOOL, operator_names(model))
    inputs = read_inputs(graph, options.input, "--input")
    fetch: Any = ALL_TENSORS if options.dump_all_tensors else ()
    if is_integer(graph) and options.out_fixed and not fetch:
        fetch = [port.name for port in graph.outputs if graph.find(port.name) is not None]
    results = _engine(graph, fetch, options).run(inputs)
    tensors = {**inputs, **results} if options.dump_all_tensors else results
    return (tensors if options.out_fixed else real_tensors(graph, tensors)), names_of(graph)


def _engine(graph: Graph, fetch: Any, options: Namespace) -> Any:
    """What runs a network, float or integer, on the CPU or with --cuda on a GPU: integers are the same."""
    threads = len(os.sched_getaffinity(0))
    if not is_integer(graph):
        with computing_on("cuda" if options.cuda else "cpu"):
            return float_engine(graph, fetch, threads)
    if options.cuda:
        from npuc.export.torch.engine import TorchIntegerEngine

        try:
            return TorchIntegerEngine(graph, fetch, "cuda", raw=options.out_fixed)
        except ExportError as error:
            warn(f"model_runner.py: --cuda: {error.message}: computed on the CPU")
    return IntegerEngine(graph, fetch=fetch, threads=threads, raw=options.out_fixed)


def _run_compiled(model: Path, options: Namespace) -> tuple[dict[str, Array], NameMap]:
    compiled = load_compiled(model)
    inputs = read_inputs(interface_of(compiled), options.input, "--input")
    outputs = CompiledEngine(compiled, raw=options.out_fixed).run(inputs)
    names = names_of_compiled(compiled)
    if not options.dump_all_tensors:
        return outputs, names
    tensors: dict[str, Array] = dict(inputs)
    CompiledLayers(compiled).trace(inputs, lambda tensor: keep(tensors, tensor, options.out_fixed))
    return {**tensors, **outputs}, names


def keep(tensors: dict[str, Array], tensor: Any, fixed: bool = False) -> bool:
    """Store a tensor of a traced run; what has a scale as reals, unless integers are wanted. The run goes on."""
    reals = None if fixed else tensor.reals
    tensors[tensor.name] = np.array(tensor.values if reals is None else reals)
    return False


def layers_of_program(model: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of a compiled model as reals."""
    tensors: dict[str, Array] = {}
    CompiledLayers(model).trace(inputs, lambda tensor: keep(tensors, tensor))
    return tensors
