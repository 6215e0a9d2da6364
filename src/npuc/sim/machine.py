"""What cycle mode knows of a target, as the struct of the native core."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from npuc.arithmetic.dtypes import TYPE_NAMES, dtype_of
from npuc.arithmetic.machine import DEPTHWISE, HasMachine, Machine
from npuc.program.isa import DTYPES, WEIGHT_TYPES
from npuc.sim.calls import RawMachine, RawRate

START = 16
"""Cycles that an instruction of the matrix or vector engine costs beside its work."""
SHARED_LATENCY = 16
"""Cycles from a request to the shared memory to its first byte."""
BANK_BYTES = 64
"""Bytes a cycle that a bank of local memory moves."""

_LARGEST_DENOMINATOR = 1 << 16


def machine_of(target: Machine | HasMachine) -> RawMachine:
    """The struct of a target or of its figures; to be read only."""
    return _raw(target if isinstance(target, Machine) else target.machine)


@lru_cache(maxsize=16)
def _raw(machine: Machine) -> RawMachine:
    raw = RawMachine(
        cores=machine.cores,
        input_lanes=machine.input_lanes,
        output_lanes=machine.output_lanes,
        pixel_lanes=machine.pixel_lanes,
        depthwise=DEPTHWISE.index(machine.depthwise),
        vector_lanes=machine.vector_lanes,
        table_units=machine.table_units,
        banks=machine.banks,
        local_size=machine.local_size,
        start=START,
        dram_latency=machine.dram_latency,
        shared_latency=SHARED_LATENCY,
        burst=machine.burst,
        dram_bytes=_rate(machine.dram_bandwidth),
        shared_bytes=_rate(machine.shared_bandwidth),
        bank_bytes=BANK_BYTES,
        decoder_bytes=_rate(machine.decoder_bandwidth),
    )
    for i, activation in enumerate(DTYPES):
        for code, weight in TYPE_NAMES.items():
            rate = machine.rate(dtype_of(activation).short, dtype_of(weight).short)
            raw.rates[i * WEIGHT_TYPES + code] = _rate(rate)
    raw.patterns = len(machine.sparsity)
    for i, pattern in enumerate(machine.sparsity):
        raw.sparse_n[i], raw.sparse_m[i] = pattern.kept, pattern.block
    return raw


def _rate(value: Fraction) -> RawRate:
    near = Fraction(value).limit_denominator(_LARGEST_DENOMINATOR)
    return RawRate(near.numerator, near.denominator)
