"""TpuLang's operators beside those of torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuc.compat.tpumlir.tpulang as tpul
from npuc.errors import NetworkError

torch = pytest.importorskip("torch")
F = torch.nn.functional


def _constant(data: Any, dtype: str = "float32") -> Any:
    array = np.asarray(data)
    return tpul.Tensor(list(array.shape), data=array, dtype=dtype, ttype="coeff")


def _cases() -> tuple[list[Any], dict[str, tuple[Any, Any]]]:
    """Inputs, and by name what an operator builds and what torch has."""
    tpul.init("BM1684X")
    rng = np.random.RandomState(0)
    d, e = (rng.randn(1, 4, 6, 6).astype(np.float32) for _ in range(2))
    kernel = rng.randn(2, 1, 3, 3, 3).astype(np.float32)
    mixed = rng.randn(6, 4, 3, 3).astype(np.float32)
    x, z = (tpul.Tensor([1, 4, 6, 6], data=data) for data in (d, e))
    v = tpul.Tensor([1, 1, 4, 6, 6], data=d.reshape(1, 1, 4, 6, 6))
    X, Z, t = torch.tensor(d), torch.tensor(e), torch.tensor
    V, mean, variance = X[:, None], d[0, :, 0, 0], e[0, :, 0, 0] ** 2
    divisors = [1.0, 2.0, 3.0, 4.0]
    cases = {
        "gt": (tpul.gt(x, z), X > Z),
        "nes": (tpul.nes(x, 0.5), X != 0.5),
        "and_op": (tpul.and_op(tpul.relu(x), tpul.relu(z)), (X > 0) & (Z > 0)),
        "xors": (tpul.xors(tpul.relu(x), 1), X <= 0),
        "not_op": (tpul.not_op(tpul.relu(x)), X <= 0),
        "cond_select": (tpul.cond_select(tpul.relu(x), x, z), torch.where(X > 0, X, Z)),
        "select": (tpul.select(x, z, x, z, "Greater"), torch.maximum(X, Z)),
        "tan": (tpul.tan(x), X.tan()),
        "matmul": (tpul.matmul(x, z, right_transpose=True), X @ Z.transpose(2, 3)),
        "matmul turned": (
            tpul.matmul(x, z, input_transpose=True, output_transpose=True),
            (X.transpose(2, 3) @ Z).transpose(2, 3),
        ),
        "sinh": (tpul.sinh(x), X.sinh()),
        "cosh": (tpul.cosh(x), X.cosh()),
        "arccos": (tpul.arccos(tpul.tanh(x)), X.tanh().acos()),
        "arctanh": (tpul.arctanh(tpul.tanh(z)), Z),
        "log_sigmoid": (tpul.log_sigmoid(x), F.logsigmoid(X)),
        "pow": (tpul.pow(tpul.abs(x), 1.5), X.abs() ** 1.5),
        "pow of a number": (tpul.pow(2.0, x), 2**X),
        "copy": (tpul.copy(x), X),
        "broadcast": (
            tpul.broadcast(tpul.reduce(x, "ReduceMean", [2, 3]), [1, 4, 6, 6]),
            X.mean((2, 3), True).expand(1, 4, 6, 6),
        ),
        "repeat": (tpul.repeat(x, [1, 2, 1, 1]), X.repeat(1, 2, 1, 1)),
        "split": (tpul.split(x, 1, 2)[1], X[:, 2:]),
        "slice": (tpul.slice(x, [1, 0], [4, 5], [1, 2], [1, -1]), X[:, 1:4, :, 0:5:2]),
        "extract": (tpul.extract(x, [0, 0, 1, 1], [1, 4, 6, 5]), X[:, :, 1:6, 1:5]),
        "pad": (tpul.pad(x, "constant", 2.0, [0, 0, 1, 0, 0, 0, 2, 1]), F.pad(X, (0, 1, 1, 2), value=2.0)),
        "roll": (tpul.roll(x, [1, -2], [1, 3]), X.roll((1, -2), (1, 3))),
        "roll of all": (tpul.roll(x, 5), X.roll(5)),
        "topk": (tpul.topk(x, 3, 2)[0], X.topk(2, 3).values),
        "topk, places": (tpul.topk(x, 3, 2)[1], X.topk(2, 3).indices),
        "sort": (tpul.sort(x, -1, False)[0], X.sort(-1).values),
        "argsort": (tpul.argsort(x, 1), X.argsort(1, descending=True)),
        "index_select": (tpul.index_select(x, _constant([3, 1], "int32"), 1), X[:, [3, 1]]),
        "gather_elements": (tpul.gather_elements(x, _constant(np.ones((1, 1, 6, 6)), "int32"), 1), X[:, 1:2]),
        "scatter": (
            tpul.scatter(
                x, _constant(np.full((1, 1, 6, 6), 2), "int32"), tpul.extract(z, [0] * 4, [1, 1, 6, 6]), 1
            ),
            torch.cat([X[:, :2], Z[:, :1], X[:, 3:]], 1),
        ),
        "cumsum": (tpul.cumsum(x, 2), X.cumsum(2)),
        "cumsum along the last axis": (tpul.cumsum(x), X.cumsum(-1)),
        "maxpool2d, one pixel apart": (tpul.maxpool2d(x, [2, 2]), F.max_pool2d(X, 2, 1)),
        "maxpool2d of the whole image": (tpul.maxpool2d(x), X.amax((2, 3), True)),
        "avgpool2d with borders": (
            tpul.avgpool2d(x, [3, 3], [2, 2], [1, 1, 1, 1], count_include_pad=True),
            F.avg_pool2d(X, 3, 2, 1),
        ),
        "avgpool2d": (
            tpul.avgpool2d(x, [3, 3], None, [1, 1, 1, 1]),
            F.avg_pool2d(X, 3, 1, 1, count_include_pad=False),
        ),
        "deconv": (
            tpul.deconv(x, _constant(mixed), stride=[2, 2], pad=[1, 1, 1, 1]),
            F.conv_transpose2d(X, t(mixed).transpose(0, 1), stride=2, padding=1),
        ),
        "deconv of groups": (
            tpul.deconv(x, _constant(mixed[:, :2]), group=2),
            F.conv_transpose2d(
                X, t(mixed[:, :2]).reshape(2, 3, 2, 3, 3).transpose(1, 2).reshape(4, 3, 3, 3), groups=2
            ),
        ),
        "unsqueeze": (tpul.unsqueeze(x), X[:, None, None]),
        "reduce": (tpul.reduce(input=x), X.sum((1, 2), True)),
        "arg": (tpul.arg(x, "max", 1)[0], X.argmax(1, True)),
        "arg, values": (tpul.arg(x, "min", 3, False)[1], X.amin(3)),
        "swish": (tpul.swish(x, 1.7), X * (1.7 * X).sigmoid()),
        "hsigmoid": (tpul.hsigmoid(x), F.hardsigmoid(X)),
        "reshape, axes kept": (tpul.reshape(x, [0, -1, 6]), X.reshape(1, 24, 6)),
        "broadcast along some axes": (
            tpul.broadcast(tpul.reduce(x, "ReduceMean", [2, 3]), [1, 1, 6, 6]),
            X.mean((2, 3), True).expand(1, 4, 6, 6),
        ),
        "index_select without the axis": (
            tpul.index_select(x, _constant([3], "int32"), 1, keep_dims=False),
            X[:, 3],
        ),
        "matmul with a limit": (tpul.matmul(x, z, do_relu=True, relu_limit=1.5), (X @ Z).clamp(0, 1.5)),
        "concat": (tpul.concat([x, z], axis=1), torch.cat([X, Z], 1)),
        "concat, axis behind": (tpul.concat([x, z], 1), torch.cat([X, Z], 1)),
        "gts": (tpul.gts(x, scalar_i1=0.5), X > 0.5),
        "upsample": (tpul.upsample(x, 2), F.interpolate(X, scale_factor=2)),
        "interpolate": (
            tpul.interpolate(x, 2, 2, "linear"),
            F.interpolate(X, scale_factor=2, mode="bilinear"),
        ),
        "batch_norm": (
            tpul.batch_norm(x, _constant(mean), _constant(variance)),
            F.batch_norm(X, t(mean), t(variance)),
        ),
        "layer_norm": (tpul.layer_norm(x, axis=2), F.layer_norm(X, (6, 6))),
        "group_norm": (tpul.group_norm(x, num_groups=2), F.group_norm(X, 2)),
        "rms_norm": (tpul.rms_norm(x), X / ((X**2).mean(-1, keepdim=True) + 1e-5).sqrt()),
        "normalize": (tpul.normalize(x), F.normalize(X)),
        "mean_std_scale": (tpul.mean_std_scale(x, divisors, [1] * 4), (X - 1) / t(divisors).view(1, 4, 1, 1)),
        "conv3d": (
            tpul.conv3d(v, _constant(kernel), pad=[1, 1, 0, 1, 1, 0]),
            F.conv3d(F.pad(V, (1, 0, 0, 1, 1, 1)), t(kernel)),
        ),
        "maxpool3d": (tpul.maxpool3d(v, 2), F.max_pool3d(V, 2)),
        "avgpool3d": (tpul.avgpool3d(v, 2), F.avg_pool3d(V, 2)),
    }
    return [x, z, v], cases


def test_operators_are_those_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inputs, cases = _cases()
    tpul.compile("several", inputs, [built for built, _ in cases.values()])
    tensors = np.load("several_top_outputs.npz")
    for name, (built, expected) in cases.items():
        np.testing.assert_allclose(tensors[built.name], expected.numpy(), rtol=1e-4, atol=2e-5, err_msg=name)


def test_wrong_arguments_are_told() -> None:
    tpul.init("BM1684X")
    x = tpul.Tensor([1, 4, 6, 6])
    for call, words in (
        (lambda: tpul.split(x, 1, 3), "3 parts of .1, 1, 1. do not make 4"),
        (lambda: tpul.select(x, x, x, x, "Near"), "no comparison 'Near'"),
        (lambda: tpul.pad(x, "circular", padding=[0] * 8), "no border 'circular'"),
        (lambda: tpul.interpolate(x, 2, 2, "cubic"), "no interpolation 'cubic'"),
        (lambda: tpul.maxpool3d(x, 2, pad=[1]), "is not .front, back"),
    ):
        with pytest.raises(NetworkError, match=words):
            call()
    with pytest.raises(AttributeError, match="'yuv2rgb' is not supported here"):
        tpul.yuv2rgb  # noqa: B018
