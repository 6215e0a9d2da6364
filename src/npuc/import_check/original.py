"""The original of an import, run by ONNX Runtime: cut and shaped as the import was, with every tensor fetchable.

It works on a copy of the model's protobuf message without external data, which ONNX Runtime reads from the model's folder.
So the result is independent of npuc's importer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from npuc.arrays import Array
from npuc.engine import session_options
from npuc.engine.tensors import from_ort, is_native, to_ort
from npuc.errors import InvalidModelError, OriginalError
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import input_constant
from npuc.ir import Graph, dtype_of, shape_of
from npuc.kernels.custom import custom_nodes, kernel_of
from npuc.kernels.stretched import StretchedSession

_RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
}

_INTEGER_PRODUCTS = {"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QGemm", "QAttention"}


class Original:
    """An ONNX file with the inputs and outputs that a graph was imported with."""

    runtime = "ONNX Runtime"
    mixed = 0

    def __init__(
        self,
        path: Path,
        graph: Graph,
        input_types: Mapping[str, Any],
        options: ImportOptions,
        threads: int | None = None,
    ) -> None:
        """`input_types` are the types of the inputs at import, before preprocessing was fused into the graph."""
        model = onnx.load(str(path), load_external_data=False)
        outputs = [port.name for port in graph.outputs]
        _cut(model, [port.name for port in graph.inputs], outputs)
        computed = [name for node in model.graph.node for name in node.output if name]
        surviving = set(graph.tensor_names())
        self.random = _random_results(model)
        """The tensors that depend on random numbers, which cannot be compared."""
        self.comparable = [name for name in computed if name in surviving and name not in self.random]
        """The tensors of the original that the graph has too, in order."""
        self._types = {name: dtype_of(kind) for name, kind in input_types.items()}
        model.graph.initializer.extend(_constants(model, options))
        del model.graph.input[:]
        for name, kind in input_types.items():
            info = onnx.helper.make_tensor_value_info(name, dtype_of(kind).onnx, list(shape_of(kind)))
            model.graph.input.append(info)
        # The shapes stated in the file may not match --input-shape; ONNX Runtime infers its own.
        del model.graph.value_info[:]
        del model.graph.output[:]
        for name in dict.fromkeys((*outputs, *self.comparable)):
            model.graph.output.add(name=name)
        # Only the optimizer replaces products of u8 and i8 that saturate on processors without VNNI.
        session = session_options(threads, optimize=_has_integer_products(model))
        folder = str(path.resolve().parent)
        session.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        import onnxruntime as ort

        custom = [model.graph.node[index] for index in custom_nodes(model)]
        self._stretched: StretchedSession | None = None
        """Runs the file with the kernels of plugins, if they provide all of its custom ops."""
        try:
            if custom and all(kernel_of(node.domain, node.op_type) for node in custom):
                onnx.load_external_data_for_model(model, folder)
                self._stretched = StretchedSession(model, session)
            else:
                self._session = ort.InferenceSession(
                    model.SerializeToString(), session, providers=["CPUExecutionProvider"]
                )
        except Exception as error:
            _refuse_invalid(path)
            raise OriginalError(
                f"ONNX Runtime cannot load it: {_first_line(error)}", where=str(path)
            ) from error
        self._path = path

    def run(self, inputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
        """The values of some of its outputs and comparable tensors."""
        if self._stretched is not None:
            return dict(zip(names, self._stretched.run(names, inputs), strict=True))
        ort_values = {name: to_ort(array, self._types[name]) for name, array in inputs.items()}
        declared = {entry.name for entry in self._session.get_inputs()}
        feed = {name: value for name, value in ort_values.items() if name in declared}
        try:
            values = self._session.run_with_ort_values(list(names), feed)
        except Exception as error:
            raise OriginalError(
                f"ONNX Runtime cannot run it: {_first_line(error)}", where=str(self._path)
            ) from error
        return {name: _array(value) for name, value in zip(names, values, strict=True)}


def _constants(model: onnx.ModelProto, options: ImportOptions) -> Iterator[onnx.TensorProto]:
    """The inputs that the user gave values for."""
    for info in model.graph.input:
        if info.name in options.constants:
            tensor = info.type.tensor_type
            sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
            shape = options.input_shapes.get(info.name) or (sizes if tensor.HasField("shape") else None)
            dtype = dtype_of(tensor.elem_type)
            array = input_constant(info.name, options.constants[info.name], shape, dtype)
            yield onnx.helper.make_tensor(info.name, dtype.onnx, array.shape, array.tobytes(), raw=True)


def _array(value: Any) -> Array:
    if not value.is_tensor():
        return np.array([repr(value)])
    dtype = dtype_of(int(value.element_type()))
    return from_ort(value, dtype) if not is_native(dtype) else np.asarray(value.numpy())


_INVALID = re.compile(
    r"ShapeInferenceError|TypeInferenceError|INVALID_GRAPH|INVALID_PROTOBUF|is an invalid model|Type Error:"
    r"|Missing opset in the model|failed validating the check|not supported, expect|type inference failed"
)
_UNKNOWN = re.compile(r"No Op registered for (\w+) with domain_version of (\d+)")


def _refuse_invalid(path: Path) -> None:
    """Raise `InvalidModelError` if ONNX Runtime reports the unmodified file as invalid.

    An operator that ONNX Runtime does not know does not make a file invalid: such a node stays ONNX.
    """
    import onnxruntime as ort

    try:
        ort.InferenceSession(
            str(path), session_options(1, optimize=False), providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        words = re.sub(r"^\[ONNXRuntimeError\][^[]*?failed:", "", _first_line(error))
        if _INVALID.search(words) is not None and not _is_unknown(words):
            raise InvalidModelError(
                f"ONNX Runtime calls the model invalid: {words.rstrip('.')}",
                where=str(path),
                fix="Export it again; --no-check takes it as it is",
            ) from error


def _is_unknown(words: str) -> bool:
    """Whether an error is only about an unknown custom operator.

    An operator of ONNX itself that is newer than the operator set of the file is an error of the file.
    """
    match = _UNKNOWN.search(words)
    if match is None:
        return "No Op registered" in words
    name, version = match[1], int(match[2])
    since = [
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == name and not schema.domain
    ]
    return not since or version >= min(since)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _uses(node: onnx.NodeProto) -> Iterator[str]:
    """All tensors that a node reads, including those that its subgraphs capture from outside."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _uses(inner)
            yield from (output.name for output in graph.output)


def _cut(model: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Drop the nodes that do not lie between the inputs and the outputs."""
    start = set(inputs)
    producers = {name: index for index, node in enumerate(model.graph.node) for name in node.output if name}
    needed: set[int] = set()
    stack = [name for name in outputs if name not in start]
    while stack:
        index = producers.get(stack.pop())
        if index is None or index in needed:
            continue
        needed.add(index)
        stack.extend(name for name in _uses(model.graph.node[index]) if name not in start)
    kept = []
    for index, node in enumerate(model.graph.node):
        if index in needed:
            for position, name in enumerate(node.output):
                if name in start:
                    # The producer of a cut tensor, if it is still needed, writes it under another name.
                    node.output[position] = f"{name}//cut"
            kept.append(node)
    if len(kept) != len(model.graph.node):
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        del model.graph.node[:]
        model.graph.node.extend(copies)
    for initializers in (model.graph.initializer, model.graph.sparse_initializer):
        for position in reversed(range(len(initializers))):
            tensor: Any = initializers[position]
            if (tensor.name if isinstance(tensor, onnx.TensorProto) else tensor.values.name) in start:
                del initializers[position]


def _has_integer_products(model: onnx.ModelProto) -> bool:
    return any(node.op_type in _INTEGER_PRODUCTS for node in model.graph.node)


def _random_results(model: onnx.ModelProto) -> set[str]:
    tainted: set[str] = set()
    for node in model.graph.node:
        training_dropout = node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]
        if node.op_type in _RANDOM or training_dropout or any(name in tainted for name in _uses(node)):
            tainted.update(name for name in node.output if name)
    return tainted
