"""Evaluating small constant nodes at import.

Exporters spell shapes out as graphs (Shape, Gather, Concat, Reshape). Their results must be known while the importer
runs, because `top` ops have shapes as properties. The common operators of such graphs are a few lines of NumPy each; the rest
goes to ONNX Runtime as a model of one node. Large constants are left to the `fold-constants` pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npuc.frontend.onnx.node import Node
from npuc.frontend.onnx.reader import element_type
from npuc.ir import dtype_of

Array = np.ndarray[Any, Any]
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
_CONTROL = {"If", "Loop", "Scan", "SequenceMap"}
_KEPT = {"DequantizeLinear"}
"""Says how a weight is quantized, which its value would not."""


def _axes(node: Node, inputs: list[Array], since: int) -> tuple[int, ...] | None:
    if node.opset < since:
        axes: tuple[int, ...] | None = node.ints("axes", None)
        return axes
    return tuple(int(i) for i in inputs[1]) if len(inputs) > 1 else None


def _unsqueeze(node: Node, inputs: list[Array]) -> Array | None:
    axes = _axes(node, inputs, 13)
    return None if axes is None else np.expand_dims(inputs[0], axes)


def _squeeze(node: Node, inputs: list[Array]) -> Array:
    return np.squeeze(inputs[0], _axes(node, inputs, 13))


def _slice(node: Node, inputs: list[Array]) -> Array | None:
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


def _cast(node: Node, inputs: list[Array]) -> Array | None:
    to = element_type(node.int("to"), node.label).numpy
    simple = (
        (inputs[0].dtype.kind in "iub" and to.kind in "iuf") or (inputs[0].dtype.kind == "f" and to.kind == "f")
    )
    return inputs[0].astype(to) if simple and to.itemsize >= 4 else None


def _same(function: Callable[[Array, Array], Array]) -> Callable[[Node, list[Array]], Array | None]:
    def fold(node: Node, inputs: list[Array]) -> Array | None:
        if node.opset < 7 or len(inputs) != 2 or inputs[0].dtype != inputs[1].dtype:
            return None
        return function(inputs[0], inputs[1])

    return fold


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    quotient: Array = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
    return quotient.astype(a.dtype)


def _reduce_prod(node: Node, inputs: list[Array]) -> Array | None:
    axes = _axes(node, inputs, 18)
    if node.flag("noop_with_empty_axes"):
        return None
    keep = node.flag("keepdims", True)
    product: Array = np.prod(inputs[0], axis=axes or None, keepdims=keep, dtype=inputs[0].dtype)
    return product


def _reshape(node: Node, inputs: list[Array]) -> Array | None:
    if len(inputs) < 2 or node.flag("allowzero"):
        return None
    shape = [inputs[0].shape[i] if n == 0 else int(n) for i, n in enumerate(inputs[1])]
    reshaped: Array = inputs[0].reshape(shape)
    return reshaped


_FOLDERS: dict[str, Callable[[Node, list[Array]], Array | None]] = {
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


def foldable(node: Node) -> bool:
    """True if the node gives the same result whenever it runs."""
    return node.domain == "" and node.op_type not in _RANDOM | _CONTROL | _KEPT


def fold(node: Node, inputs: list[Array | None]) -> list[Array] | None:
    """The results of a node on constants (None is an input left out), or None if it cannot be evaluated here."""
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


def _run(node: Node, inputs: list[Array | None]) -> list[Array] | None:
    import onnxruntime

    if not 7 <= node.opset <= MAX_OPSET:
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
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
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
