"""The constants of a layer with weights, cut by output channels, and the instructions that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.ir import Graph, dtype_of
from npuc.ir.dtypes import quant_of
from npuc.program.instructions import Conv, Result, Sizes, Source, Stage, Window
from npuc.schedule.layers import InstructionTemplate, Place, Rows, Tensor, Tile, layout
from npuc.schedule.rules.common import ABSENT, DTYPES, constant, quantized, result, source, stage

PIXEL = Window((1, 1), (1, 1), (1, 1), (0, 0))
"""The window of a fully connected layer: each row of a matrix is a pixel."""


class Linear:
    """The constants of a layer with weights, cut by output channels."""

    def __init__(self, op: Any, graph: Graph, weight: Array | None) -> None:
        self.op = op
        self.weight = weight
        kind = quant_of(op.weight)
        # A constant that is an activation has its zero point in its type.
        self.zero_point = op.weight_zero_point if kind is None else kind.zero_point
        self.stage = {}
        for name in op.kind.parameters:
            array = graph.constant(op.factor if name == "scale" else getattr(op, name))
            assert array is not None
            # An instruction has the scales where other kinds have their multipliers.
            self.stage["multiplier" if name == "scale" else name] = array.astype(
                "<f4" if name == "scale" else "<i4"
            )
        self.single = all(array.size == 1 for array in self.stage.values())
        self._places: dict[Rows, tuple[dict[str, int], int]] = {}
        bias = graph.constant(op.bias)
        self.bias: Array | None = None
        self.wide = False
        if weight is not None:
            self.wide = _is_wide(op, weight, self.zero_point, bias)
            if bias is not None:
                self.bias = bias.astype("<i8" if self.wide else "<i4")
            self.i4 = weight.dtype.name == "int4"
            self.w_dtype = dtype_of(weight.dtype).name

    def constants(self, channels: Rows) -> dict[str, Array]:
        """Those of some output channels."""
        part = slice(*channels) if channels[1] else slice(None)
        made: dict[str, Array] = {}
        if self.weight is not None:
            made["weight"] = _nibbles(self.weight[part]) if self.i4 else self.weight[part]
            if self.bias is not None:
                made["bias"] = self.bias[part]
        for name, array in self.stage.items():
            made[name] = array[part] if array.size > 1 else array
        return made

    def places(self, channels: Rows) -> tuple[dict[str, int], int]:
        """Where those lie, and the bytes of all."""
        if channels not in self._places:
            self._places[channels] = layout(self.constants(channels))
        return self._places[channels]

    def size(self, channels: Rows) -> int:
        """Bytes of those."""
        return self.places(channels)[1]

    def part(self, inputs: Rows) -> dict[str, Array]:
        """Those of some input channels: the last part goes through the output stage, the others leave their sums."""
        assert self.weight is not None
        weight = np.ascontiguousarray(self.weight[:, slice(*inputs)])
        made = {"weight": _nibbles(weight) if self.i4 else weight}
        if self.bias is not None and inputs[0] == 0:
            made["bias"] = self.bias
        return {
            **made,
            **(self.stage if inputs[1] == self.weight.shape[1] else {"shift": np.zeros(1, "<i4")}),
        }

    def sums(self) -> dict[str, Any]:
        """What a layer of one pixel is made of whose tiles are parts of its input channels."""
        assert self.weight is not None
        outputs, inputs = self.weight.shape[:2]
        return {
            "kind": "sums",
            "channels": inputs,
            "constants": self.part,
            "constant_size": lambda part: layout(self.part(part))[1],
            "sums": True,
            "sum_size": 4 * outputs,
        }

    def sum_templates(self, x: Tensor, y: Tensor) -> Any:
        """The instructions of such a tile; the rows of its operand count input channels."""
        assert self.weight is not None
        outputs, inputs = self.weight.shape[:2]

        def templates(tile: Tile) -> list[InstructionTemplate]:
            (k0, k1), start = tile.channels, (tile.channels[0] - tile.inputs[0][0]) * x.itemsize
            places, size = layout(self.part(tile.channels))
            last, reads = k1 == inputs, [("in0", start, start + (k1 - k0) * x.itemsize), ("const", 0, size)]
            made, bias = ("out0", 0, y.size) if last else ("after", 0, 4 * outputs), None
            if k0 > 0:
                bias = Place("before")
                reads.append(("before", 0, 4 * outputs))
            conv = self.conv(
                source(x, offset=start),
                Sizes(1, 1, 1, k1 - k0, 1, 1),
                PIXEL,
                places,
                outputs,
                result(y) if last else Result(Place("after"), DTYPES["i32"]),
                outputs,
                bias=bias,
            )
            if not last:
                # Shifted by nothing, from the least to the greatest: the sums as they are.
                stage = replace(
                    conv.stage, kind=Kind.POW2.code, count=1, zero_point=0, lo=-(2**31), hi=2**31 - 1
                )
                conv = replace(conv, stage=stage, s_dtype=DTYPES["i32"])
            return [InstructionTemplate(conv, tuple(reads), (made,))]

        return templates

    def conv(
        self,
        x: Source,
        sizes: Sizes,
        window: Window,
        places: Mapping[str, int],
        channels: int,
        y: Result,
        y_stride: int,
        groups: int = 1,
        transposed: bool = False,
        bias: Place | None = None,
    ) -> Conv:
        """The instruction that makes some output channels of constants that lie at `places`; `bias` may lie elsewhere."""
        same = self._stage
        return Conv(
            source=x,
            sizes=sizes,
            window=window,
            weight=Place("const", places["weight"]),
            w_dtype=DTYPES[self.w_dtype],
            w_zero_point=self.zero_point,
            bias=bias or constant(places, "bias"),
            wide=int(self.wide),
            transposed=int(transposed),
            groups=groups,
            out_c=channels,
            result=y,
            y_stride=y_stride,
            stage=Stage(
                same.kind,
                1 if self.single else channels,
                constant(places, "multiplier"),
                constant(places, "shift"),
                same.zero_point,
                same.lo,
                same.hi,
            ),
            table=ABSENT,
            s_dtype=self._s_dtype,
        )

    @cached_property
    def _stage(self) -> Stage:
        """What the output stages of all tiles have in common."""
        return stage(self.op, {}, 1)

    @cached_property
    def _s_dtype(self) -> int:
        """The type of the outputs before a table."""
        return DTYPES[self.op.to.dtype.name]


def _is_wide(op: Any, weight: Array, zero_point: int, bias: Array | None) -> bool:
    """Whether a sum could leave 32 bits: the same proof as the kernels' own."""
    kind = quantized(op.x)
    least, most = kind.dtype.limits
    largest = max(most - kind.zero_point, kind.zero_point - least)
    low, high = dtype_of(weight.dtype).limits
    each = max(high - zero_point, zero_point - low) * largest
    biases = int(np.abs(bias.astype(np.int64)).max(initial=0)) if bias is not None else 0
    if prod(weight.shape[1:]) * each + biases < 2**31:
        return False  # whatever the weights are
    centred = weight.astype(np.int64) - zero_point
    sums = np.abs(centred).reshape(centred.shape[0], -1).sum(1) * largest
    worst = sums + (np.abs(bias.astype(np.int64)) if bias is not None else 0)
    return bool((worst >= 2**31).any())


def _nibbles(weight: Array) -> Array:
    flat = weight.astype(np.int8).reshape(-1).view(np.uint8) & 15
    flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
    packed: Array = flat[0::2] | flat[1::2] << 4
    return packed
