"""What follows from a target's fields: peak rates, bytes a cycle, and where arithmetic and bandwidth balance."""

from __future__ import annotations

from dataclasses import dataclass

from npuc.target.model import Target


@dataclass(frozen=True)
class Peak:
    """The peak rate of one pair of types."""

    activation: str
    weight: str
    operations_per_second: float
    multiplications_per_cycle: float


@dataclass(frozen=True)
class Figures:
    """Derived figures of a target."""

    peaks: tuple[Peak, ...]
    """One for each pair of types that it can multiply, the fastest first."""
    depthwise_operations_per_second: float
    """Peak rate of an int8 depthwise convolution, or of its first pair of types."""
    vector_elements_per_cycle: int
    """Of all cores."""
    local_bytes: int
    """Of all cores."""
    bank_bytes: int
    """Of one bank."""
    dram_bytes_per_cycle: float
    shared_bytes_per_cycle: float
    """0 if there is no shared memory."""
    dram_latency_cycles: int
    multiplications_per_dram_byte: float
    """A network that does fewer of them for each byte it moves is bound by DRAM."""


def derive(target: Target) -> Figures:
    """The derived figures.

    >>> from npuc.target import load_target
    >>> derive(load_target("edge-4t")).multiplications_per_dram_byte
    128.0
    """
    compute, memory, clock = target.compute, target.memory, target.compute.clock
    array, cores = compute.array, compute.cores
    peaks = [
        Peak(
            activation,
            weight,
            target.peak_operations(activation, weight),
            float(array.multiplications * cores * rate),
        )
        for activation in target.arithmetic.activations.formats
        for weight in target.arithmetic.weights.formats
        if (rate := array.rate(activation, weight)) is not None
    ]
    peaks.sort(key=lambda peak: -peak.operations_per_second)
    lanes = {
        "idle_input_lanes": array.output_channels * array.pixels,
        "full": array.multiplications,
        "vector": compute.vector_lanes,
    }[array.depthwise]
    dram = float(memory.dram.bandwidth.bytes_per_cycle(clock))
    return Figures(
        peaks=tuple(peaks),
        depthwise_operations_per_second=float(2 * lanes * cores * clock),
        vector_elements_per_cycle=compute.vector_lanes * cores,
        local_bytes=memory.local.size * cores,
        bank_bytes=memory.local.bank_size,
        dram_bytes_per_cycle=dram,
        shared_bytes_per_cycle=float(memory.shared.bandwidth.bytes_per_cycle(clock))
        if memory.shared
        else 0.0,
        dram_latency_cycles=memory.dram.latency.cycles(clock),
        multiplications_per_dram_byte=peaks[0].multiplications_per_cycle / dram,
    )
