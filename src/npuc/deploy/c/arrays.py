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


def data_header(needs: Needs, samples: int) -> str:
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
            "/* Of each entry of the program: its name, inputs, the outputs that they have to give, and memory for those. */",
            "typedef struct sample {",
            "    const char *entry; /* NULL: the only one */",
            "    const void *const *inputs, *const *expected;",
            "    void *const *outputs;",
            "} sample;",
            "",
            f"#define SAMPLES {samples}",
            "extern const sample samples[SAMPLES];",
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


def sample_source(samples: Sequence[tuple[str, Sequence[Array], Sequence[Array]]]) -> str:
    """sample_data.c of an application: of each entry its name ("" for the only one), inputs and expected outputs."""
    lines = ["/* Samples as raw tensors, and memory for the outputs. */", '#include "data.h"', ""]
    for number, (_, inputs, outputs) in enumerate(samples):
        for kind, arrays in (("input", inputs), ("expected", outputs)):
            for index, array in enumerate(arrays):
                lines += [
                    f"static _Alignas(64) const unsigned char {kind}{number}_{index}[] = {{",
                    _bytes(array.tobytes() or b"\0"),
                    "};",
                ]
        for index, array in enumerate(outputs):
            lines.append(f"static _Alignas(64) unsigned char output{number}_{index}[{max(1, array.nbytes)}];")
        lines += [
            f"static const void *const inputs{number}[] = {{{_names('input', number, len(inputs))}}};",
            f"static const void *const expected{number}[] = {{{_names('expected', number, len(outputs))}}};",
            f"static void *const outputs{number}[] = {{{_names('output', number, len(outputs))}}};",
            "",
        ]
    lines.append("const sample samples[SAMPLES] = {")
    for number, (entry, _, _) in enumerate(samples):
        name = _text(entry) if entry else "NULL"
        lines.append(f"    {{{name}, inputs{number}, expected{number}, outputs{number}}},")
    return "\n".join([*lines, "};", ""])


def _names(kind: str, number: int, count: int) -> str:
    return ", ".join(f"{kind}{number}_{index}" for index in range(count)) or "NULL"


def _text(text: str) -> str:
    """A string as a constant in C, whatever is in it: its bytes in octal.

    >>> _text("a?")
    '"\\\\141\\\\077"'
    """
    return '"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"'


def _words(data: bytes) -> str:
    """Eight bytes a number, the first lowest: a compiler takes a sixth of the time that single bytes take."""
    words = np.frombuffer(data + bytes(-len(data) % 8), "<u8").tolist()
    rows = (words[at : at + _WORDS_A_LINE] for at in range(0, len(words), _WORDS_A_LINE))
    return "\n".join(",".join(f"0x{word:x}u" for word in row) + "," for row in rows)


def _bytes(data: bytes) -> str:
    rows = (data[at : at + _A_LINE] for at in range(0, len(data), _A_LINE))
    return "\n".join(",".join(map(str, row)) + "," for row in rows)
