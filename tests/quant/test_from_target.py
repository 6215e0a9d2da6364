"""What a target says about its arithmetic reaches the integer network, or is refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.calibration import calibrate
from npuc.calib.table import CalibrationTable
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.errors import QuantizationError
from npuc.flow import ImportOptions, import_model, quantize_network
from npuc.ir import Graph, npu, result_names, tensor_type, top, value_name
from npuc.ir.dtypes import quant_of
from npuc.quant import quantize
from npuc.quant.bias_correction import correct_biases
from npuc.quant.config import QuantizationConfig
from npuc.quant.from_target import fitted, misfit, scheme_for
from npuc.quant.parameters import bias_fits
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.target import Target, available, load_target

PRESETS = [file.name for file in available()]
DISTINCT = ("aries-like", "bm1684x-like", "dpuczdx8g-b4096-like", "edge-1t", "vipnano-like", "zhouyi-x1-like")
"""Presets that differ in their preferred arithmetic."""
RANGES = {"x": (-1.0, 1.0), "y": (-4.0, 4.0), "z": (0.0, 1.0)}


@pytest.fixture(scope="module")
def digits(root: Path) -> tuple[Graph, CalibrationTable, Array, Array]:
    with np.load(root / "examples/digits_samples.npz") as file:
        images, labels = file["image"], file["label"]
    graph = import_model(root / "examples/digits.onnx")
    return graph, calibrate(graph, [image[None] for image in images[:50]], threads=1), images, labels


@pytest.fixture
def target(tmp_path: Path) -> Any:
    """A preset with another arithmetic."""

    def make(arithmetic: str, base: str = "edge-4t") -> Target:
        path = tmp_path / "own.yaml"
        path.write_text(f"description: Own.\nextends: {base}\narithmetic:\n  {arithmetic}\n")
        return load_target(str(path))

    return make


def network(weight: Array, bias: Array | None = None, then: type[Any] | None = None) -> Graph:
    """A convolution of one pixel, and maybe a function of its result."""
    graph = Graph.empty([("x", tensor_type((1, weight.shape[1], 4, 4), "f32"))])
    values = [None if a is None else graph.add_weight(n, a) for n, a in (("w", weight), ("b", bias))]
    for op in values:
        if op is not None:
            graph.block.add_op(op)
    operands = [None if op is None else op.output for op in values]
    window = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1)}
    last: Any = top.Conv.make(graph.inputs[0].value, *operands, name="y", layer="conv", **window)
    graph.block.add_op(last)
    if then is not None:
        last = then.make(last.y, name="z")
        graph.block.add_op(last)
    graph.set_outputs([("out", last.results[0])])
    return graph


def some_weights(channels: int = 3) -> Array:
    return np.random.default_rng(0).normal(size=(channels, 4, 1, 1)).astype(np.float32)


def lowered(graph: Graph, machine: Target, config: QuantizationConfig | None = None) -> Graph:
    return quantize_network(graph, RANGES, config, machine).graph


def find(graph: Graph, kind: type[Any]) -> Any:
    return next(op for op in graph.ops if isinstance(op, kind))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_keeps_the_demo_network(digits: Any, name: str) -> None:
    graph, table, images, labels = digits
    done = quantize_network(graph, table, None, load_target(name))
    assert done.outcome.integer == len(done.outcome.layers) and done.graph.notes == []
    engine = IntegerEngine(done.graph)
    found = [engine.run({"image": image[None]})["logits"].argmax() for image in images]
    assert int(np.sum(np.array(found) == labels)) >= 195  # float: 197 of 200


@pytest.mark.parametrize(
    ("file", "shape", "floor"),
    [("cifar10_resnet20", (1, 3, 32, 32), 0.98), ("mobilenet_v2", (1, 3, 224, 224), 0.85)],
)
def test_every_arithmetic_takes_whole_networks(
    shared: Path, file: str, shape: tuple[int, ...], floor: float
) -> None:
    path = shared / f"models/onnx/{file}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    graph = import_model(path, ImportOptions(input_shapes={"input": shape}))
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    table = calibrate(graph, [x], "max", threads=1)
    inputs = {graph.inputs[0].name: x}
    exact = next(iter(FloatEngine(graph, threads=1).run(inputs).values())).astype(np.float64)
    for name in DISTINCT:
        done = quantize_network(graph, table, None, load_target(name))
        assert done.outcome.integer == len(done.outcome.layers), done.graph.notes
        ours = next(iter(IntegerEngine(done.graph).run(inputs).values())).astype(np.float64)
        cosine = float(np.vdot(ours, exact) / np.linalg.norm(ours) / np.linalg.norm(exact))
        assert cosine > floor, (name, cosine)


def test_the_bounds_of_a_target_are_the_schemes() -> None:
    zhouyi = scheme_for(load_target("zhouyi-x1-like"))
    assert (zhouyi.max_shift, zhouyi.multiplier_bits, zhouyi.bias_significant_bits) == (31, 15, 16)
    dpu = fitted(SCHEMES["pow2"], load_target("dpuczdx8g-b4096-like"))
    assert (dpu.min_shift, dpu.max_shift, dpu.bias_significant_bits) == (0, 16, 8)
    assert fitted(Scheme(bias_bits=20), load_target("edge-4t")).bias_bits == 20


def test_a_channel_without_weights_keeps_its_bias_under_small_shifts() -> None:
    # Its own scale would need a shift of 37, and above 31 the multiplier is 0: the bias would be lost.
    weight = some_weights()
    weight[1] = 0
    graph = network(weight, np.array([0.1, 1.5, 0.0], np.float32))
    config = QuantizationConfig(scheme={"per_channel": True, "activation_scales": "symmetric"})
    made = lowered(graph, load_target("zhouyi-x1-like"), config)
    assert made.notes == []
    found = IntegerEngine(made).run({"x": np.zeros((1, 4, 4, 4), np.float32)})["out"]
    np.testing.assert_allclose(found[0, :, 0, 0], [0.1, 1.5, 0.0], atol=0.02)


def test_weights_become_coarser_where_a_shift_would_be_too_large() -> None:
    weight = some_weights() * np.float32(1e-4)
    scheme = Scheme(**{**vars(SCHEMES["pow2"]), "max_shift": 9})
    made = quantize(network(weight), {**RANGES, "y": (-4.0, 4.0)}, scheme)
    shift = made.constant(find(made, npu.Conv).shift)
    assert made.notes == [] and shift is not None and shift.max() == 9


def test_shifts_to_the_left_need_a_target_that_has_them() -> None:
    # Products of steps of 1/128 and 1/32 cannot be told apart in steps of 2^-20.
    graph, ranges = network(some_weights()), {"x": (-1.0, 1.0), "y": (-1e-4, 1e-4)}
    assert quantize(graph, ranges, SCHEMES["pow2"]).notes == []
    bound = Scheme(**{**vars(SCHEMES["pow2"]), "min_shift": 0})
    made = quantize(graph, ranges, bound)
    # The position of the result moves to the finest that there is.
    shift = made.constant(find(made, npu.Conv).shift)
    assert shift is not None and shift.tolist() == [0]


@pytest.mark.parametrize("bits", [8, 16])
def test_biases_are_multiples_that_fit_their_significant_bits(target: Any, bits: int) -> None:
    bias = np.array([3.7, -0.01, 0.4], np.float32)
    machine = target(f"bias: {{significant_bits: {bits}}}")
    op = find(made := lowered(network(some_weights(), bias), machine), npu.Conv)
    integers, scale = made.constant(op.bias), made.constant(op.weight_scale)
    assert integers is not None and scale is not None
    unit = 2 ** max(int(np.abs(integers).max()).bit_length() - (bits - 1), 0)
    assert unit > 1 and not (integers % unit).any() and np.abs(integers // unit).max() < 2 ** (bits - 1)
    real = integers * scale * quant_of(op.x).scale  # type: ignore[union-attr]
    np.testing.assert_allclose(real, bias, atol=4 / 2 ** (bits - 1))


def test_corrected_biases_are_biases_of_the_target(digits: Any) -> None:
    graph, table, images, _ = digits
    done = quantize_network(graph, table, None, load_target("dpuczdx8g-b4096-like"))
    samples = [{"image": image[None]} for image in images[:8]]
    before = {name: done.graph.constant(op.bias) for name, op in convolutions(done.graph).items()}
    names = correct_biases(graph, done.graph, samples, 1, done.scheme_of)
    after = {name: done.graph.constant(op.bias) for name, op in convolutions(done.graph).items()}
    assert set(names) >= set(after) and any((before[name] != after[name]).any() for name in after)
    scheme = scheme_for(load_target("dpuczdx8g-b4096-like"))
    assert all(bias_fits(bias, scheme) for bias in after.values())


def convolutions(graph: Graph) -> dict[str, Any]:
    return {result_names(op)[0]: op for op in graph.ops if isinstance(op, npu.Conv)}


def test_sums_are_proved_for_the_targets_accumulator(target: Any) -> None:
    # 4 weights of up to 127 times 255 steps need 18 bits.
    narrow = target("accumulator: {bits: 16, wide_bits: null}\n  bias: {bits: 16, wide_bits: null}")
    reasons = lowered(network(some_weights()), narrow).float_reasons
    assert list(reasons) == ["y"] and "accumulator of 16 bits" in reasons["y"]
    wider = target("accumulator: {bits: 16, wide_bits: 24}\n  bias: {bits: 16, wide_bits: 24}")
    notes = lowered(network(some_weights()), wider).notes
    assert len(notes) == 1 and "y needs a wide accumulator" in notes[0]


@pytest.mark.parametrize(("entries", "integer"), [(256, True), (17, True), (16, False)])
def test_tables_have_the_entries_that_there_are(target: Any, entries: int, integer: bool) -> None:
    graph = network(some_weights(), then=top.Sigmoid)
    made = lowered(graph, target(f"tables: {{entries_8bit: {entries}, entries_16bit: 0}}"))
    assert any(isinstance(op, npu.Table) for op in made.ops) == integer
    assert integer or made.float_reasons == {"z": "its table needs 17 entries, and one may have 16"}
    wide = lowered(
        graph, target("tables: {entries_8bit: 256, entries_16bit: 0}"), QuantizationConfig(scheme="int16")
    )
    assert wide.float_reasons == {"z": "its table needs 17 entries, and one may have 0"}


def test_a_fixed_output_has_the_targets_scale(target: Any) -> None:
    machine = target("fixed_outputs: {sigmoid: {i8: {scale: 1/256, zero_point: -128}}}")
    kind = quant_of(find(lowered(network(some_weights(), then=top.Sigmoid), machine), npu.Table).y)
    assert kind is not None and (kind.scale, kind.zero_point) == (1 / 256, -128)
    free = quant_of(
        find(lowered(network(some_weights(), then=top.Sigmoid), load_target("edge-4t")), npu.Table).y
    )
    assert free is not None and free.scale != kind.scale


@pytest.mark.parametrize(
    ("kind", "words"),
    [("reshape", "keeps the scale of its operand"), ("depthwise_conv", "the IR has no op of this name")],
)
def test_fixed_outputs_that_cannot_be_are_refused(target: Any, kind: str, words: str) -> None:
    machine = target(f"fixed_outputs: {{{kind}: {{i8: {{scale: 1/256}}}}}}")
    with pytest.raises(QuantizationError, match=f"fixed output of '{kind}' as i8.*{words}"):
        lowered(network(some_weights()), machine)
    assert words in str(misfit(scheme_for(machine), machine))


@pytest.mark.parametrize("scheme", ["int8", "int8-symmetric", "int16"])
def test_a_narrow_range_of_activations_is_never_left(target: Any, scheme: str) -> None:
    graph = network(some_weights(), np.float32([-9, 9, 0]), top.Tanh)
    made = lowered(graph, target("activations: {range: narrow}"), QuantizationConfig(scheme=scheme))
    assert made.notes == []
    x = np.full((1, 4, 4, 4), -50, np.float32)
    found = IntegerEngine(made, fetch=ALL_TENSORS, raw=True).run({"x": x})
    assert found["x/quantized"].min() == np.iinfo(found["x/quantized"].dtype).min
    assert value_name(find(made, npu.Conv).x) == "x/narrowed" and "x/narrowed" in found
    for name, array in found.items():
        if array.dtype.kind == "i" and name != "x/quantized":
            assert array.min() > np.iinfo(array.dtype).min, name


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        ("half_away", [3, -3]),
        ("half_even", [2, -2]),
        ("half_up", [3, -2]),
        ("half_down", [2, -3]),
        ("half_zero", [2, -2]),
        ("floor", [2, -3]),
        ("ceil", [3, -2]),
        ("truncate", [2, -2]),
    ],
)
def test_constants_are_rounded_as_the_target_rounds(target: Any, rounding: str, expected: list[int]) -> None:
    weight = np.float32([127.0, 2.5, -2.5]).reshape(1, 3, 1, 1)
    made = lowered(network(weight), target(f"constant_rounding: {rounding}"))
    integers = made.constant(find(made, npu.Conv).weight)
    assert integers is not None and integers.reshape(-1).tolist() == [127, *expected]
    # Constants are rounded offline: what a user asks for is followed, whatever the target prefers.
    config = QuantizationConfig(options={"constant_rounding": rounding})
    asked = lowered(network(weight), target("constant_rounding: half_away"), config)
    np.testing.assert_array_equal(asked.constant(find(asked, npu.Conv).weight), integers)


def test_a_target_without_zero_points_gets_unsigned_activations_from_zero(target: Any) -> None:
    machine = target("activations: {formats: {i8: null, u8: [symmetric]}}")
    assert scheme_for(machine).unsigned_from_zero
    graph = network(np.abs(some_weights()), None, top.Sigmoid)
    made = quantize_network(graph, {"x": (0.0, 1.0), "y": (0.0, 4.0), "z": (0.0, 1.0)}, None, machine).graph
    kinds = [quant_of(value) for op in made.ops for value in op.results if quant_of(value) is not None]
    assert {(kind.dtype.name, kind.zero_point) for kind in kinds} == {("ui8", 0)}
    signed = lowered(
        graph,
        load_target("edge-4t"),
        QuantizationConfig(
            scheme="uint8", options={"activation_scales": "symmetric", "unsigned_from_zero": True}
        ),
    )
    assert {kind.dtype.name for op in signed.ops for v in op.results if (kind := quant_of(v))} == {
        "i8",
        "ui8",
    }
    x = np.random.default_rng(0).uniform(-1, 1, (1, 4, 4, 4)).astype(np.float32)
    real, ours = FloatEngine(graph).run({"x": x})["out"], IntegerEngine(signed).run({"x": x})["out"]
    np.testing.assert_allclose(ours, real, atol=0.02)


def test_scales_of_the_full_range_need_all_integers(target: Any) -> None:
    config = QuantizationConfig(options={"full_range": True})
    with pytest.raises(QuantizationError, match="leave out the most negative one"):
        lowered(network(some_weights()), target("weights: {range: narrow}"), config)
    made = lowered(network(some_weights()), target("weights: {range: full}"), config)
    assert find(made, npu.Conv) is not None


def test_a_target_whose_multipliers_cannot_be_used_is_refused(target: Any) -> None:
    machine = target("requantization: {kinds: [single], multiplier_bits: 31, max_shift: 16}")
    with pytest.raises(QuantizationError, match="31 bits and a shift of at most 16 make no factor below 1/2"):
        lowered(network(some_weights()), machine)


def test_a_target_of_floats_alone_gets_a_float_scheme(target: Any) -> None:
    formats = "{formats: {i8: null, u8: null, f32: null}}"
    machine = target(f"activations: {formats}\n  weights: {formats}", "bm1684x-like")
    scheme = scheme_for(machine)
    assert scheme == SCHEMES["f16"] and misfit(scheme, machine) is None
    assert misfit(SCHEMES["bf16"], load_target("edge-4t")) == "it does not compute with bf16"
