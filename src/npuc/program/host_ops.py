"""Host operators: what the C runtime computes of a CPU subgraph, and the section of a `.npu` file that says so.

ONNX Runtime runs CPU subgraphs in Python. C has no ONNX Runtime; it has these operators, and an interpreter
(native/src/host.c) that runs a list of them. `npuc.codegen.host_ops` writes the list from the ONNX model of a subgraph, with
every shape, constant and address worked out. This module is the one table of operators, their kinds and numbers, from which
native/include/npuc/host.h and the tables of docs/host-ops.md are made.

The section `.npu.host.S` has a header, tensors, nodes, operands, numbers, strings and constants, one behind the other. If a
subgraph has an operator that C has not, the section has no nodes and says which one, so that C can say it too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuc.format_versions import HOST_SECTION
from npuc.program.isa import Field
from npuc.program.layout import ALIGNMENT, MOST_AXES
from npuc.program.records import Record

VERSION = HOST_SECTION.version
"""Of the section; a reader of an older version refuses a later one."""
NONE = 0xFFFFFFFF
"""In place of an operand that is left out."""
MOST_OPERANDS = 16
PLACES = ("arena", "constant", "input", "output")
"""Where a tensor is: in the arena, among the constants of the section, in an input or output of the subgraph."""


@dataclass(frozen=True)
class HostOperator:
    """An operator: its code is its place in the table."""

    name: str
    doc: str
    operands: str
    """Inputs, an arrow, outputs; `?` may be left out."""
    numbers: str
    """What its numbers are, in their order; real ones are the bits of a double."""


HOST_OPERATORS = (
    HostOperator("copy", "elements from strided places to strided places", "x -> y",
                 "axes, first of x, first of y, sizes, strides of x, strides of y"),
    HostOperator("fill", "one value everywhere", "-> y", "bits of the element"),
    HostOperator("unary", "a function of each element", "x -> y", "kind, real a, real b"),
    HostOperator("binary", "a function of two elements, with broadcasting", "a b -> y", "kind"),
    HostOperator("select", "elements of a where the condition holds, else of b, with broadcasting", "condition a b -> y", ""),
    HostOperator("cast", "another element type", "x -> y", ""),
    HostOperator("reduce", "sums and the like over axes", "x -> y", "kind, bits of the axes"),
    HostOperator("arg_reduce", "the place of the largest or smallest element on an axis", "x -> y",
                 "axis, largest, last of equals"),
    HostOperator("softmax", "softmax and the like on an axis", "x -> y", "kind, axis"),
    HostOperator("normalize", "mean 0 and variance 1 of every row, then scale and bias", "x scale? bias? -> y",
                 "kind, length of a row, elements with one scale, real epsilon"),
    HostOperator("lrn", "local response normalization over channels", "x -> y", "size, real alpha, real beta, real bias"),
    HostOperator("convolution", "1 to 3 spatial axes, groups", "x weight bias? -> y",
                 "axes, groups, strides, dilations, pads before"),
    HostOperator("deconvolution", "the transposed convolution", "x weight bias? -> y",
                 "axes, groups, strides, dilations, pads before"),
    HostOperator("matmul", "batches of matrices, with broadcasting", "a b -> y", "a transposed, b transposed, real factor"),
    HostOperator("pool", "largest, mean or power mean of windows", "x -> y",
                 "kind, axes, power, sizes, strides, dilations, pads before, pads behind"),
    HostOperator("resample", "weighted sums of places on an axis: all ways of resizing", "x places weights -> y", "axis"),
    HostOperator("gather", "slices by number", "x places -> y", "axis"),
    HostOperator("gather_elements", "an element for each place on an axis", "x places -> y", "axis"),
    HostOperator("gather_nd", "slices by tuples of numbers", "x places -> y", "batch axes, numbers of a tuple"),
    HostOperator("scatter_elements", "a copy with elements replaced", "x places updates -> y", "axis, kind"),
    HostOperator("scatter_nd", "a copy with slices replaced", "x places updates -> y", "numbers of a tuple, kind"),
    HostOperator("pad", "borders by the values inside", "x -> y", "kind, pads before"),
    HostOperator("top_k", "the largest or smallest elements of an axis, in order", "x scratch -> values places",
                 "axis, largest"),
    HostOperator("cumulative_sum", "running sums on an axis", "x -> y", "axis, exclusive, reverse"),
    HostOperator("quantize", "reals to integers, rounding half to even", "x scale zero_point? -> y", "axis"),
    HostOperator("dequantize", "integers to reals", "x scale zero_point? -> y", "axis"),
    HostOperator("concat", "tensors one behind the other; the number of rows may be known only at run time", "x... -> y", "axis"),
    HostOperator("nms", "non-maximum suppression: batch, class and box of each selection, and how many",
                 "boxes scores most? overlap? threshold? scratch -> y count", "corners in the middle"),
    HostOperator("recurrent", "RNN, GRU and LSTM over time",
                 "x w r b? lengths? initial_h? initial_c? peepholes? scratch -> y? y_h? y_c?",
                 "kind, directions, hidden size, first direction backward, linear before reset, input forget, batch first, "
                 "clip or 0, and of each direction three activations, each kind, real a, real b"),
    HostOperator("grid_sample", "elements at fractional places", "x grid -> y", "kind, padding, corners aligned"),
    HostOperator("custom", "an operator of a plugin (npu_plugin.h)", "x... -> y...",
                 "domain, name, attributes, then of each attribute: kind, count, name, values; a text is its length in numbers "
                 "and its bytes with zeros behind them"),
)  # fmt: skip
"""By code, from 0. New ones go behind the last, so that older files keep their meaning."""

HOST_KINDS: dict[str, tuple[str, ...]] = {
    "unary": (
        "copy", "abs", "neg", "sign", "ceil", "floor", "round", "sqrt", "reciprocal", "exp", "log", "sin", "cos", "tan", "asin",
        "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "relu", "leaky_relu", "thresholded_relu",
        "elu", "selu", "celu", "sigmoid", "hard_sigmoid", "hard_swish", "softplus", "softsign", "gelu", "gelu_tanh", "mish",
        "swish", "shrink", "clip", "not", "bitwise_not", "is_nan", "is_inf",
    ),
    "binary": (
        "add", "sub", "mul", "div", "pow", "min", "max", "mod", "fmod", "equal", "less", "less_equal", "greater",
        "greater_equal", "and", "or", "xor", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right", "prelu",
    ),
    "reduce": ("sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"),
    "softmax": ("softmax", "log_softmax", "hardmax", "l1", "l2"),
    "normalize": ("variance", "rms"),
    "pool": ("max", "mean", "mean_with_pads", "lp"),
    "scatter": ("none", "add", "mul", "min", "max"),
    "pad": ("edge", "reflect", "wrap"),
    "recurrent": ("rnn", "gru", "lstm"),
    "grid": ("nearest", "linear", "cubic"),
    "outside": ("zeros", "border", "reflection"),
}  # fmt: skip
"""The kinds of operators that have some, by code."""

HEADER = Record(
    "host_header",
    "Section .npu.host.S: how the host operators of a CPU subgraph follow each other.",
    (
        Field("version", "u4", "NPUC_HOST_VERSION"),
        Field("tensors", "u4", ""),
        Field("nodes", "u4", "0 if the subgraph has an operator that C has not"),
        Field("operands", "u4", ""),
        Field("numbers", "u4", ""),
        Field("refusal", "u4", "in the strings: which operator that is, and why"),
        Field("arena", "u8", "bytes for the tensors in between"),
        Field("strings", "u8", "bytes"),
        Field("constants", "u8", "bytes"),
    ),
)
TENSOR = Record(
    "host_tensor",
    "A tensor, dense in the order of its axes.",
    (
        Field("dtype", "u2", "an npuc_tensor_dtype"),
        Field("rank", "u2", ""),
        Field("place", "u4", "an npuc_host_place_kind"),
        Field("offset", "u8", "arena, constants: the first byte; inputs, outputs: which one"),
        Field("size", "u8", "bytes"),
        Field("shape", "u4", "at most: the first axis may be shorter", MOST_AXES),
        Field(
            "rows",
            "u4",
            "NPUC_HOST_NONE, or the tensor whose first element (i64) is the length of the first axis",
        ),
        Field("reserved", "u4", "0"),
    ),
)
NODE = Record(
    "host_node",
    "An operator at work.",
    (
        Field("op", "u2", "an npuc_host_op_kind"),
        Field("inputs", "u2", ""),
        Field("outputs", "u2", "behind the inputs in the operands"),
        Field("reserved", "u2", "0"),
        Field("first_operand", "u4", ""),
        Field("first_number", "u4", ""),
        Field("numbers", "u4", ""),
        Field("name", "u4", "of the layer, in the strings"),
    ),
)
_RECORDS = (HEADER, TENSOR, NODE)


@dataclass(frozen=True)
class HostSection:
    """What the section of a subgraph holds, in rows of its records."""

    tensors: tuple[tuple[int, int, int, int, int, tuple[int, ...], int], ...] = ()
    """dtype, rank, place, offset, size, shape, rows."""
    nodes: tuple[tuple[int, int, int, int, int, int, int], ...] = ()
    """op, inputs, outputs, first operand, first number, numbers, name."""
    operands: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    strings: bytes = b"\0"
    constants: bytes = b""
    arena: int = 0
    refusal: int = 0

    def encoded(self) -> bytes:
        """The bytes: every part at a multiple of 8, the constants at one of 64."""
        strings = self.strings + bytes(-len(self.strings) % 8)
        header = HEADER.make(
            [
                (VERSION, len(self.tensors), len(self.nodes), len(self.operands), len(self.numbers), self.refusal,
                 self.arena, len(strings), len(self.constants))
            ]
        )  # fmt: skip
        axes = [0] * MOST_AXES
        tensors = TENSOR.make([(*row[:5], [*row[5], *axes][:MOST_AXES], row[6], 0) for row in self.tensors])
        nodes = NODE.make([(*row[:3], 0, *row[3:]) for row in self.nodes])
        operands = np.array(self.operands, "<u4").tobytes()
        front = b"".join(
            [
                header.tobytes(),
                tensors.tobytes(),
                nodes.tobytes(),
                operands + bytes(-len(operands) % 8),
                np.array(self.numbers, "<i8").tobytes(),
                strings,
            ]
        )
        return front + bytes(-len(front) % ALIGNMENT) + self.constants


def refusal_of(section: bytes) -> str:
    """Which operator keeps the C runtime from a CPU subgraph, and why; empty if none does, or if the section cannot be read."""
    if len(section) < HEADER.size:
        return ""
    header = np.frombuffer(section, HEADER.dtype, 1)[0]
    if header["version"] != VERSION or header["nodes"]:
        return ""
    start = HEADER.size + int(header["tensors"]) * TENSOR.size + (int(header["operands"]) * 4 + 7) // 8 * 8
    text = section[start + 8 * int(header["numbers"]) :][: int(header["strings"])]
    return text[int(header["refusal"]) :].split(b"\0")[0].decode(errors="replace")


_TOP = """\
/*
 * npuc: host operators, made by `make docs` from src/npuc/program/host_ops.py. Do not edit.
 *
 * The section .npu.host.S has these records: one header, tensors, nodes, operands (uint32_t, numbers of tensors; up to the next
 * multiple of 8), numbers (int64_t), strings, and at the next multiple of 64 the constants. docs/host-ops.md has the operators.
 */
#ifndef NPUC_HOST_H
#define NPUC_HOST_H

#include <stdint.h>

#include "npuc/file.h"

#ifdef __cplusplus
#  define NPUC_HOST_CHECK(type, size) static_assert(sizeof(type) == (size), "records have the layout of the file")
#else
#  define NPUC_HOST_CHECK(type, size) _Static_assert(sizeof(type) == (size), "records have the layout of the file")
#endif
"""


def host_header() -> str:
    """The text of native/include/npuc/host.h."""
    lines = [
        _TOP,
        f"#define NPUC_HOST_VERSION {VERSION}",
        f"#define NPUC_HOST_NONE 0x{NONE:08X}u /* an operand that is left out */",
        f"#define NPUC_HOST_OPERANDS {MOST_OPERANDS} /* of a node, at most */",
        "",
        *_enum("place", PLACES),
        *_enum("op", [operator.name for operator in HOST_OPERATORS]),
        "/* X(name, NAME) of every operator, by code. */",
        "#define NPUC_HOST_OPERATORS(X) \\",
        *(f"    X({operator.name}, {operator.name.upper()}) \\" for operator in HOST_OPERATORS),
        "",
    ]
    for name, kinds in HOST_KINDS.items():
        lines += _enum(name, kinds)
    for record in _RECORDS:
        lines += [record.struct(), ""]
    lines += [f"NPUC_HOST_CHECK(npuc_{record.name}, {record.size});" for record in _RECORDS]
    return "\n".join([*lines, "", "#endif /* NPUC_HOST_H */"]) + "\n"


def _enum(name: str, values: tuple[str, ...] | list[str]) -> list[str]:
    members = [
        f"    NPUC_HOST_{name.upper()}_{value.upper()} = {number}," for number, value in enumerate(values)
    ]
    return [
        f"typedef enum npuc_host_{name}_kind {{",
        *members,
        f"    NPUC_HOST_{name.upper()}S = {len(values)}",
        f"}} npuc_host_{name}_kind;",
        "",
    ]
