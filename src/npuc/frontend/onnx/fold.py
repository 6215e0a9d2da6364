"""Evaluating small constant nodes at import.

Exporters spell shapes out as graphs (Shape, Gather, Concat, Reshape). Their results must be known while the importer
runs, because `top` ops have shapes as properties. The common operators of such graphs are a few lines of NumPy each;
the rest goes to ONNX Runtime as a model of one node. Large constants are left to the `fold-constants` pass.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, helper, numpy_helper

from npuc.arrays import Array
from npuc.errors import InvalidModelError
from npuc.frontend.onnx.node import OnnxNode
from npuc.frontend.onnx.reader import element_type
from npuc.frontend.onnx.validity import infer_outputs
from npuc.ir import dtype_of

LIMIT = 1 << 14
"""Nodes whose inputs have more elements than this are not folded here."""
MAX_OPSET = 26
"""The newest operator set that ONNX Runtime runs."""

_RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
}
_SHRINKING = {"NonZero", "Compress", "Unique"}
"""Operators whose results have a size that depends on data, but is never larger than their inputs."""
_PLAIN = {
    *(
        "Abs",
        "Add",
        "And",
        "ArgMax",
        "ArgMin",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
    ),
    *(
        "Cast",
        "CastLike",
        "Ceil",
        "Clip",
        "Compress",
        "Concat",
        "ConstantOfShape",
        "Cos",
        "CumSum",
        "Div",
        "Dropout",
    ),
    *(
        "Einsum",
        "Equal",
        "Erf",
        "Exp",
        "Expand",
        "EyeLike",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
    ),
    *(
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "Log",
        "MatMul",
        "Max",
        "Mean",
    ),
    *("Min", "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot", "Or", "Pad", "Pow", "Range", "Reciprocal"),
    *(
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
    ),
    *(
        "ReduceSum",
        "ReduceSumSquare",
        "Relu",
        "Reshape",
        "Round",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Sigmoid",
    ),
    *(
        "Sign",
        "Sin",
        "Size",
        "Slice",
        "Softmax",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Tan",
        "Tanh",
        "Tile",
        "TopK",
    ),
    *("Transpose", "Trilu", "Unique", "Unsqueeze", "Where", "Xor"),
}
"""What ONNX Runtime evaluates here: the arithmetic of shapes, masks and tables. Some kernels of other operators trust
their attributes and end the process on a hostile one (Attention divides by its number of heads)."""
_DATA_LIMIT = 4096
_CONTROL = {"If", "Loop", "Scan", "SequenceMap"}
_KEPT = {"DequantizeLinear"}
"""Says how a weight is quantized, which its value would not."""


def _axes(node: OnnxNode, inputs: list[Array], since: int) -> tuple[int, ...] | None:
    if node.opset < since:
        axes: tuple[int, ...] | None = node.ints("axes", None)
        return axes
    return tuple(int(i) for i in inputs[1]) if len(inputs) > 1 else None


def _unsqueeze(node: OnnxNode, inputs: list[Array]) -> Array | None:
    axes = _axes(node, inputs, 13)
    return None if axes is None else np.expand_dims(inputs[0], axes)


def _squeeze(node: OnnxNode, inputs: list[Array]) -> Array:
    return np.squeeze(inputs[0], _axes(node, inputs, 13))


def _slice(node: OnnxNode, inputs: list[Array]) -> Array | None:
    if node.opset < 10 or len(inputs) < 3:
        return None
    x = inputs[0]
    starts, ends = inputs[1].tolist(), inputs[2].tolist()
    axes = inputs[3].tolist() if len(inputs) > 3 else list(range(len(starts)))
    steps = inputs[4].tolist() if len(inputs) > 4 else [1] * len(starts)
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0 and end < -x.shape[axis]:
            end = None
        index[axis] = slice(start, end, step)
    return x[tuple(index)]


def _cast(node: OnnxNode, inputs: list[Array]) -> Array | None:
    to = element_type(node.int("to"), node.label).numpy
    simple = (inputs[0].dtype.kind in "iub" and to.kind in "iuf") or (
        inputs[0].dtype.kind == "f" and to.kind == "f"
    )
    return inputs[0].astype(to) if simple and to.itemsize >= 4 else None


def _same(function: Callable[[Array, Array], Array]) -> Callable[[OnnxNode, list[Array]], Array | None]:
    def fold(node: OnnxNode, inputs: list[Array]) -> Array | None:
        if node.opset < 7 or len(inputs) != 2 or inputs[0].dtype != inputs[1].dtype:
            return None
        return function(inputs[0], inputs[1])

    return fold


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    quotient: Array = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
    return quotient.astype(a.dtype)


def _reduce_prod(node: OnnxNode, inputs: list[Array]) -> Array | None:
    axes = _axes(node, inputs, 18)
    if node.flag("noop_with_empty_axes"):
        return None
    keep = node.flag("keepdims", True)
    product: Array = np.prod(inputs[0], axis=axes or None, keepdims=keep, dtype=inputs[0].dtype)
    return product


def _reshape(node: OnnxNode, inputs: list[Array]) -> Array | None:
    if len(inputs) < 2 or node.flag("allowzero"):
        return None
    shape = [inputs[0].shape[i] if n == 0 else int(n) for i, n in enumerate(inputs[1])]
    reshaped: Array = inputs[0].reshape(shape)
    return reshaped


def _clip_integers(inputs: list[Array | None]) -> Array | None:
    """Integers of weights, which may be many, clipped to fewer bits (Brevitas' QCDQ)."""
    if len(inputs) != 3 or any(array is None or array.dtype != np.int8 for array in inputs):
        return None
    x, low, high = (array for array in inputs if array is not None)
    return np.clip(x, low.reshape(()), high.reshape(())) if low.size == high.size == 1 else None


def clips_to_four_bits(node: OnnxNode, inputs: list[Array | None]) -> bool:
    """Whether a node on constants leaves integers of 4 bits of a tensor of 8."""
    if node.op_type != "Clip" or _clip_integers(inputs) is None:
        return False
    x, low, high = (array for array in inputs if array is not None)
    return x.ndim > 1 and int(low.reshape(())) >= -8 and int(high.reshape(())) <= 7


_FOLDERS: dict[str, Callable[[OnnxNode, list[Array]], Array | None]] = {
    "Identity": lambda node, inputs: inputs[0],
    "Gather": lambda node, inputs: np.take(inputs[0], inputs[1], axis=node.int("axis", 0)),
    "Concat": lambda node, inputs: np.concatenate(inputs, axis=node.int("axis")),
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Cast": _cast,
    "Add": _same(np.add),
    "Sub": _same(np.subtract),
    "Mul": _same(np.multiply),
    "Div": _same(_divide),
    "Equal": _same(np.equal),
    "Less": _same(np.less),
    "Greater": _same(np.greater),
    "And": _same(np.logical_and),
    "Or": _same(np.logical_or),
    "Not": lambda node, inputs: np.logical_not(inputs[0]),
    "Neg": lambda node, inputs: np.negative(inputs[0]),
    "Where": lambda node, inputs: np.where(inputs[0], inputs[1], inputs[2]),
    "Floor": lambda node, inputs: np.floor(inputs[0]),
    "Ceil": lambda node, inputs: np.ceil(inputs[0]),
    "ReduceProd": _reduce_prod,
    "Reshape": _reshape,
    "Transpose": lambda node, inputs: np.transpose(inputs[0], node.ints("perm", None)),
}


def foldable(node: OnnxNode) -> bool:
    """True if the node gives the same result whenever it runs."""
    return node.domain == "" and node.op_type not in _RANDOM | _CONTROL | _KEPT


def fold(node: OnnxNode, inputs: list[Array | None]) -> list[Array] | None:
    """The results of a node on constants (None is an input left out), or None if it cannot be evaluated here."""
    if node.op_type == "Clip" and (clipped := _clip_integers(inputs)) is not None:
        return [clipped]
    if sum(array.size for array in inputs if array is not None) > LIMIT:
        return None
    folder = _FOLDERS.get(node.op_type)
    if folder is not None and all(array is not None for array in inputs):
        arrays = [array for array in inputs if array is not None]
        with np.errstate(all="ignore"):
            try:
                result = folder(node, arrays)
            except (ValueError, IndexError, TypeError, ZeroDivisionError):
                result = None
        if result is not None:
            return [np.asarray(result)]
    return _run(node, inputs)


def _is_bounded(node: OnnxNode, inputs: list[Array | None]) -> bool:
    """True if the node is well-formed, and its results are known to be small before they are computed."""
    types: dict[str, TypeProto] = {}
    data: dict[str, TensorProto] = {}
    try:
        schema = onnx.defs.get_schema(node.op_type, node.opset, "")
        for name, array in zip(node.inputs, inputs, strict=True):
            if array is not None:
                types[name] = helper.make_tensor_type_proto(dtype_of(array.dtype).onnx, array.shape)
                if array.nbytes <= _DATA_LIMIT:
                    data[name] = numpy_helper.from_array(array, name)
        output_types = infer_outputs(node.proto, schema, node.opset, types, data, node.label)
    except (onnx.defs.SchemaError, InvalidModelError, KeyError):
        return False
    if node.op_type in _SHRINKING:
        return True
    for name in filter(None, node.outputs):
        tensor = output_types[name].tensor_type if name in output_types else TypeProto.Tensor()
        dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
        if not tensor.HasField("shape") or min(dims, default=0) < 0 or prod(dims) > 64 * LIMIT:
            return False
    return True


def _run(node: OnnxNode, inputs: list[Array | None]) -> list[Array] | None:
    import onnxruntime

    if node.op_type not in _PLAIN or not 7 <= node.opset <= MAX_OPSET or not _is_bounded(node, inputs):
        return None
    try:
        proto = onnx.NodeProto()
        proto.CopyFrom(node.proto)
        initializers: list[TensorProto] = []
        for name, array in zip(node.inputs, inputs, strict=True):
            if array is not None:
                initializers.append(numpy_helper.from_array(array, name))
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.outputs if name]
        graph = helper.make_graph([proto], "fold", [], outputs, initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)], ir_version=10)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
        results = dict(zip([o.name for o in outputs], session.run(None, {}), strict=True))
    except Exception:  # ONNX Runtime has no common base for what it raises; the node then stays an op
        return None
    arrays = [np.asarray(results[name]) if name else np.zeros(0, np.float32) for name in node.outputs]
    if any(array.dtype == np.object_ or array.size > 64 * LIMIT for array in arrays):
        return None
    try:
        for array in arrays:
            dtype_of(array.dtype)
    except KeyError:
        return None
    return arrays
