"""The figures of a machine that simulators need, as plain data: no pydantic, so that a runtime is small.

A compiled model carries its whole target as JSON; `Machine.from_dict` reads the figures out of that, `Target.machine` gives
them of a target. The limits below are those of target files too (`npuc.target.compute`, `npuc.target.memory`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from npuc.arithmetic.sparsity import SparsityPattern
from npuc.arithmetic.units import (
    Bandwidth,
    Latency,
    parse_bandwidth,
    parse_bytes,
    parse_frequency,
    parse_latency,
    parse_rate,
)

MAX_CORES = 1024
MAX_BANKS = 1024
MAX_CONTEXTS = 16
MAX_LANES = 1 << 16
MAX_PATTERNS = 8
"""Sparsity patterns that a matrix array may know."""
DEPTHWISE = ("idle_input_lanes", "full", "vector")
"""How a depthwise convolution fares on the matrix array, in the order of the native core's codes."""


def checked_clock(value: int) -> int:
    """A clock rate that a machine can have."""
    if not 10**5 <= value <= 10**11:
        raise ValueError(f"{value} Hz is no clock rate between 100kHz and 100GHz")
    return value


def checked_rate(value: Fraction) -> Fraction:
    """A share of the array's multiplications."""
    if not Fraction(1, 1024) <= value <= 1024:
        raise ValueError("a rate is between 1/1024 and 1024")
    return value


def checked_size(value: int) -> int:
    """The size of a memory."""
    if not 1 <= value <= 1 << 40:
        raise ValueError(f"{value} bytes is not between 1 byte and 1TiB")
    return value


def checked_power_of_two(value: int) -> int:
    """A burst or an alignment."""
    if not 1 <= value <= 1 << 20 or value & (value - 1):
        raise ValueError(f"{value} bytes is not a power of two up to 1MiB")
    return value


def checked_bandwidth(value: Bandwidth) -> Bandwidth:
    """A bandwidth above zero."""
    if not 0 < value.amount <= 10**18:
        raise ValueError(f"a bandwidth of {value} is not above zero and below 10^18 bytes")
    return value


def checked_latency(value: Latency) -> Latency:
    """A delay that counters can hold."""
    if value.amount > 10**9:
        raise ValueError(f"a delay of {value} is beyond 10^9 cycles")
    return value


def carried_types(activation: str) -> tuple[str, ...]:
    """Types whose rate is that of activations of a type, the first that has one: instructions know i16, not what it carries.

    >>> carried_types("i12")[:2], carried_types("i16")[:2], carried_types("i8")
    (('i16', 'i12'), ('i16', 'i15'), ('i8',))
    """
    widths = [f"i{bits}" for bits in range(15, 8, -1)]
    if activation in widths:
        return "i16", activation
    return ("i16", *widths) if activation == "i16" else (activation,)


@dataclass(frozen=True)
class Machine:
    """What a simulator knows of a target; bandwidths are bytes a cycle."""

    name: str
    cores: int
    clock: int
    """Cycles a second."""
    input_lanes: int
    output_lanes: int
    pixel_lanes: int
    rates: tuple[tuple[str, str, Fraction], ...]
    """Type of activations, type of weights, share of the array's multiplications in a cycle."""
    depthwise: str
    vector_lanes: int
    table_units: int
    local_size: int
    banks: int
    alignment: int
    """Bytes: everything in local memory begins at a multiple."""
    shared_size: int
    """0 if there is no shared memory."""
    shared_bandwidth: Fraction
    dram_bandwidth: Fraction
    dram_latency: int
    """Cycles from a request to its first byte."""
    burst: int
    decoder_bandwidth: Fraction
    """Of the decoder of compressed constants; 0 if there is none."""
    sparsity: tuple[SparsityPattern, ...] = ()
    """Patterns of zeros among weights that the array skips."""

    def rate(self, activation: str, weight: str) -> Fraction:
        """The rate of a pair of types; 0 if the array cannot multiply them."""
        known = {(x, w): rate for x, w, rate in self.rates}
        rates = (known.get((name, weight)) for name in carried_types(activation))
        return next((rate for rate in rates if rate is not None), Fraction(0))

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Machine:
        """The figures of a target that is plain data, as `Target.to_dict` writes it; `ValueError` says what is wrong.

        >>> Machine.from_dict({"name": "mine"})
        Traceback (most recent call last):
        ValueError: compute is missing
        """
        fields = _Fields(data, "")
        compute, memory = fields.part("compute"), fields.part("memory")
        array, local, dram = compute.part("array"), memory.part("local"), memory.part("dram")
        shared = memory.part("shared") if "shared" in memory.data else None
        clock = checked_clock(parse_frequency(compute.value("clock")))

        def speed(part: _Fields, name: str) -> Fraction:
            return checked_bandwidth(parse_bandwidth(part.value(name))).bytes_per_cycle(clock)

        depthwise = array.data.get("depthwise", DEPTHWISE[0])
        if depthwise not in DEPTHWISE:
            raise ValueError(f"compute.array.depthwise is none of {', '.join(DEPTHWISE)}")
        name = fields.value("name")
        if not isinstance(name, str):
            raise ValueError("name is no text")
        return Machine(
            name=name,
            cores=compute.whole("cores", 1, MAX_CORES),
            clock=clock,
            input_lanes=array.whole("input_channels", 1, MAX_LANES),
            output_lanes=array.whole("output_channels", 1, MAX_LANES),
            pixel_lanes=array.whole("pixels", 1, MAX_LANES),
            rates=tuple(
                (str(x), str(w), checked_rate(parse_rate(rate)))
                for x in array.part("rates").data
                for w, rate in array.part("rates").part(x).data.items()
            ),
            depthwise=depthwise,
            vector_lanes=compute.whole("vector_lanes", 1, MAX_LANES),
            table_units=compute.whole("table_units", 0, MAX_LANES),
            local_size=checked_size(parse_bytes(local.value("size"))),
            banks=local.whole("banks", 1, MAX_BANKS),
            alignment=checked_power_of_two(parse_bytes(local.value("alignment"))),
            shared_size=checked_size(parse_bytes(shared.value("size"))) if shared else 0,
            shared_bandwidth=speed(shared, "bandwidth") if shared else Fraction(0),
            dram_bandwidth=speed(dram, "bandwidth"),
            dram_latency=checked_latency(parse_latency(dram.value("latency"))).cycles(clock),
            burst=checked_power_of_two(parse_bytes(dram.value("burst"))),
            decoder_bandwidth=speed(memory, "weight_decoder")
            if "weight_decoder" in memory.data
            else Fraction(0),
            sparsity=_patterns(compute.data.get("sparsity", ())),
        )


def checked_patterns(patterns: tuple[SparsityPattern, ...]) -> tuple[SparsityPattern, ...]:
    """Sparsity patterns that an array can have."""
    if not 1 <= len(patterns) <= MAX_PATTERNS:
        raise ValueError(f"{len(patterns)} patterns are not between 1 and {MAX_PATTERNS}")
    if len(set(patterns)) != len(patterns):
        raise ValueError(f"{', '.join(map(str, patterns))} has an entry twice")
    return patterns


def _patterns(texts: Any) -> tuple[SparsityPattern, ...]:
    if not isinstance(texts, list | tuple):
        raise ValueError("compute.sparsity is no list")
    return checked_patterns(tuple(map(SparsityPattern.parse, texts))) if texts else ()


class HasMachine(Protocol):
    """A target."""

    @property
    def machine(self) -> Machine:
        """Its figures."""


class _Fields:
    """A mapping of a file, with the way to it."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, Mapping):
            raise ValueError(f"{where or 'the target'} is no mapping")
        self.data, self._where = data, f"{where}." if where else ""

    def value(self, name: str) -> Any:
        if name not in self.data:
            raise ValueError(f"{self._where}{name} is missing")
        return self.data[name]

    def part(self, name: str) -> _Fields:
        return _Fields(self.value(name), f"{self._where}{name}")

    def whole(self, name: str, least: int, most: int) -> int:
        value = self.value(name)
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{self._where}{name} is no whole number from {least} to {most}")
        return value
