"""`model_deploy.py`: quantize an .mlir file and compile it for a chip, comparing every op on the way.

Two comparisons, as in TPU-MLIR: each op of the quantized network with the float one, by a tolerance; and the outputs of the
compiled program with those of the quantized network, which are equal to the bit here. The .bmodel is npuc's compiled model under
that name.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.codegen.compile_model import CompileOptions
from npuc.compare.tensors import Tolerance, compare_sets
from npuc.compat.arguments import VendorParser, comma_list, keyword
from npuc.compat.running import warn
from npuc.compat.tpumlir.chips import add_chip, chip_named
from npuc.compat.tpumlir.fused_inputs import MOSAICS, PIXELS, YUV, fused_ranges, with_fused_inputs
from npuc.compat.tpumlir.inputs import as_float, read_inputs, read_reference, real_tensors
from npuc.compat.tpumlir.names import names_of
from npuc.compat.tpumlir.ranges import (
    SCHEME_OF,
    int8_config,
    layers_of,
    merged_like,
    ranges_for,
    scales_of_maxima,
    weight_scales_for,
    with_measured,
)
from npuc.compat.tpumlir.runner_command import layers_of_program
from npuc.compat.tpumlir.tables import read_calibration, read_quantization
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.errors import UsageError
from npuc.files import existing_file, writable
from npuc.flow import Quantized, compile_network, network_to_quantize, quantize_network, save_graph
from npuc.ir import Graph
from npuc.ir.target_rewrites import rewritten_for
from npuc.program.file import save_compiled
from npuc.quant.config import QuantizationConfig
from npuc.quant.prequantized import is_quantized
from npuc.runtime.engine import CompiledEngine
from npuc.schedule.cache import Cache
from npuc.target import Target
from npuc.tensors import TensorFile, write_npz
from npuc.words import counted

_UNSUPPORTED = {
    "F8E4M3": "no chip here computes with eight-bit floats",
    "F8E5M2": "no chip here computes with eight-bit floats",
}
_QUANTIZE = (*SCHEME_OF, "INT8", "INT4", "QDQ", *_UNSUPPORTED)


def parser() -> VendorParser:
    """The options of the command."""
    own = VendorParser("model_deploy.py", "Quantize an .mlir file and compile it for a chip.")
    own.add("--mlir", required=True, help="the .mlir file of model_transform.py")
    own.add("--quantize", type=keyword(*_QUANTIZE), default="F32")
    own.add("--asymmetric", action="store_true", help="activations with zero points")
    add_chip(own, required=True)
    own.add("--calibration_table", help="for INT8 of a float network")
    own.add("--quantize_table", help="ops that have another type")
    own.add(
        "--tolerance", default="0.8,0.5", help="least cosine and euclid similarity of an op to the float one"
    )
    own.add("--test_input", help="an image, an .npz file, or files for all inputs, between commas")
    own.add("--test_reference", help="the .npz file of the float network's tensors; computed if absent")
    own.add("--excepts", default="-", help="ops that are not compared")
    own.add("--model", required=True, help="the compiled model to write")
    own.add("--debug", action="store_true", help="keep all files")
    own.add("--core", "--num_core", dest="core", type=int, default=1, help="cores to use")
    own.add("--quant_input", action="store_true", help="the program takes integers")
    own.add("--quant_output", action="store_true", help="the program gives integers")
    own.add("--opt", type=int, choices=(1, 2, 3), default=2, help="effort of the search for layer groups")
    own.add("--disable_layer_group", action="store_true", help="no layer groups")
    own.add("--compare_all", action="store_true", help="also compare every op of the compiled program")
    own.add("--skip_validation", action="store_true", help="compare nothing")
    own.add_ignored("--op_divide", "the schedule splits what does not fit anyway", action="store_true")
    own.add_ignored("--merge_weight", "weights of a model are stored once anyway", action="store_true")
    own.add_ignored("--addr_mode", "npuc relocate moves a compiled model")
    own.add_ignored(
        "--ignore_f16_overflow", "layers that leave the range of f16 are told by name", action="store_true"
    )
    own.add_ignored("--compress_mode", "weights are compressed where that is faster")
    own.add_ignored("--do_winograd", "it is for the BM1684 alone", action="store_true")
    own.add_refused("--dynamic", "programs have static shapes", action="store_true", unless=False)
    own.add("--quant_input_list", default="", help="the inputs that are integers, counted from 1: 1,3")
    own.add("--quant_output_list", default="", help="the outputs that are integers, counted from 1: 1,3")
    own.add(
        "--fuse_preprocess", action="store_true", help="the program takes pixels and normalizes them itself"
    )
    own.add(
        "--customization_format", type=keyword(*PIXELS, *YUV, *MOSAICS), help="the pixels that are given then"
    )
    own.add_ignored(
        "--aligned_input", "frames of the CV18xx are aligned, and inputs here are not", action="store_true"
    )
    return own


@dataclass(frozen=True)
class _Names:
    """The files of a deployment."""

    prefix: str
    """In the folder of the model: NETWORK_CHIP_QUANTIZE, and _sym or _asym."""

    def __getitem__(self, ending: str) -> Path:
        return Path(f"{self.prefix}_{ending}")


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parser().parse(arguments)
    existing_file(options.mlir)
    writable(options.model)
    tolerance = Tolerance.parse(options.tolerance)
    target = chip_named(options.chip, "model_deploy.py")
    if options.quantize in _UNSUPPORTED:
        raise UsageError(f"--quantize {options.quantize} is not supported: {_UNSUPPORTED[options.quantize]}")
    cores = min(options.core, target.compute.cores)
    if cores < options.core:
        raise UsageError(f"--core {options.core}: {target.name} has {target.compute.cores}")
    graph = network_to_quantize(options.mlir)
    if options.customization_format and not options.fuse_preprocess:
        raise UsageError("--customization_format is for --fuse_preprocess", fix="Add --fuse_preprocess")
    if options.fuse_preprocess:
        graph = with_fused_inputs(graph, options.customization_format)
    inputs = read_inputs(graph, options.test_input, "--test_input") if options.test_input else None
    for side, ports in (("input", graph.inputs), ("output", graph.outputs)):
        _listed(options, side, [port.name for port in ports])
    if options.test_reference and inputs is not None and not options.skip_validation:
        TensorFile(existing_file(options.test_reference))
    quantized = _quantized(graph, target, inputs, options)
    files = _files(graph, options)
    save_graph(quantized.graph, files["tpu.mlir"])
    print(f"Mlir file generated: {files['tpu.mlir']}")
    failed = 0
    results: dict[str, Array] = {}
    if options.skip_validation:
        inputs = None
    if inputs is not None:
        results = _run(quantized.graph, inputs)
        write_npz(files["tpu_outputs.npz"], names_of(graph).outward(as_float(results)))
        failed = _compare(graph, inputs, results, tolerance, options)
    compiled = compile_network(
        quantized.graph,
        target,
        _compile_options(quantized.graph, options, cores),
        graph.name or Path(options.mlir).stem,
    )
    save_compiled(compiled.model, options.model)
    print(f"{options.model} is a compiled model of npuc for {target.name}")
    if inputs is not None:
        failed += _compare_program(
            compiled.model, inputs, results, files, names_of(graph).vendor_name, options
        )
    if options.debug:
        save_graph(quantized.graph, files["final.mlir"])
    return 1 if failed else 0


def _files(graph: Graph, options: Namespace) -> _Names:
    network = graph.name or Path(options.mlir).stem
    quantize = options.quantize.lower()
    kind = ("_asym" if options.asymmetric else "_sym") if quantize in ("int8", "int4") else ""
    folder = Path(options.model).parent
    return _Names(str(folder / f"{network}_{options.chip.lower()}_{quantize}{kind}"))


def _quantized(
    graph: Graph, target: Target, inputs: Mapping[str, Array] | None, options: Namespace
) -> Quantized:
    """The network in the types that the options ask for."""
    graph = rewritten_for(graph, target, "float")
    if is_quantized(graph) or options.quantize == "QDQ":
        if not is_quantized(graph):
            raise UsageError("--quantize QDQ is for a model that brings its own quantization")
        if options.calibration_table:
            warn("model_deploy.py: the model brings its own quantization; the calibration table is not used")
        return quantize_network(graph, None, None, target)
    layers: dict[str, Any] = {}
    if options.quantize_table:
        modes = read_quantization(existing_file(options.quantize_table))
        layers = layers_of(graph, modes, options.quantize_table)
    if options.quantize in SCHEME_OF:
        config = QuantizationConfig(scheme=SCHEME_OF[options.quantize], layers=layers)
        return quantize_network(graph, {}, config, target)
    if not options.calibration_table:
        raise UsageError(
            f"--quantize {options.quantize} of a float network needs --calibration_table",
            fix="run_calibration.py writes one",
        )
    table = read_calibration(existing_file(options.calibration_table))
    ranges = ranges_for(graph, table, options.calibration_table)
    if options.fuse_preprocess:
        ranges = fused_ranges(graph, ranges)
    graph = merged_like(graph, ranges)
    ranges = with_measured(graph, ranges, inputs, options.calibration_table)
    config = int8_config(target, asymmetric=options.asymmetric).model_copy(update={"layers": layers})
    if options.quantize == "INT4":
        config = config.with_options({"weight": "i4"})
    scales = weight_scales_for(graph, table, options.calibration_table)
    if options.quantize == "INT8":
        scales = scales_of_maxima(graph, target) | scales
    return quantize_network(graph, ranges, config, target, scales)


def _compile_options(graph: Graph, options: Namespace, cores: int) -> CompileOptions:
    ends = {(True, False): "inputs", (False, True): "outputs", (True, True): "both"}
    taken = _listed(options, "input", [port.name for port in graph.inputs])
    given = _listed(options, "output", [port.name for port in graph.outputs])
    return CompileOptions(
        level=0 if options.disable_layer_group else options.opt,
        cores=cores,
        cache=Cache.default(),
        integer_ends=ends.get((bool(taken), bool(given)), ""),
        integer_ports=(*taken, *given),
    )


def _listed(options: Namespace, side: str, ports: list[str]) -> list[str]:
    """The inputs or outputs that are to be integers: all of them with --quant_input, those of --quant_input_list otherwise."""
    if vars(options)[f"quant_{side}"]:
        return ports
    option = f"quant_{side}_list"
    numbers = comma_list(vars(options)[option])
    wrong = [word for word in numbers if not word.isdecimal() or not 1 <= int(word) <= len(ports)]
    if wrong:
        raise UsageError(
            f"--{option} names {side} {wrong[0]}, and the network has {counted(len(ports), side)}",
            where="model_deploy.py",
            fix=f"Count from 1 to {len(ports)}: {', '.join(ports)}",
        )
    return [ports[int(word) - 1] for word in numbers]


def _run(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of a quantized network, as reals."""
    engine = IntegerEngine(graph, fetch=ALL_TENSORS, threads=len(os.sched_getaffinity(0)))
    return engine.run(inputs)


def _compare(
    graph: Graph,
    inputs: Mapping[str, Array],
    results: Mapping[str, Array],
    tolerance: Tolerance,
    options: Namespace,
) -> int:
    """How many ops of the quantized network are beyond the tolerance."""
    if options.test_reference:
        reference = read_reference(graph, options.test_reference)
    else:
        reference = real_tensors(graph, {**inputs, **FloatEngine(graph, fetch=ALL_TENSORS).run(inputs)})
    names = names_of(graph)
    leave_out = (
        [] if options.excepts == "-" else [names.npuc_name(name) for name in comma_list(options.excepts)]
    )
    if options.fuse_preprocess:  # an input is pixels now, and was normalized in the reference
        leave_out += [port.name for port in graph.inputs]
    figures = compare_sets(results, reference, leave_out)
    failures = [entry for entry in figures if not entry.passes(tolerance)]
    for entry in figures:
        verdict = "FAILED" if entry in failures else "PASSED"
        print(
            f"[{names.vendor_name(entry.name):<32}] {verdict} cosine {entry.cosine:.6f}, euclid {entry.euclid:.6f}, "
            f"SQNR {entry.sqnr:.2f} dB {entry.note}".rstrip()
        )
    worst = min(figures, key=lambda entry: entry.cosine)
    print(
        f"{len(figures)} ops against float: {len(figures) - len(failures)} passed, {len(failures)} failed; least cosine "
        f"{worst.cosine:.6f} at {names.vendor_name(worst.name)}"
    )
    print(f"npz compare {'FAILED' if failures else 'PASSED'}.")
    return len(failures)


def _compare_program(
    model: Any,
    inputs: Mapping[str, Array],
    results: Mapping[str, Array],
    files: _Names,
    spelled: Any,
    options: Namespace,
) -> int:
    """How many outputs of the compiled program are not those of the quantized network."""
    if options.quant_input or options.quant_input_list:
        warn("the compiled program takes integers; its outputs are not compared")
        return 0
    outputs = CompiledEngine(model).run(inputs)
    write_npz(files["model_outputs.npz"], {spelled(name): array for name, array in as_float(outputs).items()})
    compared = {name: np.asarray(array) for name, array in outputs.items()}
    if options.compare_all:
        layers = layers_of_program(model, inputs)
        compared = {name: array for name, array in layers.items() if name in results} | compared
    integers = _listed(options, "output", list(outputs))
    wrong = [
        name
        for name, array in compared.items()
        if name not in integers and name in results and not np.array_equal(array, results[name])
    ]
    for name in wrong:
        print(f"[{spelled(name):<32}] FAILED: the program and the quantized network differ")
    print(
        f"{counted(len(compared), 'tensor')} of the program against the quantized network: {len(compared) - len(wrong)} equal"
    )
    return len(wrong)
