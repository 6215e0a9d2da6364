"""The arithmetic of an input's preprocessing becomes part of the network, which then takes raw uint8 pixels.

    func @main(%x: 1x3x4x4xf32 {mean, scale})      func @main(%x: 1x3x4x4xui8)
                                                       %0 = top.cast(%x) {to = "f32"}
                                           →           %1 = top.scale(%0, %scale, %bias)

What is left of the preprocessing, resize and crop, stays attached. Pixels come in the format and layout that the
network was made for, unless the options `pixel_format` (rgb, bgr) and `layout` (nchw, nhwc) say otherwise: then the
network reverses the channels and permutes the axes itself. This pass changes the interface of the network, so it is not
part of the canonical form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import Operation, SSAValue

from npuc.errors import PreprocessError
from npuc.images.preprocess import Preprocess
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import dtype_of, shape_of, tensor_type
from npuc.ir.graph import Graph, Port
from npuc.ir.passes import Pass, register_pass
from npuc.ir.top import Add, Cast, Mul, Permute, Scale, Slice

_SWAPPED = {"rgb": "bgr", "bgr": "rgb"}


@register_pass
@dataclass(frozen=True)
class FusePreprocess(Pass):
    """Mean, scale, channel order and layout of image inputs become ops."""

    name: ClassVar[str] = "fuse-preprocess"

    pixel_format: str = ""
    """The format of the pixels that will be given; empty is what the network wants."""
    layout: str = ""
    """The layout of the pixels that will be given; empty is what the network wants."""

    def run(self, graph: Graph) -> None:
        """Every float input that has a preprocessing attached."""
        plans: list[tuple[Port, Preprocess]] = []
        ports: list[tuple[str, Any, dict[str, Any] | None]] = []
        for port in graph.inputs:
            if port.preprocess is None or not dtype_of(port.type).is_float:
                ports.append((port.name, port.type, port.preprocess))
                continue
            stated = Preprocess.from_dict(port.preprocess)
            stated.check(shape_of(port.value))
            given = self._given(port, stated)
            shape = _relaid(shape_of(port.value), stated.layout, given.layout)
            ports.append((port.name, tensor_type(shape, "ui8"), given.geometry().to_dict()))
            plans.append((port, stated))
        floats = {port.name: port.type for port, _ in plans}
        graph.set_inputs(ports)
        for port, stated in plans:
            _insert(graph, port, stated, self._given(port, stated), dtype_of(floats[port.name]).name)

    def _given(self, port: Port, stated: Preprocess) -> Preprocess:
        """The preprocessing for the pixels that will be given."""
        pixel_format, layout = self.pixel_format or stated.pixel_format, self.layout or stated.layout
        if pixel_format not in (stated.pixel_format, _SWAPPED.get(stated.pixel_format)):
            raise PreprocessError(
                f"pixels in {pixel_format} format cannot become {stated.pixel_format} inside the network",
                where=f"input '{port.name}'",
                fix=f"Give {stated.pixel_format} pixels",
            )
        return Preprocess.from_dict({**stated.to_dict(), "pixel_format": pixel_format, "layout": layout})


def _relaid(shape: tuple[int, ...], old: str, new: str) -> tuple[int, ...]:
    lead, (a, b, c) = shape[:-3], shape[-3:]
    if old == new:
        return shape
    return (*lead, b, c, a) if new == "nhwc" else (*lead, c, a, b)


def _insert(graph: Graph, port: Port, stated: Preprocess, given: Preprocess, to: str) -> None:
    argument = port.value
    users = [use for use in argument.uses]
    first = graph.block.first_op
    assert first is not None

    def add(op: Operation) -> SSAValue:
        graph.block.insert_op_before(op, first)
        return op.results[0]

    def weight(what: str, array: np.ndarray[Any, Any]) -> SSAValue:
        return add(graph.add_weight(f"{port.name}/{what}", array.astype(dtype_of(to).numpy)))

    def named(what: str) -> dict[str, Any]:
        return {"name": f"{port.name}/{what}", "layer": port.name}

    value = add(Cast.make(argument, to=to, **named("cast")))
    rank = len(shape_of(value))
    channel = rank - 3 if stated.layout == "nchw" else rank - 1
    if given.layout != stated.layout:
        lead = tuple(range(rank - 3))
        order = (rank - 1, rank - 3, rank - 2) if stated.layout == "nchw" else (rank - 2, rank - 1, rank - 3)
        value = add(Permute.make(value, order=(*lead, *order), **named(stated.layout)))
    if given.pixel_format != stated.pixel_format:
        shape = shape_of(value)
        offset, steps = [0] * rank, [1] * rank
        offset[channel], steps[channel] = shape[channel] - 1, -1
        value = add(Slice.make(value, offset=offset, steps=steps, shape=shape, **named(stated.pixel_format)))
    if stated.has_arithmetic:
        mean, factor = (np.asarray(values, np.float64) for values in stated.arithmetic())
        bias = -mean * factor
        op: TopOp
        if rank == 4 and channel == 1:
            op = Scale.make(value, weight("scale", factor), weight("bias", bias), **named("normalized"))
        else:
            tail = (-1,) + (1,) * (rank - 1 - channel)
            value = add(Mul.make(value, weight("scale", factor.reshape(tail)), **named("scaled")))
            op = Add.make(value, weight("bias", bias.reshape(tail)), **named("normalized"))
        value = add(op)
    for use in users:
        use.operation.operands[use.index] = value
