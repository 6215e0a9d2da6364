"""Where a machine keeps its data: local memory of each core, shared memory on the chip, DRAM."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from npuc.arithmetic.machine import (
    MAX_BANKS,
    MAX_CONTEXTS,
    checked_bandwidth,
    checked_latency,
    checked_power_of_two,
    checked_size,
)
from npuc.target.base import Part
from npuc.target.units import BandwidthField, Bytes, LatencyField

Size = Annotated[Bytes, AfterValidator(checked_size)]
PowerOfTwo = Annotated[Bytes, AfterValidator(checked_power_of_two)]
Speed = Annotated[BandwidthField, AfterValidator(checked_bandwidth)]


class LocalMemory(Part):
    """The memory that a core's engines read and write."""

    size: Size
    """Bytes a core, all banks together."""
    banks: Annotated[int, Field(ge=1, le=MAX_BANKS)]
    """Banks; engines that work in different banks do not wait for each other."""
    alignment: PowerOfTwo
    """Everything in local memory begins at a multiple of this, and of 64 bytes: a tensor, a part of one, the constants of a
    layer."""

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
    latency: Annotated[LatencyField, AfterValidator(checked_latency)]
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
    weight_contexts: Annotated[int, Field(ge=1, le=MAX_CONTEXTS)] | None = None
    """Tables of probabilities that the decoder holds, and chooses from by the weights that it has just made; absent if it does
    not look at them."""
