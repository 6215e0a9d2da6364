"""Top IR as float TFLite, against the float engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.engine import FloatEngine
from npuc.export.tflite import TFLiteOptions
from npuc.flow import ImportOptions, import_model
from npuc.ir import top
from support.graphs import build, random_inputs
from support.judges.litert import assert_close_reals, codes, exported, run_reference

pytest.importorskip("ai_edge_litert")

Make = Callable[..., Any]
_RANDOM = np.random.default_rng(0)
_PLAIN = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}


def _w(*shape: int) -> Any:
    return _RANDOM.normal(size=shape).astype(np.float32)


_IMAGE = {"x": (1, 6, 7, 8)}
_TWO = {"a": (1, 6, 7, 8), "b": (6, 1, 1)}
NETWORKS: dict[str, tuple[dict[str, tuple[int, ...]], Make]] = {
    "conv": (_IMAGE, lambda b, x: b(top.Conv, x, _w(4, 6, 3, 3), _w(4), name="y", **_PLAIN)),
    "conv, limit": (
        _IMAGE,
        lambda b, x: b(top.Conv, x, _w(4, 6, 3, 3), None, name="y", relu=True, relu_limit=2.0, **_PLAIN),
    ),
    "depthwise": (_IMAGE, lambda b, x: b(top.Conv, x, _w(6, 1, 3, 3), _w(6), group=6, name="y", **_PLAIN)),
    "groups": (_IMAGE, lambda b, x: b(top.Conv, x, _w(4, 3, 3, 3), _w(4), group=2, name="y", **_PLAIN)),
    "deconv": (
        _IMAGE,
        lambda b, x: b(
            top.Deconv,
            x,
            _w(6, 4, 3, 3),
            _w(4),
            strides=(2, 2),
            pads=(1, 1, 1, 1),
            dilations=(1, 1),
            output_padding=(1, 1),
            name="y",
        ),
    ),
    "fully connected": ({"x": (3, 5)}, lambda b, x: b(top.MatMul, x, _w(5, 4), _w(4), relu=True, name="y")),
    "matmul": ({"a": (2, 3, 5), "b": (2, 5, 4)}, lambda b, u, v: b(top.MatMul, u, v, None, name="y")),
    "flattened": (
        _IMAGE,
        lambda b, x: b(
            top.MatMul,
            b(
                top.Reshape,
                b(top.Conv, x, _w(2, 6, 3, 3), None, name="c", **_PLAIN),
                shape=(1, 112),
                name="r",
            ),
            _w(112, 4),
            None,
            name="y",
        ),
    ),
    "where": (
        _TWO,
        lambda b, u, v: b(top.Where, b(top.Compare, u, v, mode="less", name="c"), u, v, name="y"),
    ),
    "logical": (
        _TWO,
        lambda b, u, v: b(
            top.Logical,
            b(top.Compare, u, v, mode="less", name="c"),
            b(top.Compare, u, v, mode="equal", name="d"),
            mode="or",
            name="y",
        ),
    ),
    "max pool": (
        _IMAGE,
        lambda b, x: b(
            top.MaxPool, x, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1), name="y"
        ),
    ),
    "average pool": (
        _IMAGE,
        lambda b, x: b(
            top.AvgPool, x, kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), name="y"
        ),
    ),
    "softmax": (_IMAGE, lambda b, x: b(top.Softmax, x, axis=1, name="y")),
    "log softmax": (_IMAGE, lambda b, x: b(top.LogSoftmax, x, axis=2, name="y")),
    "l2 norm": (_IMAGE, lambda b, x: b(top.L2Norm, x, axis=1, name="y")),
    "argmax": (_IMAGE, lambda b, x: b(top.ArgReduce, x, axis=1, name="y")),
    "bilinear": (_IMAGE, lambda b, x: b(top.Resize, x, sizes=(1, 6, 14, 11), mode="linear", name="y")),
    "nearest": (_IMAGE, lambda b, x: b(top.Resize, x, sizes=(1, 6, 14, 11), mode="nearest", name="y")),
    "prelu": (_IMAGE, lambda b, x: b(top.PRelu, x, _w(6, 1, 1), name="y")),
    "clip": (_IMAGE, lambda b, x: b(top.Clip, x, min=-0.5, max=1.0, name="y")),
    "cast": (_IMAGE, lambda b, x: b(top.Cast, x, to="i32", name="y")),
    "relu": (_IMAGE, lambda b, x: b(top.Relu, x, limit=1.0, name="y")),
    "scale": (_IMAGE, lambda b, x: b(top.Scale, x, _w(6), _w(6), relu=True, name="y")),
    "batch norm": (
        _IMAGE,
        lambda b, x: b(top.BatchNorm, x, _w(6), _w(6), _w(6), np.abs(_w(6)) + 0.1, name="y"),
    ),
    "layer norm": (_IMAGE, lambda b, x: b(top.LayerNorm, x, _w(7, 8), _w(7, 8), axis=2, name="y")),
    "rms norm": (_IMAGE, lambda b, x: b(top.RMSNorm, x, _w(8), None, name="y")),
    "instance norm": (_IMAGE, lambda b, x: b(top.InstanceNorm, x, _w(6), _w(6), name="y")),
    "group norm": (_IMAGE, lambda b, x: b(top.GroupNorm, x, _w(6), _w(6), groups=2, name="y")),
    "gather": (_IMAGE, lambda b, x: b(top.Gather, x, np.int64([[0, -1], [2, 2]]), axis=2, name="y")),
    "top k": (_IMAGE, lambda b, x: b(top.TopK, x, k=3, axis=1, name=("y", "z"))),
    "cumsum": (_IMAGE, lambda b, x: b(top.CumSum, x, axis=2, exclusive=True, name="y")),
    "attention": (
        {"q": (1, 2, 5, 4), "k": (1, 2, 6, 4), "v": (1, 2, 6, 3), "m": (5, 6)},
        lambda b, q, k, v, m: b(top.Attention, q, k, v, m, scale=0.5, name="y"),
    ),
    **{
        kind.name: (_TWO, lambda b, u, v, kind=kind: b(kind, u, v, name="y"))
        for kind in (top.Add, top.Sub, top.Mul, top.Div, top.Max, top.Min)
    },
    **{
        f"reduce {kind}": (
            _IMAGE,
            lambda b, x, kind=kind: b(top.Reduce, x, kind=kind, axes=(1, 3), name="y"),
        )
        for kind in ("mean", "sum", "max", "min", "prod")
    },
    **{
        kind.name: (_IMAGE, lambda b, x, kind=kind: b(kind, x, name="y"))
        for kind in (
            top.Sigmoid,
            top.Tanh,
            top.HardSwish,
            top.HardSigmoid,
            top.LeakyRelu,
            top.Elu,
            top.Gelu,
            top.SiLU,
            top.Mish,
            top.Softplus,
            top.Softsign,
            top.Exp,
            top.Abs,
            top.Neg,
            top.Floor,
            top.Ceil,
            top.Sin,
            top.Cos,
            top.Reciprocal,
        )
    },
}


@pytest.mark.parametrize("name", NETWORKS)
def test_close_to_the_float_engine(name: str) -> None:
    graph = build(*NETWORKS[name])
    assert assert_close_reals(graph, random_inputs(graph)) > 0


def test_a_whole_network(shared: Path) -> None:
    path = shared / "models" / "onnx" / "cifar10_resnet20.onnx"
    graph = import_model(path, ImportOptions(input_shapes={"input": (1, 3, 32, 32)}))
    feed = random_inputs(graph)
    expected = FloatEngine(graph, threads=1).run(feed)["logits"].ravel()
    actual = run_reference(exported(graph), feed)["logits"].ravel()
    cosine = expected @ actual / np.linalg.norm(expected) / np.linalg.norm(actual)
    assert cosine > 0.999999


def test_channels_last_ends() -> None:
    graph = build(*NETWORKS["conv"])
    assert codes(graph) == ["TRANSPOSE", "CONV_2D", "TRANSPOSE"]
    assert codes(graph, TFLiteOptions(channels_last=True)) == ["CONV_2D"]
    feed = random_inputs(graph)
    plain = run_reference(exported(graph), feed)["y"]
    turned = run_reference(
        exported(graph, TFLiteOptions(channels_last=True)),
        {"x": np.ascontiguousarray(feed["x"].transpose(0, 2, 3, 1))},
    )["y"]
    np.testing.assert_array_equal(turned.transpose(0, 3, 1, 2), plain)
