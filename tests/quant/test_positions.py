"""Scales that a machine can follow: positions that move where a shift is missing, and unsigned weights with a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.calib.sources import open_data
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import QuantizationError
from npuc.flow import compile_network, quantize_network, quantize_on_data, schemes_of
from npuc.ir import Graph, dtype_of, npu, top
from npuc.ir.definition import TopOp
from npuc.quant import quantize
from npuc.quant.config import QuantizationConfig
from npuc.quant.from_target import fitted
from npuc.quant.parameters import quantize_affine_weight
from npuc.quant.possible import contradiction
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.runtime.runner import Runner
from npuc.target import Target, load_target
from support.graphs import build
from support.programs.equal_modes import check

SHAPE = (1, 4, 6, 6)
DPU = load_target("dpuczdx8g-b4096-like")


def _samples(reach: float = 1.0, count: int = 6) -> list[dict[str, Array]]:
    random = np.random.default_rng(1)
    return [{"x": (reach * random.uniform(-1, 1, SHAPE)).astype(np.float32)} for _ in range(count)]


def _cancelling() -> Graph:
    """A convolution whose large weights cancel: its result is far finer than its products."""
    random = np.random.default_rng(0)
    one = random.normal(size=(6, 1, 1, 1)).astype(np.float32) * 4
    weight = np.concatenate([one, -one, one, -one], axis=1)
    x = lang.input("x", SHAPE)
    same = lang.conv(x, np.full((4, 4, 1, 1), 0.25, np.float32), np.zeros(4, np.float32), name="same")
    return lang.build({"y": lang.conv(same, weight, np.full(6, 1e-3, np.float32), name="fine")})


RANGES = {
    "x": (-1.0, 1.0),
    "same": (-1.0, 1.0),
    "fine": (-1e-3, 1e-3),
    "y": (-2e-3, 2e-3),
    "half": (-1e-3, 1e-3),
}


def test_a_result_finer_than_its_sum_moves_its_position() -> None:
    graph = _cancelling()
    scheme_of = schemes_of(graph, None, DPU)
    made = quantize(graph, RANGES, scheme_of)
    assert "top.conv" not in {op.name for op in made.ops}
    shifts = [made.constant(op.shift) for op in made.ops if isinstance(op, npu.Conv)]
    assert all(s.min() >= 0 and s.max() <= 16 for s in shifts if s is not None)


def test_without_a_limit_on_shifts_nothing_moves() -> None:
    graph = _cancelling()
    made = quantize(graph, RANGES, SCHEMES["pow2"])
    kinds = {op.y.type for op in made.ops if isinstance(op, npu.Conv)}
    assert len(kinds) == 2
    shifts = [made.constant(op.shift) for op in made.ops if isinstance(op, npu.Conv)]
    assert min(s.min() for s in shifts if s is not None) < 0


def test_additions_products_and_joins_follow() -> None:
    """A sum of coarse tensors that is fine itself, and a concat that asks for the fine scale."""
    x = lang.input("x", SHAPE)
    a = lang.conv(x, np.full((4, 4, 1, 1), 0.25, np.float32), np.zeros(4, np.float32), name="same")
    total = lang.sub(a, x, name="fine")
    graph = lang.build({"out": lang.concat([total, lang.mul(a, x, name="half")], axis=1, name="y")})
    made = quantize(graph, RANGES, schemes_of(graph, None, DPU))
    assert not any(op.name == "npu.dequantize" for op in list(made.ops)[:-1])


def test_such_a_network_runs_on_the_machine_and_keeps_its_accuracy() -> None:
    graph, samples = _cancelling(), _samples()
    done, _ = quantize_on_data(graph, open_data(graph, samples), target=DPU, threads=1)
    assert done.outcome.integer == 2, done.outcome.layers
    with Runner(compile_network(done.graph, DPU).model) as runner:
        np.testing.assert_array_equal(
            runner.run(samples[0])["y"], IntegerEngine(done.graph, threads=1).run(samples[0])["y"]
        )


# Unsigned weights with a zero point


def test_affine_weights_use_all_their_steps() -> None:
    real = np.random.default_rng(0).uniform(-0.2, 1.0, (8, 4, 3, 3))
    integers, scale, zero = quantize_affine_weight(real, SCHEMES["uint8-weights"])
    assert integers.dtype == np.uint8 and (integers.min(), integers.max()) == (0, 255)
    assert np.abs(scale[0] * (integers.astype(float) - zero) - real).max() <= 0.51 * scale[0]


@pytest.mark.parametrize(
    "changes", [{"weight": "ui8"}, {"weight_scales": "affine"}, {"weight": "ui8", "weight_scales": "affine"}]
)
def test_combinations_that_cannot_be(changes: dict[str, Any]) -> None:
    assert contradiction(Scheme(**changes)) is not None
    with pytest.raises(QuantizationError):
        QuantizationConfig(scheme=changes).resolve(_network())


def _network() -> Graph:
    random = np.random.default_rng(0)
    x = lang.input("x", SHAPE)
    y = lang.conv(
        x,
        random.uniform(-0.1, 0.5, (8, 4, 3, 3)).astype(np.float32),
        np.ones(8, np.float32),
        pads=1,
        relu=True,
        name="a",
    )
    y = lang.conv(
        y, random.normal(size=(8, 1, 3, 3)).astype(np.float32), np.ones(8, np.float32), group=8, name="b"
    )
    y = lang.reshape(y, shape=(1, 8 * 16), name="flat")
    y = lang.matmul(y, random.normal(size=(128, 5)).astype(np.float32) / 10, np.ones(5, np.float32), name="c")
    return lang.build({"y": y})


def _sqnr(graph: Graph, made: Graph) -> float:
    sample = _samples()[0]
    wanted = FloatEngine(graph, threads=1).run(sample)["y"].astype(np.float64)
    error = IntegerEngine(made, threads=1).run(sample)["y"] - wanted
    return float(10 * np.log10(np.square(wanted).sum() / np.square(error).sum()))


@pytest.mark.parametrize("scheme", ["uint8", "uint8-weights"])
def test_unsigned_weights_on_a_machine_that_has_no_others_for_unsigned_activations(scheme: str) -> None:
    graph, target = _network(), load_target("vipnano-like")
    config, samples = QuantizationConfig(scheme=scheme), _samples()
    done, _ = quantize_on_data(graph, open_data(graph, samples), config, target, threads=1)
    layers = [op for op in done.graph.ops if isinstance(op, npu.Conv | npu.MatMul)]
    assert {dtype_of(op.weight.type).name for op in layers} == {"ui8"} and len(layers) == 3
    assert any(op.weight_zero_point not in (0, 128) for op in layers)
    assert _sqnr(graph, done.graph) > 25
    compiled = compile_network(done.graph, target)
    assert not compiled.partition.reasons, compiled.partition.reasons
    with Runner(compiled.model) as runner:
        for sample in samples[:2]:
            expected = IntegerEngine(done.graph, threads=1).run(sample)["y"]
            np.testing.assert_array_equal(runner.run(sample)["y"], expected)


def test_a_target_with_signed_weights_keeps_them() -> None:
    assert fitted(SCHEMES["uint8"], load_target("edge-4t")).weight == "i8"
    assert quantize_network(
        _network(), {n: (-4.0, 4.0) for n in ("x", "a", "b", "flat", "c")}, QuantizationConfig(scheme="uint8")
    ).outcome.integer


def _no_shift_beyond(most: int) -> Target:
    data = DPU.to_dict()
    data["arithmetic"]["requantization"]["max_shift"] = most
    data["limits"] = {}  # products of two activations, too
    return Target.from_dict(data)


@pytest.mark.parametrize("kind", [top.Mul, top.Add, top.MatMul, top.AvgPool])
def test_a_result_coarser_than_the_greatest_shift_reads_a_coarser_operand(kind: type[TopOp]) -> None:
    """Products of two activations, and sums of one that is far finer: no weights that could be coarser."""
    window = {"kernel": [2, 2], "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1]}

    def layers(b: Any, x: Any, z: Any) -> Any:
        if kind is top.AvgPool:
            return b(kind, x, **window, name="y")
        operands = (x, z, None) if kind is top.MatMul else (x, z)
        return b(kind, *operands, name="y")

    graph = build({"x": SHAPE, "z": SHAPE}, layers)
    ranges = {"x": (-0.01, 0.01), "z": (-1.0, 1.0), "y": (-1.0, 1.0)}
    target = _no_shift_beyond(5)
    made = quantize(graph, ranges, fitted(SCHEMES["pow2"], target))
    assert made.float_reasons == {}
    done = check(made, target, 1)
    assert done is not None and "cpu" not in {part.device for part in done.partition.parts}
    assert [note for note in made.notes if note.startswith("y reads an operand at a coarser position")]
    rng = np.random.default_rng(3)
    inputs = {name: (ranges[name][1] * rng.uniform(-1, 1, SHAPE)).astype(np.float32) for name in "xz"}
    (expected,), (got,) = FloatEngine(graph).run(inputs).values(), IntegerEngine(made).run(inputs).values()
    assert np.abs(got - expected).max() < 0.05


@pytest.mark.parametrize("kind", ["mul", "sum", "mean"])
def test_a_double_rounding_whose_shift_leaves_32_bits_stays_float(kind: str) -> None:
    """It would wrap around: what is far below zero would come out as the largest value."""

    def layers(b: Any, x: Any) -> Any:
        if kind == "mul":
            return b(top.Mul, x, b(top.Abs, x, name="a"), name="y")
        return b(top.Reduce, x, kind=kind, axes=[1], keepdims=True, name="y")

    graph = build({"x": (1, 64, 6, 6)}, layers)
    ranges = {"x": (-100.0, 100.0), "a": (0.0, 100.0), "y": (-1e-5, 1e-5)}
    made = quantize(graph, ranges, SCHEMES["tflite"])
    assert "leaves 32 bits" in made.float_reasons["y"]
    ranges["y"] = (-1e4, 1e4)
    assert quantize(graph, ranges, SCHEMES["tflite"]).float_reasons == {}
