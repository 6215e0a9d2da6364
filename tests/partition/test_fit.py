"""Ops against the limits and numbers of targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from npuc.flow import quantize_network
from npuc.ir import Graph, Value, npu, result_names, tensor_type, top
from npuc.partition import fit_of, limit_fit, partition, to_keep_float
from npuc.partition.kinds import describe
from npuc.quant import SCHEMES, quantize
from npuc.target import OP_KINDS, available, check_op, load_target
from npuc.transform import canonicalize
from support.networks.random_graphs import graphs

DPU = load_target("dpuczdx8g-b4096-like")
EDGE = load_target("edge-4t")


def alone(
    kind: type[Any], /, *constants: Any, shape: tuple[int, ...] = (1, 16, 12, 10), **properties: Any
) -> tuple[Any, Graph]:
    """One op on an input x, with constants as its other operands."""
    graph = Graph.empty([("x", tensor_type(shape, "f32"))])
    values: list[Value | None] = []
    for index, constant in enumerate(constants):
        if constant is None:
            values.append(None)
            continue
        op = graph.add_weight(f"c{index}", np.asarray(constant, np.float32))
        graph.block.add_op(op)
        values.append(op.output)
    made = kind.make(graph.inputs[0].value, *values, **properties, name="y", layer="the layer")
    graph.block.add_op(made)
    graph.set_outputs([("y", made.results[0])])
    graph.verify()
    return made, graph


def conv(kernel: int = 3, group: int = 1, **more: Any) -> tuple[Any, Graph]:
    weight = np.ones((16, 16 // group, kernel, kernel))
    options: dict[str, Any] = {
        "strides": (2, 1),
        "pads": (1, 2, 3, 4),
        "dilations": (1, 2),
        "group": group,
        **more,
    }
    return alone(top.Conv, weight, None, **options)


def test_the_parameters_of_a_convolution() -> None:
    op, graph = conv(relu=True, relu_limit=6.0)
    found = describe(op, graph, (16, 4))
    assert found is not None and found.kind == "conv"
    assert found.parameters == {
        "n": 1, "ic": 16, "ih": 12, "iw": 10, "on": 1, "oc": 16, "oh": 7, "ow": 12, "rank": 4,
        "activation_bits": 16, "weight_bits": 4, "kh": 3, "kw": 3, "sh": 2, "sw": 1, "dh": 1, "dw": 2,
        "pad_top": 1, "pad_left": 2, "pad_bottom": 3, "pad_right": 4, "group": 1, "activation": "relu6",
    }  # fmt: skip
    op, graph = conv(group=16)
    assert describe(op, graph).kind == "depthwise_conv"  # type: ignore[union-attr]


def test_parameters_of_other_kinds() -> None:
    op, graph = alone(top.Resize, sizes=(1, 16, 24, 5), mode="linear", coordinates="align_corners")
    found = describe(op, graph)
    assert found is not None and found.kind == "resize_linear"
    assert (found.parameters["scale_h"], found.parameters["scale_w"], found.parameters["align_corners"]) == (
        2,
        0.5,
        1,
    )
    op, graph = alone(top.Reduce, kind="mean", axes=(2, -1))
    found = describe(op, graph)
    assert found is not None and found.kind == "reduce_mean"
    assert [found.parameters[f"reduce_{axis}"] for axis in "nchw"] == [0, 0, 1, 1]
    op, graph = alone(top.Add, np.ones((16, 1, 1)))
    found = describe(op, graph)
    assert found is not None
    assert (found.parameters["broadcast"], found.parameters["constant_operand"]) == (1, 1)
    op, graph = alone(top.Permute, order=(0, 2, 3, 1))
    found = describe(op, graph)
    assert found is not None and [found.parameters[f"source_{a}"] for a in "nchw"] == [0, 2, 3, 1]


@settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(graph=graphs(12))
def test_every_op_has_all_parameters_of_its_kind(graph: Graph) -> None:
    graph = canonicalize(graph)
    names = [*graph.tensor_names(), *(port.name for port in graph.inputs)]
    for program in (graph, quantize(graph, dict.fromkeys(names, (-1.0, 1.0)), SCHEMES["int8"])):
        for op in program.ops:
            if isinstance(op, top.WeightOp | npu.Quantize | npu.Dequantize):
                continue
            found = describe(op, program)  # type: ignore[arg-type]
            if found is not None and found.known:
                missing = set(OP_KINDS[found.kind]) - set(found.parameters)
                assert not missing, f"{op.name}: {missing}"
                check_op(DPU, found.kind, found.parameters)


def test_a_limit_is_told_with_its_numbers_and_a_lever() -> None:
    op, graph = conv(kernel=17, pads=(8, 8, 8, 8), dilations=(1, 1), strides=(1, 1))
    fit = limit_fit(op, graph, DPU)
    assert fit.how == "no"
    assert fit.reason.startswith("A convolution's kernel is at most 16 pixels wide and high: ")
    assert "17" in fit.reason
    assert "limits.rules.conv.kernel" in fit.lever and "kw <= 16" in fit.lever
    assert limit_fit(op, graph, EDGE)
    op, graph = alone(top.Sigmoid)
    assert "hard_sigmoid" in limit_fit(op, graph, DPU).lever


def test_rewrites() -> None:
    _, graph = alone(top.ShuffleChannel, group=2)
    names = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}
    made = quantize(graph, names, SCHEMES["pow2"])
    assert partition(made, DPU).fits["y"].how == "rewrite"
    _, graph = alone(top.MatMul, np.ones((10, 4)), None)
    made = quantize_network(graph, names, None, DPU).graph
    fit = partition(made, DPU).fits["y"]
    assert (fit.how, fit.runs_as) == ("rewrite", "conv")


@pytest.mark.parametrize(
    ("scheme", "target", "words"),
    [
        ("int8", DPU, "zero point|powers of two"),
        ("int16", DPU, "no activations of type i16"),
        ("int8-symmetric", DPU, "powers of two"),
        ("bf16", EDGE, "bf16"),
        ("pow2", EDGE, ""),
        ("tflite", EDGE, ""),
        ("int16", EDGE, ""),
    ],
)
def test_numbers_that_a_machine_does_not_have(scheme: str, target: Any, words: str) -> None:
    _, graph = conv()
    made = quantize(graph, {"x": (-1.0, 2.0), "y": (-1.0, 3.0)}, SCHEMES[scheme])
    ours = next(
        op for op in made.ops if result_names(op)[0] == "y" and not isinstance(op, npu.Dequantize | npu.Cast)
    )
    fit = fit_of(ours, made, target)  # type: ignore[arg-type]
    assert bool(fit) == (not words)
    if words:
        assert any(word in fit.reason for word in words.split("|")), fit.reason
        assert "npuc quantize --target" in fit.lever or "Quantize to the types" in fit.lever


@pytest.mark.parametrize("file", available(), ids=lambda file: file.name)
def test_what_is_quantized_for_a_target_has_its_numbers(file: Any) -> None:
    """No op of a network that was quantized for a preset is refused for its types, scales or rounding."""
    target = load_target(file.name)
    op, graph = conv()
    relu = top.Sigmoid.make(op.y, name="s")
    joined = top.Add.make(op.y, relu.y, name="a")
    pooled = top.AvgPool.make(
        joined.y, kernel=(2, 2), strides=(2, 2), pads=(1, 1, 0, 0), dilations=(1, 1), name="p"
    )
    for new in (relu, joined, pooled):
        graph.block.insert_op_before(new, graph.terminator)
    graph.set_outputs([("p", pooled.results[0])])
    ranges = dict.fromkeys(("x", "y", "s", "a", "p"), (-1.0, 1.0))
    made = quantize_network(graph, ranges, None, target).graph
    for name, reason in partition(made, target, island_threshold=0.0).reasons.items():
        fit = partition(made, target).fits[name]
        assert "npuc quantize --target" not in fit.lever, reason


def test_softmax_stays_float_where_it_could_run_nowhere_as_integers() -> None:
    op, graph = alone(top.Softmax, axis=1)
    assert to_keep_float(graph, DPU).keys() == {op}
    assert not to_keep_float(graph, EDGE)
    made = quantize_network(graph, {"x": (-1.0, 1.0), "y": (0.0, 1.0)}, None, DPU).graph
    assert not any(isinstance(op, npu.Softmax) for op in made.ops)
