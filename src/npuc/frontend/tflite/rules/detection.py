"""TFLite_Detection_PostProcess, the custom operator behind SSD detectors, in parts.

Boxes are decoded by plain ops; the suppression is ONNX's NonMaxSuppression on the CPU, whose result is filled up with
nothing to the fixed number of detections that TFLite returns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.tflite.registry import Outcome, rule
from npuc.frontend.tflite.scope import DEPENDS_ON_DATA, TfliteContext
from npuc.frontend.tflite.view import guarded
from npuc.ir import DYNAMIC, Value, shape_of, tensor_type, top

_MOST = 1 << 16


class _Options:
    """The operator's flexbuffer."""

    def __init__(self, ctx: TfliteContext) -> None:
        from flatbuffers import flexbuffers

        with guarded(f"the options of {ctx.label}"):
            entries = flexbuffers.GetRoot(bytearray(ctx.op.custom)).AsMap
            self._values: dict[str, Any] = {
                key.AsKey: value.Value for key, value in zip(entries.Keys, entries.Values, strict=True)
            }
        self._label = ctx.label

    def number(self, name: str, default: float | None = None) -> Any:
        value = self._values.get(name, default)
        if not isinstance(value, int | float) or not np.isfinite(value):
            raise InvalidModelError(f"{self._label}: its option '{name}' is not a number")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        value = int(self.number(name, default))
        if not 1 <= value <= _MOST:
            raise InvalidModelError(f"{self._label}: its option '{name}' is {value}")
        return value


def _constant(ctx: TfliteContext, value: Any, dtype: Any = np.int64) -> Value:
    return ctx.literal(np.array(value, dtype), "constant")


def _part(ctx: TfliteContext, value: Value, begin: int, count: int) -> Value:
    """Entries of the last axis."""
    shape = shape_of(value)
    offset = (*(0,) * (len(shape) - 1), begin)
    return ctx.emit(top.Slice, value, offset=offset, steps=(1,) * len(shape), shape=(*shape[:-1], count)).y


def _decoded(ctx: TfliteContext, options: _Options) -> Value:
    """1 x N x 4 boxes: top, left, bottom, right."""
    encoded, anchors = ctx.real(0), ctx.real(2)
    centres, halves = [], []
    for axis, (place, size) in enumerate((("y_scale", "h_scale"), ("x_scale", "w_scale"))):
        anchor_at, anchor_size = _part(ctx, anchors, axis, 1), _part(ctx, anchors, axis + 2, 1)
        at = ctx.emit(top.Div, _part(ctx, encoded, axis, 1), ctx.number(options.number(place), encoded)).y
        centres.append(ctx.emit(top.Add, ctx.emit(top.Mul, at, anchor_size).y, anchor_at).y)
        scaled = ctx.emit(
            top.Div, _part(ctx, encoded, axis + 2, 1), ctx.number(options.number(size), encoded)
        ).y
        grown = ctx.emit(top.Mul, ctx.emit(top.Exp, scaled).y, anchor_size).y
        halves.append(ctx.emit(top.Mul, grown, ctx.number(0.5, encoded)).y)
    corners = [
        ctx.emit(kind, centre, half).results[0]
        for kind in (top.Sub, top.Add)
        for centre, half in zip(centres, halves, strict=True)
    ]
    return ctx.emit(top.Concat, corners, axis=2).y


def _suppressed(ctx: TfliteContext, boxes: Value, scores: Value, most: int, options: _Options) -> Value:
    """Rows of (batch, class, box), for scores of 1 x classes x N."""
    # TFLite keeps a score that equals the threshold, ONNX drops it.
    least = np.nextafter(np.float32(options.number("nms_score_threshold")), np.float32(-np.inf))
    operands = [
        boxes,
        scores,
        _constant(ctx, [most]),
        _constant(ctx, [options.number("nms_iou_threshold")], np.float32),
        _constant(ctx, [least], np.float32),
    ]
    return ctx.onnx("NonMaxSuppression", operands, [tensor_type((DYNAMIC, 3), "i64")], DEPENDS_ON_DATA)[0]


def _filled(ctx: TfliteContext, rows: Value, most: int, dtype: str, fill: float) -> Value:
    """Rows of a number that depends on data, with `most` more behind them."""
    width = shape_of(rows)[1:]
    more = ctx.literal(np.full((most, *width), fill, np.float32 if dtype == "f32" else np.int64), "none")
    types = [tensor_type((DYNAMIC, *width), dtype)]
    return ctx.onnx("Concat", [rows, more], types, DEPENDS_ON_DATA, {"axis": 0})[0]


def _first(ctx: TfliteContext, rows: Value, most: int, dtype: str) -> Value:
    width = shape_of(rows)[1:]
    operands = [rows, _constant(ctx, [0]), _constant(ctx, [most]), _constant(ctx, [0])]
    return ctx.onnx("Slice", operands, [tensor_type((most, *width), dtype)], DEPENDS_ON_DATA)[0]


def _column(ctx: TfliteContext, rows: Value, index: int) -> Value:
    return ctx.emit(top.Reshape, _part(ctx, rows, index, 1), shape=(shape_of(rows)[0],)).y


def _count(ctx: TfliteContext, rows: Value, most: int) -> Value:
    """The number of rows, at most `most`, as one float."""
    (shape,) = ctx.onnx("Shape", [rows], [tensor_type((2,), "i64")], DEPENDS_ON_DATA)
    number = ctx.emit(top.Cast, _part(ctx, shape, 0, 1), to="f32").y
    return ctx.emit(top.Min, number, _constant(ctx, [most], np.float32)).y


@rule("TFLite_Detection_PostProcess")
def detection_post_process(ctx: TfliteContext) -> list[Outcome]:
    """Box encodings, class scores and anchors to boxes, classes, scores and their number."""
    options = _Options(ctx)
    most = options.count("max_detections")
    classes = options.count("num_classes")
    if ctx.rank(0) != 3 or ctx.rank(1) != 3 or ctx.shape(0)[0] != 1 or ctx.shape(1)[2] < classes:
        raise InvalidModelError(f"{ctx.label}: its inputs are not one list of boxes and their scores")
    boxes = _decoded(ctx, options)
    scores = _part(ctx, ctx.real(1), ctx.shape(1)[2] - classes, classes)
    if options.number("use_regular_nms", 0):
        detections = _by_class(ctx, boxes, scores, most, options)
    else:
        detections = _at_once(ctx, boxes, scores, most, classes, options)
    rows, kinds, values, count = detections
    live = ctx.emit(top.Compare, _constant(ctx, np.arange(most), np.float32), count, mode="less").y
    mask = ctx.emit(top.Cast, live, to="f32").y
    each = shape_of(kinds)[0] // most
    if each > 1:
        wide = ctx.emit(top.Expand, ctx.emit(top.Reshape, mask, shape=(most, 1)).y, shape=(most, each)).y
        mask = ctx.emit(top.Reshape, wide, shape=(most * each,)).y
    flat = ctx.emit(top.Reshape, boxes, shape=shape_of(boxes)[1:]).y
    chosen = ctx.emit(top.Gather, flat, rows, axis=0).y
    total = most * each
    masked = ctx.emit(top.Mul, chosen, ctx.emit(top.Reshape, mask, shape=(total, 1)).y).y
    return [
        ctx.emit(top.Reshape, masked, shape=(1, total, 4)).y,
        *(
            ctx.emit(top.Reshape, ctx.emit(top.Mul, value, mask).y, shape=(1, total)).y
            for value in (kinds, values)
        ),
        count,
    ]


def _at_once(
    ctx: TfliteContext, boxes: Value, scores: Value, most: int, classes: int, options: _Options
) -> tuple[Value, Value, Value, Value]:
    """Suppression by the best score of a box, whatever its class."""
    each = min(options.count("max_classes_per_detection"), classes)
    best, kinds = ctx.emit(top.TopK, scores, k=each, axis=2).results
    number = shape_of(boxes)[1]
    leading = ctx.emit(top.Reshape, _part(ctx, best, 0, 1), shape=(1, 1, number)).y
    selected = _suppressed(ctx, boxes, leading, most, options)
    rows = _column(ctx, _first(ctx, _filled(ctx, selected, most, "i64", 0), most, "i64"), 2)

    def chosen(value: Value) -> Value:
        table = ctx.emit(top.Reshape, value, shape=(number, each)).y
        picked = ctx.emit(top.Gather, table, rows, axis=0).y
        return ctx.emit(top.Reshape, picked, shape=(most * each,)).y

    classes_of = ctx.emit(top.Cast, chosen(kinds), to="f32").y
    repeated = ctx.emit(top.Reshape, rows, shape=(most, 1)).y
    repeated = ctx.emit(top.Expand, repeated, shape=(most, each)).y
    repeated = ctx.emit(top.Reshape, repeated, shape=(most * each,)).y
    return repeated, classes_of, chosen(best), _count(ctx, selected, most)


def _by_class(
    ctx: TfliteContext, boxes: Value, scores: Value, most: int, options: _Options
) -> tuple[Value, Value, Value, Value]:
    """Suppression class by class, then the best of all."""
    turned = ctx.emit(top.Permute, scores, order=(0, 2, 1)).y
    selected = _suppressed(ctx, boxes, turned, options.count("detections_per_class", 100), options)
    values = ctx.onnx("GatherND", [turned, selected], [tensor_type((DYNAMIC,), "f32")], DEPENDS_ON_DATA)[0]
    filled = _filled(ctx, values, most, "f32", -1.0)
    best, places = ctx.onnx(
        "TopK",
        [filled, _constant(ctx, [most])],
        [tensor_type((most,), "f32"), tensor_type((most,), "i64")],
        DEPENDS_ON_DATA,
    )
    # An index beyond the rows that were found leads to a row of zeros behind them.
    rows = _filled(ctx, selected, most, "i64", 0)
    spread = ctx.emit(top.Reshape, places, shape=(most, 1)).y
    chosen = ctx.onnx("GatherND", [rows, spread], [tensor_type((most, 3), "i64")], DEPENDS_ON_DATA)[0]
    kinds = ctx.emit(top.Cast, _column(ctx, chosen, 1), to="f32").y
    return _column(ctx, chosen, 2), kinds, best, _count(ctx, selected, most)
