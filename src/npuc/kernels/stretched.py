"""Models with custom ops, run in stretches: what lies between the ops by ONNX Runtime, they themselves by their kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper

from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.errors import EngineError
from npuc.kernels.custom import Kernel, custom_nodes, kernel_of
from npuc.kernels.native_ops import NativeKernel
from npuc.plugin_code import fault_of


class StretchedSession:
    """A model with custom ops, run in stretches; its weights are in the model."""

    def __init__(self, model: ModelProto, options: Any) -> None:
        self._model, self._options = model, options
        self._weights = {tensor.name: tensor for tensor in model.graph.initializer}
        custom = set(custom_nodes(model))
        self._steps: list[tuple[list[NodeProto], Kernel | None]] = []
        for index, node in enumerate(model.graph.node):
            if index in custom:
                self._steps.append(([node], _needed(node)))
            elif self._steps and self._steps[-1][1] is None:
                self._steps[-1][0].append(node)
            else:
                self._steps.append(([node], None))
        self._sessions: dict[int, Any] = {}

    def run(self, names: Sequence[str], feed: Mapping[str, Array]) -> list[Array]:
        """The values of some outputs."""
        values: dict[str, Array] = dict(feed)
        for index, (nodes, kernel) in enumerate(self._steps):
            if kernel is not None:
                values.update(self._computed(nodes[0], kernel, values))
                continue
            produced = [name for node in nodes for name in node.output if name]
            later = self._read_after(index) | set(names)
            fetched = [name for name in produced if name in later]
            session, inputs = self._session(index, nodes, fetched, values)
            if fetched:
                arrays = session.run(fetched, {name: values[name] for name in inputs})
                values.update(zip(fetched, arrays, strict=True))
        return [values[name] if name in values else self._array(name) for name in names]

    def _array(self, name: str) -> Array:
        return onnx.numpy_helper.to_array(self._weights[name])

    def _read_after(self, index: int) -> set[str]:
        return {name for nodes, _ in self._steps[index + 1 :] for node in nodes for name in _reads(node)}

    def _computed(self, node: NodeProto, kernel: Kernel, values: Mapping[str, Array]) -> dict[str, Array]:
        given = [values[name] if name in values else self._array(name) for name in node.input if name]
        attributes = {
            attribute.name: _plain(helper.get_attribute_value(attribute)) for attribute in node.attribute
        }
        try:
            results = kernel(given, attributes)
        except Exception as error:
            words = next(iter(str(error).splitlines()), type(error).__name__)
            raise fault_of(error) or EngineError(
                f"the kernel of the op '{node.domain}:{node.op_type}' failed: {words}"
            ) from error
        if len(results) < len(node.output):
            raise EngineError(
                f"the kernel of '{node.domain}:{node.op_type}' gave {len(results)} results, not {len(node.output)}"
            )
        return {
            name: np.asarray(result, order="C")
            for name, result in zip(node.output, results, strict=False)
            if name
        }

    def _session(
        self, index: int, nodes: Sequence[NodeProto], fetched: Sequence[str], values: Mapping[str, Array]
    ) -> tuple[Any, list[str]]:
        """The session of a stretch; the types of its inputs are those of the first values that come."""
        if index not in self._sessions:
            produced = {name for node in nodes for name in node.output}
            read = dict.fromkeys(
                name for node in nodes for name in _reads(node) if name and name not in produced
            )
            inputs = [name for name in read if name not in self._weights]
            infos = [
                helper.make_tensor_value_info(
                    name, dtype_of(values[name].dtype).onnx, [None] * values[name].ndim
                )
                for name in inputs
            ]
            graph = helper.make_graph(
                nodes,
                f"stretch{index}",
                infos,
                [onnx.ValueInfoProto(name=name) for name in fetched],
                [self._weights[name] for name in read if name in self._weights],
            )
            part = helper.make_model(graph, opset_imports=self._model.opset_import)
            part.ir_version = self._model.ir_version
            part.functions.extend(self._model.functions)
            import onnxruntime as ort

            session = ort.InferenceSession(
                part.SerializeToString(), self._options, providers=["CPUExecutionProvider"]
            )
            self._sessions[index] = (session, inputs)
        opened: tuple[Any, list[str]] = self._sessions[index]
        return opened


def _reads(node: NodeProto) -> list[str]:
    names = list(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                names += _reads(inner)
    return names


def _needed(node: NodeProto) -> Kernel:
    kernel = kernel_of(node.domain, node.op_type)
    if kernel is None:
        raise EngineError(
            f"nobody computes the op '{node.domain}:{node.op_type}' on the CPU",
            fix="Load the plugin that has its kernel (--plugin FILE.py or LIB.so), or import the Python module that registers it",
        )
    # A kernel with a state has one for each node of a session.
    return kernel.instance(len(node.output)) if isinstance(kernel, NativeKernel) else kernel


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
