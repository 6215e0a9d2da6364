"""What a plugin registers things with, in one place: `from npuc.plugins.api import ...` stays valid from release to release.

docs/plugins.md has an example of each; `dataset`, `metric` and what they need are here too, and so are `torch_forward` and the
`rule` of every other importer, as `torch_rule`, `tensorflow_rule`, `keras_rule`, `caffe_rule` and `darknet_rule`. A name
that is taken is refused, as a fault of the plugin, unless `replace=True` says that this is meant.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from npuc.arithmetic.requantization import quantize_multiplier, round_away
from npuc.arrays import Array
from npuc.frontend.formats import Format, add_format
from npuc.frontend.onnx.registry import rule as onnx_rule
from npuc.frontend.onnx.subgraphs import onnx_pattern, onnx_subgraph
from npuc.frontend.tflite.registry import rule as tflite_rule
from npuc.ir import Graph, Value, dtype_of, npu, shape_of, tensor_type, top
from npuc.ir.claims import claims
from npuc.ir.definition import (
    TopOp,
    boolean,
    dictionary,
    integer,
    integers,
    number,
    numbers,
    operand,
    operands,
    optional_operand,
    require,
    result,
    text,
    texts,
    top_op,
)
from npuc.ir.dtypes import QuantType, quant_of
from npuc.ir.npu.definition import NpuOp, npu_op, quantized
from npuc.ir.subgraph_rules import SubgraphMatch, top_pattern, top_subgraph
from npuc.ir.target_rewrites import target_rewrite
from npuc.ir.verification import verifier
from npuc.kernels.custom import register_kernel
from npuc.partition.accelerators import Accelerator, add_accelerator
from npuc.partition.kinds import describes
from npuc.plugins.ops import custom_instruction, float_forward, kernel
from npuc.program.custom_kernels import KernelCall
from npuc.quant.ladder import step
from npuc.quant.lowering.registry import NoIntegerForm, lowers
from npuc.schedule.rules.custom import custom_layer
from npuc.target.vocabulary import add_op_kind

_LATE = {
    **dict.fromkeys(("DataSet", "dataset"), "npuc.datasets.data"),
    **dict.fromkeys(("LoadedSample", "SampleEntry"), "npuc.datasets.sample"),
    "Entry": "npuc.datasets.sample:SampleEntry",
    "Loaded": "npuc.datasets.sample:LoadedSample",
    "metric": "npuc.metrics.measuring",
    "torch_forward": "npuc.engine.torch.registry:handles",
    **{
        f"{name}_rule": f"npuc.frontend.{name}.registry:rule"
        for name in ("torch", "tensorflow", "keras", "caffe", "darknet")
    },
}
"""Imported at first use: plugins that do not evaluate or train do not pay for it."""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"npuc.plugins.api has no '{name}'")
    module, _, other = _LATE[name].partition(":")
    return getattr(import_module(module), other or name)


__all__ = [
    "Accelerator",
    "Array",
    "Format",
    "Graph",
    "KernelCall",
    "NoIntegerForm",
    "NpuOp",
    "QuantType",
    "SubgraphMatch",
    "TopOp",
    "Value",
    "add_accelerator",
    "add_format",
    "add_op_kind",
    "boolean",
    "claims",
    "custom_instruction",
    "custom_layer",
    "describes",
    "dictionary",
    "dtype_of",
    "float_forward",
    "integer",
    "integers",
    "kernel",
    "lowers",
    "npu",
    "npu_op",
    "number",
    "numbers",
    "onnx_pattern",
    "onnx_rule",
    "onnx_subgraph",
    "operand",
    "operands",
    "optional_operand",
    "quant_of",
    "quantize_multiplier",
    "quantized",
    "register_kernel",
    "require",
    "result",
    "round_away",
    "shape_of",
    "step",
    "target_rewrite",
    "tensor_type",
    "text",
    "texts",
    "tflite_rule",
    "top",
    "top_op",
    "top_pattern",
    "top_subgraph",
    "verifier",
]
