"""The instruction set, in one table: every instruction, every field, what it means.

A machine has cores; a core has four queues (load, store, matrix, vector) that work at the same time, each in order. Every
instruction is a record of `RECORD` bytes, little-endian: a head that all share, then the fields of its opcode. The C header,
the disassembler and docs/isa.md are made from this table; streams are NumPy arrays of its record types.

Queues wait for each other by semaphores: each queue has one, which counts the instructions that the queue has finished. The
head of an instruction says what each of them has to have reached before it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from npuc.arithmetic import kinds
from npuc.arithmetic.dtypes import CODES, PACKED_BASE
from npuc.arithmetic.kinds import Kind
from npuc.arrays import ceil_div

RECORD = 160
"""Bytes of an instruction."""
VERSION = 1
MULTICAST = 1
"""The flag of a load that every core has: the n-th of each core start together, and their bytes cross the channel once."""
COMPRESSED = 2
"""The flag of a load whose bytes in DRAM are a stream of the weight codec, `stored` bytes of it."""
SPARSE = 4
"""The flag of a convolution whose weights are N:M sparse."""
NONE = 0xFFFFFFFF
"""A local address that means: not there."""

KERNEL_NAME = 32
"""Bytes of the name of a custom instruction's kernel, with a zero at the end."""
KERNEL_PARAMETERS = 16
"""Numbers that a custom instruction tells its kernel."""
PARAMETER_BYTES = 4 * KERNEL_PARAMETERS
"""Of those: forms of a custom instruction that have no field for them have them in front of the constants."""
CUSTOM = ("custom", "custom_local", "custom_global")
"""The instructions whose meaning is a kernel of a plugin."""

QUEUES = ("load", "store", "matrix", "vector")
"""The queues of a core: DMA into local memory, DMA out of it, the matrix engine, the vector engine."""
DTYPES = CODES
"""Element types by their code, as `npuc_dtype` of kinds.h has them."""
WEIGHT_TYPES = PACKED_BASE + 16
"""Codes of weights: those of `DTYPES`, and from `PACKED_BASE` on those of packed integers."""
KINDS: tuple[str, ...] = kinds.KINDS
"""Requantization kinds by their code, as `npuc_requant_kind` has them."""
ROUNDINGS: tuple[str, ...] = kinds.ROUNDINGS
"""Roundings by their code, as `npuc_rounding` has them."""


@dataclass(frozen=True)
class Field:
    """A field of a record."""

    name: str
    type: str
    """NumPy's name of the type of an element."""
    doc: str
    count: int = 1
    address: bool = False
    """Whether it is an address in local memory."""
    far: bool = False
    """Whether it is a byte of the segment that the field of its name and `_segment` tells."""


@dataclass(frozen=True)
class FieldGroup:
    """Fields that several instructions share, one behind the other: in a typed instruction they are one record."""

    name: str
    doc: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Instruction:
    """An instruction."""

    name: str
    opcode: int
    queue: str
    doc: str
    parts: tuple[Field | FieldGroup, ...]
    """Its fields in the order of the record, those that it shares with others as groups."""

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """All fields behind the head, in the order of the record."""
        return tuple(
            field
            for part in self.parts
            for field in (part.fields if isinstance(part, FieldGroup) else (part,))
        )

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The record type."""
        names, formats, offsets, at = [], [], [], 0
        for field in (*HEAD, *self.fields):
            kind = np.dtype(field.type).newbyteorder("<")
            at = ceil_div(at, kind.itemsize) * kind.itemsize
            names.append(field.name)
            formats.append((kind, (field.count,)) if field.count > 1 else kind)
            offsets.append(at)
            at += kind.itemsize * field.count
        if at > RECORD:
            raise ValueError(f"{self.name} needs {at} bytes")
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": RECORD})


HEAD = (
    Field("opcode", "u1", "which instruction"),
    Field("queue", "u1", "which queue it is in: an index of load, store, matrix, vector"),
    Field(
        "flags",
        "u2",
        "of a load, the sum of 1 if all cores do it at the same time (multicast) and 2 if it decodes (compressed); "
        "of a conv, 4 if its weights are sparse; otherwise 0",
    ),
    Field("layer", "u4", "the layer that it works for: an index of the layer table"),
    Field("wait", "u4", "what the semaphores of the four queues of its core have to have reached", 4),
)


_SEGMENT = "segment of DRAM, or 255 for the shared memory"
_ROUNDING = f"an index of {', '.join(ROUNDINGS)}"


def _address(name: str, doc: str) -> Field:
    return Field(name, "u4", doc, address=True)


def _u4(name: str, doc: str, count: int = 1) -> Field:
    return Field(name, "u4", doc, count)


def _i4(name: str, doc: str, count: int = 1) -> Field:
    return Field(name, "i4", doc, count)


def _far(name: str, doc: str) -> Field:
    return Field(name, "u8", doc, far=True)


def _u8(name: str, doc: str) -> Field:
    return Field(name, "u8", doc)


def _u1(name: str, doc: str) -> Field:
    return Field(name, "u1", doc)


_STAGE = FieldGroup(
    "stage",
    "The output stage: y = sat(zero_point + rq(acc), lo, hi); of floats a relu, lo and hi the bits of f32.",
    (
        _u1("kind", f"requantization: an index of {', '.join(KINDS)}"),
        _u4("count", "sets of parameters: 1, or one a channel"),
        _address("multiplier", f"i32[count]; for kind {Kind.FLOAT_SCALE} f32[count]; none for {Kind.POW2}"),
        _address("shift", f"i32[count]; none for {Kind.FLOAT_SCALE}"),
        _i4("zero_point", "of the output"),
        _i4("lo", "the least output"),
        _i4("hi", "the greatest output"),
    ),
)
_SIZES = FieldGroup(
    "sizes",
    "The sizes of images before and after.",
    (
        _u4("n", "images"),
        _u4("h", "rows of x"),
        _u4("w", "columns of x"),
        _u4("c", "channels of x"),
        _u4("out_h", "rows of y"),
        _u4("out_w", "columns of y"),
    ),
)
_WINDOW = FieldGroup(
    "window",
    "How a window moves over an image.",
    (
        Field("kernel", "u2", "height and width", 2),
        Field("stride", "u2", "down and right", 2),
        Field("dilation", "u2", "down and right", 2),
        Field("pad", "i2", "rows above and columns left of x; what lies beyond x at any side is padding", 2),
    ),
)
_RESULT = FieldGroup("result", "The result.", (_address("y", "the result"), _u1("y_dtype", "its type")))
_SOURCE = FieldGroup(
    "source",
    "The first operand.",
    (_address("x", "the operand"), _u1("x_dtype", "its type"), _i4("x_zero_point", "its zero point")),
)
_SECOND = FieldGroup(
    "second",
    "The second operand.",
    (_address("b", "the second operand"), _u1("b_dtype", "its type"), _i4("b_zero_point", "its zero point")),
)
_BROADCAST = FieldGroup(
    "broadcast",
    "How two operands lie beside the result.",
    (
        _u4("size", "of each axis of y, outermost first; y is dense", 4),
        _i4("a_stride", "elements; 0 repeats", 4),
        _i4("b_stride", "elements; 0 repeats", 4),
    ),
)
_TRANSFER = FieldGroup(
    "transfer",
    "A block of up to four axes between a memory far away and local memory.",
    (
        Field("segment", "u1", _SEGMENT),
        Field("offset", "u8", "byte in the segment"),
        _address("local", "byte in local memory"),
        _u4("size", "elements moved of each axis, outermost first; the last axis is bytes", 4),
        Field("far_stride", "i8", "bytes from one element to the next in DRAM, of the first three axes", 3),
        _i4("near_stride", "the same in local memory", 3),
    ),
)

_KERNEL = Field(
    "kernel",
    "u1",
    "its name: letters, digits, underscores, dots and dashes, then zeros, one at least",
    KERNEL_NAME,
)

INSTRUCTIONS: tuple[Instruction, ...] = (
    Instruction(
        "load",
        1,
        "load",
        "Copy a block of up to four axes into local memory, or decode constants into a dense one (docs/weight-compression.md).",
        (
            _TRANSFER,
            _u4(
                "stored",
                "compressed: bytes in DRAM that stand for the bytes of `size`, all in its last axis; otherwise 0",
            ),
        ),
    ),
    Instruction("store", 2, "store", "Copy a block of up to four axes out of local memory.", (_TRANSFER,)),
    Instruction(
        "barrier",
        3,
        "any",
        "Wait until this queue of every core has come to the barrier of this number.",
        (_u4("number", "counts up from 1"),),
    ),
    Instruction(
        "conv",
        8,
        "matrix",
        "Convolution, plain, grouped, depthwise or transposed; fully connected as 1 x 1. Of integers, floats or blocks.",
        (
            _SOURCE,
            _SIZES,
            _WINDOW,
            _address(
                "weight",
                "(out_c, c / groups, kernel) of w_dtype, dense or sparse; i4 two to a byte, others packed",
            ),
            _u1("w_dtype", "its type, or 32 + b for integers of b bits that lie packed"),
            _i4("w_zero_point", "its zero point"),
            _address("bias", "i32[out_c], or i64 if wide, or f32 of floats; or none"),
            _u1("wide", "1: 64-bit biases and sums"),
            _u1("transposed", "1: transposed convolution"),
            _u4("groups", "groups"),
            _u4("out_c", "channels of y that are made"),
            _RESULT,
            _u4(
                "y_stride",
                "elements from one pixel of y to the next: out_c, or more if y has other channels beside",
            ),
            _STAGE,
            _address("table", "256 entries of y_dtype (or 513 of i16) that the outputs go through; or none"),
            _u1("s_dtype", "type of the outputs before the table"),
            _u1("sparse_n", "of sparse weights, the values that are stored of a block; 0: they are dense"),
            _u1(
                "sparse_m",
                "input channels of a block, 2, 4, 8 or 16 (docs/weight-sparsity.md); 0: they are dense",
            ),
        ),
    ),
    Instruction(
        "matmul",
        9,
        "matrix",
        "Matrix products of two activations: y[i] = a[i] x b[i] for each of `batch` pairs.",
        (
            _SOURCE,
            _SECOND,
            _u4("batch", "pairs"),
            _u4("m", "rows of a"),
            _u4("k", "columns of a"),
            _u4("cols", "columns of b"),
            _u4("a_step", "elements from one a to the next; 0: the same one"),
            _u4("b_step", "elements from one b to the next; 0: the same one"),
            _u1("transposed_b", "1: b is (cols, k)"),
            _u1("wide", "1: 64-bit sums"),
            _RESULT,
            _STAGE,
        ),
    ),
    Instruction(
        "recurrent",
        10,
        "matrix",
        "One direction of a recurrent layer over all its steps, with its state in local memory (docs/arithmetic-recurrent.md).",
        (
            _SOURCE,
            _u4("steps", "x is (steps, batch, inputs)"),
            _u4("batch", ""),
            _u4("inputs", ""),
            _u4("hidden", "units"),
            _u1("gates", "1 a simple layer, 3 a GRU, 4 an LSTM"),
            _u1("reverse", "1: from the last step to the first"),
            _u1("linear_before_reset", "of a GRU: 1 if the reset gate works behind the product"),
            _u1("coupled", "of an LSTM: 1 if the forget gate is 1 less the input gate"),
            _u1("peephole", "of an LSTM: 1 if it has peepholes"),
            _u1("cell_bits", "of an LSTM: bits of a cell behind the point"),
            _u1("w_dtype", "the type of the weights, or 32 + b for integers of b bits that lie packed"),
            _i4("limit", "arguments of gates are clamped to +-limit; 32768: to 16 bits"),
            _address(
                "constants", "weights, parameters and tables in the order of docs/arithmetic-recurrent.md"
            ),
            _address("first_h", "(batch, outputs) of y_dtype, what h begins with; or none: 0"),
            _address(
                "first_state", "(batch, hidden) of i16, what the cell or the state begins with; or none: 0"
            ),
            _address("last_h", "(batch, outputs) of y_dtype, what h ends with; or none"),
            _address("last_state", "(batch, hidden) of i16, what the cell or the state ends with; or none"),
            _RESULT,
            _u4("y_stride", "elements from one step of y, (batch, outputs), to the next"),
            _i4("multiplier", "of the output"),
            _i4("shift", "of the output"),
            _i4("zero_point", "of the output"),
            _i4("lo", "the least output"),
            _i4("hi", "the greatest output"),
            _u4("projected", "of an LSTM with a projection: its outputs; 0: as many as there are units"),
        ),
    ),
    Instruction(
        "quantized_lstm",
        11,
        "matrix",
        "TFLite's integer LSTM over all its steps, with its state in local memory (docs/arithmetic-recurrent.md).",
        (
            _address("x", "the sequence, i8: rows of `inputs` for each step and sample"),
            _address("y", "the outputs, i8: rows of `outputs` for each step and sample"),
            _address(
                "constants",
                "scales, biases, peepholes and weights in the order of docs/arithmetic-recurrent.md",
            ),
            _u4("steps", ""),
            _u4("batch", "samples"),
            _u4("inputs", ""),
            _u4("cells", "units"),
            _u4("outputs", "as many as there are cells, unless they are projected"),
            _u4("x_step", "elements from one step of x to the next"),
            _u4("x_sample", "elements from one sample of x to the next"),
            _u4("y_step", "elements from one step of y to the next"),
            _u4("y_sample", "elements from one sample of y to the next"),
            _u1("coupled", "1: the input gate is 1 less the forget gate, and has no constants"),
            _u1("norm", "1: gates have layer norms"),
            _u1("projected", "1: outputs are a product of what the units give"),
            _u1("integer_bits", "of a cell: 0 to 6"),
            _u4("peephole_rows", "of peepholes: 1, or one for each sample; 0: there are none"),
            _i4("cell_clip", "the largest cell; 0: 16 bits"),
            _i4("first_h", "what the state begins with: its zero point"),
        ),
    ),
    Instruction(
        "copy",
        16,
        "vector",
        "Copy elements between strided views of local memory.",
        (
            _address("x", "the source"),
            _address("y", "the destination"),
            _u1("bytes", "of an element: 1, 2, 4 or 8"),
            _u4("size", "of each axis, outermost first", 6),
            _i4("x_stride", "elements", 6),
            _i4("y_stride", "elements", 6),
        ),
    ),
    Instruction(
        "fill",
        17,
        "vector",
        "Fill a dense range.",
        (
            _address("y", "the destination"),
            _u1("bytes", "of an element: 1, 2, 4 or 8"),
            _u4("count", "elements"),
            _i4("value", "what it is filled with"),
        ),
    ),
    Instruction(
        "gather",
        18,
        "vector",
        "y[o, i] = x[o, index[i]] for each of `outer`, blocks of `inner` elements: nearest-neighbour resize, any map of an axis.",
        (
            _address("x", "(outer, x_size, inner)"),
            _address("y", "(outer, y_size, inner)"),
            _address("index", "i32[y_size]; negative ones count from the end"),
            _u1("bytes", "of an element: 1, 2, 4 or 8"),
            _u4("outer", ""),
            _u4("x_size", ""),
            _u4("y_size", ""),
            _u4("inner", ""),
        ),
    ),
    Instruction(
        "add",
        20,
        "vector",
        "a + b or a - b (docs/arithmetic-eltwise.md).",
        (
            _SOURCE,
            _SECOND,
            _BROADCAST,
            _RESULT,
            _u1("kind", "as everywhere"),
            _u1("subtract", "1: a - b"),
            _i4("left", "shift to the left"),
            _i4("multiplier", f"of a, of b, of the sum; for kind {Kind.FLOAT_SCALE} the bits of two f32", 3),
            _i4("shift", "of a, of b, of the sum", 3),
            _i4("zero_point", "of the output"),
            _i4("lo", "the least output"),
            _i4("hi", "the greatest output"),
        ),
    ),
    Instruction(
        "mul",
        21,
        "vector",
        "a * b.",
        (
            _SOURCE,
            _SECOND,
            _BROADCAST,
            _RESULT,
            _STAGE,
        ),
    ),
    Instruction(
        "requant",
        22,
        "vector",
        "rq(x - x_zero_point) of dense elements.",
        (_SOURCE, _u4("elements", "how many"), _RESULT, _STAGE),
    ),
    Instruction(
        "table",
        23,
        "vector",
        "A function by table: 256 entries of y_dtype for 8 bits, 513 for i16, 65536 for bf16 and f16, polynomials for f32.",
        (
            _SOURCE,
            _u4("outer", "x is (outer, channels, inner)"),
            _u4("channels", "tables; 1 for one table"),
            _u4("inner", ""),
            _address("table", "the entries, ascending, of one table after the other"),
            _RESULT,
            _u1("segments", "not 0: one table of 2^segments + 1 entries, linear between them"),
            _u4(
                "pieces",
                "of f32: polynomials of the table, at a multiple of 8 (docs/arithmetic-float.md); otherwise 0",
            ),
        ),
    ),
    Instruction(
        "minmax",
        24,
        "vector",
        "The smaller or the larger of two tensors of one type.",
        (
            _SOURCE,
            _address("b", "the second operand"),
            _BROADCAST,
            _u1("larger", "1: the larger"),
            _RESULT,
            _i4("lo", "the least output"),
            _i4("hi", "the greatest output"),
        ),
    ),
    Instruction(
        "cast",
        25,
        "vector",
        "Dense elements as another type: between f32, bf16 and f16, these and integers with a scale, or as blocks.",
        (
            _SOURCE,
            _u4("elements", "how many"),
            _RESULT,
            _i4("scale", "of the integers: the bits of an f32; 0 between floats"),
            _u1("rounding", _ROUNDING),
            _i4("zero_point", "of y"),
            _i4("lo", "the least integer; of blocks, the numbers of a row"),
            _i4("hi", "the greatest integer"),
        ),
    ),
    Instruction(
        "max_pool",
        28,
        "vector",
        "The largest of each window; padding never wins.",
        (_SOURCE, _SIZES, _WINDOW, _RESULT),
    ),
    Instruction(
        "avg_pool",
        29,
        "vector",
        "The mean of each window (docs/arithmetic-pooling.md); `count` is 1 or has a set for each count of elements.",
        (_SOURCE, _SIZES, _WINDOW, _u1("include_pad", "1: padding counts"), _RESULT, _STAGE),
    ),
    Instruction(
        "reduce",
        30,
        "vector",
        "Over the middle of (outer, count, inner): a sum through the output stage, the largest or the smallest, or where it is.",
        (
            _SOURCE,
            _u1(
                "mode",
                "0 sum, 1 largest, 2 smallest, 3 place of the largest, 4 place of the smallest, 5 mean (floats)",
            ),
            _u1("last", "for places: 1 the last, 0 the first"),
            _u4("outer", ""),
            _u4("reduced", ""),
            _u4("inner", ""),
            _RESULT,
            _STAGE,
        ),
    ),
    Instruction(
        "topk",
        38,
        "vector",
        "The k best over the middle of (outer, reduced, inner), in order, or their places; of equal ones the first come first.",
        (
            _SOURCE,
            _u1("places", "1: their places; 0: they themselves"),
            _u1("largest", "1: the largest; 0: the smallest"),
            _u4("outer", ""),
            _u4("reduced", ""),
            _u4("inner", ""),
            _u4("k", "how many, 1 to reduced"),
            _RESULT,
        ),
    ),
    Instruction(
        "softmax",
        31,
        "vector",
        "Softmax of dense rows (docs/arithmetic-softmax.md).",
        (
            _SOURCE,
            _u4("rows", ""),
            _u4("width", ""),
            _u1("form", "0 the general one, 1 TFLite's of 8 bits, 2 TFLite's of 16 bits, 3 of floats"),
            _address("coarse", "256 u32; form 2: 513 i16 of exponentials; or none"),
            _address("fine", "256 u32; form 2: 513 i16 of reciprocals; or none"),
            _i4("multiplier", ""),
            _i4("shift", "form 1: the shift to the left"),
            _i4("diff_min", "form 1"),
            _u1("rounding", _ROUNDING),
            _RESULT,
            _i4("zero_point", ""),
            _i4("lo", ""),
            _i4("hi", ""),
        ),
    ),
    Instruction(
        "norm",
        32,
        "vector",
        "Rows divided by their root (docs/arithmetic-norm.md).",
        (
            _SOURCE,
            _u4("rows", ""),
            _u4("width", ""),
            _u1(
                "form",
                "0 the general one, 1 TFLite's L2 of 8 bits; of floats, 2 by the mean of squares, 3 by their sum",
            ),
            _u1("center", "1: the mean is taken away first"),
            Field("epsilon", "u8", "of forms 2 and 3 the bits of an f32"),
            _u4(
                "row_modulus",
                "entry of gain and bias: row % row_modulus * row_factor + column / column_divisor",
            ),
            _u4("row_factor", ""),
            _u4("column_divisor", ""),
            _u4("entries", "of gain and bias"),
            _address("gain", "i32[entries], or f32"),
            _address("bias", "i64[entries], or f32"),
            _i4("shift", ""),
            _u1("rounding", _ROUNDING),
            _RESULT,
            _i4("zero_point", ""),
            _i4("lo", ""),
            _i4("hi", ""),
        ),
    ),
    Instruction(
        "resize",
        33,
        "vector",
        "Bilinear resize of rows and columns (docs/arithmetic-resize.md).",
        (
            _SOURCE,
            _SIZES,
            _address(
                "rows", "i32[out_h] low, i32[out_h] high, i32[out_h] weight, all relative to the rows at x"
            ),
            _address("columns", "the same with out_w"),
            _u1("bits", "of a weight"),
            _u1("rounding", _ROUNDING),
            _RESULT,
        ),
    ),
    Instruction(
        "custom",
        64,
        "vector",
        "A kernel that a plugin provides, by its name, on dense blocks of local memory (docs/plugins.md).",
        (
            _KERNEL,
            _address("x", "the first operand"),
            _u4("x_bytes", "its size"),
            _address("b", "the second operand, or none"),
            _u4("b_bytes", "its size, or 0"),
            _address("constants", "constants, at a multiple of 16, or none"),
            _u4("constant_bytes", "their size, or 0"),
            _address("y", "the result, apart from all others"),
            _u4("y_bytes", "its size"),
            _u4("work", "elements that the lanes of the vector engine take one cycle each for"),
            _i4("parameters", "what the kernel is told", KERNEL_PARAMETERS),
            _u1("bytes", "x, b and y are at multiples of this, and their sizes are: 1, 2, 4 or 8"),
        ),
    ),
    Instruction(
        "custom_local",
        65,
        "vector",
        "A kernel that a plugin provides, on dense blocks of local memory, with a workspace there (docs/plugins.md).",
        (
            _KERNEL,
            _address("x", "the first operand"),
            _u4("x_bytes", "its size"),
            _address("b", "the second operand, or none"),
            _u4("b_bytes", "its size, or 0"),
            _address(
                "constants", "i32[16], what the kernel is told, then its constants; at a multiple of 16"
            ),
            _u4("constant_bytes", "their size, at least 64"),
            _address("y", "the result, apart from all others"),
            _u4("y_bytes", "its size"),
            _address(
                "workspace",
                "bytes that the kernel may use as it likes, at a multiple of 16, apart from all others",
            ),
            _u4("workspace_bytes", "their number"),
            _u4("work", "elements that the lanes of the vector engine take one cycle each for"),
            _u1("bytes", "x, b and y are at multiples of this, and their sizes are: 1, 2, 4 or 8"),
        ),
    ),
    Instruction(
        "custom_global",
        66,
        "vector",
        "A kernel that a plugin provides, on whole tensors in global memory, with workspaces (docs/plugins.md).",
        (
            _KERNEL,
            _far("x", "the first operand"),
            _u8("x_bytes", "its size"),
            _far("b", "the second operand"),
            _u8("b_bytes", "its size; 0: there is none"),
            _far("y", "the result, apart from all others"),
            _u8("y_bytes", "its size"),
            _far(
                "workspace",
                "bytes that the kernel may use as it likes, at a multiple of 16, apart from all others",
            ),
            _u8("workspace_bytes", "their number; 0: there are none"),
            _u8("work", "elements that the lanes of the vector engine take one cycle each for"),
            _u8("traffic", "bytes that the kernel moves from and to global memory"),
            _address(
                "constants", "i32[16], what the kernel is told, then its constants; at a multiple of 16"
            ),
            _u4("constant_bytes", "their size, at least 64"),
            _address("local_workspace", "a workspace in local memory, at a multiple of 16, or none"),
            _u4("local_workspace_bytes", "its size, or 0"),
            _u1("x_segment", f"of x: a {_SEGMENT}"),
            _u1("b_segment", "of b; 0 if there is none"),
            _u1("y_segment", "of y"),
            _u1("workspace_segment", "of the workspace; 0 if there is none"),
            _u1("bytes", "x, b and y are at multiples of this, and their sizes are: 1, 2, 4 or 8"),
        ),
    ),
)
"""All instructions."""

BY_NAME = {instruction.name: instruction for instruction in INSTRUCTIONS}
BY_OPCODE = {instruction.opcode: instruction for instruction in INSTRUCTIONS}

GROUPS = tuple(
    dict.fromkeys(part for entry in INSTRUCTIONS for part in entry.parts if isinstance(part, FieldGroup))
)
"""All groups of fields, as they first occur."""
