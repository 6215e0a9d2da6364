"""The simulators of the native core: structs and functions of native/include/npuc/sim.h."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from npuc.arithmetic.machine import MAX_PATTERNS
from npuc.arrays import Array
from npuc.errors import SimulationError
from npuc.kernels.calls import status_words
from npuc.native import library
from npuc.plugin_code import fault_of
from npuc.program import custom_kernels as kernels
from npuc.program.isa import BY_OPCODE, DTYPES, RECORD, WEIGHT_TYPES


class RawError(ctypes.Structure):
    """`npuc_sim_error`."""

    _fields_ = (
        ("core", ctypes.c_int32),
        ("opcode", ctypes.c_int32),
        ("instruction", ctypes.c_int64),
        ("message", ctypes.c_char * 232),
    )


class RawSegment(ctypes.Structure):
    """`npuc_sim_segment`."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_int64))


class RawProgram(ctypes.Structure):
    """`npuc_sim_program`."""

    _fields_ = (
        ("cores", ctypes.c_int32),
        ("segment_count", ctypes.c_int32),
        ("streams", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("segments", ctypes.c_void_p),
    )


class RawAllocation(ctypes.Structure):
    """`npuc_sim_allocation`."""

    _fields_ = (
        ("core", ctypes.c_int32),
        ("address", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("first", ctypes.c_int64),
        ("last", ctypes.c_int64),
    )


class RawFinding(ctypes.Structure):
    """`npuc_sim_finding`."""

    _fields_ = (
        ("fault", ctypes.c_int32),
        ("space", ctypes.c_int32),
        ("core", ctypes.c_int32),
        ("other_core", ctypes.c_int32),
        ("instruction", ctypes.c_int64),
        ("other", ctypes.c_int64),
        ("opcode", ctypes.c_int32),
        ("other_opcode", ctypes.c_int32),
        ("layer", ctypes.c_uint32),
        ("other_layer", ctypes.c_uint32),
        ("write", ctypes.c_int32),
        ("other_write", ctypes.c_int32),
        ("address", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("operand", ctypes.c_char * 16),
    )


FINISHED = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)
"""What a watched run tells of a complete tensor; anything but 0 stops it."""


class RawWatchedTensor(ctypes.Structure):
    """`npuc_sim_tensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("written", ctypes.c_void_p),
        ("forced", ctypes.c_void_p),
        ("size", ctypes.c_int64),
    )


class RawView(ctypes.Structure):
    """`npuc_sim_view`."""

    _fields_ = (
        ("tensor", ctypes.c_int32),
        ("space", ctypes.c_int32),
        ("address", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("at", ctypes.c_int64),
    )


class RawWatch(ctypes.Structure):
    """`npuc_sim_watch`."""

    _fields_ = (
        ("tensors", ctypes.c_void_p),
        ("views", ctypes.c_void_p),
        ("entries", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("left", ctypes.c_void_p),
        ("finished", FINISHED),
    )


class RawRate(ctypes.Structure):
    """`npuc_rate`."""

    _fields_ = (("numerator", ctypes.c_int64), ("denominator", ctypes.c_int64))


class RawMachine(ctypes.Structure):
    """`npuc_machine`."""

    _fields_ = (
        *(
            (name, ctypes.c_int32)
            for name in (
                "cores", "input_lanes", "output_lanes", "pixel_lanes", "depthwise", "vector_lanes", "table_units", "banks",
            )
        ),
        ("local_size", ctypes.c_int64),
        ("start", ctypes.c_int64),
        ("dram_latency", ctypes.c_int64),
        ("shared_latency", ctypes.c_int64),
        ("burst", ctypes.c_int64),
        ("dram_bytes", RawRate),
        ("shared_bytes", RawRate),
        ("bank_bytes", ctypes.c_int64),
        ("rates", RawRate * (len(DTYPES) * WEIGHT_TYPES)),
        ("decoder_bytes", RawRate),
        ("patterns", ctypes.c_int32),
        ("sparse_n", ctypes.c_uint8 * MAX_PATTERNS),
        ("sparse_m", ctypes.c_uint8 * MAX_PATTERNS),
    )  # fmt: skip


_P, _I, _L = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_FUNCTIONS: dict[str, tuple[list[Any], Any]] = {
    "npuc_sim_create": ([_I, _L, _L, _P, _L], _P),
    "npuc_sim_destroy": ([_P], None),
    "npuc_sim_run": ([_P, _P, _I, _P], _I),
    "npuc_sim_run_watched": ([_P, _P, _I, _P, _P, _P], _I),
    "npuc_sim_mark_written": ([_P, _I, _L, _L], _I),
    "npuc_sim_sanitize": ([_P, _P, _I, _P, _L, _P, _L, _P, _P], _I),
    "npuc_sim_cost": ([_P, _P, _L, _P, _P], _I),
    "npuc_sim_cycles": ([_P, _P, _P, _P, _P, _P, _P], _I),
}


@cache
def function(name: str) -> Any:
    """A function of the core, declared."""
    native_function = getattr(library(), name)
    native_function.argtypes, native_function.restype = _FUNCTIONS[name]
    return native_function


class Program:
    """Streams and segments as the core takes them; keeps the memory alive that they point to."""

    def __init__(self, streams: Sequence[Array], segments: Sequence[Array] = ()) -> None:
        self.streams = [_bytes(stream) for stream in streams]
        self.counts = np.array([stream.size // RECORD for stream in self.streams], np.int64)
        self.segments = list(segments)
        self._pointers = np.array([stream.ctypes.data for stream in self.streams], np.uintp)
        self._segments = (RawSegment * max(1, len(segments)))(
            *(RawSegment(segment.ctypes.data, segment.size) for segment in segments)
        )
        self.raw = RawProgram(
            len(self.streams), len(segments), self._pointers.ctypes.data, self.counts.ctypes.data,
            ctypes.addressof(self._segments),
        )  # fmt: skip

    def bind(self, number: int, memory: Array) -> None:
        """Use other memory for a segment; it must live as long as it is used."""
        self.segments[number] = memory
        self._segments[number] = RawSegment(memory.ctypes.data, memory.size)

    @property
    def address(self) -> int:
        """Of the struct."""
        return ctypes.addressof(self.raw)


def _bytes(stream: Array) -> Array:
    """A stream as bytes in a row."""
    flat = np.ascontiguousarray(stream).view(np.uint8).reshape(-1)
    if flat.size % RECORD:
        raise SimulationError(f"a stream of {flat.size} bytes is not made of records of {RECORD} bytes")
    return flat


def check(status: int, error: RawError, streams: Sequence[Array], layers: Sequence[str], where: str) -> None:
    """Turn a status other than 0 into a `SimulationError` that names the instruction and its layer."""
    if not status:
        return
    words = error.message.decode("ascii", "replace") or status_words(status)
    raised = kernels.failure()
    words += f": {type(raised).__name__}: {' '.join(str(raised).split())}" if raised is not None else ""
    if error.instruction < 0:
        raise SimulationError(words, where=where) from raised
    problem = SimulationError(
        f"{describe(error.core, error.instruction, error.opcode)}: {words}",
        where=f"{where}, {layer_of(streams, error.core, error.instruction, layers)}",
        fix="Load the plugin that it was compiled with: --plugin FILE.py"
        if "is not registered" in words
        else None,
    )
    problem.__cause__ = raised
    raise (fault_of(problem) if raised is not None else None) or problem


def describe(core: int, instruction: int, opcode: int) -> str:
    """An instruction in words.

    >>> describe(0, 12, 8)
    'instruction 12 of core 0 (conv)'
    """
    name = BY_OPCODE[opcode].name if opcode in BY_OPCODE else f"opcode {opcode}"
    return f"instruction {instruction} of core {core} ({name})"


def layer_of(streams: Sequence[Array], core: int, instruction: int, layers: Sequence[str]) -> str:
    """The layer that an instruction works for, in words."""
    at = instruction * RECORD
    index = int(np.frombuffer(streams[core][at + 4 : at + 8].tobytes(), "<u4")[0])
    return layer_name(index, layers)


def layer_name(index: int, layers: Sequence[str]) -> str:
    """A layer of the layer table, in words."""
    return f"layer '{layers[index]}'" if index < len(layers) else f"layer {index}"
