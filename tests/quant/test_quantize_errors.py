"""What cannot be quantized as asked is refused with a sentence; what is merely odd works."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import QuantizationError
from npuc.flow import quantize_network
from npuc.ir import Graph, tensor_type, top
from npuc.quant import SCHEMES, quantize
from npuc.quant.config import QuantizationConfig
from npuc.quant.from_target import fitted, misfit, scheme_for
from npuc.quant.scheme import Scheme
from npuc.target import available, load_target

INTEGER = sorted(name for name, scheme in SCHEMES.items() if scheme.needs_ranges)


def network(weight: Array, bias: Array | None = None) -> Graph:
    """One convolution with a relu."""
    graph = Graph.empty([("x", tensor_type((1, weight.shape[1], 4, 4), "f32"))])
    values = [None if a is None else graph.add_weight(n, a) for n, a in (("w", weight), ("b", bias))]
    for op in values:
        if op is not None:
            graph.block.add_op(op)
    conv = top.Conv.make(
        graph.inputs[0].value,
        *(None if op is None else op.output for op in values),
        strides=(1, 1),
        pads=(0,) * 4,
        dilations=(1, 1),
        relu=True,
        name="y",
        layer="conv",
    )
    graph.block.add_op(conv)
    graph.set_outputs([("y", conv.y)])
    return graph


@pytest.fixture
def ones() -> Graph:
    return network(np.ones((2, 3, 1, 1), np.float32))


RANGES = {"x": (-1.0, 1.0), "y": (0.0, 3.0)}


def test_a_missing_range_is_named(ones: Graph) -> None:
    with pytest.raises(QuantizationError, match=r"no range for the tensor 'y'.*npuc calibrate"):
        quantize(ones, {"x": (-1.0, 1.0)})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scheme", INTEGER)
def test_a_range_that_is_not_finite_is_refused(ones: Graph, bad: float, scheme: str) -> None:
    with pytest.raises(QuantizationError, match=r"the tensor 'y': .*not finite.*[Cc]orrect"):
        quantize(ones, {**RANGES, "y": (0.0, bad)}, SCHEMES[scheme])


@pytest.mark.parametrize("scheme", INTEGER)
def test_a_channel_of_zeros_gives_its_bias(scheme: str) -> None:
    weight = np.ones((3, 2, 1, 1), np.float32)
    weight[1] = 0
    graph = network(weight, np.array([0.1, 0.5, 0.0], np.float32))
    made = quantize(graph, {"x": (-1.0, 1.0), "y": (0.0, 2.2)}, SCHEMES[scheme])
    assert made.notes == []
    x = {"x": np.random.default_rng(0).uniform(-1, 1, (1, 2, 4, 4)).astype(np.float32)}
    exact, ours = FloatEngine(graph).run(x)["y"], IntegerEngine(made).run(x)["y"]
    np.testing.assert_allclose(ours[:, 1], 0.5, atol=0.02)
    np.testing.assert_allclose(ours, exact, atol=0.35 if scheme == "int4-weights" else 0.04)


@pytest.mark.parametrize("scheme", INTEGER)
def test_a_tensor_that_is_always_zero_has_a_type(scheme: str) -> None:
    graph = network(np.zeros((2, 3, 1, 1), np.float32))
    made = quantize(graph, {"x": (0.0, 0.0), "y": (0.0, 0.0)}, SCHEMES[scheme])
    x = {"x": np.zeros((1, 3, 4, 4), np.float32)}
    assert not IntegerEngine(made).run(x)["y"].any()


@pytest.mark.parametrize("number", [np.inf, np.nan, -3e38])
@pytest.mark.parametrize("what", ["weights", "biases"])
def test_constants_that_are_no_data_leave_the_layer_float(what: str, number: float) -> None:
    weight, bias = np.ones((2, 3, 1, 1), np.float32), np.zeros(2, np.float32)
    (weight if what == "weights" else bias)[0] = number
    made = quantize(network(weight, bias), RANGES)
    assert made.float_reasons == {"y": f"its {what} are not all within ±1e+30"}


def test_sums_that_could_overflow_take_the_wide_accumulator_or_leave_the_layer_float() -> None:
    # 2^17 weights of 127 times inputs of up to 255 steps are more than 2^31.
    graph = Graph.empty([("x", tensor_type((1, 1 << 17), "f32"))])
    weight = graph.add_weight("w", np.ones((1 << 17, 1), np.float32))
    graph.block.add_op(weight)
    product = top.MatMul.make(graph.inputs[0].value, weight.output, None, name="y")
    graph.block.add_op(product)
    graph.set_outputs([("y", product.y)])
    ranges, x = {"x": (0.0, 1.0), "y": (0.0, 131072.0)}, np.ones((1, 1 << 17), np.float32)
    for scheme in (Scheme(), Scheme(wide_sum_bits=0), SCHEMES["tflite"]):
        made = quantize(graph, ranges, scheme)
        (words,) = (*made.notes, *made.float_reasons.values())
        assert "more than an accumulator of 32 bits holds" in words
        assert ("needs a wide accumulator" in words) == (scheme == Scheme()) == (not made.float_reasons)
        assert IntegerEngine(made).run({"x": x})["y"].item() == pytest.approx(131072, rel=0.01)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"layers": {"cnov": "int16"}}, "no layer 'cnov' in the network.*'conv'"),
        ({"scheme": {"requant": "pow2"}}, "needs power-of-two scales"),
        ({"types": {"conv": {"activation": "i1"}}}, "'activation' cannot be 'i1'.*i8, ui8"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(ones: Graph, config: dict[str, Any], words: str) -> None:
    with pytest.raises(QuantizationError, match=words):
        quantize_network(ones, RANGES, QuantizationConfig(**config))


def test_a_target_gives_its_scheme(ones: Graph) -> None:
    assert scheme_for(load_target("edge-4t")) == SCHEMES["int8"]
    dpu = scheme_for(load_target("dpuczdx8g-b4096-like"))
    assert (dpu.requant, dpu.activation_scales, dpu.per_channel) == ("pow2", "power_of_two", False)
    done = quantize_network(ones, RANGES, None, load_target("zhouyi-x1-like"))
    conv = next(op for op in done.graph.ops if op.name == "npu.conv")
    assert conv.kind == "single_even"  # type: ignore[attr-defined]


def test_every_preset_has_a_scheme_that_fits_it() -> None:
    for file in available():
        target = load_target(file.name)
        assert misfit(scheme_for(target), target) is None


def test_a_target_takes_its_own_requantization_and_refuses_the_types_that_it_lacks(ones: Graph) -> None:
    zhouyi = load_target("zhouyi-x1-like")
    assert fitted(SCHEMES["int8"], zhouyi).requant == "single_even"
    assert misfit(Scheme(activation="ui8"), load_target("dpuczdx8g-b4096-like")) is not None
    with pytest.raises(QuantizationError, match=r"'y' asks for what the target.*no activations of type i16"):
        quantize_network(
            ones, RANGES, QuantizationConfig(layers={"conv": "int16"}), load_target("aries-like")
        )
