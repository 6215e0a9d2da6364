"""The heads of detectors, decoded: rows of centre x, centre y, width, height (as parts of the image), objectness, and a
probability for each class. Rows are ordered by row, column and anchor of their cell; nothing is thresholded or suppressed.

They are part of a network only where `--outputs` names them: exponentials are better left to floats.
"""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.frontend.darknet.registry import DarknetContext, rule
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, shape_of, top

_MAX_CELLS = 1 << 22


def _cells(rows: int, columns: int) -> Array:
    y, x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    return np.stack([x, y], -1).astype(np.float32).reshape(1, rows * columns, 1, 2)


def _split(ctx: DarknetContext, anchors: int, classes: int) -> list[Value]:
    """N x cells x anchors x (place, size, objectness, classes)."""
    n, channels, rows, columns = ctx.shape()
    if rows * columns > _MAX_CELLS:
        raise ctx.invalid(f"{rows * columns} cells")
    if anchors < 1 or channels != anchors * (5 + classes):
        raise ctx.invalid(f"{channels} channels for {anchors} anchors and {classes} classes")
    turned = ctx.emit(top.Permute, ctx.value(), order=(0, 2, 3, 1))
    table = ctx.reshape(turned, (n, rows * columns, anchors, 5 + classes))
    return list(ctx.emit_op(top.Split, table, axis=3, sizes=[2, 2, 1, classes]).results)


def _rows(ctx: DarknetContext, place: Value, size: Value, objectness: Value, classes: Value) -> Value:
    _, _, rows, columns = ctx.shape()
    parts = np.array([columns, rows], np.float32)
    moved = ctx.emit(top.Add, place, ctx.literal(_cells(rows, columns), "cells"))
    centre = ctx.emit(top.Mul, moved, ctx.literal(1 / parts, "cell"))
    scores = ctx.emit(top.Mul, classes, objectness)
    table = ctx.emit(top.Concat, [centre, size, objectness, scores], axis=3)
    n, cells, anchors, width = shape_of(table)
    return ctx.reshape(table, (n, cells * anchors, width))


def _anchors(ctx: DarknetContext, count: int) -> Array:
    sides = ctx.section.floats("anchors")
    if len(sides) < 2 * count:
        raise ctx.invalid(f"{len(sides)} numbers of anchors for {count} of them")
    return np.array(sides[: 2 * count], np.float32).reshape(-1, 2)


@rule("yolo")
def yolo(ctx: DarknetContext) -> Value:
    """With `mask`, `scale_x_y` and `new_coords`."""
    section = ctx.section
    classes = section.int("classes", 20, 0)
    total = section.int("num", 1, 1, 4096)
    mask = section.ints("mask") or tuple(range(total))
    if any(not 0 <= index < total for index in mask):
        raise ctx.invalid(f"mask={section.values['mask'][:60]} for {total} anchors")
    anchors = _anchors(ctx, total)[list(mask)]
    place, size, objectness, probabilities = _split(ctx, len(mask), classes)
    image = shape_of(ctx.scope.values["data"]) if "data" in ctx.scope.values else ()
    if len(image) == 4:
        image_size = np.array(image[:1:-1], np.float32)
    else:
        image_size = np.array([ctx.net.int("width"), ctx.net.int("height")], np.float32)
    relative = ctx.literal(anchors / image_size, "anchors")
    stretch = section.float("scale_x_y", 1.0)
    if section.int("new_coords"):
        doubled = ctx.emit(top.Mul, size, ctx.number(2.0))
        size = ctx.emit(top.Mul, ctx.emit(top.Mul, doubled, doubled), relative)
    else:
        size = ctx.emit(top.Mul, ctx.emit(top.Exp, size), relative)
        place, objectness, probabilities = (
            ctx.emit(top.Sigmoid, value) for value in (place, objectness, probabilities)
        )
    if stretch != 1:
        place = ctx.emit(top.Mul, place, ctx.number(stretch))
        place = ctx.emit(top.Sub, place, ctx.number((stretch - 1) / 2))
    return _rows(ctx, place, size, objectness, probabilities)


@rule("region")
def region(ctx: DarknetContext) -> Value:
    """With softmax or independent classes; anchors in cells; not with a tree of classes."""
    section = ctx.section
    if section.has("tree") or section.int("coords", 4) != 4:
        raise NoForm("a tree of classes, or other than four coordinates, is not known")
    classes, count = section.int("classes", 20, 0), section.int("num", 1, 1, 4096)
    _, _, rows, columns = ctx.shape()
    anchors = _anchors(ctx, count) / np.array([columns, rows], np.float32)
    place, size, objectness, probabilities = _split(ctx, count, classes)
    size = ctx.emit(top.Mul, ctx.emit(top.Exp, size), ctx.literal(anchors, "anchors"))
    place, objectness = ctx.emit(top.Sigmoid, place), ctx.emit(top.Sigmoid, objectness)
    if section.int("softmax"):
        probabilities = ctx.emit(top.Softmax, probabilities, axis=3)
    else:
        probabilities = ctx.emit(top.Sigmoid, probabilities)
    return _rows(ctx, place, size, objectness, probabilities)


@rule("detection")
def detection(ctx: DarknetContext) -> Value:
    """The first YOLO's table as it is; not with softmax."""
    if ctx.section.int("softmax"):
        raise NoForm("a softmax within the table is not known")
    return ctx.value()
