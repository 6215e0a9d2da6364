"""Plugins in C and C++: what a shared library has is registered like what a Python plugin registers.

An op becomes the kernel of the custom op of its domain and name, and tells the shapes of its results when a model is imported; so
a network with such nodes compiles, and runs them on the CPU. Kernels of custom instructions are called by the simulators
directly. A C source beside the library (`hard_glu.c` beside `hard_glu.so`) goes into applications that `npuc export c` writes.
With `NPUC_ISOLATE_PLUGINS=1` ops run in a process of their own, so that a crash is an error.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from npuc.ir import Graph, dtype_of, is_static, shape_of, tensor_type, top
from npuc.ir.claims import CLAIMS
from npuc.kernels.custom import KERNELS
from npuc.kernels.isolation import Isolated
from npuc.kernels.native_ops import NativeKernel, NativeOp, infer, load_native
from npuc.program import custom_kernels

if TYPE_CHECKING:
    from npuc.ir.definition import TopOp

VARIABLE = "NPUC_ISOLATE_PLUGINS"


def register_library(path: Path, *, isolated: bool | None = None) -> None:
    """Register the ops and kernels of a library; `isolated` runs its ops in a process of their own."""
    plugin = load_native(path)
    if isolated is None:
        isolated = os.environ.get(VARIABLE, "") not in ("", "0")
    process = Isolated(path) if isolated else None
    owner = path.name
    source = path.with_suffix(".c")
    text = source.read_text(encoding="utf-8", errors="replace") if source.is_file() else ""
    for op in plugin.ops:
        KERNELS.require_free((op.domain, op.name))
        KERNELS.add([(op.domain, op.name)], NativeKernel(op, process, text), module=owner)
        CLAIMS.add([(op.domain, op.name)], partial(_with_shapes, op), module=owner)
    for name, address in plugin.kernels:
        custom_kernels.register(
            name,
            custom_kernels.native_function(name, address),
            text,
            address=address,
            module=owner,
        )


def _with_shapes(op: NativeOp, node: top.Onnx, graph: Graph) -> TopOp | None:
    """The same node with the types of its results, which the library tells; None if they are known."""
    if all(is_static(value) for value in node.results):
        return None
    inputs = [node.inputs[index] for index in node.arguments if index >= 0]
    if not all(is_static(value) for value in inputs):
        return None
    shapes = [(dtype_of(value.type).name, tuple(shape_of(value))) for value in inputs]
    types = infer(op, shapes, node.onnx_attributes, max(node.outputs_used, default=0) + 1)
    return top.Onnx.create(
        operands=list(node.operands),
        result_types=[tensor_type(types[index][1], dtype_of(types[index][0])) for index in node.outputs_used],
        properties=dict(node.properties),
    )
