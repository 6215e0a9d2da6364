"""LSTM, GRU and RNN from ONNX to integers: near float, and the slow model's bits."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.arrays import Array
from npuc.engine import FloatEngine, IntegerEngine
from npuc.engine.handlers.recurrent import direction_parameters
from npuc.errors import QuantizationError
from npuc.frontend.onnx import ImportOptions, import_onnx
from npuc.ir import Graph, npu, value_name
from npuc.ir.dtypes import quant_of
from npuc.ir.npu.recurrent import STATE
from npuc.ir.text import parse_graph, print_graph
from npuc.quant import SCHEMES, quantize
from npuc.transform import canonicalize
from support.oracles import recurrent as oracle_recurrent

STEPS, BATCH, INPUTS, HIDDEN = 9, 2, 7, 6


def sqnr(exact: Array, found: Array) -> float:
    error = float(np.square(exact - found.astype(np.float64)).sum())
    return 10 * float(np.log10(np.square(exact.astype(np.float64)).sum() / max(error, 1e-30)))


def network(
    kind: str,
    direction: str = "forward",
    *,
    states: bool = False,
    seed: int = 0,
    spread: float = 1.0,
    extra: dict[int, Array] | None = None,
    bare: bool = False,
    **attributes: Any,
) -> Graph:
    """A recurrent layer with all its outputs; `states` are inputs, `extra` constants by the place of the operand."""
    random = np.random.default_rng(seed)
    gates, directions = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 2 if direction == "bidirectional" else 1
    shapes = {
        "w": (directions, gates * HIDDEN, INPUTS),
        "r": (directions, gates * HIDDEN, HIDDEN),
        "b": (directions, 2 * gates * HIDDEN),
    }
    constants = {
        name: (random.normal(size=shape) * spread / (shape[-1] ** 0.5 if name != "b" else 3)).astype(
            np.float32
        )
        for name, shape in shapes.items()
    }
    if bare:  # every other row has no weights, and a large bias
        constants["w"][:, ::2] = constants["r"][:, ::2] = 0
        constants["b"][:, ::2] = 30
    places = ["x", "w", "r", "b"] + (["", "h", "c"][: 2 + (kind == "LSTM")] if states else [])
    for place, array in (extra or {}).items():
        places += [""] * (place + 1 - len(places))
        places[place] = f"extra{place}"
        constants[f"extra{place}"] = array
    state = (directions, BATCH, HIDDEN)
    outputs = {"y": (STEPS, directions, BATCH, HIDDEN), "y_h": state, "y_c": state}
    if kind != "LSTM":
        del outputs["y_c"]
    inputs = {"x": (STEPS, BATCH, INPUTS)} | ({n: state for n in ("h", "c") if n in places})
    node = helper.make_node(
        kind, places, list(outputs), hidden_size=HIDDEN, direction=direction, name="rnn", **attributes
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return canonicalize(import_onnx(model))


def data(graph: Graph, seed: int = 1) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    made = {}
    for port in graph.inputs:
        reach = 2.0 if port.name == "x" else 0.9
        made[port.name] = random.uniform(-reach, reach, port.type.get_shape()).astype(np.float32)  # type: ignore[attr-defined]
    return made


def ranges_of(graph: Graph, inputs: dict[str, Array]) -> dict[str, tuple[float, float]]:
    found = inputs | FloatEngine(graph, fetch=graph.tensor_names(), threads=1).run(inputs)
    return {name: (float(a.min()), float(a.max())) for name, a in found.items()}


def only(graph: Graph) -> Any:
    (op,) = [op for op in graph.ops if isinstance(op, npu.LSTM | npu.GRU | npu.RNN)]
    return op


CASES = [
    ("LSTM", {}),
    ("GRU", {"linear_before_reset": 0}),
    ("GRU", {"linear_before_reset": 1}),
    ("RNN", {}),
]
MORE: list[tuple[str, dict[str, Any]]] = [
    ("LSTM", {"clip": 0.8}),
    ("LSTM", {"input_forget": 1}),
    ("LSTM", {"extra": {7: np.linspace(-2, 2, 3 * HIDDEN, dtype=np.float32)[None]}}),
    ("LSTM", {"activations": ["HardSigmoid", "Softsign", "Tanh"]}),
    (
        "LSTM",
        {
            "activations": ["HardSigmoid", "Tanh", "Tanh"],
            "activation_alpha": [1 / 6],
            "activation_beta": [0.5],
        },
    ),
    ("GRU", {"clip": 0.8}),
    ("GRU", {"activations": ["HardSigmoid", "Tanh"]}),
    ("RNN", {"activations": ["Relu"]}),
    ("RNN", {"activations": ["Relu"], "clip": 0.8}),
    ("RNN", {"activations": ["Softsign"]}),
]
"""What frameworks have beside the usual."""
DIRECTIONS = ["forward", "reverse", "bidirectional"]
# Decibels that the outputs keep at least; int16 loses most by its weights of 8 bits.
LEAST = {"int8": 36, "uint8": 36, "int16": 44, "int16-weights": 65, "tflite": 36, "pow2": 32, "dfp16": 65}


@pytest.mark.parametrize("scheme", sorted(LEAST))
@pytest.mark.parametrize(("kind", "attributes"), CASES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_integer_layer_is_near_the_float_one(
    kind: str, attributes: dict[str, Any], direction: str, scheme: str
) -> None:
    graph = network(kind, direction, states=True, **attributes)
    inputs = data(graph)
    integer = quantize(graph, ranges_of(graph, inputs), SCHEMES[scheme])
    integer.verify()
    only(integer)
    exact = FloatEngine(graph, threads=1).run(inputs)
    found = IntegerEngine(integer).run(inputs)
    assert found.keys() == exact.keys()
    least = LEAST[scheme] - (4 if kind == "RNN" else 0)  # no gates: errors of weights come through
    for name, value in exact.items():
        assert sqnr(value, found[name]) > least, name


@pytest.mark.parametrize(("kind", "attributes"), MORE, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize(("scheme", "least"), [("int8", 30), ("int16-weights", 50)])
def test_peepholes_limits_and_other_activations_are_near_float(
    kind: str, attributes: dict[str, Any], scheme: str, least: float
) -> None:
    graph = network(kind, states=True, **attributes)
    inputs = data(graph)
    integer = quantize(graph, ranges_of(graph, inputs), SCHEMES[scheme])
    op = only(integer)
    exact, ours = FloatEngine(graph, threads=1).run(inputs), IntegerEngine(integer).run(inputs)
    for name, value in exact.items():
        assert sqnr(value, ours[name]) > least, name
    parts = [value_name(part) for part in op.parts]
    needed = [value_name(v) for v in (op.x, op.initial_h, getattr(op, "initial_c", None)) if v is not None]
    tensors = IntegerEngine(integer, fetch=[*needed, *parts], raw=True).run(inputs)
    for name, expected in zip(parts, by_the_model(op, integer, tensors), strict=True):
        np.testing.assert_array_equal(tensors[name], expected)


def by_the_model(op: Any, graph: Graph, tensors: dict[str, Array]) -> list[Array]:
    """The raw results of an op by the slow model."""
    cell = op.name.removeprefix("npu.")
    step = oracle_recurrent.STEPS[cell]
    zero_x, zero_h = quant_of(op.x).zero_point, op.to.zero_point  # type: ignore[union-attr]
    x = tensors[value_name(op.x)].astype(int) - zero_x
    directions = op.recurrence.type.get_shape()[0]
    shapes = [part.type.get_shape() for part in op.parts]
    results = [np.zeros(shape, int) for shape in shapes]

    def clamp(values: list[int]) -> list[int]:
        return [min(max(v + zero_h, op.lo), op.hi) for v in values]

    for d in range(directions):
        p = direction_parameters(op, graph, d)
        for b in range(x.shape[1]):
            h, inner = [0] * p.hidden, [0] * p.hidden
            if op.initial_h is not None:
                given = tensors[value_name(op.initial_h)][d, b].astype(int)
                h, inner = ((given - zero_h).tolist(), inner) if cell != "gru" else (h, given.tolist())
            if cell == "lstm" and op.initial_c is not None:
                inner = tensors[value_name(op.initial_c)][d, b].astype(int).tolist()
            if cell == "gru":
                h = [v - zero_h for v in clamp(oracle_recurrent.first_h(p, inner))]
            times = range(len(x))
            for t in reversed(times) if op.direction == "reverse" or d == 1 else times:
                out, inner = step(p, x[t, b].tolist(), h, inner)
                clamped = clamp(out)
                h = [v - zero_h for v in clamped]
                results[0][t, d, b] = clamped
            results[1][d, b] = inner if cell == "gru" and op.state == STATE else clamped
            if cell == "lstm":
                results[2][d, b] = inner
    return results


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("scheme", ["int8", "int16", "dfp16", "int4-weights"])
@pytest.mark.parametrize(("kind", "attributes"), CASES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_bit_is_the_models(
    kind: str, attributes: dict[str, Any], direction: str, scheme: str, states: bool
) -> None:
    graph = network(kind, direction, states=states, seed=5, spread=3.0, **attributes)
    inputs = data(graph, 2)
    integer = quantize(graph, ranges_of(graph, inputs), SCHEMES[scheme])
    op = only(integer)
    needed = [value_name(v) for v in (op.x, op.initial_h, getattr(op, "initial_c", None)) if v is not None]
    parts = [value_name(part) for part in op.parts]
    for record in (True, False):
        engine = IntegerEngine(integer, fetch=[*needed, *parts], raw=True, record=record)
        engine.run(data(graph, 3))
        tensors = engine.run(inputs)
        for name, expected in zip(parts, by_the_model(op, integer, tensors), strict=True):
            # An output port has its reals under the same name as the layer's result, so look at what was fetched.
            np.testing.assert_array_equal(tensors[name], expected)


def test_the_program_survives_its_text() -> None:
    graph = network("LSTM", "bidirectional", states=True)
    inputs = data(graph)
    integer = quantize(graph, ranges_of(graph, inputs), SCHEMES["int8"])
    again = parse_graph(print_graph(integer), integer.weights)
    again.verify()
    for name, value in IntegerEngine(integer).run(inputs).items():
        np.testing.assert_array_equal(IntegerEngine(again).run(inputs)[name], value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"extra": {4: np.array([STEPS, 3], np.int32)}}, "lengths of their own"),
        ({"activations": ["Sigmoid", "Relu", "Tanh"]}, "not sigmoid, tanh"),
    ],
)
def test_what_the_arithmetic_lacks_stays_float_and_says_why(options: dict[str, Any], reason: str) -> None:
    graph = network("LSTM", **options)
    inputs = data(graph)
    integer = quantize(graph, ranges_of(graph, inputs), SCHEMES["int8"])
    assert any(op.name == "top.lstm" for op in integer.ops)
    assert any(reason in why for why in integer.float_reasons.values())
    IntegerEngine(integer).run(inputs)


@pytest.mark.parametrize(
    "options",
    [
        {"extra": {4: np.full(BATCH, STEPS, np.int32)}},
        {"extra": {7: np.zeros((1, 3 * HIDDEN), np.float32)}},
        {"activations": ["Sigmoid", "Tanh", "Tanh"]},
        {"extra": {5: np.zeros((1, BATCH, HIDDEN), np.float32)}},
    ],
)
def test_the_usual_spelled_out_is_the_usual(options: dict[str, Any]) -> None:
    plain, spelled = network("LSTM"), network("LSTM", **options)
    inputs = data(plain)
    ranges = ranges_of(plain, inputs)
    expected = IntegerEngine(quantize(plain, ranges, SCHEMES["int8"])).run(inputs)
    integer = quantize(spelled, ranges, SCHEMES["int8"])
    only(integer)
    for name, value in IntegerEngine(integer).run(inputs).items():
        np.testing.assert_array_equal(value, expected[name])


def test_a_gru_whose_state_starts_beyond_its_range_stays_float() -> None:
    graph = network("GRU", states=True)
    inputs = data(graph)
    ranges = ranges_of(graph, inputs) | {"h": (-3.0, 3.0)}
    integer = quantize(graph, ranges, SCHEMES["int8"])
    assert any("initial state reaches 3" in why for why in integer.float_reasons.values())


def test_a_range_that_is_not_finite_is_an_error() -> None:
    graph = network("LSTM")
    ranges = ranges_of(graph, data(graph)) | {"y_c": (-1.0, float("inf"))}
    with pytest.raises(QuantizationError, match=r"the tensor 'y_c': a range from -1\.0 to inf is not finite"):
        quantize(graph, ranges, SCHEMES["int8"])


@pytest.mark.parametrize(
    ("reach", "bits"), [(0.5, 12), (4.0, 12), (4.1, 11), (30.0, 11), (1e9, 11), (None, 12)]
)
def test_the_range_of_a_cell_comes_from_what_was_seen_or_from_the_steps(
    reach: float | None, bits: int
) -> None:
    graph = network("LSTM")
    ranges = ranges_of(graph, data(graph))
    del ranges["y_c"]
    if reach is not None:
        ranges["y_c"] = (-reach, 0.0)
    # 9 steps from zero never leave 9, so 16 is enough whatever was seen.
    assert only(quantize(graph, ranges, SCHEMES["int8"])).cell_bits == bits


def test_rows_without_weights_and_a_large_bias() -> None:
    graph = network("LSTM", bare=True)
    inputs = data(graph)
    integer = quantize(graph, ranges_of(graph, inputs), SCHEMES["int16-weights"])
    only(integer)
    exact, found = FloatEngine(graph, threads=1).run(inputs), IntegerEngine(integer).run(inputs)
    assert sqnr(exact["y"], found["y"]) > 40


@pytest.mark.parametrize(("scheme", "least"), [("int8", 12), ("int16-weights", 50)])
def test_a_voice_detector_with_an_lstm_keeps_its_outputs(scheme: str, least: float) -> None:
    spec = find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package silero_vad is not installed (see tests/requirements-models.txt)")
    file = Path(spec.submodule_search_locations[0]) / "data/silero_vad_16k_sequence.onnx"
    graph = canonicalize(import_onnx(file, ImportOptions(input_shapes={"input": (7, 576)})))
    random, time = np.random.default_rng(0), np.arange(7 * 576) / 16000
    samples = []
    for _ in range(6):  # a hum with overtones that swells, and noise
        tone, level = random.uniform(90, 250), random.uniform(0.02, 0.2)
        hum = sum(np.sin(2 * np.pi * tone * k * time + random.uniform(0, 6)) / k for k in range(1, 15))
        sound = hum * np.abs(np.sin(8 * np.pi * time)) * level + random.normal(size=time.size) * level / 10
        state = np.zeros((1, 1, 128), np.float32)
        samples.append({"input": sound.reshape(7, 576).astype(np.float32), "h": state, "c": state})
    seen = [ranges_of(graph, sample) for sample in samples]
    ranges = {n: (min(s[n][0] for s in seen), max(s[n][1] for s in seen)) for n in seen[0]}
    # The spectrum's squares and their root span more than 16 bits hold: those layers stay float.
    front = ("top.mul", "top.add", "top.sqrt")
    integer = quantize(graph, ranges, lambda op: None if op.name in front else SCHEMES[scheme])
    only(integer)
    exact, ours = FloatEngine(graph, threads=1), IntegerEngine(integer)
    expected, found = ([engine.run(sample) for sample in samples] for engine in (exact, ours))
    for name in ("speech_probs", "hn", "cn"):
        pair = (np.stack([out[name] for out in outs]) for outs in (expected, found))
        assert sqnr(*pair) > least, name
