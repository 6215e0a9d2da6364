"""The weights of a layer of the matrix engine, cut by output channels, and the instructions that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import PACKED_BASE, pack_integers
from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.sparsity import SparsityPattern
from npuc.arrays import Array
from npuc.ir import Graph, dtype_of, npu
from npuc.ir.dtypes import quant_of
from npuc.program.instructions import Conv, Result, Sizes, Source, Window
from npuc.schedule.constants import Constants
from npuc.schedule.layers import InstructionTemplate, LayerOp, Place, Rows, Tensor, Tile
from npuc.schedule.rules.common import (
    ABSENT,
    DTYPES,
    OutputStage,
    constant,
    float_output_of,
    quantized,
    requantization_of_operands,
    result,
    source,
)

PIXEL = Window((1, 1), (1, 1), (1, 1), (0, 0))
"""The window of a fully connected layer: each row of a matrix is a pixel."""


def stored_weights(weight: Array, dtype: str, sparsity: SparsityPattern | None = None) -> Array:
    """Weights as they lie in memory: packed, if they have fewer bits than their elements; of sparse ones the values that are
    kept, then their positions."""
    kind = dtype_of(dtype)
    packed = kind.code == DTYPES["i4"] or (kind.code or 0) >= PACKED_BASE
    if sparsity is None:
        return pack_integers(weight, kind.bits) if packed else weight
    values, positions = sparsity.compress(weight)
    values = pack_integers(values, kind.bits) if packed else np.ascontiguousarray(values)
    return np.concatenate(
        [values.view(np.uint8).reshape(-1), pack_integers(positions, sparsity.position_bits)]
    )


@dataclass(frozen=True)
class Weights:
    """The weights and biases of a layer, and the requantization of its sums."""

    arrays: Constants
    """`weight`, outputs x inputs of a group x kernel; `bias`, if there is one."""
    zero_point: int
    wide: bool
    """Whether its sums may leave 32 bits."""
    requantization: OutputStage
    dtype: str
    """The element type of the weights."""
    sparsity: SparsityPattern | None = None
    """The pattern that they are stored by; None: they are dense."""

    @cached_property
    def _layouts(self) -> dict[Rows, tuple[dict[str, int], int]]:
        return {}

    def constants(self, channels: Rows) -> Constants:
        """Those of some output channels."""
        part = slice(*channels) if channels[1] else slice(None)
        weight = self.arrays["weight"][part]
        arrays = {"weight": stored_weights(weight, self.dtype, self.sparsity)}
        if "bias" in self.arrays:
            arrays["bias"] = self.arrays["bias"][part]
        for name, array in self.requantization.parameters.items():
            arrays[name] = array[part] if array.size > 1 else array
        return Constants(arrays)

    def places(self, channels: Rows) -> tuple[dict[str, int], int]:
        """Where those lie, and the bytes of all."""
        if channels not in self._layouts:
            block = self.constants(channels)
            self._layouts[channels] = block.places, block.size
        return self._layouts[channels]

    def part(self, channels: Rows) -> Weights:
        """Some output channels as weights of their own, whose constants are those of `constants(channels)`."""
        cut = slice(*channels)
        arrays = {name: array[cut] for name, array in self.arrays.items()}
        parameters = {
            name: array[cut] if array.size > 1 else array
            for name, array in self.requantization.parameters.items()
        }
        requantization = replace(self.requantization, parameters=Constants(parameters))
        return replace(self, arrays=Constants(arrays), requantization=requantization)

    def of_inputs(self, inputs: Rows) -> Constants:
        """Those of some input channels: the last part is requantized, the others leave their sums."""
        every = self.arrays["weight"]
        weight = np.ascontiguousarray(every[:, slice(*inputs)])
        arrays = {"weight": stored_weights(weight, self.dtype, self.sparsity_of(inputs))}
        if "bias" in self.arrays and inputs[0] == 0:
            arrays["bias"] = self.arrays["bias"]
        last = inputs[1] == every.shape[1]
        return Constants(
            {**arrays, **(self.requantization.parameters if last else {"shift": np.zeros(1, "<i4")})}
        )

    def sparsity_of(self, inputs: Rows) -> SparsityPattern | None:
        """The pattern that the weights of some input channels are stored by: only whole blocks are sparse."""
        whole = self.sparsity is not None and not any(channel % self.sparsity.block for channel in inputs)
        return self.sparsity if whole else None

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
        """The instruction that computes some output channels with constants at `places`; `bias` may lie elsewhere."""
        requantization = self.requantization
        return Conv(
            source=x,
            sizes=sizes,
            window=window,
            weight=Place("const", places["weight"]),
            w_dtype=DTYPES[self.dtype],
            w_zero_point=self.zero_point,
            bias=bias or constant(places, "bias"),
            wide=int(self.wide),
            transposed=int(transposed),
            groups=groups,
            out_c=channels,
            result=y,
            y_stride=y_stride,
            stage=requantization.stage(places, 1 if requantization.per_tensor else channels),
            table=ABSENT,
            s_dtype=DTYPES[requantization.dtype],
            sparse_n=self.sparsity.kept if self.sparsity is not None else 0,
            sparse_m=self.sparsity.block if self.sparsity is not None else 0,
        )


@dataclass(frozen=True)
class PartialSumsOp(LayerOp):
    """A fully connected layer of one pixel whose tiles are parts of its input channels; the rows of its operand count them."""

    x: Tensor
    y: Tensor
    weights: Weights

    @property
    def outputs(self) -> int:
        """Output channels."""
        return int(self.weights.arrays["weight"].shape[0])

    @property
    def inputs(self) -> int:
        """Input channels."""
        return int(self.weights.arrays["weight"].shape[1])

    def constants(self, channels: Rows) -> Constants:
        """Those of some input channels."""
        return self.weights.of_inputs(channels)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One product; the first tile has the biases, the others the sums of the tile before in their place."""
        x, y, outputs = self.x, self.y, self.outputs
        (k0, k1), start = tile.channels, (tile.channels[0] - tile.inputs[0][0]) * x.itemsize
        block = self.weights.of_inputs(tile.channels)
        last = k1 == self.inputs
        reads = [("in0", start, start + (k1 - k0) * x.itemsize), ("const", 0, block.size)]
        writes, bias = ("out0", 0, y.size) if last else ("after", 0, 4 * outputs), None
        if k0 > 0:
            bias = Place("before")
            reads.append(("before", 0, 4 * outputs))
        weights = replace(self.weights, sparsity=self.weights.sparsity_of(tile.channels))
        conv = weights.conv(
            source(x, offset=start),
            Sizes(1, 1, 1, k1 - k0, 1, 1),
            PIXEL,
            block.places,
            outputs,
            result(y) if last else Result(Place("after"), DTYPES["i32"]),
            outputs,
            bias=bias,
        )
        if not last:
            # Shifted by nothing, from the least to the greatest: the sums as they are.
            stage = replace(conv.stage, kind=Kind.POW2.code, count=1, zero_point=0, lo=-(2**31), hi=2**31 - 1)
            conv = replace(conv, stage=stage, s_dtype=DTYPES["i32"])
        return [InstructionTemplate(conv, tuple(reads), (writes,))]


def weights_of(op: Any, graph: Graph, weight: Array) -> Weights:
    """The weights of an op, in the order outputs x inputs x kernel."""
    if isinstance(op, npu.FloatLinear):
        bias = graph.constant(op.bias)
        biases = {} if bias is None else {"bias": bias.astype("<f4")}
        return Weights(
            Constants({"weight": weight, **biases}),
            0,
            False,
            float_output_of(op),
            dtype_of(weight.dtype).name,
        )
    kind, dtype = quant_of(op.weight), dtype_of(op.weight.type).name
    # A constant that is an activation has its zero point in its type.
    zero_point = op.weight_zero_point if kind is None else kind.zero_point
    bias = graph.constant(op.bias)
    wide = _is_wide(op, weight, zero_point, bias)
    arrays = {"weight": weight}
    if bias is not None:
        arrays["bias"] = bias.astype("<i8" if wide else "<i4")
    return Weights(Constants(arrays), zero_point, wide, requantization_of_operands(op, graph), dtype)


def _is_wide(op: Any, weight: Array, zero_point: int, bias: Array | None) -> bool:
    """Whether a sum could leave 32 bits: the same proof as the kernels' own."""
    kind = quantized(op.x)
    least, most = kind.dtype.carrier.limits
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
