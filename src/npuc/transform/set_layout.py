"""Inputs and outputs of images get the order of axes that an application has: N x H x W x C, or N x C x H x W.

    func @main(%x: 1x3x4x4xf32) → 1x8x2x2xf32      func @main(%x: 1x4x4x3xf32) → 1x2x2x8xf32
        %y = top.conv(%x, ...)                         %0 = top.permute(%x) {order = [0, 3, 1, 2]}
                                           →           %1 = top.conv(%0, ...)
                                                       %y = top.permute(%1) {order = [0, 2, 3, 1]}

Images lie in the NPU's memory as N x H x W x C, so that an input's permute costs nothing there. The pass changes the
interface of the network, so it is not part of the canonical form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from npuc.errors import PipelineError
from npuc.images.preprocess import Preprocess
from npuc.ir.dtypes import element_of, is_static, shape_of, tensor_type
from npuc.ir.graph import Graph, Port
from npuc.ir.passes import Pass, register_pass
from npuc.ir.top import Permute

_ORDERS = {("nchw", "nhwc"): (0, 2, 3, 1), ("nhwc", "nchw"): (0, 3, 1, 2)}
"""The axes of the second layout in the first."""


@register_pass
@dataclass(frozen=True)
class SetLayout(Pass):
    """The order of axes of inputs and outputs of rank 4."""

    name: ClassVar[str] = "set-layout"

    own: str = "nchw"
    """The layout that the network has, unless an input's preprocessing states another."""
    inputs: str = ""
    """The layout of inputs; empty leaves them as they are."""
    outputs: str = ""
    """The layout of outputs; empty leaves them as they are."""

    def run(self, graph: Graph) -> None:
        """Every input and output of rank 4."""
        for word in (self.own, self.inputs, self.outputs):
            if word not in ("", "nchw", "nhwc"):
                raise PipelineError(f"'{word}' is no layout", fix="Write nchw or nhwc")
        if self.inputs:
            self._turn_inputs(graph)
        if self.outputs and self.outputs != self.own:
            self._turn_outputs(graph)

    def _turn_inputs(self, graph: Graph) -> None:
        ports: list[tuple[str, Any, dict[str, Any] | None]] = []
        turned: list[tuple[Port, str]] = []
        for port in graph.inputs:
            stated = Preprocess.from_dict(port.preprocess) if port.preprocess else None
            own = stated.layout if stated is not None else self.own
            if not _is_image(port) or own == self.inputs or (stated is not None and stated.yuv):
                ports.append((port.name, port.type, port.preprocess))
                continue
            shape = shape_of(port.value)
            order = _ORDERS[own, self.inputs]
            kind = tensor_type([shape[axis] for axis in order], element_of(port.value))
            left = None if stated is None else {**stated.to_dict(), "layout": self.inputs}
            ports.append((port.name, kind, left))
            turned.append((port, own))
        graph.set_inputs(ports)
        for port, own in turned:
            users = list(port.value.uses)
            op = Permute.make(
                port.value, order=_ORDERS[self.inputs, own], name=f"{port.name}/{own}", layer=port.name
            )
            first = graph.block.first_op
            assert first is not None
            graph.block.insert_op_before(op, first)
            for use in users:
                use.operation.operands[use.index] = op.y

    def _turn_outputs(self, graph: Graph) -> None:
        outputs = []
        for port in graph.outputs:
            value = port.value
            if _is_image(port):
                order = _ORDERS[self.own, self.outputs]
                op = Permute.make(value, order=order, name=f"{port.name}/{self.outputs}", layer=port.name)
                graph.block.insert_op_before(op, graph.terminator)
                value = op.y
            outputs.append((port.name, value))
        graph.set_outputs(outputs)


def _is_image(port: Port) -> bool:
    return is_static(port.value) and len(shape_of(port.value)) == 4
