"""Typed instructions: a frozen record for every instruction of the table, with the table's own names.

Made by `make docs` from src/npuc/program/isa.py. Do not edit. What instructions have in common is in `instruction.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from npuc.program.instruction import Address, TypedInstruction, record


@record
class Transfer:
    """A block of up to four axes between a memory far away and local memory."""

    segment: int
    """Segment of DRAM, or 255 for the shared memory."""
    offset: int
    """Byte in the segment."""
    local: Address
    """Byte in local memory."""
    size: tuple[int, ...]
    """Elements moved of each axis, outermost first; the last axis is bytes."""
    far_stride: tuple[int, ...]
    """Bytes from one element to the next in DRAM, of the first three axes."""
    near_stride: tuple[int, ...]
    """The same in local memory."""


@record
class Source:
    """The first operand."""

    x: Address
    """The operand."""
    x_dtype: int
    """Its type."""
    x_zero_point: int
    """Its zero point."""


@record
class Sizes:
    """The sizes of images before and after."""

    n: int
    """Images."""
    h: int
    """Rows of x."""
    w: int
    """Columns of x."""
    c: int
    """Channels of x."""
    out_h: int
    """Rows of y."""
    out_w: int
    """Columns of y."""


@record
class Window:
    """How a window moves over an image."""

    kernel: tuple[int, ...]
    """Height and width."""
    stride: tuple[int, ...]
    """Down and right."""
    dilation: tuple[int, ...]
    """Down and right."""
    pad: tuple[int, ...]
    """Rows above and columns left of x; what lies beyond x at any side is padding."""


@record
class Result:
    """The result."""

    y: Address
    """The result."""
    y_dtype: int
    """Its type."""


@record
class Stage:
    """The output stage: y = sat(zero_point + rq(acc), lo, hi); of floats a relu, lo and hi the bits of f32."""

    kind: int
    """Requantization: an index of double_rounding, single_rounding, single_even, pow2, float_scale."""
    count: int
    """Sets of parameters: 1, or one a channel."""
    multiplier: Address
    """i32[count]; for kind float_scale f32[count]; none for pow2."""
    shift: Address
    """i32[count]; none for float_scale."""
    zero_point: int
    """Of the output."""
    lo: int
    """The least output."""
    hi: int
    """The greatest output."""


@record
class Second:
    """The second operand."""

    b: Address
    """The second operand."""
    b_dtype: int
    """Its type."""
    b_zero_point: int
    """Its zero point."""


@record
class Broadcast:
    """How two operands lie beside the result."""

    size: tuple[int, ...]
    """Of each axis of y, outermost first; y is dense."""
    a_stride: tuple[int, ...]
    """Elements; 0 repeats."""
    b_stride: tuple[int, ...]
    """Elements; 0 repeats."""


@record
class Load(TypedInstruction):
    """Copy a block of up to four axes into local memory, or decode constants into a dense one (docs/weight-compression.md)."""

    name: ClassVar[str] = "load"
    opcode: ClassVar[int] = 1
    queue: ClassVar[str] = "load"
    addresses: ClassVar[tuple[int, ...]] = (2,)
    transfer: Transfer
    stored: int
    """Compressed: bytes in DRAM that stand for the bytes of `size`, all in its last axis; otherwise 0."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        transfer = self.transfer
        return [
            transfer.segment, transfer.offset, transfer.local, *transfer.size, *transfer.far_stride,
            *transfer.near_stride, self.stored,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Transfer(n[0], n[1], n[2], tuple(n[3:7]), tuple(n[7:10]), tuple(n[10:13])), n[13],
        )


@record
class Store(TypedInstruction):
    """Copy a block of up to four axes out of local memory."""

    name: ClassVar[str] = "store"
    opcode: ClassVar[int] = 2
    queue: ClassVar[str] = "store"
    addresses: ClassVar[tuple[int, ...]] = (2,)
    transfer: Transfer

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        transfer = self.transfer
        return [
            transfer.segment, transfer.offset, transfer.local, *transfer.size, *transfer.far_stride,
            *transfer.near_stride,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Transfer(n[0], n[1], n[2], tuple(n[3:7]), tuple(n[7:10]), tuple(n[10:13])),
        )


@record
class Barrier(TypedInstruction):
    """Wait until this queue of every core has come to the barrier of this number."""

    name: ClassVar[str] = "barrier"
    opcode: ClassVar[int] = 3
    queue: ClassVar[str] = "any"
    addresses: ClassVar[tuple[int, ...]] = ()
    number: int
    """Counts up from 1."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        return [
            self.number,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            n[0],
        )


@record
class Conv(TypedInstruction):
    """Convolution, plain, grouped, depthwise or transposed; fully connected as 1 x 1. Of integers, floats or blocks."""

    name: ClassVar[str] = "conv"
    opcode: ClassVar[int] = 8
    queue: ClassVar[str] = "matrix"
    addresses: ClassVar[tuple[int, ...]] = (0, 17, 20, 25, 30, 31, 35)
    source: Source
    sizes: Sizes
    window: Window
    weight: Address
    """(out_c, c / groups, kernel) of w_dtype, dense or sparse; i4 two to a byte, others packed."""
    w_dtype: int
    """Its type, or 32 + b for integers of b bits that lie packed."""
    w_zero_point: int
    """Its zero point."""
    bias: Address
    """i32[out_c], or i64 if wide, or f32 of floats; or none."""
    wide: int
    """1: 64-bit biases and sums."""
    transposed: int
    """1: transposed convolution."""
    groups: int
    """Groups."""
    out_c: int
    """Channels of y that are made."""
    result: Result
    y_stride: int
    """Elements from one pixel of y to the next: out_c, or more if y has other channels beside."""
    stage: Stage
    table: Address
    """256 entries of y_dtype (or 513 of i16) that the outputs go through; or none."""
    s_dtype: int
    """Type of the outputs before the table."""
    sparse_n: int
    """Of sparse weights, the values that are stored of a block; 0: they are dense."""
    sparse_m: int
    """Input channels of a block, 2, 4, 8 or 16 (docs/weight-sparsity.md); 0: they are dense."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        sizes = self.sizes
        window = self.window
        result = self.result
        stage = self.stage
        return [
            source.x, source.x_dtype, source.x_zero_point, sizes.n, sizes.h, sizes.w, sizes.c, sizes.out_h,
            sizes.out_w, *window.kernel, *window.stride, *window.dilation, *window.pad, self.weight, self.w_dtype,
            self.w_zero_point, self.bias, self.wide, self.transposed, self.groups, self.out_c, result.y,
            result.y_dtype, self.y_stride, stage.kind, stage.count, stage.multiplier, stage.shift, stage.zero_point,
            stage.lo, stage.hi, self.table, self.s_dtype, self.sparse_n, self.sparse_m,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), Sizes(n[3], n[4], n[5], n[6], n[7], n[8]), Window(tuple(n[9:11]),
            tuple(n[11:13]), tuple(n[13:15]), tuple(n[15:17])), n[17], n[18], n[19], n[20], n[21], n[22], n[23],
            n[24], Result(n[25], n[26]), n[27], Stage(n[28], n[29], n[30], n[31], n[32], n[33], n[34]), n[35], n[36],
            n[37], n[38],
        )


@record
class Matmul(TypedInstruction):
    """Matrix products of two activations: y[i] = a[i] x b[i] for each of `batch` pairs."""

    name: ClassVar[str] = "matmul"
    opcode: ClassVar[int] = 9
    queue: ClassVar[str] = "matrix"
    addresses: ClassVar[tuple[int, ...]] = (0, 3, 14, 18, 19)
    source: Source
    second: Second
    batch: int
    """Pairs."""
    m: int
    """Rows of a."""
    k: int
    """Columns of a."""
    cols: int
    """Columns of b."""
    a_step: int
    """Elements from one a to the next; 0: the same one."""
    b_step: int
    """Elements from one b to the next; 0: the same one."""
    transposed_b: int
    """1: b is (cols, k)."""
    wide: int
    """1: 64-bit sums."""
    result: Result
    stage: Stage

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        second = self.second
        result = self.result
        stage = self.stage
        return [
            source.x, source.x_dtype, source.x_zero_point, second.b, second.b_dtype, second.b_zero_point, self.batch,
            self.m, self.k, self.cols, self.a_step, self.b_step, self.transposed_b, self.wide, result.y,
            result.y_dtype, stage.kind, stage.count, stage.multiplier, stage.shift, stage.zero_point, stage.lo,
            stage.hi,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), Second(n[3], n[4], n[5]), n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13],
            Result(n[14], n[15]), Stage(n[16], n[17], n[18], n[19], n[20], n[21], n[22]),
        )


@record
class Recurrent(TypedInstruction):
    """One direction of a recurrent layer over all its steps, with its state in local memory (docs/arithmetic-recurrent.md)."""

    name: ClassVar[str] = "recurrent"
    opcode: ClassVar[int] = 10
    queue: ClassVar[str] = "matrix"
    addresses: ClassVar[tuple[int, ...]] = (0, 15, 16, 17, 18, 19, 20)
    source: Source
    steps: int
    """x is (steps, batch, inputs)."""
    batch: int
    inputs: int
    hidden: int
    """Units."""
    gates: int
    """1 a simple layer, 3 a GRU, 4 an LSTM."""
    reverse: int
    """1: from the last step to the first."""
    linear_before_reset: int
    """Of a GRU: 1 if the reset gate works behind the product."""
    coupled: int
    """Of an LSTM: 1 if the forget gate is 1 less the input gate."""
    peephole: int
    """Of an LSTM: 1 if it has peepholes."""
    cell_bits: int
    """Of an LSTM: bits of a cell behind the point."""
    w_dtype: int
    """The type of the weights, or 32 + b for integers of b bits that lie packed."""
    limit: int
    """Arguments of gates are clamped to +-limit; 32768: to 16 bits."""
    constants: Address
    """Weights, parameters and tables in the order of docs/arithmetic-recurrent.md."""
    first_h: Address
    """(batch, outputs) of y_dtype, what h begins with; or none: 0."""
    first_state: Address
    """(batch, hidden) of i16, what the cell or the state begins with; or none: 0."""
    last_h: Address
    """(batch, outputs) of y_dtype, what h ends with; or none."""
    last_state: Address
    """(batch, hidden) of i16, what the cell or the state ends with; or none."""
    result: Result
    y_stride: int
    """Elements from one step of y, (batch, outputs), to the next."""
    multiplier: int
    """Of the output."""
    shift: int
    """Of the output."""
    zero_point: int
    """Of the output."""
    lo: int
    """The least output."""
    hi: int
    """The greatest output."""
    projected: int
    """Of an LSTM with a projection: its outputs; 0: as many as there are units."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        result = self.result
        return [
            source.x, source.x_dtype, source.x_zero_point, self.steps, self.batch, self.inputs, self.hidden,
            self.gates, self.reverse, self.linear_before_reset, self.coupled, self.peephole, self.cell_bits,
            self.w_dtype, self.limit, self.constants, self.first_h, self.first_state, self.last_h, self.last_state,
            result.y, result.y_dtype, self.y_stride, self.multiplier, self.shift, self.zero_point, self.lo, self.hi,
            self.projected,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13], n[14],
            n[15], n[16], n[17], n[18], n[19], Result(n[20], n[21]), n[22], n[23], n[24], n[25], n[26], n[27], n[28],
        )


@record
class QuantizedLstm(TypedInstruction):
    """TFLite's integer LSTM over all its steps, with its state in local memory (docs/arithmetic-recurrent.md)."""

    name: ClassVar[str] = "quantized_lstm"
    opcode: ClassVar[int] = 11
    queue: ClassVar[str] = "matrix"
    addresses: ClassVar[tuple[int, ...]] = (0, 1, 2)
    x: Address
    """The sequence, i8: rows of `inputs` for each step and sample."""
    y: Address
    """The outputs, i8: rows of `outputs` for each step and sample."""
    constants: Address
    """Scales, biases, peepholes and weights in the order of docs/arithmetic-recurrent.md."""
    steps: int
    batch: int
    """Samples."""
    inputs: int
    cells: int
    """Units."""
    outputs: int
    """As many as there are cells, unless they are projected."""
    x_step: int
    """Elements from one step of x to the next."""
    x_sample: int
    """Elements from one sample of x to the next."""
    y_step: int
    """Elements from one step of y to the next."""
    y_sample: int
    """Elements from one sample of y to the next."""
    coupled: int
    """1: the input gate is 1 less the forget gate, and has no constants."""
    norm: int
    """1: gates have layer norms."""
    projected: int
    """1: outputs are a product of what the units give."""
    integer_bits: int
    """Of a cell: 0 to 6."""
    peephole_rows: int
    """Of peepholes: 1, or one for each sample; 0: there are none."""
    cell_clip: int
    """The largest cell; 0: 16 bits."""
    first_h: int
    """What the state begins with: its zero point."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        return [
            self.x, self.y, self.constants, self.steps, self.batch, self.inputs, self.cells, self.outputs,
            self.x_step, self.x_sample, self.y_step, self.y_sample, self.coupled, self.norm, self.projected,
            self.integer_bits, self.peephole_rows, self.cell_clip, self.first_h,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13], n[14], n[15],
            n[16], n[17], n[18],
        )


@record
class Copy(TypedInstruction):
    """Copy elements between strided views of local memory."""

    name: ClassVar[str] = "copy"
    opcode: ClassVar[int] = 16
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 1)
    x: Address
    """The source."""
    y: Address
    """The destination."""
    bytes: int
    """Of an element: 1, 2, 4 or 8."""
    size: tuple[int, ...]
    """Of each axis, outermost first."""
    x_stride: tuple[int, ...]
    """Elements."""
    y_stride: tuple[int, ...]
    """Elements."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        return [
            self.x, self.y, self.bytes, *self.size, *self.x_stride, *self.y_stride,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            n[0], n[1], n[2], tuple(n[3:9]), tuple(n[9:15]), tuple(n[15:21]),
        )


@record
class Fill(TypedInstruction):
    """Fill a dense range."""

    name: ClassVar[str] = "fill"
    opcode: ClassVar[int] = 17
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0,)
    y: Address
    """The destination."""
    bytes: int
    """Of an element: 1, 2, 4 or 8."""
    count: int
    """Elements."""
    value: int
    """What it is filled with."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        return [
            self.y, self.bytes, self.count, self.value,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            n[0], n[1], n[2], n[3],
        )


@record
class Gather(TypedInstruction):
    """y[o, i] = x[o, index[i]] for each of `outer`, blocks of `inner` elements: nearest-neighbour resize, any map of an axis."""

    name: ClassVar[str] = "gather"
    opcode: ClassVar[int] = 18
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 1, 2)
    x: Address
    """(outer, x_size, inner)."""
    y: Address
    """(outer, y_size, inner)."""
    index: Address
    """i32[y_size]; negative ones count from the end."""
    bytes: int
    """Of an element: 1, 2, 4 or 8."""
    outer: int
    x_size: int
    y_size: int
    inner: int

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        return [
            self.x, self.y, self.index, self.bytes, self.outer, self.x_size, self.y_size, self.inner,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7],
        )


@record
class Add(TypedInstruction):
    """a + b or a - b (docs/arithmetic-eltwise.md)."""

    name: ClassVar[str] = "add"
    opcode: ClassVar[int] = 20
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 3, 18)
    source: Source
    second: Second
    broadcast: Broadcast
    result: Result
    kind: int
    """As everywhere."""
    subtract: int
    """1: a - b."""
    left: int
    """Shift to the left."""
    multiplier: tuple[int, ...]
    """Of a, of b, of the sum; for kind float_scale the bits of two f32."""
    shift: tuple[int, ...]
    """Of a, of b, of the sum."""
    zero_point: int
    """Of the output."""
    lo: int
    """The least output."""
    hi: int
    """The greatest output."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        second = self.second
        broadcast = self.broadcast
        result = self.result
        return [
            source.x, source.x_dtype, source.x_zero_point, second.b, second.b_dtype, second.b_zero_point,
            *broadcast.size, *broadcast.a_stride, *broadcast.b_stride, result.y, result.y_dtype, self.kind,
            self.subtract, self.left, *self.multiplier, *self.shift, self.zero_point, self.lo, self.hi,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), Second(n[3], n[4], n[5]), Broadcast(tuple(n[6:10]), tuple(n[10:14]),
            tuple(n[14:18])), Result(n[18], n[19]), n[20], n[21], n[22], tuple(n[23:26]), tuple(n[26:29]), n[29],
            n[30], n[31],
        )


@record
class Mul(TypedInstruction):
    """a * b."""

    name: ClassVar[str] = "mul"
    opcode: ClassVar[int] = 21
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 3, 18, 22, 23)
    source: Source
    second: Second
    broadcast: Broadcast
    result: Result
    stage: Stage

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        second = self.second
        broadcast = self.broadcast
        result = self.result
        stage = self.stage
        return [
            source.x, source.x_dtype, source.x_zero_point, second.b, second.b_dtype, second.b_zero_point,
            *broadcast.size, *broadcast.a_stride, *broadcast.b_stride, result.y, result.y_dtype, stage.kind,
            stage.count, stage.multiplier, stage.shift, stage.zero_point, stage.lo, stage.hi,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), Second(n[3], n[4], n[5]), Broadcast(tuple(n[6:10]), tuple(n[10:14]),
            tuple(n[14:18])), Result(n[18], n[19]), Stage(n[20], n[21], n[22], n[23], n[24], n[25], n[26]),
        )


@record
class Requant(TypedInstruction):
    """rq(x - x_zero_point) of dense elements."""

    name: ClassVar[str] = "requant"
    opcode: ClassVar[int] = 22
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 4, 8, 9)
    source: Source
    elements: int
    """How many."""
    result: Result
    stage: Stage

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        result = self.result
        stage = self.stage
        return [
            source.x, source.x_dtype, source.x_zero_point, self.elements, result.y, result.y_dtype, stage.kind,
            stage.count, stage.multiplier, stage.shift, stage.zero_point, stage.lo, stage.hi,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), n[3], Result(n[4], n[5]), Stage(n[6], n[7], n[8], n[9], n[10], n[11], n[12]),
        )


@record
class Table(TypedInstruction):
    """A function by table: 256 entries of y_dtype for 8 bits, 513 for i16, 65536 for bf16 and f16, polynomials for f32."""

    name: ClassVar[str] = "table"
    opcode: ClassVar[int] = 23
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 6, 7)
    source: Source
    outer: int
    """x is (outer, channels, inner)."""
    channels: int
    """Tables; 1 for one table."""
    inner: int
    table: Address
    """The entries, ascending, of one table after the other."""
    result: Result
    segments: int
    """Not 0: one table of 2^segments + 1 entries, linear between them."""
    pieces: int
    """Of f32: polynomials of the table, at a multiple of 8 (docs/arithmetic-float.md); otherwise 0."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        result = self.result
        return [
            source.x, source.x_dtype, source.x_zero_point, self.outer, self.channels, self.inner, self.table,
            result.y, result.y_dtype, self.segments, self.pieces,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), n[3], n[4], n[5], n[6], Result(n[7], n[8]), n[9], n[10],
        )


@record
class Minmax(TypedInstruction):
    """The smaller or the larger of two tensors of one type."""

    name: ClassVar[str] = "minmax"
    opcode: ClassVar[int] = 24
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 3, 17)
    source: Source
    b: Address
    """The second operand."""
    broadcast: Broadcast
    larger: int
    """1: the larger."""
    result: Result
    lo: int
    """The least output."""
    hi: int
    """The greatest output."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        broadcast = self.broadcast
        result = self.result
        return [
            source.x, source.x_dtype, source.x_zero_point, self.b, *broadcast.size, *broadcast.a_stride,
            *broadcast.b_stride, self.larger, result.y, result.y_dtype, self.lo, self.hi,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), n[3], Broadcast(tuple(n[4:8]), tuple(n[8:12]), tuple(n[12:16])), n[16],
            Result(n[17], n[18]), n[19], n[20],
        )


@record
class Cast(TypedInstruction):
    """Dense elements as another type: between f32, bf16 and f16, these and integers with a scale, or as blocks."""

    name: ClassVar[str] = "cast"
    opcode: ClassVar[int] = 25
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 4)
    source: Source
    elements: int
    """How many."""
    result: Result
    scale: int
    """Of the integers: the bits of an f32; 0 between floats."""
    rounding: int
    """An index of half_away, half_even, half_up."""
    zero_point: int
    """Of y."""
    lo: int
    """The least integer; of blocks, the numbers of a row."""
    hi: int
    """The greatest integer."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        result = self.result
        return [
            source.x, source.x_dtype, source.x_zero_point, self.elements, result.y, result.y_dtype, self.scale,
            self.rounding, self.zero_point, self.lo, self.hi,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), n[3], Result(n[4], n[5]), n[6], n[7], n[8], n[9], n[10],
        )


@record
class MaxPool(TypedInstruction):
    """The largest of each window; padding never wins."""

    name: ClassVar[str] = "max_pool"
    opcode: ClassVar[int] = 28
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 17)
    source: Source
    sizes: Sizes
    window: Window
    result: Result

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        sizes = self.sizes
        window = self.window
        result = self.result
        return [
            source.x, source.x_dtype, source.x_zero_point, sizes.n, sizes.h, sizes.w, sizes.c, sizes.out_h,
            sizes.out_w, *window.kernel, *window.stride, *window.dilation, *window.pad, result.y, result.y_dtype,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), Sizes(n[3], n[4], n[5], n[6], n[7], n[8]), Window(tuple(n[9:11]),
            tuple(n[11:13]), tuple(n[13:15]), tuple(n[15:17])), Result(n[17], n[18]),
        )


@record
class AvgPool(TypedInstruction):
    """The mean of each window (docs/arithmetic-pooling.md); `count` is 1 or has a set for each count of elements."""

    name: ClassVar[str] = "avg_pool"
    opcode: ClassVar[int] = 29
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 18, 22, 23)
    source: Source
    sizes: Sizes
    window: Window
    include_pad: int
    """1: padding counts."""
    result: Result
    stage: Stage

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        sizes = self.sizes
        window = self.window
        result = self.result
        stage = self.stage
        return [
            source.x, source.x_dtype, source.x_zero_point, sizes.n, sizes.h, sizes.w, sizes.c, sizes.out_h,
            sizes.out_w, *window.kernel, *window.stride, *window.dilation, *window.pad, self.include_pad, result.y,
            result.y_dtype, stage.kind, stage.count, stage.multiplier, stage.shift, stage.zero_point, stage.lo,
            stage.hi,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), Sizes(n[3], n[4], n[5], n[6], n[7], n[8]), Window(tuple(n[9:11]),
            tuple(n[11:13]), tuple(n[13:15]), tuple(n[15:17])), n[17], Result(n[18], n[19]), Stage(n[20], n[21],
            n[22], n[23], n[24], n[25], n[26]),
        )


@record
class Reduce(TypedInstruction):
    """Over the middle of (outer, count, inner): a sum through the output stage, the largest or the smallest, or where it is."""

    name: ClassVar[str] = "reduce"
    opcode: ClassVar[int] = 30
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 8, 12, 13)
    source: Source
    mode: int
    """0 sum, 1 largest, 2 smallest, 3 place of the largest, 4 place of the smallest, 5 mean (floats)."""
    last: int
    """For places: 1 the last, 0 the first."""
    outer: int
    reduced: int
    inner: int
    result: Result
    stage: Stage

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        result = self.result
        stage = self.stage
        return [
            source.x, source.x_dtype, source.x_zero_point, self.mode, self.last, self.outer, self.reduced, self.inner,
            result.y, result.y_dtype, stage.kind, stage.count, stage.multiplier, stage.shift, stage.zero_point,
            stage.lo, stage.hi,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), n[3], n[4], n[5], n[6], n[7], Result(n[8], n[9]), Stage(n[10], n[11], n[12],
            n[13], n[14], n[15], n[16]),
        )


@record
class Topk(TypedInstruction):
    """The k best over the middle of (outer, reduced, inner), in order, or their places; of equal ones the first come first."""

    name: ClassVar[str] = "topk"
    opcode: ClassVar[int] = 38
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 9)
    source: Source
    places: int
    """1: their places; 0: they themselves."""
    largest: int
    """1: the largest; 0: the smallest."""
    outer: int
    reduced: int
    inner: int
    k: int
    """How many, 1 to reduced."""
    result: Result

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        result = self.result
        return [
            source.x, source.x_dtype, source.x_zero_point, self.places, self.largest, self.outer, self.reduced,
            self.inner, self.k, result.y, result.y_dtype,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), n[3], n[4], n[5], n[6], n[7], n[8], Result(n[9], n[10]),
        )


@record
class Softmax(TypedInstruction):
    """Softmax of dense rows (docs/arithmetic-softmax.md)."""

    name: ClassVar[str] = "softmax"
    opcode: ClassVar[int] = 31
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 6, 7, 12)
    source: Source
    rows: int
    width: int
    form: int
    """0 the general one, 1 TFLite's of 8 bits, 2 TFLite's of 16 bits, 3 of floats."""
    coarse: Address
    """256 u32; form 2: 513 i16 of exponentials; or none."""
    fine: Address
    """256 u32; form 2: 513 i16 of reciprocals; or none."""
    multiplier: int
    shift: int
    """Form 1: the shift to the left."""
    diff_min: int
    """Form 1."""
    rounding: int
    """An index of half_away, half_even, half_up."""
    result: Result
    zero_point: int
    lo: int
    hi: int

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        result = self.result
        return [
            source.x, source.x_dtype, source.x_zero_point, self.rows, self.width, self.form, self.coarse, self.fine,
            self.multiplier, self.shift, self.diff_min, self.rounding, result.y, result.y_dtype, self.zero_point,
            self.lo, self.hi,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], Result(n[12], n[13]),
            n[14], n[15], n[16],
        )


@record
class Norm(TypedInstruction):
    """Rows divided by their root (docs/arithmetic-norm.md)."""

    name: ClassVar[str] = "norm"
    opcode: ClassVar[int] = 32
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 12, 13, 16)
    source: Source
    rows: int
    width: int
    form: int
    """0 the general one, 1 TFLite's L2 of 8 bits; of floats, 2 by the mean of squares, 3 by their sum."""
    center: int
    """1: the mean is taken away first."""
    epsilon: int
    """Of forms 2 and 3 the bits of an f32."""
    row_modulus: int
    """Entry of gain and bias: row % row_modulus * row_factor + column / column_divisor."""
    row_factor: int
    column_divisor: int
    entries: int
    """Of gain and bias."""
    gain: Address
    """i32[entries], or f32."""
    bias: Address
    """i64[entries], or f32."""
    shift: int
    rounding: int
    """An index of half_away, half_even, half_up."""
    result: Result
    zero_point: int
    lo: int
    hi: int

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        result = self.result
        return [
            source.x, source.x_dtype, source.x_zero_point, self.rows, self.width, self.form, self.center,
            self.epsilon, self.row_modulus, self.row_factor, self.column_divisor, self.entries, self.gain, self.bias,
            self.shift, self.rounding, result.y, result.y_dtype, self.zero_point, self.lo, self.hi,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13], n[14],
            n[15], Result(n[16], n[17]), n[18], n[19], n[20],
        )


@record
class Resize(TypedInstruction):
    """Bilinear resize of rows and columns (docs/arithmetic-resize.md)."""

    name: ClassVar[str] = "resize"
    opcode: ClassVar[int] = 33
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (0, 9, 10, 13)
    source: Source
    sizes: Sizes
    rows: Address
    """i32[out_h] low, i32[out_h] high, i32[out_h] weight, all relative to the rows at x."""
    columns: Address
    """The same with out_w."""
    bits: int
    """Of a weight."""
    rounding: int
    """An index of half_away, half_even, half_up."""
    result: Result

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        source = self.source
        sizes = self.sizes
        result = self.result
        return [
            source.x, source.x_dtype, source.x_zero_point, sizes.n, sizes.h, sizes.w, sizes.c, sizes.out_h,
            sizes.out_w, self.rows, self.columns, self.bits, self.rounding, result.y, result.y_dtype,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            Source(n[0], n[1], n[2]), Sizes(n[3], n[4], n[5], n[6], n[7], n[8]), n[9], n[10], n[11], n[12],
            Result(n[13], n[14]),
        )


@record
class Custom(TypedInstruction):
    """A kernel that a plugin provides, by its name, on dense blocks of local memory (docs/plugins.md)."""

    name: ClassVar[str] = "custom"
    opcode: ClassVar[int] = 64
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (32, 34, 36, 38)
    kernel: tuple[int, ...]
    """Its name: letters, digits, underscores, dots and dashes, then zeros, one at least."""
    x: Address
    """The first operand."""
    x_bytes: int
    """Its size."""
    b: Address
    """The second operand, or none."""
    b_bytes: int
    """Its size, or 0."""
    constants: Address
    """Constants, at a multiple of 16, or none."""
    constant_bytes: int
    """Their size, or 0."""
    y: Address
    """The result, apart from all others."""
    y_bytes: int
    """Its size."""
    work: int
    """Elements that the lanes of the vector engine take one cycle each for."""
    parameters: tuple[int, ...]
    """What the kernel is told."""
    bytes: int
    """x, b and y are at multiples of this, and their sizes are: 1, 2, 4 or 8."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        return [
            *self.kernel, self.x, self.x_bytes, self.b, self.b_bytes, self.constants, self.constant_bytes, self.y,
            self.y_bytes, self.work, *self.parameters, self.bytes,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            tuple(n[0:32]), n[32], n[33], n[34], n[35], n[36], n[37], n[38], n[39], n[40], tuple(n[41:57]), n[57],
        )


@record
class CustomLocal(TypedInstruction):
    """A kernel that a plugin provides, on dense blocks of local memory, with a workspace there (docs/plugins.md)."""

    name: ClassVar[str] = "custom_local"
    opcode: ClassVar[int] = 65
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (32, 34, 36, 38, 40)
    kernel: tuple[int, ...]
    """Its name: letters, digits, underscores, dots and dashes, then zeros, one at least."""
    x: Address
    """The first operand."""
    x_bytes: int
    """Its size."""
    b: Address
    """The second operand, or none."""
    b_bytes: int
    """Its size, or 0."""
    constants: Address
    """i32[16], what the kernel is told, then its constants; at a multiple of 16."""
    constant_bytes: int
    """Their size, at least 64."""
    y: Address
    """The result, apart from all others."""
    y_bytes: int
    """Its size."""
    workspace: Address
    """Bytes that the kernel may use as it likes, at a multiple of 16, apart from all others."""
    workspace_bytes: int
    """Their number."""
    work: int
    """Elements that the lanes of the vector engine take one cycle each for."""
    bytes: int
    """x, b and y are at multiples of this, and their sizes are: 1, 2, 4 or 8."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        return [
            *self.kernel, self.x, self.x_bytes, self.b, self.b_bytes, self.constants, self.constant_bytes, self.y,
            self.y_bytes, self.workspace, self.workspace_bytes, self.work, self.bytes,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            tuple(n[0:32]), n[32], n[33], n[34], n[35], n[36], n[37], n[38], n[39], n[40], n[41], n[42], n[43],
        )


@record
class CustomGlobal(TypedInstruction):
    """A kernel that a plugin provides, on whole tensors in global memory, with workspaces (docs/plugins.md)."""

    name: ClassVar[str] = "custom_global"
    opcode: ClassVar[int] = 66
    queue: ClassVar[str] = "vector"
    addresses: ClassVar[tuple[int, ...]] = (42, 44)
    far_addresses: ClassVar[tuple[tuple[int, int], ...]] = ((32, 46), (34, 47), (36, 48), (38, 49))
    kernel: tuple[int, ...]
    """Its name: letters, digits, underscores, dots and dashes, then zeros, one at least."""
    x: Address
    """The first operand."""
    x_bytes: int
    """Its size."""
    b: Address
    """The second operand."""
    b_bytes: int
    """Its size; 0: there is none."""
    y: Address
    """The result, apart from all others."""
    y_bytes: int
    """Its size."""
    workspace: Address
    """Bytes that the kernel may use as it likes, at a multiple of 16, apart from all others."""
    workspace_bytes: int
    """Their number; 0: there are none."""
    work: int
    """Elements that the lanes of the vector engine take one cycle each for."""
    traffic: int
    """Bytes that the kernel moves from and to global memory."""
    constants: Address
    """i32[16], what the kernel is told, then its constants; at a multiple of 16."""
    constant_bytes: int
    """Their size, at least 64."""
    local_workspace: Address
    """a workspace in local memory, at a multiple of 16, or none."""
    local_workspace_bytes: int
    """Its size, or 0."""
    x_segment: int
    """Of x: a segment of DRAM, or 255 for the shared memory."""
    b_segment: int
    """Of b; 0 if there is none."""
    y_segment: int
    """Of y."""
    workspace_segment: int
    """Of the workspace; 0 if there is none."""
    bytes: int
    """x, b and y are at multiples of this, and their sizes are: 1, 2, 4 or 8."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table."""
        return [
            *self.kernel, self.x, self.x_bytes, self.b, self.b_bytes, self.y, self.y_bytes, self.workspace,
            self.workspace_bytes, self.work, self.traffic, self.constants, self.constant_bytes, self.local_workspace,
            self.local_workspace_bytes, self.x_segment, self.b_segment, self.y_segment, self.workspace_segment,
            self.bytes,
        ]

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        return cls(
            tuple(n[0:32]), n[32], n[33], n[34], n[35], n[36], n[37], n[38], n[39], n[40], n[41], n[42], n[43], n[44],
            n[45], n[46], n[47], n[48], n[49], n[50],
        )


INSTRUCTIONS: tuple[type[TypedInstruction], ...] = (
    Load, Store, Barrier, Conv, Matmul, Recurrent, QuantizedLstm, Copy, Fill, Gather, Add, Mul, Requant,
    Table, Minmax, Cast, MaxPool, AvgPool, Reduce, Topk, Softmax, Norm, Resize, Custom, CustomLocal,
    CustomGlobal,
)
"""All records of instructions, in the order of the table."""
BY_NAME = {kind.name: kind for kind in INSTRUCTIONS}
BY_OPCODE = {kind.opcode: kind for kind in INSTRUCTIONS}
