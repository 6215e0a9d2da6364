"""What an instruction costs on a machine: the cycles of its engine, or the bytes that it moves (docs/cycles.md).

The cycle simulator counts by the same formulas, so that a predicted cycle is a simulated cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, prod

from npuc.arithmetic.dtypes import CODES, TYPE_NAMES, dtype_of
from npuc.arrays import ceil_div
from npuc.program.instruction import TypedInstruction
from npuc.program.instructions import (
    Add,
    AvgPool,
    Cast,
    Conv,
    Copy,
    Custom,
    CustomGlobal,
    CustomLocal,
    Fill,
    Gather,
    Matmul,
    MaxPool,
    Minmax,
    Mul,
    Norm,
    QuantizedLstm,
    Recurrent,
    Reduce,
    Requant,
    Resize,
    Softmax,
    Table,
    Topk,
)
from npuc.target import Target

START = 16
"""Cycles from the start of an instruction of the matrix or vector engine to its first result."""
_NAMES = {code: dtype_of(name).short for code, name in TYPE_NAMES.items()}
_PASSES = 4
"""How often the vector engine goes over the elements of a softmax, a norm or a resize."""
_FIXED_POINT_FUNCTION = 32
"""Operations of the vector engine for a sigmoid or tanh of a quantized LSTM: an exponential and a reciprocal."""
_PIECEWISE_FUNCTION = 8
"""The same for a function of f32: a look-up, a difference, six multiply-adds."""
_JOINS = {1: 1, 3: 4, 4: 5}
"""What joining the gates of a unit takes of the vector engine, by their number."""


@dataclass(frozen=True)
class Costs:
    """The costs of one machine."""

    target: Target

    @cached_property
    def bytes_per_cycle(self) -> Fraction:
        """Of DRAM."""
        return Fraction(self.target.memory.dram.bandwidth.bytes_per_cycle(self.target.compute.clock))

    @cached_property
    def latency(self) -> int:
        """Cycles from a request to its first byte."""
        return ceil(self.target.memory.dram.latency.cycles(self.target.compute.clock))

    @cached_property
    def burst(self) -> int:
        """The least bytes that move at once."""
        return int(self.target.memory.dram.burst)

    @cached_property
    def decoder(self) -> Fraction | None:
        """Bytes a cycle that a core decodes; None if there is no decoder, or one that is slower than DRAM: it would only hold
        loads up."""
        decoder = self.target.memory.weight_decoder
        rate = (
            Fraction(decoder.bytes_per_cycle(self.target.compute.clock))
            if decoder is not None
            else Fraction(0)
        )
        return rate if rate >= self.bytes_per_cycle else None

    @cached_property
    def decoder_contexts(self) -> int:
        """Tables that the decoder chooses from by neighbours; 0 if it knows none."""
        return self.target.memory.weight_contexts or 0

    def transfer(self, runs: int, run: int) -> int:
        """Cycles of data of `runs` runs of `run` bytes."""
        total = runs * (ceil_div(run, self.burst) * self.burst)
        return ceil(Fraction(total) / self.bytes_per_cycle)

    def decoded(self, stored: int, size: int) -> int:
        """Cycles of a load of `size` bytes that are compressed to `stored`."""
        assert self.decoder is not None
        return max(self.transfer(1, stored), ceil(size / self.decoder))

    def cycles(self, instruction: TypedInstruction) -> int:
        """Cycles of an instruction of the matrix or vector engine."""
        waits = 0
        if isinstance(instruction, CustomGlobal) and instruction.traffic:
            waits = self.latency + self.transfer(1, instruction.traffic)
        return START + max(self.work(instruction), waits)

    def work(self, instruction: TypedInstruction) -> int:
        """The same without its start, and without what it waits for memory."""
        return self._work(instruction)

    def _work(self, instruction: TypedInstruction) -> int:
        compute = self.target.compute
        lanes = compute.vector_lanes
        match instruction:
            case Conv():
                return self._conv(instruction)
            case Matmul() as matmul:
                array = compute.array
                steps = (
                    matmul.batch * ceil_div(matmul.cols, array.output_channels)
                    * ceil_div(matmul.k, array.input_channels) * ceil_div(matmul.m, array.pixels)
                )  # fmt: skip
                return ceil(steps / self._rate(matmul.source.x_dtype, matmul.second.b_dtype))
            case Recurrent():
                return self._recurrent(instruction)
            case QuantizedLstm():
                return self._quantized_lstm(instruction)
            case Copy() as copy:
                return ceil_div(prod(copy.size), lanes)
            case Add() | Mul() | Minmax() as binary:
                return ceil_div(prod(binary.broadcast.size), lanes)
            case Fill() as fill:
                return ceil_div(fill.count, lanes)
            case Gather() as gather:
                return -(-gather.outer * gather.y_size * gather.inner // lanes)
            case Requant() | Cast() as conversion:
                return ceil_div(conversion.elements, lanes)
            case Table(pieces=pieces) as table if pieces:
                return ceil_div(_PIECEWISE_FUNCTION * table.outer * table.channels * table.inner, lanes)
            case Table() as table:
                return -(-table.outer * table.channels * table.inner // (compute.table_units or lanes))
            case MaxPool() | AvgPool() as pool:
                elements = pool.sizes.n * pool.sizes.out_h * pool.sizes.out_w * pool.sizes.c
                return -(-elements * max(sum(pool.window.kernel) - 1, 1) // lanes)
            case Reduce() as reduction:
                return -(-reduction.outer * reduction.reduced * reduction.inner // lanes)
            case Topk() as best:
                return ceil_div(best.k.bit_length() * best.outer * best.reduced * best.inner, lanes)
            case Softmax() | Norm() as norm:
                return -(-_PASSES * norm.rows * norm.width // lanes)
            case Resize() as resize:
                return -(
                    -_PASSES
                    * resize.sizes.n
                    * resize.sizes.out_h
                    * resize.sizes.out_w
                    * resize.sizes.c
                    // lanes
                )
            case Custom() | CustomLocal() | CustomGlobal():
                return ceil_div(instruction.work, lanes)
        raise AssertionError(instruction.name)

    def _conv(self, conv: Conv) -> int:
        array, lanes = self.target.compute.array, self.target.compute.vector_lanes
        kh, kw = conv.window.kernel
        sizes, groups, out_c = conv.sizes, conv.groups, conv.out_c
        pixels = sizes.n * (sizes.h * sizes.w if conv.transposed else sizes.out_h * sizes.out_w)
        inputs, outputs = sizes.c // groups, out_c // groups
        blocks = ceil_div(pixels, array.pixels)
        if inputs == 1 and groups > 1:
            if array.depthwise == "vector":
                return -(-pixels * out_c * kh * kw // lanes)
            taps = kh * kw if array.depthwise == "idle_input_lanes" else -(-kh * kw // array.input_channels)
            steps = ceil_div(out_c, array.output_channels) * taps * blocks
        else:
            steps = (
                groups
                * ceil_div(outputs, array.output_channels)
                * ceil_div(inputs, array.input_channels)
                * kh
                * kw
                * blocks
            )
        if conv.sparse_m:
            # The lanes that zeros leave free take what comes next.
            steps = ceil_div(steps * conv.sparse_n, conv.sparse_m)
        return ceil(steps / self._rate(conv.source.x_dtype, conv.w_dtype))

    def _recurrent(self, layer: Recurrent) -> int:
        """The products with x of all steps at once; then in each step, one behind the other, those with h, the gates and the
        state."""
        compute, array = self.target.compute, self.target.compute.array
        lanes, units = compute.vector_lanes, layer.batch * layer.hidden
        outputs = ceil_div(layer.gates * layer.hidden, array.output_channels)
        given = outputs * ceil_div(layer.inputs, array.input_channels)
        given *= ceil_div(layer.steps * layer.batch, array.pixels)
        width, pixels = layer.projected or layer.hidden, ceil_div(layer.batch, array.pixels)
        kept = outputs * ceil_div(width, array.input_channels) * pixels
        joined = layer.gates + _JOINS[layer.gates] + 3 * layer.peephole
        lookups = layer.gates + (layer.gates == 4)
        step = START + ceil(kept / self._rate(layer.result.y_dtype, layer.w_dtype))
        step += ceil_div(units * joined, lanes) + ceil_div(units * lookups, compute.table_units or lanes)
        if layer.projected:
            inner = ceil_div(layer.hidden, array.input_channels) * pixels
            projected = ceil_div(layer.projected, array.output_channels) * inner
            step += START + ceil(projected / self._rate(CODES.index("i16"), layer.w_dtype))
        return ceil(given / self._rate(layer.source.x_dtype, layer.w_dtype)) + layer.steps * step

    def _quantized_lstm(self, layer: QuantizedLstm) -> int:
        """As a recurrent layer; sigmoid and tanh are computed by the vector engine."""
        compute, array = self.target.compute, self.target.compute.array
        gates = 3 if layer.coupled else 4
        rows, pixels = (
            ceil_div(gates * layer.cells, array.output_channels),
            ceil_div(layer.batch, array.pixels),
        )
        rate = self._rate(CODES.index("i8"), CODES.index("i8"))
        given = rows * ceil_div(layer.inputs, array.input_channels)
        given *= ceil_div(layer.steps * layer.batch, array.pixels)
        kept = rows * ceil_div(layer.outputs, array.input_channels) * pixels
        work = 2 * gates + 5 + (gates - 1) * bool(layer.peephole_rows)
        work += (gates + 1) * _FIXED_POINT_FUNCTION + 4 * gates * layer.norm
        step = START + ceil(kept / rate) + ceil_div(layer.batch * layer.cells * work, compute.vector_lanes)
        if layer.projected:
            projected = ceil_div(layer.outputs, array.output_channels)
            projected *= ceil_div(layer.cells, array.input_channels) * pixels
            step += START + ceil(projected / rate)
        return ceil(given / rate) + layer.steps * step

    def _rate(self, activation: int, weight: int) -> Fraction:
        rate = self.target.compute.array.rate(_NAMES[activation], _NAMES[weight])
        return rate if rate is not None else Fraction(1)
