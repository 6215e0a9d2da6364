"""Quantization-aware training: the module in eval mode is graph mode and the compiled program, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.engine import IntegerEngine
from npuc.ir import Graph, npu, top
from npuc.quant.config import QuantizationConfig
from npuc.train.data import TrainingData
from npuc.train.options import TrainingOptions
from support.graphs import Builder, build
from support.networks.backend import machine
from support.programs.equal_modes import check

torch = pytest.importorskip("torch")

import npuc.train  # noqa: E402

ARITHMETICS: dict[str, dict[str, Any]] = {
    "single": {"requant": "single_rounding"},
    "even": {
        "requant": str(next(kind for kind in Kind if kind.rounding == "half_even" and kind.has_multiplier))
    },
    "double": {"requant": "double_rounding"},
    "float_scale": {"requant": "float_scale"},
    "pow2": {
        "requant": "pow2",
        "activation_scales": "power_of_two",
        "weight_scales": "power_of_two",
        "per_channel": False,
    },
}
WIDTHS = {
    "w8a8": {},
    "w4a8": {"weight": "i4"},
    "w4a4": {"weight": "i4", "activation": "i4"},
    "w2a4": {"weight": "i2", "activation": "i4", "narrow_weights": False},
    "w8a16": {"activation": "i16", "activation_scales": "symmetric"},
}


def drawn(seed: int) -> Graph:
    """A small classifier: convolutions, some grouped, residuals, concats, pools and functions, in a random order."""
    random = np.random.default_rng(seed)

    def convolution(
        b: Builder, x: Any, channels: int, outputs: int, group: int = 1, relu: bool = True
    ) -> Any:
        kernel = random.normal(0, 0.5, (outputs, channels // group, 3, 3)).astype("f4")
        bias = random.normal(0, 0.2, outputs).astype("f4")
        return b(
            top.Conv, x, kernel, bias, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=group, relu=relu,
            relu_limit=0.0, name=f"conv{len(list(b.graph.ops))}",
        )  # fmt: skip

    def layers(b: Builder, x: Any) -> Any:
        y, channels = convolution(b, x, 3, 4), 4
        for step in range(int(random.integers(2, 4))):
            name = f"step{step}"
            match int(random.integers(0, 5)):
                case 0:
                    y = b(top.Add, y, convolution(b, y, channels, channels, relu=False), relu=True, name=name)
                case 1:
                    y = b(top.Concat, [y, convolution(b, y, channels, 2)], axis=1, name=name)
                    channels += 2
                case 2:
                    y = b(
                        top.MaxPool,
                        y,
                        kernel=(2, 2),
                        strides=(1, 1),
                        pads=(0, 0, 1, 1),
                        dilations=(1, 1),
                        name=name,
                    )
                case 3:
                    y = b(
                        top.HardSwish, convolution(b, y, channels, channels, channels, relu=False), name=name
                    )
                case _:
                    y = convolution(b, y, channels, channels, 2)
        y = b(top.AvgPool, y, kernel=(6, 6), strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), name="pool")
        y = b(top.Reshape, y, shape=(1, channels), name="flat")
        return b(
            top.MatMul, y, random.normal(0, 0.5, (channels, 3)).astype("f4"), np.zeros(3, "f4"), name="logits"
        )

    return build({"x": (1, 3, 6, 6)}, layers)


def samples(count: int = 48) -> TrainingData:
    random = np.random.default_rng(7)
    labels = random.integers(0, 3, count)
    images = random.normal(0, 0.5, (count, 3, 6, 6)).astype("f4")
    images[np.arange(count), labels] += 1
    return TrainingData((images,), labels)


def compare(qat: Any, x: Array, *, compiled: bool = True) -> Graph:
    """Eval mode against graph mode and against the compiled program."""
    graph = qat.export()
    engine = IntegerEngine(graph)
    expected = np.concatenate([engine.run({"x": row[None]})[graph.outputs[0].name] for row in x])
    qat.eval()
    np.testing.assert_array_equal(qat(torch.from_numpy(x)).numpy(), expected)
    if compiled:
        assert check(graph, machine(64 << 10), 1) is not None
    return graph


def config(arithmetic: str, width: str) -> QuantizationConfig:
    scheme = WIDTHS[width] | ARITHMETICS[arithmetic]
    return QuantizationConfig.model_validate({"scheme": scheme})


CASES = [(a, w) for a in ARITHMETICS for w in WIDTHS]


def trained_equals(seed: int, arithmetic: str, width: str) -> None:
    data = samples()
    qat = npuc.train.prepare(drawn(seed), data, target=None, config=config(arithmetic, width))
    first = compare(qat, data.inputs[0][:5], compiled=False)
    assert any(isinstance(op, npu.Conv) for op in first.ops), first.float_reasons
    assert not first.float_reasons
    before = [p.detach().clone() for p in qat.parameters()]
    npuc.train.fit(
        qat,
        data,
        None,
        TrainingOptions(epochs=2, batch=16, rate=0.01, clip=1.0),
        parameters=qat.parameter_groups(),
    )
    assert any(not torch.equal(p, q) for p, q in zip(qat.parameters(), before, strict=True))
    compare(qat, data.inputs[0][:5])


@pytest.mark.parametrize(("arithmetic", "width"), CASES)
def test_eval_mode_is_graph_mode_and_the_program(arithmetic: str, width: str) -> None:
    trained_equals(CASES.index((arithmetic, width)), arithmetic, width)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_eval_mode_is_graph_mode_and_the_program_for_more_networks(seed: int) -> None:
    random = np.random.default_rng(seed)
    trained_equals(seed, *CASES[int(random.integers(len(CASES)))])
