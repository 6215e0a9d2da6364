"""What an instruction costs on a machine: the cycles of its engine, or the bytes that it moves (docs/cycles.md).

The cycle simulator counts by the same formulas, so that a predicted cycle is a simulated cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, prod
from typing import Any

from npuc.schedule.layers import Draft
from npuc.schedule.rules.common import DTYPES
from npuc.target import Target

START = 16
"""Cycles from the start of an instruction of the matrix or vector engine to its first result."""
_NAMES = {code: {"ui8": "u8"}.get(name, name) for name, code in DTYPES.items()}
_PASSES = {"softmax": 4, "norm": 4, "resize": 4}


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
        total = runs * (-(-run // self.burst) * self.burst)
        return ceil(Fraction(total) / self.bytes_per_cycle)

    def decoded(self, stored: int, size: int) -> int:
        """Cycles of a load of `size` bytes that are compressed to `stored`."""
        assert self.decoder is not None
        return max(self.transfer(1, stored), ceil(size / self.decoder))

    def cycles(self, draft: Draft) -> int:
        """Cycles of an instruction of the matrix or vector engine."""
        return START + self.work(draft)

    def work(self, draft: Draft) -> int:
        """The same without its start."""
        return int(self._work(draft))

    def _work(self, draft: Draft) -> Any:
        f, compute = draft.fields, self.target.compute
        lanes = compute.vector_lanes
        match draft.opcode:
            case "conv":
                return self._conv(f)
            case "matmul":
                array = compute.array
                steps = (
                    f["batch"] * -(-f["cols"] // array.output_channels)
                    * -(-f["k"] // array.input_channels) * -(-f["m"] // array.pixels)
                )  # fmt: skip
                return ceil(steps / self._rate(f["x_dtype"], f["b_dtype"]))
            case "copy" | "add" | "mul" | "minmax":
                return -(-prod(f["size"]) // lanes)
            case "fill":
                return -(-f["count"] // lanes)
            case "gather":
                return -(-f["outer"] * f["y_size"] * f["inner"] // lanes)
            case "requant":
                return -(-f["elements"] // lanes)
            case "table":
                return -(-f["outer"] * f["channels"] * f["inner"] // (compute.table_units or lanes))
            case "max_pool" | "avg_pool":
                made = f["n"] * f["out_h"] * f["out_w"] * f["c"]
                return -(-made * max(sum(f["kernel"]) - 1, 1) // lanes)
            case "reduce":
                return -(-f["outer"] * f["reduced"] * f["inner"] // lanes)
            case "softmax" | "norm":
                return -(-_PASSES[draft.opcode] * f["rows"] * f["width"] // lanes)
            case "resize":
                return -(-_PASSES["resize"] * f["n"] * f["out_h"] * f["out_w"] * f["c"] // lanes)
            case "custom":
                return -(-f["work"] // lanes)
        raise AssertionError(draft.opcode)

    def _conv(self, f: dict[str, Any]) -> Any:
        array, lanes = self.target.compute.array, self.target.compute.vector_lanes
        kh, kw = f["kernel"]
        pixels = f["n"] * (f["h"] * f["w"] if f["transposed"] else f["out_h"] * f["out_w"])
        groups, inputs, outputs = f["groups"], f["c"] // f["groups"], f["out_c"] // f["groups"]
        blocks = -(-pixels // array.pixels)
        if inputs == 1 and groups > 1:
            if array.depthwise == "vector":
                return -(-pixels * f["out_c"] * kh * kw // lanes)
            taps = kh * kw if array.depthwise == "idle_input_lanes" else -(-kh * kw // array.input_channels)
            steps = -(-f["out_c"] // array.output_channels) * taps * blocks
        else:
            steps = (
                groups
                * -(-outputs // array.output_channels)
                * -(-inputs // array.input_channels)
                * kh
                * kw
                * blocks
            )
        return ceil(steps / self._rate(f["x_dtype"], f["w_dtype"]))

    def _rate(self, activation: int, weight: int) -> Fraction:
        rate = self.target.compute.array.rate(_NAMES[activation], _NAMES[weight])
        return rate if rate is not None else Fraction(1)
