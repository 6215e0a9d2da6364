"""Every op that the TFLite exporter knows, against LiteRT's reference kernels, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuc.arithmetic.tflite import function_table
from npuc.engine.handlers import arithmetic
from npuc.export.tflite.model import TFLiteModel, TFLiteOperator, TFLiteQuantization, TFLiteTensor, serialize
from npuc.ir.dtypes import QuantType
from npuc.kernels import Requant
from support.judges.litert import run_reference
from support.judges.litert_draws import CASES, judge

pytest.importorskip("ai_edge_litert")


@pytest.mark.parametrize("name", CASES)
def test_equal_bits(name: str) -> None:
    networks, outputs = judge(name, 25)
    assert networks >= 25 and outputs > 0


def test_a_judge_that_can_say_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product with another zero point in graph mode is found."""
    right = arithmetic.flat_stage

    def wrong(op: object) -> Requant:
        stage = right(op)
        return replace(stage, zero_point=stage.zero_point ^ 1)

    monkeypatch.setattr(arithmetic, "flat_stage", wrong)
    with pytest.raises(AssertionError):
        judge("mul", 5, shrink=False)


OWN = (("sigmoid", "LOGISTIC"), ("tanh", "TANH"), ("exp", "EXP"), ("hard_swish", "HARD_SWISH"))
"""Functions whose tables the lowering makes as LiteRT makes them."""


@pytest.mark.parametrize(("function", "code"), OWN)
def test_whole_tables(function: str, code: str) -> None:
    """All 256 entries, over scales that reach from fine to coarse."""
    generator = np.random.default_rng(7)
    fixed = {"sigmoid": (1 / 256, -128), "tanh": (1 / 128, 0)}
    compared = 0
    for _ in range(60):
        x, y = (
            (float(np.float32(10 ** generator.uniform(-3, 0))), int(generator.integers(-128, 128)))
            for _ in range(2)
        )
        y = fixed.get(function, y)
        entries = function_table(function, (), QuantType.of("i8", *x), QuantType.of("i8", *y))
        if entries is None:
            continue
        model = TFLiteModel()
        for name, (scale, zero) in (("x", x), ("y", y)):
            model.tensors.append(TFLiteTensor(name, (256,), "i8", TFLiteQuantization((scale,), (zero,))))
        model.inputs["x"], model.outputs["y"] = model.tensors
        number = 1 if code == "HARD_SWISH" else 2
        model.operators.append(TFLiteOperator(code, number, model.tensors[:1], model.tensors[1:]))
        codes = np.arange(-128, 128).astype(np.int8)
        np.testing.assert_array_equal(run_reference(serialize(model), {"x": codes})["y"], entries)
        compared += 1
    assert compared > 40
