"""What an instruction costs on a machine: the cycles of its engine, or the bytes that it moves (docs/cycles.md).

The cycle simulator counts by the same formulas, so that a predicted cycle is a simulated cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, prod

from npuc.arithmetic.dtypes import CODES, dtype_of
from npuc.arrays import ceil_div
from npuc.program.instruction import TypedInstruction
from npuc.program.instructions import (
    Add,
    AvgPool,
    Cast,
    Conv,
    Copy,
    Custom,
    Fill,
    Gather,
    Matmul,
    MaxPool,
    Minmax,
    Mul,
    Norm,
    Reduce,
    Requant,
    Resize,
    Softmax,
    Table,
)
from npuc.target import Target

START = 16
"""Cycles from the start of an instruction of the matrix or vector engine to its first result."""
_NAMES = {code: dtype_of(name).short for code, name in enumerate(CODES)}
_PASSES = 4
"""How often the vector engine goes over the elements of a softmax, a norm or a resize."""


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
        found = self.target.memory.weight_decoder
        rate = (
            Fraction(found.bytes_per_cycle(self.target.compute.clock)) if found is not None else Fraction(0)
        )
        return rate if rate >= self.bytes_per_cycle else None

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
        return START + self.work(instruction)

    def work(self, instruction: TypedInstruction) -> int:
        """The same without its start."""
        return self._work(instruction)

    def _work(self, instruction: TypedInstruction) -> int:
        compute = self.target.compute
        lanes = compute.vector_lanes
        match instruction:
            case Conv():
                return self._conv(instruction)
            case Matmul() as one:
                array = compute.array
                steps = (
                    one.batch * ceil_div(one.cols, array.output_channels)
                    * ceil_div(one.k, array.input_channels) * ceil_div(one.m, array.pixels)
                )  # fmt: skip
                return ceil(steps / self._rate(one.source.x_dtype, one.second.b_dtype))
            case Copy() as one:
                return ceil_div(prod(one.size), lanes)
            case Add() | Mul() | Minmax() as one:
                return ceil_div(prod(one.broadcast.size), lanes)
            case Fill() as one:
                return ceil_div(one.count, lanes)
            case Gather() as one:
                return -(-one.outer * one.y_size * one.inner // lanes)
            case Requant() | Cast() as one:
                return ceil_div(one.elements, lanes)
            case Table() as one:
                return -(-one.outer * one.channels * one.inner // (compute.table_units or lanes))
            case MaxPool() | AvgPool() as one:
                made = one.sizes.n * one.sizes.out_h * one.sizes.out_w * one.sizes.c
                return -(-made * max(sum(one.window.kernel) - 1, 1) // lanes)
            case Reduce() as one:
                return -(-one.outer * one.reduced * one.inner // lanes)
            case Softmax() | Norm() as one:
                return -(-_PASSES * one.rows * one.width // lanes)
            case Resize() as one:
                return -(-_PASSES * one.sizes.n * one.sizes.out_h * one.sizes.out_w * one.sizes.c // lanes)
            case Custom() as one:
                return ceil_div(one.work, lanes)
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
        return ceil(steps / self._rate(conv.source.x_dtype, conv.w_dtype))

    def _rate(self, activation: int, weight: int) -> Fraction:
        rate = self.target.compute.array.rate(_NAMES[activation], _NAMES[weight])
        return rate if rate is not None else Fraction(1)
