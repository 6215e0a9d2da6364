"""Quantizing with an eye on the result: never further from float than the plain way on the samples it looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from npuc import lang
from npuc.calib.calibration import calibrate
from npuc.calib.sources import open_data
from npuc.engine import FloatEngine, IntegerEngine
from npuc.engine.rounded import output_noise
from npuc.flow import import_model, quantize_on_data
from npuc.ir import Graph, tensor_type, top
from npuc.quant import quantize
from npuc.quant.config import QuantizationConfig
from npuc.quant.gptq.step import Gptq
from npuc.quant.ladder import QuantizationContext
from npuc.quant.ladder.run import PipelineOptions
from npuc.quant.prequantized import integer_types
from npuc.quant.report import effective_yaml
from npuc.quant.scheme import SCHEMES

_WINDOW: dict[str, Any] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}


def test_the_tuned_network_is_no_worse_than_the_plain_one(root: Path) -> None:
    graph = import_model(root / "examples/digits.onnx")
    samples = np.load(root / "examples/digits_samples.npz")
    images, labels = samples["image"], samples["label"]
    calibration = [{"image": image[None]} for image in images[:40]]
    tuned, table = quantize_on_data(graph, open_data(graph, calibration), threads=1)
    plain = quantize(graph, {name: (e.min, e.max) for name, e in calibrate(graph, calibration).items()})
    exact, first, second = FloatEngine(graph, threads=1), IntegerEngine(tuned.graph), IntegerEngine(plain)
    errors = np.zeros(2)
    hits = 0
    for image, label in zip(images[40:], labels[40:], strict=True):
        inputs = {"image": image[None]}
        wanted = exact.run(inputs)["logits"]
        got = first.run(inputs)["logits"]
        errors += [np.square(got - wanted).sum(), np.square(second.run(inputs)["logits"] - wanted).sum()]
        hits += int(got.argmax() == label)
    assert hits >= 0.97 * len(labels[40:])
    assert errors[0] <= 1.1 * errors[1]
    assert set(table) >= {"image", "logits"}


def _uneven(*scales: float) -> Graph:
    """A network whose hidden tensors each have one channel that is larger than the others, and no more important."""
    rng = np.random.default_rng(0)
    graph = Graph.empty([("x", tensor_type((1, 4, 12, 12), "f32"))])
    value = graph.inputs[0].value
    channels, before = 4, np.ones(4, np.float32)
    for number, name in enumerate(("first", "second", "third")[: len(scales) + 1]):
        last = number == len(scales)
        sizes = np.ones(6 if last else 8, np.float32)
        sizes[0] = 1 if last else scales[number]
        window = (3, 3) if last else (1, 1)
        array = rng.normal(size=(len(sizes), channels, *window)) / 3
        array = (array * sizes[:, None, None, None] / before[:, None, None]).astype(np.float32)
        channels, before = len(sizes), sizes
        weight, bias = (
            graph.add_weight(f"{name}/w", array),
            graph.add_weight(f"{name}/b", np.zeros(len(sizes), np.float32)),
        )
        conv = top.Conv.make(value, weight.output, bias.output, name=f"{name}/conv", **_WINDOW)
        silu = top.SiLU.make(conv.y, name=name)
        for op in (weight, bias, conv, silu):
            graph.block.add_op(op)
        value = silu.y
    graph.set_outputs([(name, value)])
    return graph


def _samples(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.normal(size=(1, 4, 12, 12)).astype(np.float32)} for _ in range(count)]


def test_a_tensor_that_spoils_the_outputs_gets_sixteen_bits() -> None:
    graph = _uneven(300.0)
    narrow, _ = quantize_on_data(graph, open_data(graph, _samples(12)), widen=False, threads=1)
    done, _ = quantize_on_data(graph, open_data(graph, _samples(12)), threads=1)
    assert integer_types(narrow.graph)["first"].dtype.name == "i8"
    assert {integer_types(done.graph)[name].dtype.name for name in ("first/conv", "first")} == {"i16"}
    assert any(
        "16 bits for what rounding hurts most (first/conv, first)" in note for note in done.graph.notes
    )
    assert "first: int16" in effective_yaml(done.source, done.outcome, done.scheme_of)
    exact = FloatEngine(graph, threads=1)
    errors = []
    for made in (narrow, done):
        engine = IntegerEngine(made.graph)
        errors.append(
            sum(np.square(engine.run(s)["second"] - exact.run(s)["second"]).sum() for s in _samples(4))
        )
    assert errors[1] < errors[0] / 10


def test_tensors_whose_noise_another_one_hides_get_sixteen_bits_too() -> None:
    graph = _uneven(300.0, 30.0)
    done, _ = quantize_on_data(graph, open_data(graph, _samples(12)), threads=1)
    found = [note for note in done.graph.notes if note.startswith("16 bits for what rounding hurts most")]
    assert [note.split("(")[1].split(")")[0] for note in found] == [
        "first/conv, first",
        "second/conv, second",
    ]
    assert integer_types(done.graph)["second"].dtype.name == "i16"


def test_a_stated_scheme_and_an_even_network_keep_eight_bits() -> None:
    for graph, config in ((_uneven(300.0), QuantizationConfig(scheme="int8")), (_uneven(1.0), None)):
        done, _ = quantize_on_data(graph, open_data(graph, _samples(12)), config, threads=1)
        assert integer_types(done.graph)["first"].dtype.name == "i8"


def test_noises_add_up() -> None:
    graph = _uneven(3.0)
    done, _ = quantize_on_data(
        graph, open_data(graph, _samples(12)), QuantizationConfig(scheme="int8"), threads=1
    )
    sets = [["first/conv"], ["first"], ["first/conv", "first"], []]
    apart, other, both, none = output_noise(graph, sets, integer_types(done.graph), _samples(4))
    assert none == 0 and apart > 0 and other > 0
    assert abs(both - (apart + other)) < 0.3 * both


def test_a_weight_may_have_the_name_of_a_tensors_scale() -> None:
    graph = Graph.empty([("x", tensor_type((1, 4), "f32"))])
    weight = graph.add_weight("first/scale", np.float32([[2, 3, 4, 5]]))
    first = top.Relu.make(graph.block.args[0], name="first")
    last = top.Mul.make(first.y, weight.output, name="last")
    graph.block.add_ops([weight, first, last])
    graph.set_outputs([("last", last.y)])
    samples = [{"x": np.float32([[0.11, 0.23, 0.37, 0.41]])}]
    done, _ = quantize_on_data(graph, open_data(graph, samples), threads=1)
    (noise,) = output_noise(graph, [["first"]], integer_types(done.graph), samples)
    assert noise > 0


def test_biases_are_corrected_where_rounding_shifts_a_mean() -> None:
    # Every weight lies just above the middle between two steps, so that all round up and the sums of a positive input grow.
    graph = Graph.empty([("x", tensor_type((1, 64, 6, 6), "f32"))])
    array = np.full((4, 64, 1, 1), 0.503 / 127, np.float32)
    array[:, 0] = 1.0
    weight, bias = graph.add_weight("w", array), graph.add_weight("b", np.zeros(4, np.float32))
    conv = top.Conv.make(graph.inputs[0].value, weight.output, bias.output, name="y", **_WINDOW)
    for op in (weight, bias, conv):
        graph.block.add_op(op)
    graph.set_outputs([("y", conv.y)])
    rng = np.random.default_rng(2)
    samples = [{"x": rng.random((1, 64, 6, 6)).astype(np.float32)} for _ in range(12)]
    means = []
    for correct in (False, True):
        done, _ = quantize_on_data(graph, open_data(graph, samples), correct=correct, threads=1)
        engine, exact = IntegerEngine(done.graph), FloatEngine(graph, threads=1)
        means.append(abs(np.mean([engine.run(s)["y"] - exact.run(s)["y"] for s in samples])))
        assert done.corrected == correct
    assert means[1] < means[0] / 10


def test_weights_of_few_bits_that_lose_a_network_are_said_to_need_learning() -> None:
    """The weights that matter are 20 times smaller than those of inputs that are nearly nothing."""
    rng = np.random.default_rng(0)
    loud = rng.standard_normal((12, 8, 3, 3)).astype(np.float32)
    loud[:, 0] *= 20
    data = rng.standard_normal((16, 1, 8, 6, 6)).astype(np.float32)
    data[:, :, 0] *= 1e-3
    graph = lang.build({"y": lang.conv(lang.input("x", (1, 8, 6, 6)), loud, name="y")})

    def warnings(scheme: str, ladder: PipelineOptions | None = None) -> list[str]:
        source = open_data(graph, list(data))
        done, _ = quantize_on_data(graph, source, QuantizationConfig(scheme=scheme), threads=1, ladder=ladder)
        assert done.accuracy is not None
        return [word for word in done.accuracy.warnings if "--ladder gptq,adaquant" in word]

    (said,) = warnings("int4-weights")
    assert said.startswith("weights of 4 bits leave ")
    # Not of 8 bits, and not to those who learn already.
    assert not warnings("int8") and not warnings("int4-weights", PipelineOptions(("gptq",)))


def test_ranges_under_weights_of_few_bits_are_chosen_beside_weights_of_eight(monkeypatch: Any) -> None:
    """Weights of 4 bits make most of the error, and chance would choose; ranges count once the weights are rounded better."""
    rng = np.random.default_rng(2)
    sizes = [((12, 8, 3, 3), 6), ((12, 12, 3, 3), 8), ((4, 12, 1, 1), 1)]
    first, second, last = (rng.standard_normal(shape).astype(np.float32) / part for shape, part in sizes)
    hidden = lang.conv(lang.input("x", (1, 8, 8, 8)), first, relu=True, name="a")
    graph = lang.build({"y": lang.conv(lang.conv(hidden, second, relu=True, name="b"), last, name="c")})
    rng = np.random.default_rng(102)
    data = [
        rng.standard_normal((1, 8, 8, 8)) * np.exp(0.9 * rng.standard_normal((1, 8, 8, 8))) for _ in range(40)
    ]
    samples = [{"x": sample.astype(np.float32)} for sample in data]

    def rounded() -> tuple[str, float]:
        context = QuantizationContext(graph, samples, lambda op: SCHEMES["int4-weights"])
        start = context.start()
        better = Gptq().propose(start, context)
        assert better is not None
        return start.quantized.notes[0], better.sqnr

    note, sqnr = rounded()
    monkeypatch.setattr("npuc.quant.tuning.with_weights_of_a_byte", lambda scheme_of: scheme_of)
    other_note, other = rounded()
    assert note.startswith("ranges by max: its outputs are closest to float beside weights of 8 bits")
    assert other_note.startswith("ranges by mse: its outputs are closest to float (")
    assert sqnr > other + 0.3, (sqnr, other)
