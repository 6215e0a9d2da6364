"""Calls of ops that have no integer form of their own and become others before or while they are quantized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npuc import lang
from npuc.arrays import Array

_RANDOM = np.random.default_rng(17)


def _values(*shape: int) -> Array:
    return _RANDOM.standard_normal(shape).astype(np.float32)


MATRIX = lang.input("m", (3, 8))
SERIES = lang.input("t", (1, 4, 9))
IMAGE = lang.input("p", (1, 4, 6, 5))
VOLUME = lang.input("v", (1, 3, 5, 6, 7))
INDICES = lang.input("i", (1, 5), "i64")

EXPANDED: dict[str, Callable[[], Any]] = {
    "cumsum": lambda: lang.cumsum(MATRIX, axis=1),
    "cumsum:channels": lambda: lang.cumsum(IMAGE, axis=1, reverse=True, exclusive=True),
    "cumsum:vector": lambda: lang.cumsum(lang.reduce(MATRIX, kind="mean", axes=(0,), keepdims=False), axis=0),
    "conv:volume": lambda: lang.conv(
        VOLUME, _values(4, 3, 3, 3, 3), _values(4), pads=1, strides=(2, 1, 2), relu=True
    ),
    "conv:grouped volume": lambda: lang.conv(VOLUME, _values(6, 1, 2, 3, 3), group=3, dilations=(2, 1, 1)),
    "conv:planes": lambda: lang.conv(VOLUME, _values(2, 3, 1, 3, 3)),
    "deconv:volume": lambda: lang.deconv(
        VOLUME, _values(3, 4, 3, 2, 3), _values(4), strides=(2, 1, 2), pads=(1, 0, 1, 0, 0, 1), output_padding=(1, 0, 0)
    ),
    "deconv:grouped volume": lambda: lang.deconv(VOLUME, _values(3, 2, 2, 2, 2), group=3, dilations=(2, 1, 1)),
    "max_pool:volume": lambda: lang.max_pool(VOLUME, kernel=(2, 3, 2), strides=2, pads=(0, 1, 0, 1, 1, 1)),
    "avg_pool:volume": lambda: lang.avg_pool(VOLUME, kernel=2, strides=2, pads=(0, 1, 0, 1, 1, 1)),
    "avg_pool:padded volume": lambda: lang.avg_pool(VOLUME, kernel=3, pads=1, count_include_pad=True),
    "mean of a volume": lambda: lang.reduce(VOLUME, kind="mean", axes=(2, 3, 4)),
    "pad:series": lambda: lang.pad(SERIES, pads=(0, 0, 2, 0, 0, 3), mode="reflect"),
    "pad:channels": lambda: lang.pad(IMAGE, pads=(0, 1, 1, 0, 0, 2, 0, 1), mode="edge"),
    "resize:cubic": lambda: lang.resize(IMAGE, sizes=(1, 4, 9, 13), mode="cubic"),
    "resize:antialias": lambda: lang.resize(IMAGE, sizes=(1, 4, 3, 4), mode="linear", antialias=True),
    "resize:symmetric": lambda: lang.resize(
        IMAGE, sizes=(1, 4, 3, 9), mode="linear", coordinates="half_pixel_symmetric"
    ),
    "resize:linear series": lambda: lang.resize(SERIES, sizes=(1, 4, 18), mode="linear"),
    "resize:linear volume": lambda: lang.resize(
        VOLUME, sizes=(1, 3, 10, 12, 9), mode="linear", coordinates="align_corners"
    ),
    "resize:nearest series": lambda: lang.resize(SERIES, sizes=(1, 4, 18), mode="nearest"),
    "resize:nearest volume": lambda: lang.resize(
        VOLUME, sizes=(1, 3, 10, 12, 9), mode="nearest", coordinates="asymmetric", rounding="floor"
    ),
    **{
        f"reduce:{kind}": (lambda kind=kind: lang.reduce(IMAGE, kind=kind, axes=(1, 3), keepdims=False))
        for kind in ("l1", "l2", "sum_square", "log_sum_exp")
    },
    "reduce:log_sum": lambda: lang.reduce(lang.exp(MATRIX), kind="log_sum", axes=(1,)),
    "grid_sample": lambda: lang.grid_sample(IMAGE, np.tanh(_values(1, 5, 7, 2))),
    "grid_sample:nearest": lambda: lang.grid_sample(
        IMAGE, _values(1, 5, 7, 2), mode="nearest", padding="border", align_corners=True
    ),
    "gather:matrix": lambda: lang.gather(SERIES, np.array([[0, 2], [3, -1]]), axis=1),
    "gather_elements": lambda: lang.gather_elements(MATRIX, np.array([[0, 2], [3, -1]]), axis=1),
    "gather_elements:run time": lambda: lang.gather_elements(
        lang.tanh(lang.input("r", (1, 8))), lang.input("j", (1, 5), "i64"), axis=1
    ),
    "gather_nd:run time": lambda: lang.gather_nd(lang.tanh(MATRIX), lang.input("j", (2, 1), "i64")),
    "reduce:prod": lambda: lang.reduce(lang.add(MATRIX, 0.5), kind="prod", axes=(1,), keepdims=False),
    "reduce:prod axes": lambda: lang.reduce(lang.add(SERIES, 0.5), kind="prod", axes=(0, 2)),
    "gather_nd": lambda: lang.gather_nd(IMAGE, np.array([[0, 1], [0, -1]])),
    "scatter_nd": lambda: lang.scatter_nd(
        MATRIX, np.array([[1]]), lang.tanh(lang.slice(MATRIX, offset=(0, 0), steps=(1, 1), shape=(1, 8)))
    ),
    "scatter_elements": lambda: lang.scatter_elements(MATRIX, np.array([[1, -1]]), _values(1, 2), axis=1),
    "scatter_nd:add": lambda: lang.scatter_nd(
        lang.tanh(MATRIX), np.array([[1], [0], [1]]), lang.sigmoid(lang.input("u", (3, 8))), reduction="add"
    ),
    "scatter_nd:zeros": lambda: lang.scatter_nd(
        np.zeros((4, 8), np.float32), np.array([[1], [3], [1]]), lang.sigmoid(lang.input("u", (3, 8))), reduction="add"
    ),
    "scatter_elements:max": lambda: lang.scatter_elements(
        lang.tanh(MATRIX), np.array([[1, -1, 1]]), lang.sin(lang.input("u", (1, 3))), axis=1, reduction="max"
    ),
    "scatter_elements:min": lambda: lang.scatter_elements(
        lang.tanh(MATRIX), np.array([[1, -1, 1]]), lang.sin(lang.input("u", (1, 3))), axis=1, reduction="min"
    ),
    "scale:series": lambda: lang.scale(SERIES, _values(4), _values(4)),
    "batch_norm:volume": lambda: lang.batch_norm(
        VOLUME, _values(3), _values(3), _values(3), np.ones(3, np.float32)
    ),
}  # fmt: skip
"""Those that a pass replaces."""


def _above(limit: float) -> Any:
    return lang.compare(lang.tanh(MATRIX), limit, mode="greater")


def _cost_volume() -> Any:
    """The likeness of an image to another one that is moved to the left by 0 to 2 columns."""
    first, second = lang.tanh(IMAGE), lang.sigmoid(IMAGE)
    padded = lang.pad(second, pads=(0, 0, 0, 0, 0, 0, 0, 2))
    moved = [lang.slice(padded, offset=(0, 0, 0, at), steps=(1,) * 4, shape=(1, 4, 6, 5)) for at in range(3)]
    return lang.concat([lang.reduce(lang.mul(first, each), kind="mean", axes=(1,)) for each in moved], axis=1)


LOWERED: dict[str, Callable[[], Any]] = {
    "div": lambda: lang.div(MATRIX, lang.add(lang.sigmoid(MATRIX), 0.5)),
    "div:negative": lambda: lang.div(MATRIX, lang.sub(lang.tanh(MATRIX), 2.0)),
    "div:number": lambda: lang.div(lang.add(lang.sigmoid(MATRIX), 0.5), lang.add(lang.abs(MATRIX), 1.5)),
    "cost volume": _cost_volume,
    "where:constant": lambda: lang.where(np.arange(8) > 3, MATRIX, lang.tanh(MATRIX)),
    "where:limit": lambda: lang.where(_above(0.1), MATRIX, lang.sigmoid(MATRIX)),
    "where:two": lambda: lang.where(
        lang.compare(lang.tanh(MATRIX), lang.sigmoid(MATRIX), mode="less"), MATRIX, 0.0
    ),
    "where:not": lambda: lang.where(lang.not_(_above(0.5)), 0.0, MATRIX),
    **{
        f"where:{mode}": (
            lambda mode=mode: lang.where(
                lang.logical(_above(-0.4), lang.not_(_above(0.5)), mode=mode), MATRIX, -0.5
            )
        )
        for mode in ("and", "or", "xor")
    },
    "cast": lambda: lang.mul(MATRIX, lang.cast(_above(0.0), to="f32")),
    "topk": lambda: lang.topk(lang.tanh(MATRIX), k=3)[0],
    "gather:embedding": lambda: lang.matmul(
        lang.gather(_values(20, 6), INDICES, axis=0), _values(6, 3)
    ),
    "gather:activation": lambda: lang.gather(lang.tanh(SERIES), lang.input("j", (3,), "i32"), axis=2),
    "gather:image": lambda: lang.gather(lang.tanh(IMAGE), lang.input("j", (3,), "i64"), axis=1),
}  # fmt: skip
"""Those that have a form of several integer ops."""
