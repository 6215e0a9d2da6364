"""`vai_q_onnx`: the vendor's quantizer of ONNX models, on npuc.

    vai_q_onnx.quantize_static("model.onnx", "model_int8.onnx", reader)

The result is an ONNX file with QuantizeLinear and DequantizeLinear nodes of ONNX itself, in every format but QOperator: stock
ONNX Runtime runs it, and `npuc compile`, `vai_c_xir` and the execution provider find its integers. QOperator is ONNX's operators
on integers, which compute what the DPU does to the bit, and which no compiler reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    shape_inference,
)

from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.compat.vitis.dumps import DumpFolder
from npuc.compat.vitis.notices import near_names, note, unknown_option, warn, without_effect
from npuc.compat.vitis.quantization import (
    dpu_scheme,
    dpu_settings,
    float_layers,
    network_of,
    quantized_by,
    single_rows,
)
from npuc.debug.layers import layer_tensors
from npuc.engine import IntegerEngine
from npuc.errors import CalibrationDataError, FileFormatError, UnknownTensorError, UsageError
from npuc.export.qdq import export_quantized_onnx
from npuc.files import existing_model
from npuc.flow import quantize_network
from npuc.ir import Graph, result_names
from npuc.quant.config import QuantizationConfig
from npuc.quant.prequantized import is_quantized

__all__ = [
    "CalibrationDataReader",
    "CalibrationMethod",
    "PowerOfTwoMethod",
    "QuantFormat",
    "QuantType",
    "VitisQuantFormat",
    "dump_model",
    "quantize_static",
    "shape_inference",
]


class VitisQuantFormat(Enum):
    """The formats of the vendor's own nodes; npuc writes ONNX's nodes for both."""

    QDQ = 2
    FixNeuron = 3


class PowerOfTwoMethod(Enum):
    """How powers of two are chosen."""

    NonOverflow = 0
    MinMSE = 1


_EXTRA_OPTIONS = {
    "ActivationSymmetric": bool,
    "WeightSymmetric": bool,
    "ForceQuantizeNoInputCheck": bool,
    "MatMulConstBOnly": bool,
    "AddQDQPairToWeight": bool,
}
_OF_THE_FORM = ("ForceQuantizeNoInputCheck", "AddQDQPairToWeight")
"""Options that decide where nodes stand in the file, and no integer."""
_WEIGHTED = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
"""Operators that make their layer float if they are not quantized, whatever was fused behind them."""
_METHODS = {
    "NonOverflow": "max",
    "MinMSE": None,
    "MinMax": "max",
    "Entropy": "kl",
    "Percentile": "percentile",
}
"""Range methods; MinMSE leaves npuc to hold the ranges of least squared error against those that clip nothing."""


def quantize_static(
    model_input: Path | str,
    model_output: Path | str,
    calibration_data_reader: Any,
    quant_format: Any = VitisQuantFormat.FixNeuron,
    calibrate_method: Any = PowerOfTwoMethod.MinMSE,
    input_nodes: Sequence[str] | None = (),
    output_nodes: Sequence[str] | None = (),
    op_types_to_quantize: Sequence[str] | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    activation_type: Any = QuantType.QInt8,
    weight_type: Any = QuantType.QInt8,
    nodes_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
    optimize_model: bool = True,
    use_external_data_format: bool = False,
    extra_options: Mapping[str, Any] | None = None,
) -> None:
    """Quantize an ONNX model on the data of a reader and write it in a format; random data if there is no reader."""
    if not isinstance(model_input, str | Path):
        raise UsageError(
            f"model_input is a {type(model_input).__name__}",
            fix="Give the path of an ONNX file; onnx.save writes one",
        )
    _check_format(quant_format)
    if not optimize_model:
        without_effect("optimize_model=False", "npuc always folds and fuses before it quantizes")
    extra = _extra(extra_options)
    scheme = _scheme(calibrate_method, per_channel, reduce_range, activation_type, weight_type, extra)
    path = existing_model(model_input)
    whole = _nodes_of(path)
    nodes = _selected(
        whole,
        input_nodes or (),
        output_nodes or (),
        op_types_to_quantize,
        nodes_to_quantize,
        nodes_to_exclude or (),
        only_constant_operands=bool(extra.get("MatMulConstBOnly")),
    )
    graph = network_of(path)
    if is_quantized(graph):
        raise UsageError(f"{path} is quantized already", fix="Give the float model")
    config, target = dpu_settings() if scheme == dpu_scheme() else (QuantizationConfig(scheme=scheme), None)
    if nodes is not None:
        floats = {
            name for node in whole if node.op_type in _WEIGHTED for name in (node.name, *node.output)
        } - nodes
        config = config.with_layers(float_layers(graph, nodes.__contains__, floats - {""}), "float")
    samples = None
    if calibration_data_reader is None:
        warn("there is no data reader: ranges come from random data, and accuracy means nothing")
    else:
        samples = single_rows(graph, _batches(calibration_data_reader))
    method = _METHODS[calibrate_method.name]
    done = quantized_by(graph, samples, config, target=target, method=method, warn=note)
    form = "integer" if quant_format is QuantFormat.QOperator else "qdq"
    export_quantized_onnx(done.graph, model_output, form, True if use_external_data_format else None)
    integer, total = done.outcome.integer, len(done.outcome.layers)
    note(f"{path} -> {model_output}: {integer} of {total} layers are integers")


def dump_model(
    model: Path | str,
    dump_data_reader: Any = None,
    output_dir: Path | str = "./dump_results",
    dump_float: bool = False,
) -> None:
    """Write the weights and, of the reader's first batch, every tensor of a quantized model as `quant_NAME.bin` and `.txt`.

    Tensors that are not quantized are written as `quant_NAME_float` if `dump_float` is true.
    """
    path = existing_model(model)
    graph = network_of(path)
    if not is_quantized(graph):
        raise UsageError(f"{path} is not quantized", fix="Give a model that quantize_static wrote")
    integers = quantize_network(graph).graph
    if dump_data_reader is None:
        sample: Mapping[str, Array] = random_inputs(graph)
    else:
        sample = next(single_rows(graph, _batches(dump_data_reader)), {})
        if not sample:
            raise CalibrationDataError("the data reader gives nothing")
    folder = DumpFolder(output_dir)
    write_weights(folder, integers, "quant_")
    for tensor in layer_tensors(IntegerEngine(integers), sample):
        if tensor.scale:
            folder.write(f"quant_{tensor.name}", tensor.values)
        elif dump_float:
            folder.write(f"quant_{tensor.name}_float", tensor.values)


def write_weights(folder: DumpFolder, graph: Graph, prefix: str = "") -> None:
    """Write the integer weights and biases of a network, called by the layer that has them."""
    for op in graph.ops:
        for operand, word in (("weight", "weights"), ("bias", "bias")):
            array = graph.constant(getattr(op, operand, None))
            if array is not None and array.dtype.kind in "iu":
                folder.write(f"{prefix}{result_names(op)[0]}_{word}", array)


def _check_format(quant_format: Any) -> None:
    if quant_format is QuantFormat.QOperator:
        note(
            "QOperator is written as ConvInteger, MatMulInteger and integer arithmetic; QDQ is the format to compile"
        )
    if not isinstance(quant_format, VitisQuantFormat | QuantFormat):
        raise UsageError(
            f"quant_format is {quant_format!r}",
            fix="Give VitisQuantFormat.FixNeuron, VitisQuantFormat.QDQ, QuantFormat.QDQ or QuantFormat.QOperator",
        )
    if isinstance(quant_format, VitisQuantFormat):
        note(
            f"{quant_format.name} is written as ONNX's own QuantizeLinear and DequantizeLinear, with the same integers"
        )


def _extra(options: Mapping[str, Any] | None) -> dict[str, Any]:
    if options is not None and not isinstance(options, Mapping):
        raise UsageError(f"extra_options is a {type(options).__name__}, and has to be a dictionary")
    known = {}
    for name, value in (options or {}).items():
        if name not in _EXTRA_OPTIONS:
            unknown_option(name, "extra_options")
            continue
        if not isinstance(value, _EXTRA_OPTIONS[name]):
            raise UsageError(f"extra_options['{name}'] is {value!r}, and has to be True or False")
        if name in _OF_THE_FORM:
            without_effect(f"extra_options['{name}']", "the integers are the same either way")
        known[name] = value
    return known


def _scheme(
    method: Any, per_channel: bool, reduce_range: bool, activation: Any, weight: Any, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """The scheme that the arguments ask for."""
    for name, kind in (("activation_type", activation), ("weight_type", weight)):
        if kind not in (QuantType.QInt8, QuantType.QUInt8):
            raise UsageError(f"{name} is {kind}", fix="Give QuantType.QInt8 or QuantType.QUInt8")
    weight_type = "i7" if reduce_range else "i8"
    if isinstance(method, PowerOfTwoMethod):
        if QuantType.QUInt8 in (activation, weight):
            raise UsageError(
                "powers of two are for signed integers", fix="Give QuantType.QInt8 for both types"
            )
        for name in ("ActivationSymmetric", "WeightSymmetric"):
            if not extra.get(name, True):
                raise UsageError(
                    f"extra_options['{name}'] is False, and powers of two are symmetric",
                    fix="Give a CalibrationMethod, or leave it out",
                )
        return dpu_scheme(weight=weight_type, per_channel=per_channel)
    if not isinstance(method, CalibrationMethod) or method.name not in _METHODS:
        raise UsageError(
            f"calibrate_method is {method!r}",
            fix="Give PowerOfTwoMethod.MinMSE or NonOverflow, or CalibrationMethod.MinMax, Entropy or Percentile",
        )
    scales = "symmetric" if extra.get("ActivationSymmetric", False) else "affine"
    affine_weights = weight is QuantType.QUInt8 or not extra.get("WeightSymmetric", True)
    if affine_weights and reduce_range:
        raise UsageError(
            "reduce_range is for symmetric weights here",
            fix="Leave it out, or give QuantType.QInt8 and WeightSymmetric=True",
        )
    if affine_weights and per_channel:
        raise UsageError(
            "affine weights have one scale a tensor here",
            fix="Leave per_channel out, or WeightSymmetric=False",
        )
    return {
        "activation": "i8" if activation is QuantType.QInt8 else "ui8",
        "activation_scales": scales,
        "weight": "ui8" if affine_weights else weight_type,
        "weight_scales": "affine" if affine_weights else "symmetric",
        "per_channel": per_channel,
        "requant": "float_scale",
    }


def _batches(reader: Any) -> Iterator[Mapping[str, Any]]:
    """What a data reader gives until it gives None."""
    get_next = getattr(reader, "get_next", None)
    if get_next is None:
        raise UsageError(
            f"the data reader is a {type(reader).__name__}, and has no get_next()",
            fix="Derive it from vai_q_onnx.CalibrationDataReader",
        )
    while (batch := get_next()) is not None:
        yield batch


def _nodes_of(path: Path) -> list[onnx.NodeProto]:
    try:
        return list(onnx.load(path, load_external_data=False).graph.node)
    except Exception as error:
        # protobuf raises its own errors for anything that is no message.
        raise FileFormatError(f"is not an ONNX file: {error}", where=str(path)) from error


def _selected(
    nodes: Sequence[onnx.NodeProto],
    first: Iterable[str],
    last: Iterable[str],
    op_types: Sequence[str] | None,
    chosen: Sequence[str] | None,
    excluded: Iterable[str],
    *,
    only_constant_operands: bool,
) -> frozenset[str] | None:
    """Names of nodes and results that are quantized; None for all."""
    for option, given in (
        ("input_nodes", first),
        ("output_nodes", last),
        ("op_types_to_quantize", op_types),
        ("nodes_to_quantize", chosen),
        ("nodes_to_exclude", excluded),
    ):
        if isinstance(given, str):
            raise UsageError(f"{option} is the string '{given}'", fix=f"Give a list: ['{given}']")
    first, last, excluded = tuple(first), tuple(last), tuple(excluded)
    if not (first or last or op_types or chosen or excluded or only_constant_operands):
        return None
    by_name = {name: node for node in nodes for name in (node.name, *node.output) if name}
    for name in (*first, *last, *(chosen or ()), *excluded):
        if name not in by_name:
            raise UnknownTensorError(f"the model has no node '{name}'", fix=near_names(name, by_name))
    left_out = _before(nodes, [by_name[name] for name in first]) | _after(
        nodes, [by_name[name] for name in last]
    )
    left_out |= {id(by_name[name]) for name in excluded}
    names: set[str] = set()
    chosen_nodes = {id(by_name[name]) for name in chosen or ()}
    computed = {name for node in nodes if node.op_type != "Constant" for name in node.output}
    for node in nodes:
        dropped = (
            id(node) in left_out
            or (op_types and node.op_type not in op_types)
            or (chosen and id(node) not in chosen_nodes)
            or (only_constant_operands and node.op_type == "MatMul" and node.input[1] in computed)
        )
        if not dropped:
            names.update((node.name, *node.output))
    return frozenset(names - {""})


def _before(nodes: Sequence[onnx.NodeProto], starts: Sequence[onnx.NodeProto]) -> set[int]:
    """The nodes that the starts depend on."""
    maker = {name: node for node in nodes for name in node.output}
    waiting, reached = list(starts), set[int]()
    while waiting:
        for name in waiting.pop().input:
            node = maker.get(name)
            if node is not None and id(node) not in reached:
                reached.add(id(node))
                waiting.append(node)
    return reached


def _after(nodes: Sequence[onnx.NodeProto], ends: Sequence[onnx.NodeProto]) -> set[int]:
    """The nodes that depend on the ends."""
    behind = {name for node in ends for name in node.output}
    reached = set[int]()
    for node in nodes:  # in the order of their dependencies, as ONNX demands
        if behind.intersection(node.input):
            reached.add(id(node))
            behind.update(node.output)
    return reached
