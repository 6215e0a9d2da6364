"""A model and its sample as C arrays, for an application that has no files."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.errors import SimulationError
from npuc.native import library

_A_LINE = 24
_WORDS_A_LINE = 6


class _RawNeeds(ctypes.Structure):
    """`npu_needs` of native/include/npu_static.h."""

    _fields_ = (
        ("arena", ctypes.c_int64),
        ("local", ctypes.c_int64),
        ("shared", ctypes.c_int64),
        ("buffer", ctypes.c_int64 * 6),
        ("kernels", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Needs:
    """The static memory that a model takes, in bytes."""

    arena: int
    """All of it."""
    local: int
    """Local memory of a core, as far as it is used."""
    shared: int
    buffers: tuple[int, ...]
    kernels: int

    @property
    def scratch(self) -> int:
        """The part that is neither memory of the NPU nor a segment."""
        return sum(self.buffers) + self.kernels


def measure(file: bytes, where: str) -> Needs:
    """Find out what the bytes of a `.npu` file need, by a run."""
    core = library()
    aligned = np.frombuffer(file, np.uint8).copy()  # NumPy aligns to 16 bytes, the reader wants 8
    model, needs = ctypes.c_void_p(), _RawNeeds()
    core.npu_error.restype = ctypes.c_char_p
    status = core.npu_load_memory(
        ctypes.c_void_p(aligned.ctypes.data), ctypes.c_size_t(aligned.size), ctypes.byref(model)
    )
    if status == 0:
        status = core.npu_measure(model, ctypes.byref(needs))
    words = core.npu_error().decode(errors="replace")
    core.npu_free.restype = None
    core.npu_free(model)
    if status != 0:
        raise SimulationError(words, where=where)
    return Needs(needs.arena, needs.local, needs.shared, tuple(needs.buffer), needs.kernels)


def data_header(needs: Needs) -> str:
    """data.h of an application."""
    return "\n".join(
        [
            "/* The model and its sample: model_data.c and sample_data.c. */",
            "#ifndef DATA_H",
            "#define DATA_H",
            "",
            '#include "npu_static.h"',
            "",
            f"#define ARENA_BYTES {needs.arena}",
            "",
            "extern const npu_needs model_needs;",
            "extern const uint64_t model_data[];",
            "extern const size_t model_size;",
            "",
            "extern const void *const sample_inputs[];",
            "extern const void *const sample_outputs[];",
            "extern void *const output_memory[];",
            "",
            "#endif /* DATA_H */",
            "",
        ]
    )


def model_source(file: bytes, needs: Needs) -> str:
    """model_data.c of an application."""
    fields = f"{needs.arena}, {needs.local}, {needs.shared}, {{{', '.join(map(str, needs.buffers))}}}, {needs.kernels}"
    return "\n".join(
        [
            "/* A compiled model: the bytes of its .npu file, eight a number. */",
            '#include "data.h"',
            "",
            f"const npu_needs model_needs = {{{fields}}};",
            f"const size_t model_size = {len(file)};",
            f"_Alignas(64) const uint64_t model_data[] = {{\n{_words(file)}\n}};",
            "",
        ]
    )


def sample_source(inputs: Sequence[Array], outputs: Sequence[Array]) -> str:
    """sample_data.c of an application."""
    lines = ["/* A sample as raw tensors, and memory for the outputs. */", '#include "data.h"', ""]
    for kind, arrays in (("input", inputs), ("expected", outputs)):
        for index, array in enumerate(arrays):
            content = _bytes(array.tobytes() or b"\0")
            lines += [
                f"static _Alignas(64) const unsigned char {kind}{index}[] = {{",
                content,
                "};",
            ]
    for index, array in enumerate(outputs):
        lines.append(f"static _Alignas(64) unsigned char output{index}[{max(1, array.nbytes)}];")
    lines += [
        "",
        f"const void *const sample_inputs[] = {{{_names('input', len(inputs))}}};",
        f"const void *const sample_outputs[] = {{{_names('expected', len(outputs))}}};",
        f"void *const output_memory[] = {{{_names('output', len(outputs))}}};",
        "",
    ]
    return "\n".join(lines)


def _names(kind: str, count: int) -> str:
    return ", ".join(f"{kind}{index}" for index in range(count)) or "NULL"


def _words(data: bytes) -> str:
    """Eight bytes a number, the first lowest: a compiler takes a sixth of the time that single bytes take."""
    words = np.frombuffer(data + bytes(-len(data) % 8), "<u8").tolist()
    rows = (words[at : at + _WORDS_A_LINE] for at in range(0, len(words), _WORDS_A_LINE))
    return "\n".join(",".join(f"0x{word:x}u" for word in row) + "," for row in rows)


def _bytes(data: bytes) -> str:
    rows = (data[at : at + _A_LINE] for at in range(0, len(data), _A_LINE))
    return "\n".join(",".join(map(str, row)) + "," for row in rows)
