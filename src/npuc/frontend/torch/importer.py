"""An exported program of torch to Top IR: node by node, in order.

A node whose operands are all constant is computed by torch, now. Any other is translated by its rule, and stays a
custom op if it has none: **an importer never fails because an op is unknown.**
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch

from npuc.errors import InvalidModelError, UsageError
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import check_inputs, input_constant
from npuc.frontend.support import check_names, erase_dead, guarded
from npuc.frontend.torch.convert import dtype_from, shape_from, type_from
from npuc.frontend.torch.escape import emit_custom
from npuc.frontend.torch.masks import mark_masked
from npuc.frontend.torch.names import op_name, tensor_names
from npuc.frontend.torch.registry import NoTopForm, find_rule
from npuc.frontend.torch.scope import TorchContext, TorchScope
from npuc.frontend.torch.sources import Program
from npuc.ir import DYNAMIC, Graph, Value, dtype_of
from npuc.ir.definition import ShapeError

_FOLDED = 1 << 26
"""Bytes of a constant that is computed at import; larger ones stay ops."""
_RANDOM = ("rand", "randn", "randint", "bernoulli", "normal", "uniform", "multinomial", "dropout", "randperm")


def import_program(load: Callable[[], Program], options: ImportOptions, where: str | None) -> Graph:
    """Import what `load` gives; every error says where."""
    return guarded(where, lambda: _TorchImporter(load(), options).run())


class _TorchImporter:
    def __init__(self, program: Program, options: ImportOptions) -> None:
        self.program = program
        self.options = options
        self.nodes = list(program.graph.nodes)
        self.names = tensor_names(program.graph, program.owners, program.inputs)
        self.by_name: dict[str, Any] = {}
        for node, name in self.names.items():
            if not isinstance(node.meta.get("val"), tuple | list):
                self.by_name.setdefault(name, node)
        for name, node in program.outputs:
            if isinstance(node, torch.fx.Node):
                self.by_name.setdefault(name, node)

    def run(self) -> Graph:
        options = self.options
        known = list(self.by_name)
        check_names(options.outputs, known, "--outputs")
        check_names(options.inputs, known, "--inputs")
        ends = [(name, self.by_name[name]) for name in options.outputs] or self._own_outputs()
        if not ends:
            raise InvalidModelError("the model has no outputs")
        fixed = self._fixed()
        begins = [self.by_name[name] for name in options.inputs] or [
            node for node in self.program.inputs if node not in fixed
        ]
        needed = self._needed(ends, begins)
        titles = {node: name for name, node in zip(options.inputs, begins, strict=False)}
        types = [
            (titles.get(node, self.names[node]), type_from(node.meta["val"], f"'{node.name}'"))
            for node in begins
        ]
        check_inputs([name for name, _ in types], options.input_shapes, options.constants)
        preprocess = {name: item.to_dict() for name, item in options.preprocess.items()}
        graph = Graph.empty(types, preprocess=preprocess)
        graph.notes.extend(self.program.notes)
        scope = TorchScope(
            graph, self.names, {id(self.program.constants[n]): p for n, p in self.program.owners.items()}
        )
        scope.meanings.update(self.program.constants)
        scope.meanings.update(fixed)
        for node, port in zip(begins, graph.inputs, strict=True):
            scope.unique(port.name)
            scope.meanings[node] = port.value
        for node in self.nodes:
            if node in needed and node not in scope.meanings:
                self._guarded(node, scope)
        outputs = []
        for name, node in ends:
            meaning = scope.meanings[node] if isinstance(node, torch.fx.Node) else node
            if isinstance(meaning, bool | int | float):
                meaning = torch.tensor(meaning)
            value = scope.constant(meaning, name) if isinstance(meaning, torch.Tensor) else meaning
            outputs.append((name, value))
        graph.set_outputs(outputs)
        erase_dead(graph)
        return graph

    def _own_outputs(self) -> list[tuple[str, Any]]:
        """The outputs; one without a name of its own is called after its tensor."""
        outputs: list[tuple[str, Any]] = []
        taken: set[str] = set()
        for index, (name, node) in enumerate(self.program.outputs):
            title = name or self.names.get(node) or f"output_{index}"
            while title in taken:
                title += "'"
            taken.add(title)
            outputs.append((title, node))
        return outputs

    def _fixed(self) -> dict[Any, Any]:
        """Inputs that the user gives values for."""
        inputs = {self.names[node]: node for node in self.program.inputs}
        given = {n: t for n, t in self.options.constants.items() if n not in self.program.numbers}
        check_names(given, inputs, "--constant")
        tensors = {}
        for name, text in given.items():
            val = inputs[name].meta["val"]
            array = input_constant(name, text, tuple(val.shape), dtype_of(np.float64))
            tensors[inputs[name]] = torch.from_numpy(array).to(val.dtype)
        return tensors

    def _needed(self, ends: list[tuple[str, Any]], begins: list[Any]) -> set[Any]:
        """The nodes between the inputs and the outputs."""
        needed: set[Any] = set()
        stack = [node for _, node in ends if isinstance(node, torch.fx.Node)]
        fixed = {node for node in self.program.inputs if self.names[node] in self.options.constants}
        given = {*begins, *fixed, *self.program.constants}
        while stack:
            node = stack.pop()
            if node in needed or node in given:
                continue
            if node in self.program.inputs:
                raise UsageError(
                    f"the outputs still need the input '{self.names[node]}'",
                    fix="Add it to --inputs, or cut after it",
                )
            needed.add(node)
            stack.extend(node.all_input_nodes)
        return needed

    def _guarded(self, node: Any, scope: TorchScope) -> None:
        context: TorchContext | None = None
        try:
            if node.op != "call_function":
                raise InvalidModelError(f"'{node.name}' is a node of the kind {node.op}")
            if node.target is operator.getitem:
                scope.meanings[node] = scope.meanings[node.args[0]][node.args[1]]
                return
            context = TorchContext(node, scope)
            scope.meanings[node] = self._translated(context)
        except ShapeError as error:
            raise InvalidModelError(f"{context.label if context else node.name}: {error}") from error
        except (ValueError, TypeError, KeyError, IndexError, OverflowError, ArithmeticError) as error:
            # What a rule trips over is something in the node that no valid program has.
            words = next(iter(str(error).splitlines()), type(error).__name__)[:200]
            label = context.label if context else f"the layer '{node.name}'"
            raise InvalidModelError(f"{label}: it is malformed ({words})") from error

    def _translated(self, context: TorchContext) -> Any:
        if op_name(context.node) in ("item", "local_scalar_dense"):
            (number,) = (context.scope.meanings.get(node) for node in context.node.all_input_nodes)
            if isinstance(number, torch.Tensor):
                return number.item()
        folded = self._folded(context)
        if folded is not None:
            return folded
        mark = context.scope.mark()
        translate = find_rule(context.op)
        several = isinstance(context.node.meta.get("val"), tuple | list)
        try:
            if translate is None:
                raise NoTopForm("the top dialect has no such op")
            outcome = translate(context)
        except NoTopForm as error:
            context.give_up(mark)
            outcome = emit_custom(context, str(error))
            outcome = outcome if several else outcome[0]
        results = list(outcome) if isinstance(outcome, list | tuple) else [outcome]
        mark_masked(context)
        context.named(results)
        self._check(context, results)
        return tuple(results) if several else results[0]

    def _check(self, context: TorchContext, results: list[Any]) -> None:
        """Every result has the type that torch says it has."""
        val = context.node.meta.get("val")
        expected = list(val) if isinstance(val, tuple | list) else [val]
        for result, fake in zip(results, expected, strict=False):
            if isinstance(result, Value) and isinstance(fake, torch.Tensor):
                dtype, shape = dtype_from(fake.dtype), shape_from(fake)
                right = type_from(fake, context.label)
                if DYNAMIC not in shape and dtype is not None and result.type != right:
                    raise InvalidModelError(
                        f"{context.label}: it would be {result.type}, and torch says {right}"
                    )

    def _folded(self, context: TorchContext) -> Any:
        """The value of a node whose operands are all constant; None if it is not, or is too large."""
        node = context.node
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace not in (
            "aten",
            "prims",
        ):
            return None
        if op_name(node).removesuffix("_like") in _RANDOM or node.target._schema.is_mutable:
            return None
        val = node.meta.get("val")
        several = val if isinstance(val, tuple | list) else [val]
        tensors = [item for item in several if isinstance(item, torch.Tensor)]
        if not tensors or any(DYNAMIC in shape_from(item) for item in tensors):
            return None
        if sum(prod(item.shape) * item.element_size() for item in tensors) > _FOLDED:
            return None
        used = [context.scope.meanings.get(item) for item in node.all_input_nodes]
        if any(not isinstance(item, torch.Tensor) for item in used):
            return None
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: context.scope.meanings[n])
        if _is_same(node):
            # A tied weight stays one tensor. A copy of one that lies in another order is contiguous: a view of it may follow.
            (tensor, *_) = used
            return tensor.contiguous() if isinstance(tensor, torch.Tensor) else None
        with torch.no_grad():
            return node.target(*args, **kwargs)


def _is_same(node: Any) -> bool:
    return op_name(node) in ("alias", "clone", "detach", "lift_fresh_copy", "contiguous") and bool(node.args)
