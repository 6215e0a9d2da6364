"""Weights of 2 to 16 bits and activations of 8 to 16: packed in memory, and the same bits in every mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arithmetic.dtypes import ACTIVATION_INTEGERS, WEIGHT_INTEGERS, dtype_of, pack_integers
from npuc.arrays import Array
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.errors import QuantizationError
from npuc.flow import quantize_network
from npuc.ir import Graph, load_graph, npu, save_graph, tensor_type, top, value_name
from npuc.ir import dtype_of as ir_dtype_of
from npuc.ir.dtypes import quant_of
from npuc.program.disassemble import lines, select
from npuc.quant import SCHEMES, quantize
from npuc.quant.config import QuantizationConfig
from npuc.quant.from_target import fitted
from npuc.quant.parameters import quantize_weight
from npuc.quant.scheme import Scheme
from npuc.sim import Simulator, simulate
from npuc.target import Target, load_target
from support.graphs import build
from support.networks.backend import add_widths, machine
from support.networks.two_convolutions import RANGES, network
from support.programs.equal_modes import check


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(2, 16), st.data())
def test_packing_is_a_stream_of_bits_from_the_lowest_up(bits: int, data: st.DataObject) -> None:
    half = 1 << (bits - 1)
    values = data.draw(st.lists(st.integers(-half, half - 1), max_size=20))
    stream = int.from_bytes(pack_integers(values, bits).tobytes(), "little")
    assert pack_integers(values, bits).size == (len(values) * bits + 7) // 8
    back = [(stream >> (i * bits)) & (2 * half - 1) for i in range(len(values))]
    assert [v - 2 * half if v >= half else v for v in back] == values


def reference(made: Graph, x: Array) -> Array:
    """The first convolution in int64, from the constants of the network."""
    conv = next(op for op in made.ops if isinstance(op, npu.Conv))
    weight = made.constant(conv.weight).astype(np.int64)
    kind, y = quant_of(conv.x), quant_of(conv.y)
    padded = np.pad(x.astype(np.int64) - kind.zero_point, ((0, 0), (0, 0), (1, 1), (1, 1)))
    sums = np.zeros((1, weight.shape[0], *x.shape[2:]), np.int64)
    for i in range(3):
        for j in range(3):
            patch = padded[:, :, i : i + x.shape[2], j : j + x.shape[3]]
            sums += np.einsum("nchw,oc->nohw", patch, weight[:, :, i, j])
    m, s = (made.constant(v).astype(object).reshape(-1, 1, 1) for v in (conv.multiplier, conv.shift))
    scaled = np.array((sums.astype(object) * m + (1 << (s - 1))) >> s, np.int64) + y.zero_point
    return np.clip(scaled, *dtype_of(y.dtype.name).limits)


@pytest.mark.parametrize("bits", range(2, 17))
def test_weights_of_every_width_are_exact(bits: int) -> None:
    activation = f"i{max(8, min(16, 22 - bits))}"  # 16 down to 8 bits
    scheme = Scheme(activation=activation, activation_scales="symmetric", weight=f"i{bits}")
    made = quantize(network(), RANGES, scheme)
    conv = next(op for op in made.ops if isinstance(op, npu.Conv))
    assert ir_dtype_of(conv.weight.type).name == f"i{bits}"
    integers = made.constant(conv.weight)
    least, most = scheme.weight_limits
    assert integers.min() == least or integers.max() == most
    x = {"x": np.random.default_rng(1).uniform(-2, 2, (1, 5, 7, 6)).astype(np.float32)}
    values = IntegerEngine(made, fetch=ALL_TENSORS, raw=True).run(x)
    operand = next(name for name in ("x/narrowed", "x/quantized") if name in values)
    np.testing.assert_array_equal(values["a"], reference(made, values[operand]))
    done = check(made, machine(8 << 10), 2)
    assert done is not None
    assert {ir_dtype_of(op.weight.type).name for op in made.ops if isinstance(op, npu.Conv)} == {f"i{bits}"}


@pytest.mark.parametrize("bits", range(9, 16))
@pytest.mark.parametrize("scales", ["symmetric", "power_of_two"])
def test_activations_never_leave_their_width(bits: int, scales: str) -> None:
    requant = "pow2" if scales == "power_of_two" else "single_rounding"
    scheme = replace(SCHEMES["dfp16"], activation_scales=scales, activation=f"i{bits}", requant=requant)
    graph = network()
    made = quantize(graph, RANGES, scheme)
    x = {"x": np.random.default_rng(2).uniform(-9, 9, (1, 5, 7, 6)).astype(np.float32)}
    values = IntegerEngine(made, fetch=ALL_TENSORS, raw=True).run(x)
    half = 1 << (bits - 1)
    for name in ("x/narrowed", "a", "b", "y"):
        assert -half <= values[name].min() and values[name].max() < half
    assert values["x/narrowed"].min() == -half and values["x/narrowed"].max() == half - 1  # saturated
    inside = {"x": x["x"] / 9}
    exact, ours = FloatEngine(graph).run(inside)["y"], IntegerEngine(made).run(inside)["y"]
    assert np.abs(ours - exact).max() < 40 * 2.0**-bits + 2e-3


def test_memory_shrinks_with_the_bits() -> None:
    target, sizes = machine(64 << 10), []
    for bits in (2, 3, 5, 8, 11, 16):
        made = quantize(network(), RANGES, Scheme(weight=f"i{bits}"))
        done = compile_program(made, target, CompileOptions(level=2))
        sizes.append(done.model.weights.nbytes)
        text = "\n".join(line for stream in select(done.model) for line in lines(done.model, stream))
        assert f":i{bits}" in text
    assert sizes == sorted(sizes)


def test_files_keep_the_width(tmp_path: Any) -> None:
    made = quantize(network(), RANGES, Scheme(activation="i11", activation_scales="symmetric", weight="i3"))
    save_graph(made, tmp_path / "n.mlir")
    again = load_graph(tmp_path / "n.mlir")
    x = {"x": np.random.default_rng(3).uniform(-1, 1, (1, 5, 7, 6)).astype(np.float32)}
    np.testing.assert_array_equal(IntegerEngine(again).run(x)["y"], IntegerEngine(made).run(x)["y"])
    conv = next(op for op in again.ops if isinstance(op, npu.Conv))
    assert ir_dtype_of(conv.weight.type).name == "i3" and quant_of(conv.y).dtype.name == "i11"


def test_a_target_without_a_width_refuses_it_in_words() -> None:
    graph = network()
    with pytest.raises(QuantizationError, match="it has no weights of type i5"):
        quantize_network(graph, RANGES, QuantizationConfig(options={"weight": "i5"}), load_target("edge-4t"))
    with pytest.raises(QuantizationError, match="cannot be 'i17'"):
        quantize_network(graph, RANGES, QuantizationConfig(options={"activation": "i17"}))


def test_a_target_may_prefer_odd_widths_and_have_no_others() -> None:
    data = load_target("edge-4t").model_dump(mode="json")
    data["arithmetic"]["activations"]["formats"] = {"i12": ["symmetric"]}
    data["arithmetic"]["weights"]["formats"] = {"i6": ["symmetric"]}
    data["compute"]["array"]["rates"] = {"i12": {"i6": "1/2"}}
    target = Target.from_dict(data)
    done = quantize_network(network(), RANGES, None, target)
    assert {layer.type for layer in done.outcome.layers} == {"i12"}
    compiled = check(done.graph, target, 2)
    assert compiled is not None and len(compiled.parts) == 1
    faster = {
        **data,
        "compute": {**data["compute"], "array": {**data["compute"]["array"], "rates": {"i12": {"i6": 1}}}},
    }
    cycles = [
        simulate(compile_program(done.graph, t).model).total for t in (target, Target.from_dict(faster))
    ]
    assert cycles[0] > cycles[1]


def test_widths_are_listed_once() -> None:
    assert set(WEIGHT_INTEGERS) | {"ui8"} >= set(ACTIVATION_INTEGERS)
    data = load_target("edge-4t").model_dump(mode="json")
    add_widths(data)
    assert set(Target.from_dict(data).arithmetic.weights.formats) >= set(WEIGHT_INTEGERS)
    assert quantize_weight(np.ones((1, 1)), 0, Scheme(weight="i2"))[0].tolist() == [[1]]


def test_simulators_agree_on_a_program_of_odd_widths() -> None:
    made = quantize(
        network(top.Relu), RANGES, Scheme(activation="i13", activation_scales="symmetric", weight="i7")
    )
    model = compile_program(made, machine(16 << 10)).model
    x = {"x": np.random.default_rng(4).uniform(-1, 1, (1, 5, 7, 6)).astype(np.float32)}
    np.testing.assert_array_equal(Simulator(model).run(x)["y"], IntegerEngine(made).run(x)["y"])


@pytest.mark.parametrize("bits", range(9, 17))
def test_the_border_of_a_pad_never_leaves_its_width(bits: int) -> None:
    graph = Graph.empty([("x", tensor_type((1, 3, 4, 5), "f32"))])
    pads = (0, 0, 1, 2, 0, 1, 0, 1)
    pad = top.Pad.make(graph.inputs[0].value, pads=pads, mode="constant", value=0.5, name="y")
    graph.block.add_op(pad)
    graph.set_outputs([("y", pad.y)])
    scheme = replace(SCHEMES["dfp16"], activation=f"i{bits}")
    made = quantize(graph, dict.fromkeys("xy", (-0.5, 0.5)), scheme)
    scale = 2.0**-bits  # 0.5 is one step more than the greatest number
    done = check(made, machine(8 << 10), 2)
    assert done is not None
    assert "pad" in {layer.kind for part in done.parts for layer in part.network.layers}
    y = Simulator(done.model).run({"x": np.zeros((1, 3, 4, 5), np.float32)})["y"]
    assert y.max() == 0.5 - scale


@pytest.mark.parametrize("scheme", [Scheme(activation="i10"), Scheme(narrow_activations=True)])
def test_reals_between_float_layers_never_leave_their_width(scheme: Scheme) -> None:
    only = replace(scheme, activation_scales="symmetric", classes=("activations",))
    made = quantize(network(), RANGES, only)
    x = {"x": np.random.default_rng(2).uniform(-9, 9, (1, 5, 7, 6)).astype(np.float32)}
    values = IntegerEngine(made, fetch=ALL_TENSORS, raw=True).run(x)
    read = [op.x for op in made.ops if isinstance(op, npu.Dequantize)]
    least, most = -127 if only.narrow_activations else -512, 127 if only.narrow_activations else 511
    assert len(read) >= 3
    for value in read:
        assert least <= values[value_name(value)].min() and values[value_name(value)].max() <= most


def functions() -> Graph:
    def layers(b: Any, x: Any) -> Any:
        return b(top.Tanh, b(top.Sigmoid, x, name="a"), name="b")

    return build({"x": (2, 30, 40)}, layers)


@pytest.mark.parametrize(
    ("scheme", "field", "entries", "size"),
    [
        ("int16", "entries_16bit", 4096, 2049),
        ("int16", "entries_16bit", 100, 65),
        ("int8", "entries_8bit", 200, 129),
    ],
)
def test_tables_have_the_size_that_the_target_states(
    scheme: str, field: str, entries: int, size: int
) -> None:
    data = machine(64 << 10).to_dict()
    data["arithmetic"]["tables"][field] = entries
    target, graph = Target.from_dict(data), functions()
    ranges = {"x": (-4.0, 4.0), "a": (0.0, 1.0), "b": (0.0, 0.8)}
    made = quantize(graph, ranges, fitted(SCHEMES[scheme], target))
    assert {op.table.type.get_shape() for op in made.ops if isinstance(op, npu.Table)} == {(size,)}
    done = check(made, target, 2)
    assert done is not None and "cpu" not in {part.device for part in done.partition.parts}
    x = {"x": np.random.default_rng(1).uniform(-4, 4, (2, 30, 40)).astype(np.float32)}
    error = np.abs(IntegerEngine(made).run(x)["y"] - FloatEngine(graph).run(x)["y"]).max()
    assert error < {2049: 6e-5, 65: 2e-3, 129: 1e-2}[size]
    # On the CPU and in other tools, the same integers.
    on_cpu = compile_program(made, target, CompileOptions(devices={"a": "cpu"}))
    np.testing.assert_array_equal(
        Simulator(on_cpu.model).run(x)["y"], IntegerEngine(made, raw=True).run(x)["y"]
    )
