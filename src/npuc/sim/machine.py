"""What cycle mode knows of a target, as the struct of the native core."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from npuc.program.isa import DTYPES
from npuc.sim.calls import RawMachine, RawRate
from npuc.target import Target

START = 16
"""Cycles that an instruction of the matrix or vector engine costs beside its work."""
SHARED_LATENCY = 16
"""Cycles from a request to the shared memory to its first byte."""
BANK_BYTES = 64
"""Bytes a cycle that a bank of local memory moves."""

_DEPTHWISE = ("idle_input_lanes", "full", "vector")
_LARGEST_DENOMINATOR = 1 << 16


@lru_cache(maxsize=16)
def machine_of(target: Target) -> RawMachine:
    """The struct of a target; to be read only."""
    compute, memory = target.compute, target.memory
    array, clock = compute.array, compute.clock
    raw = RawMachine(
        cores=compute.cores,
        input_lanes=array.input_channels,
        output_lanes=array.output_channels,
        pixel_lanes=array.pixels,
        depthwise=_DEPTHWISE.index(array.depthwise),
        vector_lanes=compute.vector_lanes,
        table_units=compute.table_units,
        banks=memory.local.banks,
        local_size=memory.local.size,
        start=START,
        dram_latency=memory.dram.latency.cycles(clock),
        shared_latency=SHARED_LATENCY,
        burst=memory.dram.burst,
        dram_bytes=_rate(memory.dram.bandwidth.bytes_per_cycle(clock)),
        shared_bytes=_rate(memory.shared.bandwidth.bytes_per_cycle(clock) if memory.shared else Fraction(0)),
        bank_bytes=BANK_BYTES,
        decoder_bytes=_rate(
            memory.weight_decoder.bytes_per_cycle(clock) if memory.weight_decoder else Fraction(0)
        ),
    )
    names = [{"ui8": "u8"}.get(name, name) for name in DTYPES]
    for i, activation in enumerate(names):
        for j, weight in enumerate(names):
            raw.rates[i * len(names) + j] = _rate(array.rate(activation, weight) or Fraction(0))
    return raw


def _rate(value: Fraction) -> RawRate:
    near = Fraction(value).limit_denominator(_LARGEST_DENOMINATOR)
    return RawRate(near.numerator, near.denominator)
