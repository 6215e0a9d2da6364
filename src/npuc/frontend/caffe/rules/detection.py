"""SSD's layers: boxes that are constants, and detections by ONNX's NonMaxSuppression on the CPU."""

from __future__ import annotations

from math import sqrt

import numpy as np

from npuc.arrays import Array
from npuc.frontend.caffe.message import CaffeMessage
from npuc.frontend.caffe.registry import CaffeContext, rule
from npuc.frontend.layered.context import NoForm
from npuc.ir import DYNAMIC, Value, shape_of, tensor_type, top

_MOST_IMAGES, _MOST_ROWS = 256, 1 << 20
_REASON = "the number of its results depends on data"
_MOST = 1 << 22
_MANY = 256


def _sizes(ctx: CaffeContext, given: CaffeMessage) -> list[tuple[float, float]]:
    """Width and height of the boxes of one pixel, in Caffe's order."""
    least, most = given.floats("min_size"), given.floats("max_size")
    if max(len(least), len(given.floats("aspect_ratio"))) > _MANY:
        raise ctx.invalid(f"{len(least)} sizes and {len(given.floats('aspect_ratio'))} aspect ratios")
    if not least or (most and len(most) != len(least)):
        raise ctx.invalid(f"{len(least)} values of min_size and {len(most)} of max_size")
    ratios = [1.0]
    for ratio in given.floats("aspect_ratio"):
        if ratio <= 0:
            raise ctx.invalid(f"an aspect ratio of {ratio}")
        if all(abs(ratio - known) >= 1e-6 for known in ratios):
            ratios += [ratio, 1 / ratio] if given.bool("flip", True) else [ratio]
    sizes = []
    for index, size in enumerate(least):
        sizes.append((size, size))
        if most:
            sizes.append((sqrt(size * most[index]),) * 2)
        sizes += [(size * sqrt(r), size / sqrt(r)) for r in ratios if abs(r - 1) >= 1e-6]
    return sizes


def _pair(given: CaffeMessage, name: str) -> tuple[float, float]:
    """Height and width."""
    both = given.float(name) if given.has(name) else 0.0
    suffix = name.replace("_size", "")
    return given.float(f"{suffix}_h", both), given.float(f"{suffix}_w", both)


@rule("PriorBox")
def prior_box(ctx: CaffeContext) -> Value:
    """A constant: boxes and variances for every pixel of the first bottom in the image that is the second."""
    given = ctx.parameters("prior_box_param")
    rows, columns = ctx.shape(0)[2:]
    height, width = _pair(given, "img_size")
    if not height or not width:
        height, width = ctx.shape(1)[2:]
    step_h, step_w = _pair(given, "step")
    step_h, step_w = step_h or height / rows, step_w or width / columns
    offset = given.float("offset", 0.5)
    sizes = np.array(_sizes(ctx, given), np.float32)
    if rows * columns * len(sizes) > _MOST:
        raise ctx.invalid(f"{rows * columns * len(sizes)} boxes")
    y, x = np.meshgrid(
        (np.arange(rows) + offset) * step_h, (np.arange(columns) + offset) * step_w, indexing="ij"
    )
    centre = np.stack([x, y], -1).astype(np.float32)[:, :, None]
    image = np.array([width, height], np.float32)
    boxes: Array = np.concatenate([(centre - sizes / 2) / image, (centre + sizes / 2) / image], -1)
    if given.bool("clip"):
        boxes = boxes.clip(0, 1)
    variance = given.floats("variance") or (0.1,)
    if len(variance) not in (1, 4):
        raise ctx.invalid(f"{len(variance)} variances")
    spread = np.broadcast_to(np.array(variance, np.float32), (boxes.size // 4, 4))
    table = np.stack([boxes.reshape(-1), spread.reshape(-1)])[None]
    return ctx.literal(table.astype(np.float32), "boxes")


def _decoded(ctx: CaffeContext, given: CaffeMessage, loc: Value) -> Value:
    """Offsets of ... x boxes x 4 to boxes: left, top, right, bottom."""
    count = shape_of(loc)[-2]
    table = ctx.reshape(ctx.value(2), (2, count, 4))
    prior, variance = (ctx.reshape(ctx.part(table, 0, i, 1), (count, 4)) for i in range(2))
    if not given.bool("variance_encoded_in_target"):
        loc = ctx.emit(top.Mul, loc, variance)
    code = given.enum("code_type", ("", "CORNER", "CENTER_SIZE", "CORNER_SIZE"), "CORNER")
    if code == "CORNER":
        return ctx.emit(top.Add, prior, loc)
    low, high = ctx.part(prior, 1, 0, 2), ctx.part(prior, 1, 2, 2)
    size = ctx.emit(top.Sub, high, low)
    axis = len(shape_of(loc)) - 1
    first, second = ctx.part(loc, axis, 0, 2), ctx.part(loc, axis, 2, 2)
    if code == "CORNER_SIZE":
        parts = [
            ctx.emit(top.Add, corner, ctx.emit(top.Mul, move, size))
            for corner, move in ((low, first), (high, second))
        ]
        return ctx.emit(top.Concat, parts, axis=axis)
    middle = ctx.emit(top.Mul, ctx.emit(top.Add, low, high), ctx.number(0.5))
    centre = ctx.emit(top.Add, ctx.emit(top.Mul, first, size), middle)
    half = ctx.emit(top.Mul, ctx.emit(top.Mul, ctx.emit(top.Exp, second), size), ctx.number(0.5))
    return ctx.emit(top.Concat, [ctx.emit(top.Sub, centre, half), ctx.emit(top.Add, centre, half)], axis=axis)


def _kept(ctx: CaffeContext, scores: Value, rows: Value, most: int) -> tuple[Value, Value]:
    """The `most` best of the detections, the best first."""
    open_end = tensor_type((DYNAMIC,), "f32")
    places = tensor_type((DYNAMIC,), "i64")
    (count,) = ctx.onnx("Shape", [scores], [tensor_type((1,), "i64")], _REASON)
    (count,) = ctx.onnx("Min", [count, ctx.integers(most)], [tensor_type((1,), "i64")], _REASON)
    scores, best = ctx.onnx("TopK", [scores, count], [open_end, places], _REASON)
    (rows,) = ctx.onnx("Gather", [rows, best], [tensor_type((DYNAMIC, 2), "i64")], _REASON)
    return scores, rows


def _detections(ctx: CaffeContext, given: CaffeMessage, boxes: Value, conf: Value, labels: Array) -> Value:
    """Rows of image, label, score and box, for boxes of (1 or classes) x n x 4 and scores of classes x n."""
    classes, count = shape_of(conf)
    suppress = given.message("nms_param")
    top_k = suppress.int("top_k", -1)
    if suppress.float("eta", 1.0) != 1:
        raise NoForm("its threshold changes from box to box")
    if shape_of(boxes)[0] == 1 and classes > 1:
        boxes = ctx.emit(top.Expand, boxes, shape=(classes, count, 4))
    if 0 < top_k < count:
        conf, places = ctx.emit_op(top.TopK, conf, k=top_k, axis=1).results
        where = ctx.reshape(places, (classes, top_k, 1))
        boxes = ctx.emit(top.GatherND, boxes, where, batch_dims=1)
        count = top_k
    least = given.float("confidence_threshold", float(np.finfo(np.float32).min))
    scores = ctx.reshape(conf, (classes, 1, count))
    operands = [
        boxes,
        scores,
        ctx.integers(count),
        ctx.literal(np.array([suppress.float("nms_threshold", 0.3)], np.float32)),
        ctx.literal(np.array([least], np.float32)),
    ]
    (selected,) = ctx.onnx("NonMaxSuppression", operands, [tensor_type((DYNAMIC, 3), "i64")], _REASON)
    (values,) = ctx.onnx("GatherND", [scores, selected], [tensor_type((DYNAMIC,), "f32")], _REASON)
    pair = tensor_type((DYNAMIC, 2), "i64")
    (rows,) = ctx.onnx("Gather", [selected, ctx.integers(0, 2)], [pair], _REASON, axis=1)
    most = given.int("keep_top_k", -1)
    if most > 0:
        values, rows = _kept(ctx, values, rows, most)
    (chosen,) = ctx.onnx("GatherND", [boxes, rows], [tensor_type((DYNAMIC, 4), "f32")], _REASON)
    (kinds,) = ctx.onnx(
        "Gather", [rows, ctx.integers(0)], [tensor_type((DYNAMIC, 1), "i64")], _REASON, axis=1
    )
    table = ctx.literal(labels, "labels")
    (named,) = ctx.onnx("GatherND", [table, kinds], [tensor_type((DYNAMIC, 2), "f32")], _REASON)
    (column,) = ctx.onnx("Unsqueeze", [values, ctx.integers(1)], [tensor_type((DYNAMIC, 1), "f32")], _REASON)
    kind = tensor_type((DYNAMIC, 7), "f32")
    return ctx.onnx("Concat", [named, column, chosen], [kind], _REASON, axis=1)[0]


@rule("DetectionOutput")
def detection_output(ctx: CaffeContext) -> Value:
    """Boxes decoded by plain ops, suppressed on the CPU; `keep_top_k` rows, zeros after the last; no adaptive threshold."""
    given = ctx.parameters("detection_output_param")
    classes, shared = given.int("num_classes"), given.bool("share_location", True)
    background = given.int("background_label_id")
    if ctx.count != 3 or classes < 1:
        raise NoForm(f"it has {ctx.count} inputs")
    batch = ctx.shape(0)[0]
    most = batch * given.int("keep_top_k", -1)
    if batch > _MOST_IMAGES or most > _MOST_ROWS or classes > _MOST_ROWS:
        raise ctx.invalid(f"{batch} images with {most} results of {classes} classes")
    count = int(np.prod(ctx.shape(2))) // 8
    groups = 1 if shared else classes
    loc = ctx.reshape(ctx.value(0), (batch, count, groups, 4))
    boxes = _decoded(ctx, given, ctx.emit(top.Permute, loc, order=(0, 2, 1, 3)))
    conf = ctx.emit(top.Permute, ctx.reshape(ctx.value(1), (batch, count, classes)), order=(0, 2, 1))
    labels = [label for label in range(classes) if label != background]
    if not labels:
        raise ctx.invalid("all of its classes are background")
    if len(labels) < classes:
        chosen = ctx.literal(np.array(labels, np.int64), "labels")
        conf = ctx.emit(top.Gather, conf, chosen, axis=1)
        boxes = boxes if shared else ctx.emit(top.Gather, boxes, chosen, axis=1)
        groups = 1 if shared else len(labels)
    rows = []
    for index in range(batch):
        own = ctx.reshape(ctx.part(boxes, 0, index, 1), (groups, count, 4))
        scores = ctx.reshape(ctx.part(conf, 0, index, 1), (len(labels), count))
        table = np.array([[index, label] for label in labels], np.float32)
        rows.append(_detections(ctx, given, own, scores, table))
    kind = tensor_type((DYNAMIC, 7), "f32")
    if most > 0:
        rows.append(ctx.literal(np.zeros((most, 7), np.float32), "none"))
    detections = rows[0] if len(rows) == 1 else ctx.onnx("Concat", rows, [kind], _REASON, axis=0)[0]
    if most > 0:
        operands = [detections, ctx.integers(0), ctx.integers(most), ctx.integers(0)]
        (detections,) = ctx.onnx("Slice", operands, [tensor_type((most, 7), "f32")], _REASON)
        return ctx.reshape(detections, (1, 1, most, 7))
    shape = ctx.integers(1, 1, -1, 7)
    return ctx.onnx("Reshape", [detections, shape], [tensor_type((1, 1, DYNAMIC, 7), "f32")], _REASON)[0]
