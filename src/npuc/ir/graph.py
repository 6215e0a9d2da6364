"""A program: one function of tensors, its weights, and the names its user knows.

`Graph` wraps an xDSL module `func.func @main(...)` and a `WeightStore`. It is the artifact that the stages hand to
each other; a stage that changes it works on a `copy()`. Names of inputs and outputs, and the preprocessing that
belongs to an input, are argument and result attributes of the function, so that they travel in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from npuc.errors import VerificationError
from npuc.ir.attributes import to_attribute, to_native
from npuc.ir.definition import ShapeError
from npuc.ir.dtypes import dtype_of, shape_of, tensor_type
from npuc.ir.names import describe, layer_name, location, result_names, value_name
from npuc.ir.top.weight import WeightOp
from npuc.ir.verification import VERIFIERS, ask_verifiers
from npuc.ir.weights import Weight, WeightStore
from npuc.origins import Origins

Value = SSAValue
_NAME = "top.name"
_PREPROCESS = "top.preprocess"
_ARITHMETIC = "top.arithmetic"
_NODES, _READERS = "top.nodes", "top.readers"
_STATES = "top.states"
_NAMES = "top.names."
_NETWORK = "top.network"


@dataclass(frozen=True)
class Port:
    """An input or output of a graph."""

    name: str
    value: SSAValue
    preprocess: dict[str, Any] | None = None

    @property
    def type(self) -> Attribute:
        """Its tensor type."""
        return self.value.type


class Graph:
    """A program of the `top` dialect (and, after lowering, of others)."""

    def __init__(self, module: ModuleOp, weights: WeightStore) -> None:
        self.module = module
        self.weights = weights
        self.notes: list[str] = []
        """What a stage wants its user to know: choices it made, things it could not do."""
        self.float_reasons: dict[str, str] = {}
        """Why layers stayed float when the network was quantized, by the name of their first result."""

    @staticmethod
    def empty(
        inputs: Sequence[tuple[str, Attribute]],
        weights: WeightStore | None = None,
        preprocess: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Graph:
        """A graph with inputs and no ops; end it with `set_outputs`."""
        block = Block(arg_types=[kind for _, kind in inputs])
        attributes = []
        for (name, _), argument in zip(inputs, block.args, strict=True):
            argument.location = cast(Any, location(name))
            entry: dict[str, Any] = {_NAME: name}
            if preprocess and name in preprocess:
                entry[_PREPROCESS] = dict(preprocess[name])
            attributes.append(cast(DictionaryAttr, to_attribute(entry)))
        function = FuncOp(
            "main", ([kind for _, kind in inputs], []), Region(block), arg_attrs=ArrayAttr(attributes)
        )
        return Graph(ModuleOp([function]), weights if weights is not None else WeightStore())

    @property
    def function(self) -> FuncOp:
        """The function `@main`."""
        op = self.module.regions[0].block.first_op
        while op is not None:
            if isinstance(op, FuncOp) and op.sym_name.data == "main":
                return op
            op = op.next_op
        raise VerificationError(
            "the program has no function '@main'", fix="Write it again with 'npuc import'"
        )

    @property
    def block(self) -> Block:
        """The body of `@main`."""
        return self.function.regions[0].block

    @property
    def ops(self) -> Iterator[Operation]:
        """The ops of the body in order, without the return."""
        op = self.block.first_op
        while op is not None:
            following = op.next_op  # whoever iterates may erase the op
            if type(op) is not ReturnOp:
                yield op
            op = following

    @property
    def terminator(self) -> Operation:
        """The return op."""
        last = self.block.last_op
        if not isinstance(last, ReturnOp):
            raise VerificationError("the program does not end with a return")
        return last

    def _ports(self, values: Sequence[SSAValue], attributes: ArrayAttr[DictionaryAttr] | None) -> list[Port]:
        ports = []
        for index, value in enumerate(values):
            entry = to_native(attributes.data[index]) if attributes is not None else {}
            ports.append(
                Port(entry.get(_NAME) or value_name(value) or f"arg{index}", value, entry.get(_PREPROCESS))
            )
        return ports

    @property
    def inputs(self) -> list[Port]:
        """The inputs in order."""
        return self._ports(self.block.args, self.function.arg_attrs)

    @property
    def outputs(self) -> list[Port]:
        """The outputs in order; one value may serve several."""
        return self._ports(tuple(self.terminator.operands), self.function.res_attrs)

    def set_outputs(self, outputs: Sequence[tuple[str, SSAValue]]) -> None:
        """(Re)write the return and the result types and names."""
        last = self.block.last_op
        if isinstance(last, ReturnOp):
            self.block.erase_op(last)
        values = [value for _, value in outputs]
        self.block.add_op(ReturnOp(*values))
        function = self.function
        function.properties["res_attrs"] = ArrayAttr(
            [cast(DictionaryAttr, to_attribute({_NAME: name})) for name, _ in outputs]
        )
        self.refresh_signature()

    def set_inputs(self, ports: Sequence[tuple[str, Attribute, dict[str, Any] | None]]) -> None:
        """Rewrite names, types and preprocessing of the inputs; the block arguments stay."""
        attributes = []
        for argument, (name, kind, preprocess) in zip(self.block.args, ports, strict=True):
            argument._type = kind
            argument.location = cast(Any, location(name))
            entry: dict[str, Any] = {_NAME: name}
            if preprocess:
                entry[_PREPROCESS] = preprocess
            attributes.append(cast(DictionaryAttr, to_attribute(entry)))
        self.function.properties["arg_attrs"] = ArrayAttr(attributes)
        self.refresh_signature()

    def refresh_signature(self) -> None:
        """Make the function type agree with the block arguments and the return (after a rewrite of either)."""
        from xdsl.dialects.builtin import FunctionType

        self.function.properties["function_type"] = FunctionType.from_lists(
            [arg.type for arg in self.block.args], [value.type for value in self.terminator.operands]
        )

    def add_weight(self, name: str, data: Weight | np.ndarray[Any, Any]) -> WeightOp:
        """Store a constant and make the op that refers to it (not yet in a block)."""
        ref = self.weights.add(name, data)
        weight = self.weights[ref]
        return WeightOp.of(ref, tensor_type(weight.shape, weight.dtype))

    def constant(self, value: SSAValue | None) -> np.ndarray[Any, Any] | None:
        """The values of a `top.weight`, read-only; None if the value is not constant."""
        if isinstance(value, OpResult) and isinstance(value.op, WeightOp):
            return self.weights.array(value.op.ref)
        return None

    def find(self, name: str) -> SSAValue | None:
        """The value of a name: a result or input name first, then the (first) result of a layer or an original node."""
        value = self._find(name)
        if value is not None or not (node := self.origins.nodes.get(name)):
            return value
        return self._find(node)

    def _find(self, name: str) -> SSAValue | None:
        by_layer: SSAValue | None = None
        for argument in self.block.args:
            if value_name(argument) == name:
                return argument
        for op in self.ops:
            for index, result in enumerate(result_names(op)):
                if result == name:
                    return op.results[index]
            if by_layer is None and op.results and layer_name(op) == name:
                by_layer = op.results[0]
        return by_layer

    def tensor_names(self) -> list[str]:
        """The names of all computed values, in order, without weights."""
        return [name for op in self.ops if not isinstance(op, WeightOp) for name in result_names(op) if name]

    def distinct_names(self) -> dict[SSAValue, str]:
        """A name of its own for each input and computed value, in order: the second one that is called x is `x#2`."""
        values = [(port.value, port.name) for port in self.inputs]
        for op in self.ops:
            if not isinstance(op, WeightOp):
                values += [(value, value_name(value) or op.name) for value in op.results]
        times: dict[str, int] = {}
        distinct: dict[SSAValue, str] = {}
        for value, name in values:
            times[name] = times.get(name, 0) + 1
            distinct[value] = name if times[name] == 1 else f"{name}#{times[name]}"
        return distinct

    def used_weights(self) -> list[str]:
        """Names of the weights that ops refer to, in order of first use."""
        return list(dict.fromkeys(op.ref for op in self.ops if isinstance(op, WeightOp)))

    @property
    def origins(self) -> Origins:
        """What the nodes and tensors of the original network were called, for names that the program no longer has."""
        return Origins(self._pairs(_NODES), self._pairs(_READERS))

    @origins.setter
    def origins(self, origins: Origins) -> None:
        for key, table in ((_NODES, origins.nodes), (_READERS, origins.readers)):
            self._set_pairs(key, table)

    @property
    def states(self) -> dict[str, str]:
        """Inputs that take, in each run, what an output gave in the run before (`npuc.ir.states`)."""
        return self._pairs(_STATES)

    @states.setter
    def states(self, pairs: Mapping[str, str]) -> None:
        self._set_pairs(_STATES, pairs)

    @property
    def name(self) -> str:
        """What its user calls the network; empty if nobody said."""
        stated = self.module.attributes.get(_NETWORK)
        return stated.data if isinstance(stated, StringAttr) else ""

    @name.setter
    def name(self, name: str) -> None:
        self.module.attributes[_NETWORK] = StringAttr(name)

    def names_for(self, tool: str) -> dict[str, str]:
        """The names that another tool has for tensors of the network, by their own; empty if none were stored."""
        return self._pairs(f"{_NAMES}{tool}")

    def set_names_for(self, tool: str, table: Mapping[str, str]) -> None:
        """Store the names that another tool has for tensors; they travel with the network."""
        self._set_pairs(f"{_NAMES}{tool}", table)

    @property
    def named_tools(self) -> list[str]:
        """The tools that `names_for` has names of."""
        return [key.removeprefix(_NAMES) for key in self.module.attributes if key.startswith(_NAMES)]

    def take_names(self, source: Graph) -> None:
        """Take over what another graph of the same network knows: its name, origins, and names of other tools."""
        self.origins = source.origins
        if source.name:
            self.name = source.name
        for tool in source.named_tools:
            self.set_names_for(tool, source.names_for(tool))

    def _set_pairs(self, key: str, table: Mapping[str, str]) -> None:
        self.module.attributes.pop(key, None)
        if table:
            words = [StringAttr(word) for pair in table.items() for word in pair]
            self.module.attributes[key] = ArrayAttr(words)

    def _pairs(self, key: str) -> dict[str, str]:
        """A table of names, which the text has as one list; what is no text is left out."""
        stored = self.module.attributes.get(key)
        entries = stored.data if isinstance(stored, ArrayAttr) else ()
        words = [entry.data for entry in entries if isinstance(entry, StringAttr)]
        return dict(zip(words[::2], words[1::2], strict=False))

    def tensor_called(self, name: str) -> str:
        """The tensor that a name stands for, if it is that of a node whose result is there; else the name."""
        tensor = self.origins.nodes.get(name)
        return tensor if tensor is not None and tensor in self.tensor_names() else name

    def layer_aliases(self) -> dict[str, tuple[str, ...]]:
        """For each tensor, the other names of the layer that makes it: of original nodes, and of what was fused into it."""
        origins = self.origins
        if not origins:
            return {}
        names = {name for op in self.ops for name in (*result_names(op), layer_name(op))}
        tensors = {*self.tensor_names(), *(port.name for port in self.inputs)}
        return {
            tensor: tuple(name for name in others if name not in names)
            for tensor, others in origins.names_of(tensors).items()
        }

    @property
    def arithmetic(self) -> str:
        """Whose integer arithmetic a network that brings its own quantization promises: "tflite", "" for ONNX's, or for a network
        that npuc quantized and wrote as QDQ its requantization kind with the bits of its multipliers: "single_rounding/31"."""
        stated = self.module.attributes.get(_ARITHMETIC)
        return stated.data if isinstance(stated, StringAttr) else ""

    @arithmetic.setter
    def arithmetic(self, name: str) -> None:
        self.module.attributes[_ARITHMETIC] = StringAttr(name)

    def copy(self) -> Graph:
        """An independent copy; the tensors of the weight store are shared."""
        module = self.module.clone()
        clone = Graph(module, self.weights.copy())
        clone.notes = list(self.notes)
        clone.float_reasons = dict(self.float_reasons)
        for old, new in zip(self.block.args, clone.block.args, strict=True):
            new.location = old.location
        return clone

    def _first_fault(self) -> str | None:
        """What is wrong with the first op that does not verify, with its layer name."""
        for op in self.block.ops:
            try:
                op.verify()
            except (VerifyException, DiagnosticException) as error:
                reason = _reason(error)
                return reason if reason.startswith(describe(op)) else f"{describe(op)}: {reason}"
        return None

    def verify(self) -> None:
        """Check every op, the types of all weights, that weights exist, and the rules of plugins.

        `VerificationError` names the layer.
        """
        try:
            self.module.verify()
        except (VerifyException, DiagnosticException) as error:
            raise VerificationError(self._first_fault() or _reason(error)) from error
        for op in self.ops:
            if not isinstance(op, WeightOp):
                continue
            weight = self.weights.get(op.ref)
            if weight is None:
                raise VerificationError(f"weight '{op.ref}' is not in the weight file")
            if weight.dtype != dtype_of(op.output.type) or weight.shape != shape_of(op.output):
                raise VerificationError(
                    f"weight '{op.ref}' is {tensor_type(weight.shape, weight.dtype)} in the weight file and "
                    f"{op.output.type} in the text"
                )
        for op in self.ops:
            check = getattr(op, "check_constants", None)
            if check is not None:
                try:
                    check(self.constant)
                except ShapeError as error:
                    raise VerificationError(f"{op.name} '{value_name(op.results[0])}': {error}") from error
        if VERIFIERS:
            ask_verifiers(self)


def _reason(error: BaseException) -> str:
    """The text of the innermost verifier error: what xDSL wraps around it is a print of the whole program."""
    texts = []
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, VerifyException):
            texts.append(str(cause))
        cause = cause.__cause__
    return " ".join((texts[-1] if texts else str(error)).split())


__all__ = ["Graph", "Port", "Value", "dtype_of"]
