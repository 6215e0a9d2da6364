"""`xir`: graphs, subgraphs, ops and tensors of an `.xmodel` file, to be looked at.

    graph = xir.Graph.deserialize("net.xmodel")
    dpu = [s for s in graph.get_root_subgraph().toposort_child_subgraph() if s.get_attr("device") == "DPU"]

A compiled file has subgraphs for the DPU and the CPU; the conversions between reals and integers are theirs, as in the vendor's
files. Tensors of rank 4 are N x H x W x C, and `fix_point` is the number of fractional bits.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log2, prod
from pathlib import Path
from typing import Any

from npuc.arithmetic.dtypes import dtype_of
from npuc.compat.vitis.notices import near_names
from npuc.compat.vitis.xmodels import open_xmodel
from npuc.errors import FileFormatError, UnknownTensorError, UsageError
from npuc.files import existing_model
from npuc.ir import Graph as Network
from npuc.ir import dtype_of as dtype_of_type
from npuc.ir import result_names, shape_of, top
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import quant_of
from npuc.program import model as program
from npuc.program.debug_info import read_debug_info

__all__ = ["Graph", "Op", "Subgraph", "Tensor"]


class _Attributed:
    """Something with attributes by name."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self._attributes = attributes

    def has_attr(self, name: str) -> bool:
        """Whether there is an attribute of that name."""
        return name in self._attributes

    def get_attr(self, name: str) -> Any:
        """An attribute."""
        if name not in self._attributes:
            raise UnknownTensorError(
                f"there is no attribute '{name}' (XIR_UNDEFINED_ATTR)", fix=near_names(name, self._attributes)
            )
        return self._attributes[name]

    def set_attr(self, name: str, value: Any) -> Any:
        """Set an attribute of this object; files are not changed by it."""
        self._attributes[name] = value
        return self

    def get_attrs(self) -> dict[str, Any]:
        """All attributes."""
        return dict(self._attributes)


class Tensor(_Attributed):
    """The name, type and shape of a tensor."""

    def __init__(self, name: str, shape: Sequence[int], dtype: str, scale: float = 0.0) -> None:
        super().__init__(_fix_point(scale, dtype))
        self.name = name
        self.stored_type, self.scale = dtype, scale
        self.logical_shape = shape = tuple(shape)
        """N x C x H x W, as npuc has it."""
        self.dims = list((shape[0], *shape[2:], shape[1]) if len(shape) == 4 else shape)
        self.dtype = f"xint{dtype_of(dtype).bits}" if scale else dtype_of(dtype).numpy.name
        self._itemsize = dtype_of(dtype).itemsize

    @property
    def ndim(self) -> int:
        """How many axes."""
        return len(self.dims)

    def get_name(self) -> str:
        """The name."""
        return self.name

    def get_shape(self) -> list[int]:
        """The shape."""
        return list(self.dims)

    def get_data_type(self) -> str:
        """The type."""
        return self.dtype

    def get_element_num(self) -> int:
        """How many elements."""
        return prod(self.dims)

    def get_data_size(self) -> int:
        """Bytes."""
        return prod(self.dims) * self._itemsize

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.dims}, {self.dtype})"


def _fix_point(scale: float, dtype: str) -> dict[str, Any]:
    """`fix_point`, `bit_width` and so on of integers; integers of other scales than powers of two have `scale`."""
    if not scale:
        return {}
    position = -log2(scale)
    attributes: dict[str, Any] = {
        "bit_width": dtype_of(dtype).bits,
        "if_signed": not dtype.startswith("u"),
        "round_mode": "DPU_ROUND",
    }
    return attributes | ({"fix_point": int(position)} if position.is_integer() else {"scale": scale})


class Op(_Attributed):
    """A layer: one result, of some others."""

    def __init__(
        self, name: str, kind: str, output: Tensor, inputs: Sequence[Op], attributes: dict[str, Any]
    ) -> None:
        super().__init__(attributes)
        self._name, self._kind, self._output, self._inputs = name, kind, output, tuple(inputs)

    def get_name(self) -> str:
        """The name."""
        return self._name

    def get_type(self) -> str:
        """The kind of op."""
        return self._kind

    def get_output_tensor(self) -> Tensor:
        """Its result."""
        return self._output

    def get_input_tensors(self) -> list[Tensor]:
        """What it reads."""
        return [op.get_output_tensor() for op in self._inputs]

    def get_input_ops(self) -> dict[str, list[Op]]:
        """The ops that make what it reads."""
        return {"input": list(self._inputs)}

    def get_input_num(self) -> int:
        """How many tensors it reads."""
        return len(self._inputs)

    def __repr__(self) -> str:
        return f"Op({self._name!r}, {self._kind})"


@dataclass(frozen=True)
class Part:
    """A subgraph of a compiled model as a model of its own, which a runner runs."""

    model: program.CompiledModel
    device: str


class Subgraph(_Attributed):
    """The whole graph, or a part that runs on one device."""

    def __init__(self, name: str, graph: Graph, attributes: dict[str, Any], number: int = -1) -> None:
        super().__init__(attributes)
        self._name, self._graph, self._number = name, graph, number

    def get_name(self) -> str:
        """The name."""
        return self._name

    @property
    def is_root(self) -> bool:
        """Whether it is the whole graph."""
        return self._number < 0

    @property
    def is_leaf(self) -> bool:
        """Whether it has no parts."""
        return not self.is_root or not self._graph.parts

    def get_graph(self) -> Graph:
        """The graph that it belongs to."""
        return self._graph

    def get_children(self) -> set[Subgraph]:
        """Its parts, in no order."""
        return set(self.toposort_child_subgraph())

    def toposort_child_subgraph(self) -> list[Subgraph]:
        """Its parts in the order in which they run."""
        return self._graph.parts if self.is_root else []

    children_topological_sort = toposort_child_subgraph

    def get_ops(self) -> set[Op]:
        """Its ops."""
        return set(self.toposort())

    def toposort(self) -> list[Op]:
        """Its ops in the order in which they run."""
        return self._graph.toposort() if self.is_root else self._graph.ops_of(self._number)

    def get_op_num(self) -> int:
        """How many ops."""
        return len(self.toposort())

    def get_input_tensors(self) -> set[Tensor]:
        """What it reads; a set, as in the vendor's package."""
        return set(self._graph.ends_of(self._number)[0])

    def get_output_tensors(self) -> set[Tensor]:
        """What it gives."""
        return set(self._graph.ends_of(self._number)[1])

    def part(self) -> Part:
        """The subgraph for a runner."""
        return self._graph.part_of(self._number)

    def __repr__(self) -> str:
        return f"Subgraph({self._name!r}, {self._attributes.get('device', 'root')})"


class Graph(_Attributed):
    """What an `.xmodel` file holds."""

    def __init__(self, content: program.CompiledModel | Network, path: Path | None = None) -> None:
        super().__init__({})
        self.content, self._path = content, path

    @staticmethod
    def deserialize(path: Path | str) -> Graph:
        """The graph of a file."""
        return Graph(open_xmodel(path), Path(path))

    def serialize(self, path: Path | str) -> None:
        """Write the graph to another file, as it was read."""
        if self._path is None:
            raise UsageError("only a graph that was read from a file can be written", fix="Use vai_c_xir")
        if isinstance(self.content, Network):
            from npuc.ir import save_graph

            save_graph(self.content, path)
        else:
            shutil.copyfile(existing_model(self._path), path)

    def get_name(self) -> str:
        """The name."""
        return self.content.name if isinstance(self.content, program.CompiledModel) else "main"

    def get_root_subgraph(self) -> Subgraph:
        """The whole graph."""
        return Subgraph("root", self, {})

    def get_ops(self) -> set[Op]:
        """All ops."""
        return set(self.toposort())

    def toposort(self) -> list[Op]:
        """All ops in the order in which they run."""
        return [op for op, _ in self._ops]

    topological_sort = toposort

    def get_op(self, name: str) -> Op:
        """An op by its name."""
        for op in self.toposort():
            if op.get_name() == name:
                return op
        raise UnknownTensorError(
            f"there is no op '{name}' (XIR_UNDEFINED_OP)",
            fix=near_names(name, [op.get_name() for op in self.toposort()]),
        )

    @cached_property
    def parts(self) -> list[Subgraph]:
        """The subgraphs of a compiled model: DPU and CPU. Conversions of the host are part of the reals around them."""
        if isinstance(self.content, Network):
            return []
        fingerprint = f"0x{self.content.fingerprint:016x}"
        subgraphs = []
        for number, part in enumerate(self.content.subgraphs):
            if isinstance(part, program.HostConversion):
                continue
            device = "DPU" if isinstance(part, program.NpuSubgraph) else "CPU"
            attributes = {"device": device, **({"dpu_fingerprint": fingerprint} if device == "DPU" else {})}
            subgraphs.append(Subgraph(f"subgraph_{part.name}", self, attributes, number))
        return subgraphs

    @cached_property
    def _ops(self) -> list[tuple[Op, int]]:
        return list(
            _network_ops(self.content) if isinstance(self.content, Network) else _compiled_ops(self.content)
        )

    def ops_of(self, number: int) -> list[Op]:
        """The ops of a subgraph."""
        return [op for op, part in self._ops if part == number]

    def ends_of(self, number: int) -> tuple[list[Tensor], list[Tensor]]:
        """What a subgraph reads and gives, in order."""
        if isinstance(self.content, Network):
            ports = self.content.inputs, self.content.outputs
            inputs, outputs = ([_tensor_of(port.name, port.value) for port in side] for side in ports)
            return inputs, outputs
        ends: Any = self.content if number < 0 else self.content.subgraphs[number]
        inputs, outputs = (
            [self._table_tensor(name) for name in side] for side in (ends.inputs, ends.outputs)
        )
        return inputs, outputs

    def _table_tensor(self, name: str) -> Tensor:
        assert isinstance(self.content, program.CompiledModel)
        tensor = self.content.tensor(name)
        return Tensor(name, tensor.shape, tensor.dtype, tensor.scale)

    def part_of(self, number: int) -> Part:
        """A subgraph as a model of its own."""
        if isinstance(self.content, Network):
            raise FileFormatError(
                "the graph is not compiled", where=str(self._path or ""), fix="Compile it: vai_c_xir"
            )
        if number < 0:
            return Part(self.content, "root")
        part = self.content.subgraphs[number]
        device = "DPU" if isinstance(part, program.NpuSubgraph) else "CPU"
        alone = replace(
            self.content, subgraphs=(part,), inputs=part.inputs, outputs=part.outputs, states=(), debug=b""
        )
        return Part(alone, device)


def _tensor_of(name: str, value: Any) -> Tensor:
    kind = quant_of(value)
    return Tensor(
        name, shape_of(value), dtype_of_type(value.type).name, kind.scale if kind is not None else 0.0
    )


def _network_ops(network: Network) -> Iterator[tuple[Op, int]]:
    """The ops of an integer network."""
    names = network.distinct_names()
    made_by: dict[Any, Op] = {}
    for port in network.inputs:
        op = Op(port.name, "data", _tensor_of(port.name, port.value), (), {})
        made_by[port.value] = op
        yield op, -1
    for node in network.ops:
        if not isinstance(node, TensorOp) or not node.results:
            continue
        kind = "const" if isinstance(node, top.WeightOp) else node.name.split(".", 1)[1]
        inputs = [made_by[value] for value in node.operands if value in made_by]
        attributes = {name: str(value) for name, value in node.properties.items()}
        for value in node.results:
            name = names.get(value) or result_names(node)[0]
            op = Op(name, kind, _tensor_of(name, value), inputs, attributes)
            made_by[value] = op
            yield op, -1


def _compiled_ops(model: program.CompiledModel) -> Iterator[tuple[Op, int]]:
    """The ops of a compiled model, as its debug information has them."""
    ops: list[Op] = []
    for tensor in read_debug_info(model).tensors:
        kind = "data" if tensor.subgraph < 0 else tensor.kind.split(".", 1)[-1]
        output = Tensor(tensor.name, tensor.shape, tensor.dtype, tensor.scale)
        op = Op(tensor.name, kind, output, [ops[index] for index in tensor.inputs], {"layer": tensor.layer})
        ops.append(op)
        yield op, tensor.subgraph
