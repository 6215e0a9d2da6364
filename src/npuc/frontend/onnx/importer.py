"""ONNX to Top IR: node by node, in order.

A node is folded if its inputs are constants, inlined if it is control flow with a known course, translated by its rule
if it has one, and otherwise kept as `top.onnx`: **an importer never fails because an op is unknown.**
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto, ValueInfoProto

from npuc.arithmetic.kinds import ARITHMETIC_KEY, stated_kind
from npuc.errors import (
    DynamicShapeError,
    InvalidModelError,
    NpucError,
    OpsetError,
    ResourceLimitError,
    UnknownTensorError,
    UsageError,
)
from npuc.frontend.onnx.control import CONTROL
from npuc.frontend.onnx.escape import emit_onnx, schema_of, to_type, type_proto
from npuc.frontend.onnx.fold import MAX_OPSET, clips_to_four_bits, fold, foldable
from npuc.frontend.onnx.functions import bound_nodes, function_body, inline_functions
from npuc.frontend.onnx.node import NoTopForm, OnnxNode
from npuc.frontend.onnx.reader import OnnxSource, element_type, read, shape_flag
from npuc.frontend.onnx.registry import find_rule
from npuc.frontend.onnx.scope import Meaning, NodeContext, OnnxScope
from npuc.frontend.onnx.structure import cut, sorted_nodes
from npuc.frontend.onnx.subgraphs import join_subgraphs
from npuc.frontend.onnx.validity import check_node, check_types, infer_outputs
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import check_inputs, input_constant, open_batch_note, possible_shape
from npuc.frontend.support import MAX_ELEMENTS, check_names, erase_dead, guarded
from npuc.ir import Graph, Weight, dtype_of, is_static, shape_of, tensor_type
from npuc.ir.claims import claim
from npuc.ir.definition import ShapeError
from npuc.origins import Origins

OLDEST_OPSET, NEWEST_OPSET = 1, onnx.defs.onnx_opset_version()
_MAX_DEPTH = 16
_MAX_UNROLLED = 50_000
"""Nodes of subgraphs, counted each time they are imported: nested loops multiply."""


def import_onnx(source: Path | str | bytes | onnx.ModelProto, options: ImportOptions | None = None) -> Graph:
    """Import an ONNX model from a path, its bytes, or a message; the result is verified, not yet canonical."""
    where = str(source) if isinstance(source, Path | str) else None
    return guarded(where, lambda: _OnnxImporter(read(source), options or ImportOptions()).run())


class _OnnxImporter:
    def __init__(self, source: OnnxSource, options: ImportOptions) -> None:
        self.options = options
        self.source = source
        self.opsets = _opsets(source.model)
        inline_functions(source)
        self.model = source.model
        self._types: dict[str, TypeProto] | None = None
        self.notes: list[str] = []
        self.depth = 0
        self.unrolled = 0

    def run(self) -> Graph:
        proto = self.model.graph
        constants: dict[str, Meaning] = {}
        nodes = sorted_nodes(proto)
        origins = Origins.of((node.name, node.input, node.output) for node in nodes)
        self._name_tensors(nodes, origins)
        kept_names = [info.name for info in proto.output] + [*self.options.outputs, *self.options.inputs]
        notes: list[str] = []
        nodes = join_subgraphs(nodes, kept_names, self.opsets, notes)
        for tensor in proto.initializer:
            constants[tensor.name] = self.source.weight(tensor)
        for sparse in proto.sparse_initializer:
            constants[sparse.values.name] = _dense(self.source, sparse)
        produced = [name for node in nodes for name in node.output if name]
        own_inputs = {info.name: info for info in proto.input if info.name not in constants}
        check_names(self.options.constants, own_inputs, "--constant")
        for name, text in self.options.constants.items():
            constants[name] = self._fixed(own_inputs.pop(name), text)
        everything = [*own_inputs, *produced, *constants]
        names = list(self.options.outputs) or [info.name for info in proto.output]
        if not names:
            raise InvalidModelError("the model has no outputs")
        check_names(self.options.outputs, everything, "--outputs", origins)
        check_names(self.options.inputs, everything, "--inputs", origins)
        for info in proto.output:
            if info.name not in {*everything} and not self.options.outputs:
                raise InvalidModelError(f"the output '{info.name}' is not defined anywhere in the model")
        begin = list(self.options.inputs)
        nodes, needed = cut(nodes, begin or list(own_inputs), names, constants)
        inputs = begin or list(own_inputs)
        missing = [name for name in needed if name not in inputs]
        if missing:
            raise UsageError(
                f"the outputs still need the input '{missing[0]}'",
                fix=f"Add it to --inputs, or cut after it: {missing}",
            )
        shaped = [name for name in self.options.input_shapes if name not in own_inputs]
        check_inputs(inputs, shaped, self.options.constants)
        types = self._input_types(inputs, own_inputs)
        preprocess = {name: item.to_dict() for name, item in self.options.preprocess.items()}
        for name in preprocess:
            if name not in inputs:
                raise UnknownTensorError(f"there is no input '{name}' to preprocess")
        graph = Graph.empty(types, preprocess=preprocess)
        graph.notes += [*notes, *self.notes]
        scope = OnnxScope(graph, self.source, self.opsets)
        scope.meanings.update(constants)
        for port in graph.inputs:
            scope.define(port.name, port.value)
            scope.unique(port.name)
        self._nodes(nodes, scope)
        outputs = []
        for name in names:
            meaning = scope.lookup(name)
            if meaning is None:
                raise InvalidModelError(f"the node that should give the output '{name}' has no such output")
            outputs.append((name, scope.value(meaning, name)))
        graph.set_outputs(outputs)
        erase_dead(graph)
        graph.origins = origins
        stated = [entry.value for entry in self.source.model.metadata_props if entry.key == ARITHMETIC_KEY]
        if stated and stated_kind(stated[-1]) is not None:
            graph.arithmetic = stated[-1]
        return graph

    def _name_tensors(self, nodes: list[onnx.NodeProto], origins: Origins) -> None:
        """A node in --inputs, --outputs or --input-shape stands for its result."""
        node_names = {
            *self.options.outputs,
            *self.options.inputs,
            *self.options.input_shapes,
        } & origins.nodes.keys()
        if not node_names:
            return
        for node in nodes:
            results = [name for name in node.output if name]
            if node.name in node_names and len(results) > 1:
                raise UsageError(
                    f"the node '{node.name}' makes {len(results)} tensors",
                    fix=f"Name those that are wanted: {', '.join(results[:8])}",
                )
        tensor = {name: origins.nodes[name] for name in node_names}
        self.options = replace(
            self.options,
            outputs=tuple(tensor.get(name, name) for name in self.options.outputs),
            inputs=tuple(tensor.get(name, name) for name in self.options.inputs),
            input_shapes={tensor.get(k, k): shape for k, shape in self.options.input_shapes.items()},
        )

    def _fixed(self, info: ValueInfoProto, text: str) -> Weight:
        """An input that the user gives a value."""
        tensor = info.type.tensor_type
        shape = self.options.input_shapes.get(info.name)
        if shape is None and tensor.HasField("shape"):
            shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim)
        dtype = element_type(tensor.elem_type or 1, f"the input '{info.name}'")
        return Weight.of(input_constant(info.name, text, shape, dtype))

    def _input_types(self, inputs: list[str], own: dict[str, ValueInfoProto]) -> list[tuple[str, Any]]:
        inner = [name for name in inputs if name not in own]
        types: dict[str, TypeProto] = {name: info.type for name, info in own.items()}
        if inner:
            types.update(self._inner_types(inner, own))
        out = []
        open_flags = []
        sizes = self._named_sizes(own)
        for name in inputs:
            proto = types.get(name, TypeProto())
            shape = self.options.input_shapes.get(name)
            if proto.WhichOneof("value") not in ("tensor_type", None):
                to_type(proto, f"the input '{name}'")
            tensor = proto.tensor_type
            dtype = element_type(tensor.elem_type or 1, f"the input '{name}'")
            if shape is None:
                dims = [
                    sizes.get(d.dim_param, d.dim_value if d.HasField("dim_value") else -1)
                    for d in tensor.shape.dim
                ]
                if dims and _is_open(tensor.shape.dim[0]) and min(dims[1:], default=0) >= 0:
                    dims[0] = max(dims[0], 1)
                    self.notes.append(open_batch_note(name, dims[0]))
                if not tensor.HasField("shape") or any(n < 0 for n in dims):
                    open_flags.append(shape_flag(name, tensor))
                    continue
                shape = tuple(dims)
            out.append((name, tensor_type(possible_shape(name, shape), dtype)))
        if open_flags:
            flags = " ".join(flag for flag, _ in open_flags)
            what = "; ".join(text for _, text in open_flags)
            raise DynamicShapeError(f"npuc compiles static shapes, and {what}", fix=f"Add {flags}")
        return out

    def _named_sizes(self, own: Mapping[str, ValueInfoProto]) -> dict[str, int]:
        """The sizes of dimensions with a name that another input was given by `--input-shape`."""
        sizes: dict[str, int] = {}
        for name, shape in self.options.input_shapes.items():
            dims = own[name].type.tensor_type.shape.dim if name in own else ()
            for dim, size in zip(dims, shape, strict=False):
                if dim.dim_param and not dim.HasField("dim_value"):
                    sizes.setdefault(dim.dim_param, size)
        return sizes

    def _inner_types(self, names: list[str], own: Mapping[str, ValueInfoProto]) -> dict[str, TypeProto]:
        """The types of inner tensors: those that an import up to them gives, else what can be told node by node."""
        shapes = {name: shape for name, shape in self.options.input_shapes.items() if name in own}
        try:
            whole = ImportOptions(shapes, outputs=tuple(names), constants=self.options.constants)
            prefix = _OnnxImporter(self.source, whole).run()
            return {port.name: type_proto(port.value) for port in prefix.outputs}
        except NpucError:
            types = {name: self.declared(name) for name in names}
            return {name: kind for name, kind in types.items() if kind is not None}

    def declared(self, name: str) -> TypeProto | None:
        """The type of a tensor by ONNX's own inference, node by node, at the chosen input shapes."""
        if self._types is None:
            self._types = self._infer_all()
        return self._types.get(name)

    def _infer_all(self) -> dict[str, TypeProto]:
        proto = self.model.graph
        types = {info.name: info.type for info in proto.input}
        for name, shape in self.options.input_shapes.items():
            if name in types:
                types[name] = onnx.helper.make_tensor_type_proto(types[name].tensor_type.elem_type, shape)
        for tensor in proto.initializer:
            types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        stated = {
            info.name: info.type for info in (*proto.value_info, *proto.output) if info.HasField("type")
        }
        for node in sorted_nodes(proto):
            domain = "" if node.domain == "ai.onnx" else node.domain
            schema = schema_of(node.op_type, domain, self.opsets.get(domain, 0))
            known = {name: types[name] for name in node.input if name in types}
            if schema is not None and all(name in types for name in node.input if name):
                with suppress(InvalidModelError):
                    types.update(infer_outputs(node, schema, self.opsets[domain], known, {}, node.op_type))
            types.update({name: stated[name] for name in node.output if name in stated and name not in types})
        return types

    def _nodes(self, nodes: list[onnx.NodeProto], scope: OnnxScope) -> None:
        for proto in nodes:
            domain = "" if proto.domain == "ai.onnx" else proto.domain
            opset = self.opsets.get(domain)
            if opset is None:
                raise OpsetError(
                    f"{OnnxNode.of(proto, 0).label} is of the domain '{domain}', which the model does not import"
                )
            node = OnnxNode.of(proto, opset)
            schema = schema_of(proto.op_type, domain, opset)
            if schema is not None:
                check_node(proto, schema, opset, node.label)
                check_types(proto, schema, [scope.dtype(name) for name in proto.input], node.label)
            try:
                self._node(node, scope)
            except ShapeError as error:
                raise InvalidModelError(f"{node.label}: {error}") from error
            except (ValueError, TypeError, KeyError, IndexError, OverflowError, ArithmeticError) as error:
                # What a rule trips over is something in the node that no valid model has.
                words = next(iter(str(error).splitlines()), type(error).__name__)[:200]
                raise InvalidModelError(f"{node.label}: it is malformed ({words})") from error

    def _node(self, node: OnnxNode, scope: OnnxScope) -> None:
        if node.domain == "" and node.op_type == "Constant":
            return scope.define(node.outputs[0], self._constant(node))
        if self._folded(node, scope):
            return None
        mark = scope.mark()
        try:
            results = self._translated(node, scope)
        except NoTopForm as error:
            scope.rewind(mark)
            if self._expanded(node, scope):
                return None
            kept = emit_onnx(scope, node, str(error), self.declared)
            op: Any = next(iter(kept.values())).owner if kept else None
            claimed = claim(op, scope.graph)
            places = {value: index for index, value in enumerate(op.results)} if claimed is not None else {}
            for name, value in kept.items():
                value = claimed.results[places[value]] if claimed is not None else value
                _check_size(node, value)
                scope.define(name, value)
            return None
        if any(node.outputs[len(results) :]):
            raise InvalidModelError(f"{node.label}: it has {len(results)} outputs, not {len(node.outputs)}")
        for name, meaning in zip(node.outputs, results, strict=False):
            if name:
                _check_size(node, meaning)
                scope.define(name, meaning)
        return None

    def _translated(self, node: OnnxNode, scope: OnnxScope) -> list[Meaning]:
        ctx = NodeContext(node, scope)
        control = CONTROL.get(node.op_type) if node.domain == "" else None
        results: list[Meaning]
        if control is not None:
            results = control(ctx, self._subgraph)
        else:
            rule = find_rule(node.domain, node.op_type)
            if rule is None:
                raise NoTopForm("the top dialect has no such op")
            outcome = rule(ctx)
            several = list(outcome) if isinstance(outcome, list | tuple) else [outcome]
            results = [_as_meaning(item) for item in several]
        ctx.name_results(results)
        return results

    def _subgraph(self, graph: onnx.GraphProto, scope: OnnxScope) -> None:
        self.depth += 1
        self.unrolled += len(graph.node) + 1
        if self.unrolled > _MAX_UNROLLED:
            raise NoTopForm(f"the loops of the model unroll to more than {_MAX_UNROLLED} nodes")
        if self.depth > _MAX_DEPTH:
            raise InvalidModelError(f"its graphs are nested more than {_MAX_DEPTH} deep")
        try:
            for tensor in graph.initializer:
                scope.define(tensor.name, self.source.weight(tensor))
            self._nodes(list(graph.node), scope)
        finally:
            self.depth -= 1

    def _constant(self, node: OnnxNode) -> Weight:
        if node.has("value"):
            return self.source.weight(node.tensor("value"))
        if node.has("sparse_value"):
            return _dense(self.source, node.attributes["sparse_value"].sparse_tensor)
        for name, kind in (
            ("value_int", np.int64),
            ("value_ints", np.int64),
            ("value_float", np.float32),
            ("value_floats", np.float32),
        ):
            if node.has(name):
                array = np.array(onnx.helper.get_attribute_value(node.attributes[name]), kind)
                return Weight.of(array)
        if node.has("value_string"):
            text = np.array(node.string("value_string"), np.object_)
            return Weight(dtype_of("string"), text.shape, text)
        if node.has("value_strings"):
            texts = np.array(node.strings("value_strings"), np.object_)
            return Weight(dtype_of("string"), texts.shape, texts)
        raise InvalidModelError(f"{node.label}: it has no value")

    def _folded(self, node: OnnxNode, scope: OnnxScope) -> bool:
        """Evaluate a node whose inputs are all constant."""
        if not node.inputs or not foldable(node):
            return False
        arrays: list[np.ndarray[Any, Any] | None] = []
        for name in node.inputs:
            meaning = scope.lookup(name) if name else None
            if name and not isinstance(meaning, Weight):
                return False
            if isinstance(meaning, Weight) and meaning.dtype.name == "string":
                return False
            arrays.append(meaning.array() if isinstance(meaning, Weight) else None)
        results = fold(node, arrays)
        if results is None:
            return False
        if clips_to_four_bits(node, arrays):
            scope.short.add(node.outputs[0])
        for name, array in zip(node.outputs, results, strict=False):
            if name:
                scope.define(name, Weight.of(array))
        return True

    def _expanded(self, node: OnnxNode, scope: OnnxScope) -> bool:
        """Replace an operator that ONNX Runtime is too old for by its function body, where ONNX gives one."""
        if node.domain not in ("", "ai.onnx.preview"):
            return False
        schema = schema_of(node.op_type, node.domain, node.opset)
        new = schema is not None and (node.domain != "" or schema.since_version > MAX_OPSET)
        if schema is None or not new:
            return False
        check_node(node.proto, schema, node.opset, node.label)
        body = function_body(schema, node, scope)
        if body is None:
            return False
        inner = scope.child(f"{node.proto.name or next(iter(node.outputs), node.op_type)}/")
        for formal, actual in zip(body.input, node.inputs, strict=False):
            meaning = scope.lookup(actual) if actual else None
            if meaning is not None:
                inner.define(formal, meaning)
        outer, self.opsets = self.opsets, {**self.opsets, **{e.domain: e.version for e in body.opset_import}}
        try:
            self._nodes(bound_nodes(body, node), inner)
        finally:
            self.opsets = outer
        for formal, actual in zip(body.output, node.outputs, strict=False):
            result = inner.lookup(formal)
            if actual and result is not None:
                scope.define(actual, result)
        return True


def _as_meaning(item: Any) -> Meaning:
    if isinstance(item, np.ndarray | np.generic):
        array = np.asarray(item)
        return Weight.of(array)
    meaning: Meaning = item
    return meaning


def _check_size(node: OnnxNode, meaning: Meaning) -> None:
    if not isinstance(meaning, Weight) and is_static(meaning) and prod(shape_of(meaning)) > MAX_ELEMENTS:
        raise ResourceLimitError(f"{node.label}: its result has the shape {list(shape_of(meaning))}")


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for entry in model.opset_import:
        opsets["" if entry.domain == "ai.onnx" else entry.domain] = entry.version
    for domain, version in opsets.items():
        if domain and not 0 < version < 1 << 31:
            raise OpsetError(
                f"the model asks for version {version} of the domain '{domain}', which cannot be"
            )
    if not opsets:
        opsets[""] = 1
    version = opsets.get("", NEWEST_OPSET)
    if not OLDEST_OPSET <= version <= NEWEST_OPSET:
        raise OpsetError(
            f"the model asks for opset {version}; npuc knows {OLDEST_OPSET} to {NEWEST_OPSET}",
            fix=f"Export it again with opset_version={min(NEWEST_OPSET, 20)}, or upgrade the 'onnx' package",
        )
    opsets.setdefault("", NEWEST_OPSET)
    return opsets


def _dense(source: OnnxSource, sparse: onnx.SparseTensorProto) -> Weight:
    values = source.weight(sparse.values).array().reshape(-1)
    indices = source.weight(sparse.indices).array()
    shape = tuple(sparse.dims)
    if any(n < 0 for n in shape) or prod(shape) > 1 << 28:
        raise ResourceLimitError(f"the sparse tensor '{sparse.values.name}' has the shape {list(shape)}")
    out = np.zeros(shape, values.dtype)
    try:
        if indices.ndim == 1:
            out.reshape(-1)[indices] = values
        else:
            out[tuple(indices.T)] = values
    except (IndexError, ValueError) as error:
        raise InvalidModelError(
            f"the sparse tensor '{sparse.values.name}' has an index outside its shape"
        ) from error
    return Weight.of(out)


def _is_open(dim: onnx.TensorShapeProto.Dimension) -> bool:
    return not dim.HasField("dim_value") or dim.dim_value == -1
