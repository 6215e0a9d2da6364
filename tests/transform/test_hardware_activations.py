"""Hardware forms of activations: what is changed, that it is said, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.engine import FloatEngine
from npuc.errors import PassError
from npuc.flow import quantize_network, quantize_on_data
from npuc.ir import Graph, tensor_type, top
from npuc.ir.passes import run_pipeline
from npuc.quant.config import QuantizationConfig
from npuc.target import Target, load_target
from npuc.target.vocabulary import ACTIVATION_FORMS
from npuc.transform.hardware_activations import FORMS

X = np.linspace(-8, 8, 64, dtype=np.float32).reshape(1, 4, 4, 4)


def network(*kinds: tuple[Any, dict[str, Any]]) -> Graph:
    """Functions of one input, each an output of its own."""
    graph = Graph.empty([("x", tensor_type(X.shape, "f32"))])
    outputs = []
    for index, (kind, properties) in enumerate(kinds):
        op = kind.make(graph.inputs[0].value, name=f"y{index}", **properties)
        graph.block.add_op(op)
        outputs.append((f"y{index}", op.results[0]))
    graph.set_outputs(outputs)
    return graph


def everything() -> Graph:
    return network(
        (top.Sigmoid, {}),
        (top.SiLU, {}),
        (top.Relu, {"limit": 6.0}),
        (top.LeakyRelu, {"alpha": 0.1}),
        (top.Relu, {"limit": 4.0}),
        (top.LeakyRelu, {"alpha": 0.3}),
    )


def test_forms_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    changed = run_pipeline(everything(), "hardware-activations")
    found = FloatEngine(changed).run({"x": X})
    x = torch.tensor(X)
    functional = torch.nn.functional
    expected = [
        functional.hardsigmoid(x),
        functional.hardswish(x),
        functional.relu(x),
        functional.leaky_relu(x, 26 / 256),
        x.clamp(0, 4),  # another limit and another slope stay
        functional.leaky_relu(x, 0.3),
    ]
    for index, wanted in enumerate(expected):
        np.testing.assert_allclose(found[f"y{index}"], wanted.numpy(), atol=1e-6)


def test_what_was_changed_is_said_by_layer() -> None:
    graph = everything()
    changed = run_pipeline(graph, "hardware-activations")
    assert changed.notes[len(graph.notes) :] == [
        "sigmoid became hard_sigmoid in 1 layer: y0",
        "silu became hard_swish in 1 layer: y1",
        "relu6 became relu in 1 layer: y2",
        "leaky_relu got the slope 26/256 in 1 layer: y3",
    ]
    again = run_pipeline(changed, "hardware-activations")
    assert again.notes == changed.notes
    only = run_pipeline(graph, 'hardware-activations{forms="hard-swish"}')
    assert [op.name for op in only.ops][:2] == ["top.sigmoid", "top.hard_swish"]


def test_a_relu_within_another_op_is_one_too() -> None:
    graph = Graph.empty([("x", tensor_type(X.shape, "f32"))])
    x = graph.inputs[0].value
    graph.block.add_op(op := top.Add.make(x, x, relu=True, relu_limit=6.0, name="y"))
    graph.set_outputs([("y", op.results[0])])
    changed = run_pipeline(graph, "hardware-activations")
    np.testing.assert_array_equal(FloatEngine(changed).run({"x": X})["y"], np.maximum(2 * X, 0))


def test_a_form_that_is_not_there_is_named() -> None:
    assert tuple(FORMS) == ACTIVATION_FORMS
    with pytest.raises(PassError, match="no hardware form of an activation 'hard-tanh'"):
        run_pipeline(everything(), 'hardware-activations{forms="hard-tanh"}')
    with pytest.raises(PassError, match="hard-tanh"):
        quantize_network(everything(), {}, QuantizationConfig(activation_forms=("hard-tanh",)))


def machine(**limits: Any) -> Target:
    data = load_target("edge-4t").model_dump(mode="json")
    data["limits"].update(limits)
    return Target.from_dict(data)


def test_a_target_states_forms_and_a_configuration_decides() -> None:
    plain, stating = machine(), machine(activation_forms=["hard-sigmoid", "hard-swish"])
    assert plain.fingerprint == load_target("edge-4t").fingerprint != stating.fingerprint
    ranges = {"x": (-8.0, 8.0), **{f"y{i}": (-1.0, 8.0) for i in range(6)}}
    done = quantize_network(everything(), ranges, None, stating)
    assert [note for note in done.outcome.notes if "became" in note] == [
        "sigmoid became hard_sigmoid in 1 layer: y0",
        "silu became hard_swish in 1 layer: y1",
    ]
    assert not quantize_network(
        everything(), ranges, QuantizationConfig(activation_forms=()), stating
    ).outcome.notes
    assert not quantize_network(everything(), ranges, None, plain).outcome.notes


def test_with_data_the_cost_is_measured() -> None:
    samples = [{"x": np.random.default_rng(i).normal(size=X.shape).astype(np.float32)} for i in range(4)]
    graph = network((top.Sigmoid, {}))
    done, _ = quantize_on_data(graph, samples, QuantizationConfig(activation_forms=("hard-sigmoid",)))
    said = [note for note in done.outcome.notes if "float outputs at" in note]
    exact, ours = 1 / (1 + np.exp(-samples[0]["x"])), np.clip(samples[0]["x"] / 6 + 0.5, 0, 1)
    near = 10 * np.log10(np.square(exact).sum() / np.square(exact - ours).sum())
    assert len(said) == 1 and abs(float(said[0].split("outputs at ")[1].split(" dB")[0]) - near) < 3
