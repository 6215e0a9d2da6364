"""Ops that are made of others on `edge-4t`: wholly on the NPU, the same bits in both modes, and close to ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from npuc import flow, lang
from npuc.calib.random_inputs import random_inputs
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.errors import NpucError
from npuc.ir import Graph, npu, top, value_name
from npuc.ir.dtypes import quant_of
from npuc.partition import partition
from npuc.quant import SCHEMES, quantize
from npuc.sim import Simulator
from npuc.target import load_target
from npuc.transform import canonicalize
from support.networks.backend import machine
from support.networks.composite_ops import EXPANDED, LOWERED, MATRIX, SERIES
from support.programs.equal_modes import check
from support.programs.host_models import file_of, run_in_c

TARGET = load_target("edge-4t")


def float_network(outputs: Any) -> Graph:
    return flow.expanded(canonicalize(lang.build({"y": outputs})))


def observed_ranges(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    tensors = FloatEngine(graph, ALL_TENSORS, threads=1).run(inputs) | dict(inputs)
    return {
        name: (float(array.min()), float(array.max()))
        for name, array in tensors.items()
        if array.dtype == np.float32
    }


@pytest.mark.parametrize("name", [*EXPANDED, *LOWERED])
def test_it_runs_on_the_npu(name: str) -> None:
    graph = float_network((EXPANDED | LOWERED)[name]())
    inputs = random_inputs(graph, 1)
    integers = flow.quantize_network(graph, observed_ranges(graph, inputs), target=TARGET).graph
    assert {part.device for part in partition(integers, TARGET, island_threshold=0).parts} <= {
        "npu",
        "convert",
    }
    expected = FloatEngine(graph, threads=1).run(inputs)["y"]
    got = IntegerEngine(integers).run(inputs)["y"]
    differ = np.abs(got - expected) > 0.02 * np.abs(expected).max()
    assert differ.sum() <= (2 if "where" in name else 0)  # a value next to a limit may be on its other side
    assert check(integers, TARGET, 2) is not None
    check(integers, machine(2 << 10), 0)


_EIGHT_BITS = sorted(
    name for name, scheme in SCHEMES.items() if scheme.needs_ranges and scheme.activation in ("i8", "ui8")
)


@pytest.mark.parametrize("scheme", _EIGHT_BITS)
def test_a_choice_is_one_of_its_sides_to_the_bit(scheme: str) -> None:
    graph = float_network(LOWERED["where:limit"]())
    inputs = random_inputs(graph, 1)
    integers = quantize(graph, observed_ranges(graph, inputs), SCHEMES[scheme])
    values = IntegerEngine(integers, ALL_TENSORS, raw=True).run(inputs)
    (choice,) = [op for op in integers.ops if isinstance(op, npu.Add)]
    mask, first = (values[value_name(value)] for value in choice.a.owner.operands)
    opposite, second = (values[value_name(value)] for value in choice.b.owner.operands)
    assert set(np.unique(mask)) == {0, 1} and np.array_equal(opposite, 1 - mask)
    np.testing.assert_array_equal(values[value_name(choice.y)], np.where(mask == 1, first, second))


@pytest.mark.parametrize("mode", ["equal", "less", "less_equal", "greater", "greater_equal"])
@pytest.mark.parametrize("first", ["number", "tensor"])
def test_integers_of_one_type_compare_as_they_are(mode: str, first: str) -> None:
    x = lang.relu(MATRIX)
    other = (
        0.25
        if first == "number"
        else lang.max(lang.permute(lang.permute(x, order=(1, 0)), order=(1, 0)), 0.5)
    )
    graph = lang.build({"y": lang.cast(lang.compare(x, other, mode=mode), to="f32")})
    ranges = dict.fromkeys([*graph.tensor_names(), "m"], (-1.0, 1.0))
    integers = quantize(graph, ranges, SCHEMES["int8"])
    values = IntegerEngine(integers, ALL_TENSORS, raw=True).run(random_inputs(graph, 1))
    (table,) = [op for op in integers.ops if isinstance(op, npu.Table) and op.function.startswith(mode[:4])]
    source, kind = table.x.owner, quant_of(table.x)
    assert kind is not None
    if first == "number":
        a, b = values[value_name(table.x)], np.rint(0.25 / kind.scale) + kind.zero_point
    else:
        assert isinstance(source, npu.Sub)
        a, b = (values[value_name(value)].astype(int) for value in source.operands)
    compared = getattr(np, mode)(a, b)
    np.testing.assert_array_equal(values[value_name(table.y)], compared)


def test_a_divisor_that_may_be_zero_stays_on_the_cpu() -> None:
    graph = float_network(lang.div(MATRIX, lang.tanh(MATRIX)))
    ranges = dict.fromkeys([*graph.tensor_names(), "m"], (-1.0, 1.0))
    reasons = flow.quantize_network(graph, ranges, target=TARGET).graph.float_reasons
    assert "its divisor is between" in " ".join(reasons.values())


def lookup(index: Any) -> tuple[Any, Any]:
    """The rows of a table that indices choose, in instruction mode and in graph mode."""
    table = np.linspace(-1, 1, 21, dtype=np.float32).reshape(7, 3)
    graph = lang.build({"y": lang.gather(table, lang.input("i", (2, 2), "i64"), axis=0)})
    integers = quantize(graph, {"y": (-1.0, 1.0)}, SCHEMES["int8"])
    model = flow.compile_network(integers, TARGET).model
    inputs = {"i": np.asarray(index, np.int64)}
    return Simulator(model).run(inputs)["y"], IntegerEngine(integers).run(inputs)["y"]


def test_indices_of_run_time_may_count_from_the_end() -> None:
    got, expected = lookup([[0, -1], [-7, 6]])
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_allclose(got[0, 1], got[1, 1])
    np.testing.assert_allclose(got[0, 0], got[1, 0])


def _chosen(kind: str) -> lang.Tensor:
    x = lang.tanh(MATRIX)
    if kind == "tuples":
        return lang.gather_nd(lang.tanh(SERIES), lang.input("i", (5, 2), "i64"))
    i = lang.input("i", (3, 5), "i64")
    if kind == "replaced":
        return lang.scatter_elements(x, i, lang.sigmoid(lang.input("u", (3, 5))), axis=1)
    if kind == "replaced tuples":
        tuples = lang.input("i", (3, 2), "i64")
        return lang.scatter_nd(lang.tanh(SERIES), tuples, lang.sigmoid(lang.input("u", (3, 9))))
    return lang.gather_elements(x, i, axis=0 if kind == "columns" else 1)


@pytest.mark.parametrize("kind", ["lines", "columns", "tuples", "replaced", "replaced tuples"])
def test_the_cpu_computes_places_and_the_npu_gathers(kind: str) -> None:
    """Whatever the indices are, also from the end."""
    given = lang.build({"y": _chosen(kind)})
    graph = float_network(_chosen(kind))
    assert any(isinstance(op, top.Gather) for op in graph.ops)
    rng = np.random.default_rng(4)
    if kind == "replaced":  # no place twice: which of two elements stays is nobody's promise
        index = np.stack([rng.permutation(8)[:5] - 8 * (row == 1) for row in range(3)])
    elif kind == "replaced tuples":
        index = np.array([[0, 3], [-1, -4], [0, 1]])
    else:
        shape, limit = {"lines": ((3, 5), 8), "columns": ((3, 5), 3), "tuples": ((5, 2), np.array([1, 4]))}[
            kind
        ]
        index = rng.integers(-limit, limit, shape)
    inputs = random_inputs(given, 1) | {"i": index}
    expected = FloatEngine(given, threads=1).run(inputs)["y"]
    np.testing.assert_array_equal(FloatEngine(graph, threads=1).run(inputs)["y"], expected)
    integers = flow.quantize_network(graph, observed_ranges(graph, inputs), target=TARGET).graph
    parts = partition(integers, TARGET, island_threshold=0).parts
    on_npu = [op for part in parts if part.device == "npu" for op in part.ops]
    assert any(isinstance(op, top.Gather) for op in on_npu)
    model = flow.compile_network(integers, TARGET).model
    got = IntegerEngine(integers).run(inputs)["y"]
    np.testing.assert_array_equal(Simulator(model).run(inputs)["y"], got)
    np.testing.assert_allclose(got, expected, atol=0.01)


@pytest.mark.parametrize(
    ("kind", "index", "beyond"),
    [
        ("lines", np.zeros((3, 5)), (8, -9)),
        ("columns", np.zeros((3, 5)), (3, -4)),
        ("tuples", np.zeros((5, 2)), (4, -5)),
        ("replaced", np.tile(np.arange(5), (3, 1)), (8, -9)),
        ("replaced tuples", np.array([[0, 3], [0, 2], [0, 1]]), (4, -5)),
    ],
)
def test_an_index_of_the_run_beyond_its_axis_is_an_error(
    kind: str, index: np.ndarray, beyond: tuple[int, int]
) -> None:
    """Also where the place would be that of another element: in graph mode, by the program and in C."""
    graph = float_network(_chosen(kind))
    inputs = random_inputs(graph, 1) | {"i": index.astype(np.int64)}
    integers = flow.quantize_network(graph, observed_ranges(graph, inputs), target=TARGET).graph
    model = flow.compile_network(integers, TARGET).model
    outputs = {"y": np.zeros_like(IntegerEngine(integers).run(inputs)["y"])}
    assert not run_in_c(file_of(model), inputs, outputs)
    for outside in beyond:
        wrong = index.astype(np.int64)
        wrong[0, -1] = outside
        inputs["i"] = wrong
        with pytest.raises(NpucError):
            IntegerEngine(integers).run(inputs)
        with pytest.raises(NpucError):
            Simulator(model).run(inputs)
        assert "an index is outside its axis" in run_in_c(file_of(model), inputs, outputs)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (
            lambda: lang.scatter_nd(
                MATRIX, lang.input("i", (2, 1), "i64"), lang.input("u", (2, 8)), reduction="add"
            ),
            "('add') at places that are known at run time only",
        ),
        (
            lambda: lang.scatter_nd(MATRIX, np.array([[1], [0]]), lang.input("u", (2, 8)), reduction="mul"),
            "a scatter with 'mul'",
        ),
        (
            lambda: lang.scatter_nd(MATRIX, np.array([[1]] * 5), lang.input("u", (5, 8)), reduction="add"),
            "up to 4 updates a place",
        ),
        (
            lambda: lang.grid_sample(lang.input("image", (1, 4, 6, 5)), lang.input("points", (1, 3, 3, 2))),
            "its points are known at run time only",
        ),
    ],
)
def test_what_stays_on_the_cpu_has_a_reason_of_its_own(network: Any, words: str) -> None:
    graph = float_network(network())
    integers = flow.quantize_network(
        graph, observed_ranges(graph, random_inputs(graph, 1)), target=TARGET
    ).graph
    assert words in partition(integers, TARGET, island_threshold=0).reasons["y"]


def test_updates_of_one_place_are_added_in_their_order() -> None:
    """The floats are those of the scatter, to the bit: ((x + a) + b) + c."""
    updates = lang.input("u", (7, 8))
    places = np.array([[2], [0], [2], [1], [2], [0], [-1]])
    network = lang.scatter_nd(lang.tanh(MATRIX), places, updates, reduction="add")
    given, graph = lang.build({"y": network}), float_network(network)
    assert not any(isinstance(op, top.ScatterND) for op in graph.ops)
    inputs = random_inputs(given, 1)
    inputs["u"] = (inputs["u"] * 1e6).astype(np.float32)
    expected = FloatEngine(given, threads=1).run(inputs)["y"]
    np.testing.assert_array_equal(FloatEngine(graph, threads=1).run(inputs)["y"], expected)


@pytest.mark.parametrize("index", [7, -8])
def test_an_index_beyond_the_table_is_an_error(index: int) -> None:
    with pytest.raises(NpucError, match=f"index 3 is {index}, and x has 7"):
        lookup([[0, 1], [2, index]])


def test_a_table_beyond_local_memory_is_read_by_the_cpu() -> None:
    graph = lang.build(
        {"y": lang.gather(np.ones((3000, 1000), np.float32), lang.input("i", (4,), "i64"), axis=0)}
    )
    integers = quantize(graph, {"y": (-1.0, 1.0)}, SCHEMES["int8"])
    compilation = flow.compile_network(integers, TARGET)
    assert {part.device for part in compilation.partition.parts} == {"cpu", "convert"}
    y = Simulator(compilation.model).run({"i": np.arange(4)})["y"]
    np.testing.assert_array_equal(y, IntegerEngine(integers).run({"i": np.arange(4)})["y"])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [((3, 17), 1), ((2, 5, 3), 1), ((1, 6, 4, 5), 1), ((9,), 0)])
def test_the_best_are_those_of_a_stable_sort(shape: tuple[int, ...], axis: int, largest: bool) -> None:
    for k in (1, shape[axis] // 2, shape[axis]):
        values, places = lang.topk(lang.relu(lang.input("x", shape)), k=k, axis=axis, largest=largest)
        graph = lang.build({"values": values, "places": places})
        ranges = dict.fromkeys([*graph.tensor_names(), "x"], (-1.0, 1.0))
        integers = quantize(graph, ranges, SCHEMES["int8"])
        (best,) = [op for op in integers.ops if isinstance(op, top.TopK)]
        got = IntegerEngine(integers, ALL_TENSORS, raw=True).run(random_inputs(graph, k))
        codes = got[value_name(best.x)].astype(int)
        order = np.argsort(-codes if largest else codes, axis, kind="stable")
        np.testing.assert_array_equal(got["places"], np.take(order, range(k), axis))
        np.testing.assert_array_equal(
            got[value_name(best.parts[0])], np.take_along_axis(codes, got["places"], axis)
        )
        assert check(integers, TARGET, 2) is not None
