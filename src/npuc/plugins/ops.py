"""An op of a plugin in all stages: its float meaning in NumPy, and its integer meaning as a custom instruction.

    @float_forward(HardGlu)
    def hard_glu(arrays, attributes): ...

    custom_instruction(NpuHardGlu, kernel="hard_glu", parameters=numbers_of, work=3, by_row=True)

The second gives the op to graph mode, to the scheduler and the cost model, to instruction mode, and to the CPU where a target
has no such instruction; the kernel itself is registered with `kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any, get_args

import numpy as np

from npuc.arrays import Array
from npuc.engine.handlers import Step, handles
from npuc.engine.handlers.layout import inward, outward
from npuc.errors import PluginError
from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.ir import Graph, dtype_of, shape_of
from npuc.ir.definition import TopOp
from npuc.ir.npu import NpuOp
from npuc.kernels.custom import Kernel, register_family, register_kernel
from npuc.partition.host import on_host
from npuc.program import custom_kernels as kernels
from npuc.schedule.layers import Layer
from npuc.schedule.rules import Tensors, layers_as
from npuc.schedule.rules.custom import KernelMemory, custom_layer

_FLOAT = "npuc.plugin"
_INTEGER = "npuc.kernel"


def float_forward(op: type[TopOp], *, replace: bool = False) -> Callable[[Kernel], Kernel]:
    """Decorate what computes an op on reals: `(operands, properties) -> results`, NumPy arrays.

    The float engine calls it, and so do CPU subgraphs. `npuc export onnx` writes a node of the domain `npuc.plugin`.
    """

    def register(function: Kernel) -> Kernel:
        @exports(op, replace=replace)
        def rule(layer_op: Any, emit: Emitter) -> None:
            outputs = [emit.name(value) for value in layer_op.results]
            emit.node(op.name, list(layer_op.operands), outputs, layer_op.native_properties(), domain=_FLOAT)

        register_kernel(_FLOAT, op.name, function, replace=replace)
        return function

    return register


def kernel(
    name: str, c_source: str | Path = "", *, replace: bool = False
) -> Callable[[Callable[[kernels.KernelCall], None]], Callable[[kernels.KernelCall], None]]:
    """Decorate the kernel of a custom instruction; `c_source` is the same in C, as text or as a file."""

    def register(function: Callable[[kernels.KernelCall], None]) -> Callable[[kernels.KernelCall], None]:
        kernels.register(name, function, c_source, replace=replace)
        return function

    return register


def custom_instruction(
    op: type[NpuOp],
    *,
    kernel: str,
    parameters: Callable[[Any], Sequence[int | float]] = lambda op: (),
    constants: Callable[[Any, Graph], Array | Sequence[Array | str]] | None = None,
    operands: Sequence[str] = ("x",),
    result: str = "y",
    work: float | Callable[[Any], int] = 1,
    by_row: bool = False,
    memory: KernelMemory = "local",
    workspace: int | Callable[[Any], int] = 0,
    local_workspace: int | Callable[[Any], int] = 0,
    traffic: Callable[[Any], int] | None = None,
    replace: bool = False,
) -> None:
    """Let a kernel compute an op of the `npu` dialect, wherever the op runs.

    `parameters` and `constants` give the numbers and the constants of an op's instruction: integers or reals
    (`KernelCall.real`), and a tensor or a list of tensors and texts (`KernelCall.constant`, `text`). `operands` and `result`
    are the names of its fields. `work` is what an element of the result costs, in cycles of a lane of the vector engine; as a
    function, what all of an op costs. With `by_row` the scheduler may cut: the operands have the shape of the result, and a
    row of it needs the same row of each.

    `memory` is where the kernel has its operands: as tiles or whole in `"local"` memory, or whole in `"global"` memory.
    `workspace` are bytes of that memory for the kernel's own use, as a number or as a function of the op, and `local_workspace`
    bytes of local memory for a kernel in global memory. `traffic` is what an op of such a kernel moves from and to global memory,
    in bytes; without it, operands and result count once.
    """
    if memory not in get_args(KernelMemory):
        raise PluginError(
            f"the kernel '{kernel}' cannot work in '{memory}' memory",
            fix=f"Choose one of: {', '.join(get_args(KernelMemory))}",
        )
    if memory == "local" and (local_workspace or traffic is not None):
        raise PluginError(
            f"the kernel '{kernel}' works in local memory, and has a local_workspace or traffic",
            fix='Use workspace for its workspace, or memory="global"',
        )
    if memory == "global" and by_row:
        raise PluginError(
            f"the kernel '{kernel}' works on whole tensors in global memory, and has by_row",
            fix='Leave by_row out, or use memory="local"',
        )

    def given(layer_op: Any, graph: Graph) -> Array | None:
        if constants is None:
            return None
        stated = constants(layer_op, graph)
        return (
            np.ascontiguousarray(stated) if isinstance(stated, np.ndarray) else kernels.pack_constants(stated)
        )

    def numbers_of(layer_op: Any) -> tuple[int, ...]:
        return kernels.encode_parameters(parameters(layer_op))

    def spaces_of(layer_op: Any) -> dict[str, int]:
        """The bytes of the workspaces that there are."""
        stated = {"workspace": workspace, "local_workspace": local_workspace}
        sizes = {
            name: int(size(layer_op) if callable(size) else size) for name, size in stated.items() if size
        }
        return {name: size for name, size in sizes.items() if size}

    def work_of(layer_op: Any) -> float | Fraction:
        elements = prod(shape_of(getattr(layer_op, result)))
        return Fraction(int(work(layer_op)), max(elements, 1)) if callable(work) else work

    def step(layer_op: Any, graph: Graph, threads: int) -> Step:
        numbers, fixed, value = numbers_of(layer_op), given(layer_op, graph), getattr(layer_op, result)
        spaces = spaces_of(layer_op)
        places = [list(layer_op.operands).index(getattr(layer_op, name)) for name in operands]
        shape, kind = shape_of(value), dtype_of(value.type).numpy
        return lambda arrays: [
            _whole(kernel, [arrays[place] for place in places], fixed, numbers, shape, kind, spaces)
        ]

    def layer(layer_op: Any, graph: Graph, tensor: Tensors) -> Layer:
        return custom_layer(
            layer_op,
            graph,
            tensor,
            kernel=kernel,
            operands=[getattr(layer_op, name) for name in operands],
            result=getattr(layer_op, result),
            parameters=numbers_of(layer_op),
            constants=given(layer_op, graph),
            work=work_of(layer_op),
            by_row=by_row,
            memory=memory,
            traffic=None if traffic is None else int(traffic(layer_op)),
            **spaces_of(layer_op),
        )

    def host(layer_op: Any, emit: Emitter) -> None:
        fixed, value = given(layer_op, emit.graph), getattr(layer_op, result)
        inputs: list[Any] = [getattr(layer_op, name) for name in operands]
        lists = {"parameters": list(numbers_of(layer_op)), "shape": list(shape_of(value))}
        attributes: dict[str, Any] = {
            **{name: numbers for name, numbers in lists.items() if numbers},
            "operands": len(inputs),
            "dtype": dtype_of(value.type).name,
            **spaces_of(layer_op),
        }
        if fixed is not None:
            inputs.append(fixed.view(np.uint8).reshape(-1))
        emit.node(kernel, inputs, [emit.name(value)], attributes, domain=_INTEGER)

    handles(op, replace=replace)(step)
    layers_as(op, replace=replace)(layer)
    on_host(op, replace=replace)(host)


def _whole(
    name: str,
    arrays: Sequence[Array],
    constants: Array | None,
    parameters: Sequence[int],
    shape: Sequence[int],
    dtype: Any,
    spaces: Mapping[str, int],
) -> Array:
    """A kernel on whole tensors, in the order that they have in memory, with workspaces of such sizes."""
    blocks = [np.ascontiguousarray(inward(array)) for array in arrays]
    y = np.zeros([shape[i] for i in ((0, 2, 3, 1) if len(shape) == 4 else range(len(shape)))], dtype)
    fixed = None if constants is None else constants.view(np.uint8).reshape(-1)
    kernels.run(name, blocks[0], blocks[1] if len(blocks) > 1 else None, fixed, y, parameters, **spaces)
    return outward(y)


def _on_host(name: str) -> Kernel | None:
    if name not in kernels.KERNELS:
        return None

    def compute(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
        count = attributes["operands"]
        constants = arrays[count] if len(arrays) > count else None
        kind = dtype_of(attributes["dtype"]).numpy
        numbers = attributes.get("parameters", [])
        spaces = {key: attributes[key] for key in ("workspace", "local_workspace") if key in attributes}
        return [_whole(name, arrays[:count], constants, numbers, attributes.get("shape", []), kind, spaces)]

    return compute


register_family(_INTEGER, _on_host)

__all__ = ["custom_instruction", "float_forward", "kernel"]
