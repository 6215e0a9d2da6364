"""Convolution, transposed convolution and products: the matrix engine."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from npuc.ir import Graph, npu, shape_of
from npuc.ir.dtypes import quant_of
from npuc.schedule.layers import Draft, Layer, Piece, Place, Rows, Tensor, aligned, layout
from npuc.schedule.rules import NotHere, Tensors, layers_as
from npuc.schedule.rules.common import (
    ABSENT,
    DTYPES,
    KINDS,
    LIMITS,
    batch_rows,
    is_natural,
    pictures_of,
    quantized,
    result,
    source,
    turned,
    window_rows,
)

Array = np.ndarray[Any, Any]


@layers_as(npu.Conv, npu.Deconv)
def convolution(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """Rows and output channels at will; a grouped one in whole groups."""
    x, y = tensor(op.x), tensor(op.y)
    if len(x.shape) != 4:
        raise NotHere("it is not a convolution of pictures")
    weight = graph.constant(op.weight)
    if weight is None:
        raise NotHere("its weights are computed at run time")
    transposed = isinstance(op, npu.Deconv)
    groups = op.group
    if transposed:
        i, o, *kernel = weight.shape
        weight = (
            weight.reshape(groups, i // groups, o, *kernel)
            .swapaxes(1, 2)
            .reshape(groups * o, i // groups, *kernel)
        )
    out_c, _, kh, kw = weight.shape
    (sh, sw), (dh, dw), (top, left) = op.strides, op.dilations, op.pads[:2]
    linear = _Linear(op, graph, np.ascontiguousarray(weight))
    height, width, out_h = x.shape[2], x.shape[3], y.shape[2]

    def of_picture(rows: Rows) -> Rows:
        if not transposed:
            return window_rows(rows, height, kh, sh, dh, top)
        low = max(-(-(rows[0] + top - (kh - 1) * dh) // sh), 0)
        high = min((rows[1] - 1 + top) // sh + 1, height)
        low, high = min(low, height - 1), max(high, 1)
        return low, max(high, low + 1)

    def need(rows: Rows) -> tuple[Rows, ...]:
        return (batch_rows(rows, out_h, height, of_picture),)

    def draft(piece: Piece) -> list[Draft]:
        return [one(piece, *part) for part in pictures_of(piece.rows, out_h)]

    def one(piece: Piece, picture: int, n: int, rows: Rows) -> Draft:
        (r0, r1), i0 = rows, piece.inputs[0][0]
        c0, c1 = piece.channels if groups == 1 else (0, out_c)
        a0, a1 = (0, height) if n > 1 else of_picture(rows)
        pad = top + r0 - a0 * sh if transposed else top + a0 - r0 * sh
        start = (picture * height + a0 - i0) * x.row_size
        offset = (picture * out_h + r0 - piece.output[0]) * y.row_size + c0 * y.itemsize
        rows_out = r1 - r0
        end = offset + (n * rows_out * y.shape[3] - 1) * y.shape[1] * y.itemsize + (c1 - c0) * y.itemsize
        places, size = linear.places((c0, c1))
        fields = {
            **source(x, offset=start),
            "n": n, "h": a1 - a0, "w": width, "c": x.shape[1], "out_h": rows_out, "out_w": y.shape[3],
            "kernel": (kh, kw), "stride": (sh, sw), "dilation": (dh, dw), "pad": (pad, left),
            **linear.fields(places, c1 - c0),
            "transposed": int(transposed), "groups": groups, "out_c": c1 - c0,
            **result(y, offset),
            "y_stride": y.shape[1],
        }  # fmt: skip
        reads = ("in0", start, start + n * (a1 - a0) * x.row_size), ("const", 0, size)
        return Draft("conv", "matrix", fields, reads, (("out0", offset, end),))

    return Layer(
        name=y.name,
        kind="deconv" if transposed else "conv",
        inputs=(x,),
        outputs=(y,),
        draft=draft,
        need=need if x.rows > 1 and y.rows > 1 else None,
        channels=out_c if groups == 1 else 0,
        constants=linear.constants,
        constant_size=linear.size,
        source=op,
    )


@layers_as(npu.MatMul)
def product(op: npu.MatMul, graph: Graph, tensor: Tensors) -> Layer:
    """With one constant matrix a 1 x 1 convolution over rows; otherwise a product of two batches of matrices."""
    weight = graph.constant(op.weight)
    several = weight is not None and prod(weight.shape[:-2]) != 1
    if several and quant_of(op.weight) is None:
        raise NotHere("each matrix of a batch has constant weights of its own")
    if weight is None or several or graph.constant(op.x) is not None:
        return _matrices(op, graph, tensor)
    x, y = tensor(op.x), tensor(op.y)
    matrix = weight.reshape(weight.shape[-2:])
    linear = _Linear(
        op, graph, np.ascontiguousarray(matrix if op.transpose_b else matrix.T)[:, :, None, None]
    )
    inputs, columns = x.shape[-1], y.shape[-1]
    count = prod(x.shape[:-1])

    def conv(
        rows: int, channels: Rows, start: int, offset: int, from_: str = "in0", to: str = "out0"
    ) -> Draft:
        c0, c1 = channels
        offset += c0 * y.itemsize
        places, size = linear.places((c0, c1))
        fields = {
            **source(x, from_, start),
            "n": 1, "h": rows, "w": 1, "c": inputs, "out_h": rows, "out_w": 1,
            "kernel": (1, 1), "stride": (1, 1), "dilation": (1, 1), "pad": (0, 0),
            **linear.fields(places, c1 - c0),
            "transposed": 0, "groups": 1, "out_c": c1 - c0,
            **result(y, offset, to),
            "y_stride": columns,
        }  # fmt: skip
        end = offset + ((rows - 1) * columns + c1 - c0) * y.itemsize
        reads = ((from_, start, start + rows * inputs * x.itemsize), ("const", 0, size))
        return Draft("conv", "matrix", fields, reads, ((to, offset, end),))

    def layer(draft: Any, **more: Any) -> Layer:
        usual = {"kind": "matmul", "constants": linear.constants, "constant_size": linear.size}
        return Layer(name=y.name, inputs=(x,), outputs=(y,), draft=draft, source=op, **{**usual, **more})

    if is_natural(x) and is_natural(y) and x.rows == y.rows:
        each = count // x.rows

        def draft(piece: Piece) -> list[Draft]:
            r0, r1 = piece.rows
            start = (r0 - piece.inputs[0][0]) * x.row_size
            return [conv((r1 - r0) * each, piece.channels, start, (r0 - piece.output[0]) * y.row_size)]

        summed = layer(linear.sum_draft(x, y), **linear.sums()) if count == 1 and not linear.wide else None
        return layer(
            draft, need=(lambda rows: (rows,)) if x.rows > 1 else None, channels=columns, by_inputs=summed
        )

    # The products of a row of a picture are those of its channels: each row is turned on its own.
    order = (0, 2, 1, 3)
    cuts = x.is_picture and y.is_picture and x.rows > 1

    def scratch(rows: Rows) -> int:
        part = rows[1] - rows[0]
        return aligned(part * x.row_size) + aligned(part * y.row_size)

    def row_by_row(piece: Piece) -> list[Draft]:
        (r0, r1), i0 = piece.rows, piece.inputs[0][0]
        part = r1 - r0
        half = aligned(part * x.row_size)
        rows = part if cuts else None
        start, offset = (r0 - i0) * x.row_size, (r0 - piece.output[0]) * y.row_size
        return [
            turned(x, order, Place("in0", start), Place("scratch"), rows),
            conv(count * part // x.rows, (0, columns), 0, half, "scratch", "scratch"),
            turned(y, order, Place("scratch", half), Place("out0", offset), rows, back=True),
        ]

    return layer(row_by_row, need=(lambda rows: (rows,)) if cuts else None, scratch=scratch)


def _matrices(op: npu.MatMul, graph: Graph, tensor: Tensors) -> Layer:
    """Two activations, or one and a constant, which lies among the constants; those whose matrices do not lie in natural
    order are brought into it in scratch memory."""
    x, b, y = tensor(op.x), tensor(op.weight), tensor(op.y)
    if op.bias is not None:
        raise NotHere("it is a product of two activations with a bias")
    batch = prod(y.shape[:-2])
    steps = []
    for one in (x, b):
        own = prod(one.shape[:-2])
        if own not in (1, batch):
            raise NotHere("its batch axes are broadcast in a way that one step cannot say")
        steps.append(0 if own == 1 and batch > 1 else one.shape[-1] * one.shape[-2])
    constants, count = _stage_of(op, graph)
    left, right = graph.constant(op.x), graph.constant(op.weight)
    inputs = tuple(one for one, array in ((x, left), (b, right)) if array is None)
    if left is not None:
        constants["x"] = np.ascontiguousarray(left.transpose(x.order))
    if right is not None:  # always read whole, so it is in natural order from the start
        constants["b"] = np.ascontiguousarray(right)
    places, size = layout(constants)
    from_x = ("in0", 0) if left is None else ("const", places["x"])
    from_b = (f"in{len(inputs) - 1}", 0) if right is None else ("const", places["b"])
    wide = x.shape[-1] * _largest(x) * _largest(b) >= 2**31
    x_natural, b_natural, y_natural = is_natural(x), right is not None or is_natural(b), is_natural(y)
    # Some rows of the matrices at a time: those of a picture, or of the only matrix.
    picture = x.is_picture and y.is_picture
    cuts = x.rows == y.rows == x.shape[-2] > 1 and (picture or (batch == 1 and len(y.shape) != 4))
    natural = (0, 1, 2, 3)

    def need(rows: Rows) -> tuple[Rows, ...]:
        wanted = ((rows, left), ((0, b.rows), right))
        return tuple(one for one, array in wanted if array is None)

    def sizes(part: int) -> tuple[int, int]:
        """Bytes of the first operand and of the result."""
        return (part * x.row_size, part * y.row_size) if cuts else (x.size, y.size)

    def places_in_scratch(part: int) -> tuple[int, int, int]:
        """Where the second operand and the result are, and the end of both; the first is at 0."""
        x_size, y_size = sizes(part)
        at_b = 0 if x_natural else aligned(x_size)
        at_y = at_b + (0 if b_natural else aligned(b.size))
        return at_b, at_y, at_y + (0 if y_natural else aligned(y_size))

    def draft(piece: Piece) -> list[Draft]:
        (r0, r1), i0 = piece.rows, piece.inputs[0][0] if left is None else 0
        part = r1 - r0
        rows = part if cuts else None
        offset = (r0 - piece.output[0]) * y.row_size
        given = from_x[0], from_x[1] + (r0 - i0) * x.row_size
        at_b, at_y, _ = places_in_scratch(part)
        a = given if x_natural else ("scratch", 0)
        second = from_b if b_natural else ("scratch", at_b)
        out = ("out0", offset) if y_natural else ("scratch", at_y)
        m = part if cuts else x.shape[-2]
        drafts = []
        if not x_natural:
            drafts.append(turned(x, natural, Place(*given), Place(*a), rows))
        if not b_natural:
            drafts.append(turned(b, natural, Place(*from_b), Place(*second)))
        fields = {
            **source(x, *a),
            "b": Place(*second), "b_dtype": DTYPES[b.dtype], "b_zero_point": b.zero_point,
            "batch": batch, "m": m, "k": x.shape[-1], "cols": y.shape[-1],
            "a_step": steps[0] // x.shape[-2] * m, "b_step": steps[1],
            "transposed_b": int(op.transpose_b), "wide": int(wide),
            **result(y, out[1], out[0]),
            **_stage_fields(op, places, count),
        }  # fmt: skip
        x_size, y_size = sizes(part)
        operands = ((a[0], a[1], a[1] + x_size), (second[0], second[1], second[1] + b.size))
        reads = (*(span for span in operands if span[0] != "const"), ("const", 0, size))
        drafts.append(Draft("matmul", "matrix", fields, reads, ((out[0], out[1], out[1] + y_size),)))
        if not y_natural:
            drafts.append(turned(y, natural, Place(*out), Place("out0", offset), rows, back=True))
        return drafts

    return Layer(
        name=y.name,
        kind="product",
        inputs=inputs,
        outputs=(y,),
        draft=draft,
        need=need if cuts else None,
        constants=lambda channels: constants,
        constant_size=lambda channels: size,
        scratch=lambda rows: places_in_scratch(rows[1] - rows[0])[2],
        source=op,
    )


def _largest(tensor: Any) -> int:
    low, high = LIMITS[tensor.dtype]
    return int(max(high - tensor.zero_point, tensor.zero_point - low))


def _stage_of(op: Any, graph: Graph) -> tuple[dict[str, Array], int]:
    """The parameters of an output stage as constants, and how many entries each has."""
    constants = _Linear(op, graph, None).constants((0, shape_of(op.y)[-1]))
    return constants, max(array.size for array in constants.values())


def _stage_fields(op: Any, places: dict[str, int], count: int) -> dict[str, Any]:
    return {
        "kind": KINDS[op.kind],
        "count": count,
        "multiplier": Place("const", places["multiplier"]) if "multiplier" in places else ABSENT,
        "shift": Place("const", places["shift"]) if "shift" in places else ABSENT,
        "zero_point": op.to.zero_point,
        "lo": op.lo,
        "hi": op.hi,
    }


class _Linear:
    """The constants of a layer with weights, cut by output channels."""

    def __init__(self, op: Any, graph: Graph, weight: Array | None) -> None:
        self.op = op
        self.weight = weight
        kind = quant_of(op.weight)
        # A constant that is an activation has its zero point in its type.
        self.zero_point = op.weight_zero_point if kind is None else kind.zero_point
        names = {"pow2": ("shift",), "float": ("factor",)}.get(op.kind, ("multiplier", "shift"))
        self.stage = {}
        for name in names:
            array = graph.constant(getattr(op, name))
            assert array is not None
            self.stage["multiplier" if name == "factor" else name] = array.astype(
                "<f4" if name == "factor" else "<i4"
            )
        self.single = all(array.size == 1 for array in self.stage.values())
        self._places: dict[Rows, tuple[dict[str, int], int]] = {}
        bias = graph.constant(op.bias)
        self.bias: Array | None = None
        self.wide = False
        if weight is not None:
            self.wide = _is_wide(op, weight.astype(np.int64) - self.zero_point, bias)
            if bias is not None:
                self.bias = bias.astype("<i8" if self.wide else "<i4")
            self.i4 = weight.dtype.name == "int4"
            self.w_dtype = {"int8": "i8", "uint8": "ui8", "int16": "i16", "int4": "i4"}[weight.dtype.name]

    def constants(self, channels: Rows) -> dict[str, Array]:
        """Those of some output channels."""
        part = slice(*channels) if channels[1] else slice(None)
        made: dict[str, Array] = {}
        if self.weight is not None:
            made["weight"] = _nibbles(self.weight[part]) if self.i4 else self.weight[part]
            if self.bias is not None:
                made["bias"] = self.bias[part]
        for name, array in self.stage.items():
            made[name] = array[part] if array.size > 1 else array
        return made

    def places(self, channels: Rows) -> tuple[dict[str, int], int]:
        """Where those lie, and the bytes of all."""
        if channels not in self._places:
            self._places[channels] = layout(self.constants(channels))
        return self._places[channels]

    def size(self, channels: Rows) -> int:
        """Bytes of those."""
        return self.places(channels)[1]

    def part(self, inputs: Rows) -> dict[str, Array]:
        """Those of some input channels: the last part goes through the output stage, the others leave their sums."""
        assert self.weight is not None
        weight = np.ascontiguousarray(self.weight[:, slice(*inputs)])
        made = {"weight": _nibbles(weight) if self.i4 else weight}
        if self.bias is not None and inputs[0] == 0:
            made["bias"] = self.bias
        return {
            **made,
            **(self.stage if inputs[1] == self.weight.shape[1] else {"shift": np.zeros(1, "<i4")}),
        }

    def sums(self) -> dict[str, Any]:
        """What a layer of one pixel is made of whose pieces are parts of its input channels."""
        assert self.weight is not None
        outputs, inputs = self.weight.shape[:2]
        return {
            "kind": "sums",
            "channels": inputs,
            "constants": self.part,
            "constant_size": lambda part: layout(self.part(part))[1],
            "sums": True,
            "sum_size": 4 * outputs,
        }

    def sum_draft(self, x: Tensor, y: Tensor) -> Any:
        """How such a piece is drafted; the rows of its operand count input channels."""
        assert self.weight is not None
        outputs, inputs = self.weight.shape[:2]

        def draft(piece: Piece) -> list[Draft]:
            (k0, k1), start = piece.channels, (piece.channels[0] - piece.inputs[0][0]) * x.itemsize
            places, size = layout(self.part(piece.channels))
            last, reads = k1 == inputs, [("in0", start, start + (k1 - k0) * x.itemsize), ("const", 0, size)]
            fields = {
                **source(x, offset=start),
                "n": 1, "h": 1, "w": 1, "c": k1 - k0, "out_h": 1, "out_w": 1,
                "kernel": (1, 1), "stride": (1, 1), "dilation": (1, 1), "pad": (0, 0),
                **self.fields(places, outputs),
                "transposed": 0, "groups": 1, "out_c": outputs, **result(y), "y_stride": outputs,
            }  # fmt: skip
            if k0 > 0:
                fields["bias"] = Place("before")
                reads.append(("before", 0, 4 * outputs))
            if not last:
                # Shifted by nothing, from the least to the greatest: the sums as they are.
                fields |= {
                    "y": Place("after"), "y_dtype": DTYPES["i32"], "s_dtype": DTYPES["i32"], "kind": KINDS["pow2"], "count": 1,
                    "zero_point": 0, "lo": -(2**31), "hi": 2**31 - 1,
                }  # fmt: skip
            made = ("out0", 0, y.size) if last else ("after", 0, 4 * outputs)
            return [Draft("conv", "matrix", fields, tuple(reads), (made,))]

        return draft

    def fields(self, places: dict[str, int], count: int) -> dict[str, Any]:
        """The fields of a conv instruction that name them."""
        return {
            **self._same,
            "weight": Place("const", places["weight"]),
            "bias": Place("const", places["bias"]) if "bias" in places else ABSENT,
            "count": 1 if self.single else count,
            "multiplier": Place("const", places["multiplier"]) if "multiplier" in places else ABSENT,
            "shift": Place("const", places["shift"]) if "shift" in places else ABSENT,
        }

    @cached_property
    def _same(self) -> dict[str, Any]:
        """The fields that all pieces have in common."""
        return {
            **_stage_fields(self.op, {}, 1),
            "w_dtype": DTYPES[self.w_dtype],
            "w_zero_point": self.zero_point,
            "wide": int(self.wide),
            "table": ABSENT,
            "s_dtype": DTYPES[self.op.to.dtype.name],
        }


def _is_wide(op: Any, centred: Array, bias: Array | None) -> bool:
    """Whether a sum could leave 32 bits: the same proof as the kernels' own."""
    kind = quantized(op.x)
    least, most = kind.dtype.limits
    largest = max(most - kind.zero_point, kind.zero_point - least)
    sums = np.abs(centred).reshape(centred.shape[0], -1).sum(1) * largest
    worst = sums + (np.abs(bias.astype(np.int64)) if bias is not None else 0)
    return bool((worst >= 2**31).any())


def _nibbles(weight: Array) -> Array:
    flat = weight.astype(np.int8).reshape(-1).view(np.uint8) & 15
    flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
    packed: Array = flat[0::2] | flat[1::2] << 4
    return packed
