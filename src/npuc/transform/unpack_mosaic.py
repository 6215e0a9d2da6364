"""Inputs of four colours take the bytes of a sensor: 12-bit pixels under a mosaic of filters, two of them in three bytes.

    func @main(%x: 1x4x2x2xf32)        func @main(%x: 1x1x4x6xui8)
                                →          red, green, blue and the other green of each 2 x 2 pixels, 0 to 4095

The first byte of three is the upper part of the first pixel, the second that of the second; the third has the lower four bits
of the first pixel below those of the second (the order that MIPI calls RAW12). `order` says which colours lie in the upper and
the lower row of each 2 x 2 pixels: rggb is R G over G B. The four channels are R, G, B, G whatever the order, first the green
beside the red. This pass changes the interface of the network, so it is not part of the canonical form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import SSAValue

from npuc.errors import PreprocessError
from npuc.ir.dtypes import dtype_of, shape_of, tensor_type
from npuc.ir.graph import Graph, Port
from npuc.ir.passes import Pass, register_pass
from npuc.ir.top import Add, Concat, Floor, Mul, Sub
from npuc.transform.image_ops import ImageOps

ORDERS = {"rggb": (0, 1, 3, 2), "grbg": (1, 0, 2, 3), "gbrg": (2, 3, 1, 0), "bggr": (3, 2, 0, 1)}
"""Orders of filters, and the places of R, G, B and G among the pixels of a square, row by row."""
MOSAIC_LARGEST = {"cast": 255.0, "first": 255.0, "second": 255.0, "shared": 255.0, "sixteenths": 16.0, "high": 15.0,
                  "upper": 240.0, "low": 15.0}  # fmt: skip
"""The largest value of the tensors between the bytes and the pixels, by the end of their names; of all others it is 4095."""
_SIXTEEN = 16.0


@register_pass
@dataclass(frozen=True)
class UnpackMosaic(Pass):
    """The bytes of a sensor in place of four colours."""

    name: ClassVar[str] = "unpack-mosaic"

    order: str = "rggb"
    """rggb, grbg, gbrg or bggr."""

    def run(self, graph: Graph) -> None:
        """Every float input of N x 4 x H x W."""
        if self.order not in ORDERS:
            raise PreprocessError(f"there is no order '{self.order}'", fix=f"There are {', '.join(ORDERS)}")
        shapes = {port.name: shape_of(port.value) for port in graph.inputs if _has_four_colours(port)}
        if not shapes:
            raise PreprocessError(
                "no input has the four colours of a mosaic",
                fix="An input that takes them has the shape N x 4 x H x W",
            )
        ports: list[tuple[str, Any, dict[str, Any] | None]] = []
        for port in graph.inputs:
            if port.name in shapes:
                n, _, h, w = shapes[port.name]
                ports.append((port.name, tensor_type((n, 1, 2 * h, 3 * w), "ui8"), None))
            else:
                ports.append((port.name, port.type, port.preprocess))
        kinds = {port.name: dtype_of(port.type).name for port in graph.inputs}
        graph.set_inputs(ports)
        for port in graph.inputs:
            if port.name in shapes:
                users = list(port.value.uses)
                value = _planes(ImageOps(graph, port.name, kinds[port.name]), port.value, ORDERS[self.order])
                for use in users:
                    use.operation.operands[use.index] = value


def _has_four_colours(port: Port) -> bool:
    shape = shape_of(port.value)
    return dtype_of(port.type).is_float and len(shape) == 4 and shape[1] == 4 and port.preprocess is None


def _planes(ops: ImageOps, data: SSAValue, places: tuple[int, ...]) -> SSAValue:
    """The colours as N x 4 x H x W, from N x 1 x 2H x 3W bytes."""
    n, _, rows, width = shape_of(data)
    values = ops.cast(data)
    parts = [
        ops.strided(values, what, (0, 0, 0, at), (1, 1, 1, 3), (n, 1, rows, width // 3))
        for at, what in enumerate(("first", "second", "shared"))
    ]
    first, second, shared = parts
    sixteen = ops.weight("sixteen", np.array(_SIXTEEN))
    part = ops.add(
        Mul.make(shared, ops.weight("sixteenth", np.array(1 / _SIXTEEN)), **ops.named("sixteenths"))
    )
    high = ops.add(Floor.make(part, **ops.named("high")))
    low = ops.add(
        Sub.make(shared, ops.add(Mul.make(high, sixteen, **ops.named("upper"))), **ops.named("low"))
    )
    pixels = [
        ops.add(
            Add.make(
                ops.add(Mul.make(byte, sixteen, **ops.named(f"{what}_shifted"))), rest, **ops.named(what)
            )
        )
        for what, byte, rest in (("even", first, low), ("odd", second, high))
    ]
    colours = []
    for place in places:
        row, column = divmod(place, 2)
        shape = (n, 1, rows // 2, width // 3)
        colours.append(ops.strided(pixels[column], f"colour{place}", (0, 0, row, 0), (1, 1, 2, 1), shape))
    return ops.add(Concat.make(colours, axis=1, **ops.named("colours")))
