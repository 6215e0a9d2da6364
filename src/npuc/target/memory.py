"""Where a machine keeps its data: local memory of each core, shared memory on the chip, DRAM."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from npuc.target.base import Part
from npuc.target.units import Bandwidth, BandwidthField, Bytes, Latency, LatencyField


def _size(value: int) -> int:
    if not 1 <= value <= 1 << 40:
        raise ValueError(f"{value} bytes is not between 1 byte and 1TiB")
    return value


def _power_of_two(value: int) -> int:
    if not 1 <= value <= 1 << 20 or value & (value - 1):
        raise ValueError(f"{value} bytes is not a power of two up to 1MiB")
    return value


def _moves(value: Bandwidth) -> Bandwidth:
    if not 0 < value.amount <= 10**18:
        raise ValueError(f"a bandwidth of {value} is not above zero and below 10^18 bytes")
    return value


def _delay(value: Latency) -> Latency:
    if value.amount > 10**9:
        raise ValueError(f"a delay of {value} is beyond 10^9 cycles")
    return value


Size = Annotated[Bytes, AfterValidator(_size)]
PowerOfTwo = Annotated[Bytes, AfterValidator(_power_of_two)]
Speed = Annotated[BandwidthField, AfterValidator(_moves)]


class LocalMemory(Part):
    """The memory that a core's engines read and write."""

    size: Size
    """Bytes a core, all banks together."""
    banks: Annotated[int, Field(ge=1, le=1024)]
    """Banks; engines that work in different banks do not wait for each other."""
    alignment: PowerOfTwo
    """Every tensor begins at a multiple of this."""

    @property
    def bank_size(self) -> int:
        """Bytes in a bank."""
        return self.size // self.banks


class SharedMemory(Part):
    """Memory on the chip that all cores reach."""

    size: Size
    """Bytes, for all cores together."""
    bandwidth: Speed
    """Bytes that move in and out, for all cores together."""


class Dram(Part):
    """Memory off the chip."""

    bandwidth: Speed
    """Bytes that move in and out, for all cores together."""
    latency: Annotated[LatencyField, AfterValidator(_delay)]
    """From a request to its first byte."""
    burst: PowerOfTwo
    """The least that moves at once; smaller transfers take as long."""


class Memory(Part):
    """All memories of the machine."""

    local: LocalMemory
    """Of each core."""
    shared: SharedMemory | None = None
    """Absent in most small machines."""
    dram: Dram
    """Off the chip."""
    weight_decoder: Speed | None = None
    """Bytes that the decoder of a core makes of compressed constants while they are loaded, counted as decoded; absent if
    there is none, and constants are kept as they are."""
