"""TensorFlow to Top IR: from the outputs back to what they need, node by node.

A node whose inputs are constants is computed now; any other is translated by its rule. A node that has no rule becomes a
custom op of the domain `npuc.tensorflow`, with its attributes kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from npuc.errors import (
    InvalidModelError,
    NpucError,
    UnknownTensorError,
    UnsupportedOpError,
    UnsupportedTypeError,
    UsageError,
)
from npuc.frontend.layout import Absent, ChannelsLastBuilder, LayoutTensor
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import check_inputs, input_constant, input_shape
from npuc.frontend.support import check_names, erase_dead, guarded
from npuc.frontend.tensorflow.body import Body, Budget
from npuc.frontend.tensorflow.custom import custom
from npuc.frontend.tensorflow.fold import Effort, folded
from npuc.frontend.tensorflow.graph import GraphFunction, TensorflowNode, readers_of
from npuc.frontend.tensorflow.meaning import DEAD, Dead, Meaning, tensor
from npuc.frontend.tensorflow.model import TensorflowModel, read_model
from npuc.frontend.tensorflow.registry import TensorflowContext, find_rule
from npuc.frontend.tensorflow.tensors import STRING, element_type
from npuc.frontend.tensorflow.walker import STRUCTURES
from npuc.ir import DType, Graph, Weight, tensor_type
from npuc.ir.definition import ShapeError
from npuc.words import counted


def import_tensorflow(path: Path | str, options: ImportOptions | None = None) -> Graph:
    """Import a frozen graph or a SavedModel folder; the result is verified, not yet canonical."""
    chosen = options or ImportOptions()
    return guarded(path, lambda: _TensorflowImporter(read_model(path, weights=chosen.weights), chosen).run())


def declared_inputs(path: Path, options: ImportOptions) -> dict[str, DType]:
    """The element types of the inputs by name, as the file states them."""
    model = read_model(path, weights=options.weights)
    names = options.inputs or tuple(p.name for p in model.inputs if p.name not in options.constants)
    types = {}
    for name in names:
        code = _type_code(model, _tensor_of(model, name))
        if code != STRING:
            types[name] = element_type(code, f"the input '{name}'")
    return types


def _tensor_of(model: TensorflowModel, name: str) -> str:
    """The tensor behind a user's name."""
    return model.tensors.get(name, name)


def _type_code(model: TensorflowModel, tensor_name: str) -> int:
    node = model.graph.nodes.get(tensor_name.partition(":")[0])
    if node is None:
        return 1
    return next((code for key in ("dtype", "T", "DstT") if (code := node.type_code(key))), 1)


class _TensorflowImporter:
    """One walk over a model."""

    def __init__(self, model: TensorflowModel, options: ImportOptions) -> None:
        self.model = model
        self.options = options
        self.known: dict[str, LayoutTensor] = {}
        """Everything that was made, by the names that users know."""
        self.notes: list[str] = list(model.notes)
        self.unknown: list[str] = []
        self.effort = Effort()
        self.begins: dict[str, dict[int, LayoutTensor]] = {}
        """Where the network begins: outputs of nodes."""
        self.builder = ChannelsLastBuilder(Graph.empty([]))

    # Ports

    def _key(self, name: str) -> tuple[str, int]:
        node, _, index = _tensor_of(self.model, name).partition(":")
        return node, int(index) if index.isdigit() and len(index) < 6 else 0

    def _is_plain(self, name: str) -> bool:
        return self._key(name)[0] in self.model.graph.nodes

    def _is_placeholder(self, name: str) -> bool:
        node = self.model.graph.nodes.get(self._key(name)[0])
        return node is not None and node.op.startswith("Placeholder")

    def _inputs(self) -> list[str]:
        own = [port.name for port in self.model.inputs]
        check_names(self.options.constants, [*own, *self._placeholders()], "--constant")
        names = list(self.options.inputs) or [name for name in own if name not in self.options.constants]
        if len({self._key(name) for name in names}) != len(names):
            raise UsageError("--inputs: an input is given twice")
        check_inputs(names, self.options.input_shapes, self.options.constants)
        return names

    def _placeholders(self) -> list[str]:
        return [node.name for node in self.model.graph.nodes.values() if node.op.startswith("Placeholder")]

    def _known_before(self) -> Mapping[str, LayoutTensor]:
        """The tensors of the whole network: what shapes those have at which a user cuts, and which are in functions."""
        shapes = {n: s for n, s in self.options.input_shapes.items() if self._is_placeholder(n)}
        whole = _TensorflowImporter(
            self.model, replace(self.options, inputs=(), outputs=(), input_shapes=shapes)
        )
        try:
            whole.run()
        except NpucError:
            if not whole.known:
                return {}
        return whole.known

    def _types(
        self, names: Sequence[str], before: Mapping[str, LayoutTensor]
    ) -> list[tuple[tuple[int, ...], DType]]:
        types = []
        for name in names:
            given_shape = self.options.input_shapes.get(name)
            if self._is_placeholder(name):
                node = self.model.graph.nodes[self._key(name)[0]]
                if node.type_code("dtype") == STRING:
                    raise self._textual(name, node)
                types.append(
                    (input_shape(name, node.shape("shape"), given_shape, self.notes), node.dtype("dtype"))
                )
            elif name in before:
                types.append((tuple(given_shape or before[name].shape), before[name].dtype))
            else:
                code = _type_code(self.model, name)
                types.append(
                    (input_shape(name, None, given_shape, self.notes), element_type(code, f"'{name}'"))
                )
        return types

    def _textual(self, name: str, node: TensorflowNode) -> UnsupportedTypeError:
        """The error for an input of text, with the tensors behind which the numbers begin."""
        edge: dict[str, None] = {}
        readers = readers_of(self.model.graph.nodes)
        visited, pending = {node.name}, deque([node.name])
        while pending:
            maker = pending.popleft()
            for reader in readers.get(maker, ()):
                if find_rule(reader.op) is not None:
                    edge[maker] = None
                elif reader.name not in visited:
                    visited.add(reader.name)
                    pending.append(reader.name)
        edge.pop(node.name, None)
        words = f"--inputs {','.join(list(edge)[:8])}" if edge else "--inputs TENSOR"
        return UnsupportedTypeError(
            f"the input '{name}' is text (or the bytes of a file), and a network takes numbers",
            fix=f"Begin behind what decodes it, for instance with 'npuc import {words}' and an --input-shape for each",
        )

    # The walk

    def run(self) -> Graph:
        """The graph between the inputs and the outputs."""
        names = self._inputs()
        ends = list(self.options.outputs) or [port.name for port in self.model.outputs]
        if not ends:
            raise InvalidModelError("the model has no outputs", fix="Name some with --outputs")
        shapeless = [n for n in names if not self._is_placeholder(n) and n not in self.options.input_shapes]
        hidden = [name for name in (*names, *ends) if not self._is_plain(name)]
        before = self._known_before() if shapeless or hidden else {}
        everything = {
            **dict.fromkeys(self.model.graph.nodes),
            **dict.fromkeys(p.name for p in (*self.model.inputs, *self.model.outputs)),
            **before,
        }
        check_names([n for n in self.options.inputs if not self._is_plain(n)], everything, "--inputs")
        check_names([n for n in self.options.outputs if not self._is_plain(n)], everything, "--outputs")
        types = self._types(names, before)
        graph = Graph.empty(
            [(name, tensor_type(shape, dtype)) for name, (shape, dtype) in zip(names, types, strict=True)],
            preprocess={name: item.to_dict() for name, item in self.options.preprocess.items()},
        )
        self.builder = ChannelsLastBuilder(graph)
        for port in graph.inputs:
            self.builder.scope.unique(port.name)
            node, index = self._key(port.name)
            self.begins.setdefault(node, {})[index] = LayoutTensor(port.value, name=port.name)
        body = Body(self.model.graph.nodes, self.evaluate, Budget(frozenset(self.begins)))
        outputs = [(name, self.builder.value(self._end(body, name))) for name in ends]
        self.builder.finish_layer([], [])
        graph.set_outputs(outputs)
        erase_dead(graph)
        if self.unknown:
            self.notes.append(
                f"{counted(len(self.unknown), 'node', 'has', 'have')} no form in npuc and became "
                f"custom ops of the domain 'npuc.tensorflow', "
                f"which somebody has to provide before the network can run: {'; '.join(self.unknown[:6])}"
            )
        graph.notes += self.notes
        return graph

    def _end(self, body: Body, name: str) -> LayoutTensor:
        node, index = self._key(name)
        if node not in body.nodes:
            body.walk(f"{port.tensor}" for port in self.model.outputs)
            if name not in self.known:
                raise UnknownTensorError(
                    f"--outputs: '{name}' is not made between the inputs and the outputs"
                )
            return self.known[name]
        meaning = body.meaning(f"{node}:{index}" if index else node)
        return tensor(body.nodes[node], meaning, index)

    def evaluate(self, body: Body, node: TensorflowNode) -> Sequence[Meaning]:
        """What a node means, once its inputs are known."""
        full = body.name(node)
        cut = self.begins.get(full)
        if cut:
            return [cut.get(index, DEAD) for index in range(max(cut) + 1)]
        inputs = body.inputs(node)
        self.builder.first = full
        try:
            outputs = self._outputs(body, node, inputs)
        except ShapeError as error:
            raise InvalidModelError(f"{node.label}: {error}") from error
        except (ValueError, TypeError, KeyError, IndexError, OverflowError, ArithmeticError) as error:
            # What a rule trips over is something in the node that no valid model has.
            words = next(iter(str(error).splitlines()), type(error).__name__)[:200]
            raise InvalidModelError(f"{node.label}: it is malformed ({words})") from error
        for index, meaning in enumerate(outputs):
            if isinstance(meaning, LayoutTensor):
                self.known.setdefault(f"{full}:{index}" if index else full, meaning)
        return outputs

    def _outputs(self, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
        full = body.name(node)
        structural = STRUCTURES.get(node.op)
        if structural is not None:
            outputs = structural(self, body, node, inputs)
            held = [item for item in outputs if isinstance(item, LayoutTensor)]
            self.builder.first = full
            self.builder.finish_layer(held, [f"{full}:{i}" if i else full for i in range(len(held))], full)
            return outputs
        if any(isinstance(item, Dead) for item in inputs):
            return [DEAD]
        tensors = [tensor(node, item, index) for index, item in enumerate(inputs)]
        constant = folded(node, tensors, full, self.effort)
        if constant is not None:
            return constant
        translate = find_rule(node.op)
        if translate is None:
            results = self._custom(body, node, tensors)
        else:
            outcome = translate(TensorflowContext(node, tensors, self.builder))
            several = list(outcome) if isinstance(outcome, list | tuple) else [outcome]
            results = [
                self.builder.constant(np.asarray(item), full) if not isinstance(item, LayoutTensor) else item
                for item in several
            ]
        self.builder.finish_layer(results, [f"{full}:{i}" if i else full for i in range(len(results))], full)
        return results

    def _custom(
        self, body: Body, node: TensorflowNode, tensors: Sequence[LayoutTensor]
    ) -> list[LayoutTensor]:
        if not tensors:
            raise UnsupportedOpError(
                f"{node.label} is not among those that npuc imports, and makes its result from nothing",
                fix="Begin behind it with --inputs",
            )
        self.unknown.append(node.label)

        def highest(nodes: Mapping[str, TensorflowNode]) -> dict[str, int]:
            indices: dict[str, int] = {}
            for other in nodes.values():
                for item in other.data_inputs:
                    maker, index = body.split(item)
                    indices[maker] = max(index, indices.get(maker, 0))
            return indices

        used = body.budget.once("outputs", body.nodes, highest)
        return custom(self.builder, node, tensors, used.get(node.name, 0) + 1)

    # What nodes ask for (`npuc.frontend.tensorflow.walker.Walker`)

    def placeholder(self, body: Body, node: TensorflowNode) -> Meaning:
        """The constant that a user gives an input."""
        port = self.model.titles.get(node.name, node.name)
        for name in (port, node.name):
            if name in self.options.constants:
                shape = self.options.input_shapes.get(name, node.shape("shape"))
                array = input_constant(name, self.options.constants[name], shape, node.dtype("dtype"))
                return self.builder.constant(array, name)
        return Absent(port)

    def variable(self, node: TensorflowNode) -> Weight:
        """The value of a variable."""
        return self.model.variable(node)

    def called(self, name: str, node: TensorflowNode) -> GraphFunction:
        """A function."""
        function = self.model.graph.functions.get(name)
        if function is None:
            raise InvalidModelError(f"{node.label} calls '{name}', which is not in the file")
        return function


__all__ = ["declared_inputs", "import_tensorflow"]
