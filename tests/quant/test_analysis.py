"""Analysis: what was planted in a network is the first finding, and its healthy twin has no such finding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.calib.calibration import calibrate
from npuc.calib.sources import open_data
from npuc.engine import FloatEngine
from npuc.errors import CompareError, UsageError
from npuc.flow import quantize_on_data
from npuc.ir import Graph, result_names
from npuc.quant import SCHEMES, Scheme, quantize
from npuc.quant.analysis import Analysis, analyze, hybrid_yaml, suggest
from npuc.quant.analysis.analyze import LEVERS
from npuc.quant.analysis.histogram import bins, svg_histograms, text_histogram
from npuc.quant.bias_correction import correct_biases
from npuc.quant.config import QuantizationConfig
from npuc.quant.ladder.sequence import chosen
from npuc.quant.validation import OutputValidator

Range = tuple[float, float]
WIDE = SCHEMES["int16"]


def weights(seed: int, *shape: int) -> Array:
    fan = int(np.prod(shape[1:])) or 1
    return (np.random.default_rng(seed).standard_normal(shape) * np.sqrt(2 / fan)).astype(np.float32)


def samples(count: int = 12, outlier: float = 1.0) -> list[dict[str, Array]]:
    """Pictures with one value each that may be larger, in all channels in turn."""
    found = np.random.default_rng(5).uniform(-1, 1, (count, 1, 4, 20, 20)).astype(np.float32)
    for index, array in enumerate(found):
        array[0, index % 4, 6, 6] *= outlier
    return [{"x": array} for array in found]


def network(
    channel: float = 1.0, uneven: float = 0.0, offset: float = 0.0, weight: float = 1.0, stem: float = 1.0
) -> Graph:
    """stem, body and head; a channel of the stem may be larger, weights of the body may differ, the stem be offset."""
    sizes = np.ones(16, np.float32)
    sizes[3] = channel
    bias = np.full(16, 0.2 + offset, np.float32)
    x = lang.input("x", (1, 4, 20, 20))
    first = lang.conv(
        x,
        stem * weights(1, 16, 4, 3, 3) * sizes[:, None, None, None],
        bias * sizes,
        pads=1,
        relu=not offset,
        name="stem",
    )
    w2 = weight * weights(2, 16, 16, 3, 3) / sizes[None, :, None, None]
    if offset:
        w2 -= w2.mean(axis=(1, 2, 3), keepdims=True)
    spread = np.exp(uneven * np.linspace(-1, 1, 16)).astype(np.float32)
    body = lang.conv(
        first, w2 * spread[:, None, None, None], np.full(16, 0.1, np.float32) * spread, relu=True, name="body"
    )
    last = lang.conv(
        body, weights(3, 16, 16, 1, 1) / spread[None, :, None, None], np.zeros(16, np.float32), name="last"
    )
    pooled = lang.reduce(last, kind="mean", axes=(2, 3), keepdims=False, name="pooled")
    return lang.build({"y": lang.matmul(pooled, weights(4, 16, 5), np.zeros(5, np.float32), name="head")})


def analyzed(
    graph: Graph,
    scheme: Scheme = SCHEMES["int8"],
    data: list[dict[str, Array]] | None = None,
    factors: Mapping[str, float] | None = None,
    layers: Mapping[str, Scheme] | None = None,
    correct: bool = True,
) -> Analysis:
    """The network quantized with the whole range of every tensor, some of them multiplied, and corrected biases."""
    data = data or samples()
    table = calibrate(graph, data, "max", threads=1)
    ranges: dict[str, Range] = {}
    for name, entry in table.items():
        factor = (factors or {}).get(name, 1.0)
        ranges[name] = (entry.min * factor, entry.max * factor)

    def scheme_of(op: Any) -> Scheme:
        return (layers or {}).get(result_names(op)[0], scheme)

    made = quantize(graph, ranges, scheme_of)
    if correct:
        correct_biases(graph, made, data, 1, scheme_of)
    return analyze(graph, made, data, scheme_of, threads=1)


def kinds(found: Analysis) -> set[str]:
    return {finding.kind for finding in found.findings}


UNEVEN = replace(WIDE, per_channel=False)
FLOOR = replace(WIDE, constant_rounding="floor")
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "clipping": ("stem", "clipping", {"graph": network(), "factors": {"stem": 0.2}}, {"graph": network()}),
    "outlier channel": ("stem", "outlier channels", {"graph": network(60.0)}, {"graph": network()}),
    "rare values": (
        "x", "outliers", {"graph": network(), "data": samples(outlier=60.0)}, {"graph": network()},
    ),
    "weight spread": (
        "body", "weight spread", {"graph": network(uneven=3.0), "scheme": UNEVEN}, {"graph": network(), "scheme": UNEVEN},
    ),
    "weight spread, a scale a channel": (
        "body", "weight spread", {"graph": network(uneven=3.0), "scheme": UNEVEN}, {"graph": network(uneven=3.0), "scheme": WIDE},
    ),
    "bias shift": (
        "body", "bias shift", {"graph": network(), "scheme": FLOOR, "correct": False}, {"graph": network(), "scheme": FLOOR},
    ),
    "wasted bits": ("body", "wasted bits", {"graph": network(), "factors": {"body": 16.0}}, {"graph": network()}),
    "sensitive tensor": ("stem", "rounding", {"graph": network(offset=80.0)}, {"graph": network(), "scheme": WIDE}),
    "few bits for weights": (
        "head", "weights", {"graph": network(), "layers": {"head": replace(WIDE, weight="i4")}}, {"graph": network()},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_planted_is_found_first(case: str) -> None:
    layer, kind, sick, healthy = CASES[case]
    found = analyzed(**sick)
    assert (found.findings[0].layer, found.findings[0].kind) == (layer, kind), found.findings
    assert found.findings[0].severity > 0.25
    assert found.findings[0].kind not in kinds(analyzed(**healthy))


def test_a_clipped_tensor_of_16_bits_is_told_that_it_has_room() -> None:
    found = analyzed(network(), WIDE, factors={"stem": 0.5})
    assert found.findings[0].kind == "clipping" and "costs nothing" in found.findings[0].remedy


def test_advice_on_ranges_was_tried() -> None:
    """A wider range helps what is clipped for nothing, and not what is clipped for the sake of the rest."""
    helped = analyzed(network(), factors={"stem": 0.2})
    assert (
        helped.findings[0].remedy.startswith("a wider range")
        and "less than 0.01 %" in helped.findings[0].remedy
    )
    data = samples(outlier=1000.0)
    needed = analyzed(network(), data=data)
    (outliers,) = [one for one in needed.findings if one.kind == "outliers" and one.layer == "x"]
    assert "clipping does not help" in outliers.remedy
    tensor = needed.tensor("x")
    assert tensor.other_range is not None and tensor.other_range > tensor.noise
    quiet = analyzed(network(), data=samples(outlier=60.0))
    assert all(
        one.other_range is None for one in quiet.measurements.tensors if one.name in ("pooled", "head")
    )


def test_a_layer_that_passes_on_errors_is_not_blamed() -> None:
    found = analyzed(network(), factors={"stem": 0.2})
    passed = [finding for finding in found.findings if finding.kind == "inherited"]
    assert passed and all("'stem' costs most" in finding.remedy for finding in passed)
    assert not {"stem"} & {finding.layer for finding in passed}


def test_tensors_of_one_sign_and_of_a_concat_get_their_own_remedy() -> None:
    found = analyzed(network(), SCHEMES["int8-symmetric"], factors={"body": 16.0})
    assert "activation_scales: affine" in found.findings[0].remedy
    x = lang.input("x", (1, 4, 20, 20))
    small = lang.conv(x, 0.02 * weights(1, 4, 4, 1, 1), np.zeros(4, np.float32), name="small")
    large = lang.conv(x, weights(2, 4, 4, 1, 1), np.zeros(4, np.float32), name="large")
    both = lang.concat([small, large], axis=1, name="both")
    w = np.concatenate([50 * weights(3, 8, 4, 1, 1), weights(4, 8, 4, 1, 1)], axis=1)
    graph = lang.build({"y": lang.conv(both, w, np.zeros(8, np.float32), name="head")})
    found = analyzed(graph)
    assert (found.findings[0].layer, found.findings[0].kind) == ("small", "wasted bits")
    assert "'both'" in found.findings[0].remedy
    assert "both" not in {tensor.name for tensor in found.measurements.tensors}


def pooled(size: int) -> Graph:
    """An average over most of a picture: TFLite's arithmetic rounds it in the steps of what it reads."""
    x = lang.input("x", (1, 4, 20, 20))
    y = lang.conv(x, weights(1, 8, 4, 3, 3), np.full(8, -2.0, np.float32), relu=True, pads=1, name="stem")
    y = lang.avg_pool(y, kernel=(size, size), strides=(size, size), name="mean")
    return lang.build({"y": lang.conv(y, weights(2, 4, 8, 1, 1), np.zeros(4, np.float32), name="head")})


def test_what_types_do_not_explain_is_blamed_on_the_arithmetic() -> None:
    found = analyzed(pooled(19), SCHEMES["tflite"])
    assert (found.findings[0].layer, found.findings[0].kind) == ("mean", "arithmetic"), found.findings
    assert found.findings[0].severity > 0.75
    assert "arithmetic" not in kinds(analyzed(pooled(19)))


def test_noises_add_up_to_that_of_the_network() -> None:
    found = analyzed(network(channel=8.0)).measurements
    assert 0.5 < found.separate / found.output_noise < 2.0
    shares = [found.share(one.noise) for one in (*found.tensors, *found.weights)]
    assert sum(shares) == pytest.approx(found.separate / max(found.separate, found.output_noise))


def test_measures_of_values_are_those_of_the_definition() -> None:
    found = analyzed(network(), factors={"stem": 0.5})
    values = found.tensor("stem").values
    arrays = [FloatEngine(network(), fetch=["stem"]).run(sample)["stem"] for sample in samples()]
    real = np.concatenate([array.ravel() for array in arrays]).astype(np.float64)
    kind = values.type
    steps = np.clip(np.rint(real / kind.scale) + kind.zero_point, *kind.dtype.limits)
    lost = np.square(real - (steps - kind.zero_point) * kind.scale)
    assert values.sqnr == pytest.approx(10 * np.log10(np.square(real).sum() / lost.sum()), abs=0.2)
    assert values.clipped == pytest.approx((real > values.high + kind.scale / 2).mean(), abs=1e-3)
    share = np.bincount(steps.astype(int) + 128) / real.size
    assert values.entropy == pytest.approx(-(share[share > 0] * np.log2(share[share > 0])).sum(), abs=0.1)
    centred = real - real.mean()
    assert values.kurtosis == pytest.approx((centred**4).mean() / np.square(centred).mean() ** 2, rel=0.02)
    whole = analyzed(network()).tensor("stem")
    assert 0 < whole.entropy < found.tensor("stem").entropy < 1


@pytest.mark.parametrize("scheme", [None, "pow2"])
def test_the_suggested_file_makes_the_network_better(scheme: str | None, tmp_path: Path) -> None:
    graph, data = network(channel=60.0), samples(24)
    asked = QuantizationConfig() if scheme is None else QuantizationConfig(scheme=scheme)
    done, _ = quantize_on_data(
        graph, open_data(graph, data[:16]), asked, widen=False, correct=False, threads=1
    )
    found = analyze(graph, done.graph, data[:16], done.scheme_of, threads=1)
    hybrid = suggest(found.measurements)
    assert {"stem", "body"} <= set(hybrid.layers) and hybrid.expected > hybrid.before + 3
    path = tmp_path / "hybrid.yaml"
    path.write_text(hybrid_yaml(hybrid, found.measurements, asked, {}, ["a comment"]))
    config = QuantizationConfig.load(path)
    assert config.layers == hybrid.layers
    again, _ = quantize_on_data(
        graph, open_data(graph, data[:16]), config, widen=False, correct=False, threads=1
    )
    validator = OutputValidator(graph, data[16:])
    before, after = (validator.figures(one.graph).mean for one in (done, again))
    assert after > before + 3, (before, after)


def test_a_file_keeps_what_was_asked_for_and_survives_odd_names(tmp_path: Path) -> None:
    found = analyzed(network(channel=60.0)).measurements
    asked = QuantizationConfig(
        scheme="uint8", types={"softmax": "float"}, layers={"stem": "float", "a: #b": {"weight": "i16"}}
    )
    path = tmp_path / "hybrid.yaml"
    path.write_text(hybrid_yaml(suggest(found), found, asked, {'he"ad': "int16"}))
    read = QuantizationConfig.load(path)
    assert (read.scheme, read.types) == ("uint8", {"softmax": "float"})
    assert read.layers["a: #b"] == {"weight": "i16"} and read.layers['he"ad'] == "int16"
    assert read.layers["stem"] == "int16"
    impossible = suggest(found, lambda layer, change: None)
    assert not impossible.layers and "stem" in impossible.refused and impossible.expected == impossible.before
    others = suggest(found, lambda layer, change: None if layer == "stem" else change.level)
    assert "stem" not in others.layers and "stem" in others.refused


def test_nothing_is_suggested_where_nothing_stands_out() -> None:
    found = analyzed(network(), WIDE).measurements
    assert all("weight" in level for level in suggest(found).layers.values())


def test_remedies_name_steps_that_exist() -> None:
    words = list(LEVERS.values())
    for _, _, sick, _ in CASES.values():
        words += [finding.remedy for finding in analyzed(**sick).findings]
    named = {step for text in words for step in re.findall(r"--ladder (\w+)", text)}
    assert named == {entry.name for entry in chosen(sorted(named))} and "smooth" in named


def test_histograms_show_all_values_and_what_is_outside() -> None:
    tensor = analyzed(network(), factors={"stem": 0.2}).tensor("stem")
    found = bins(tensor)
    assert sum(one.share for one in found) == pytest.approx(1.0)
    assert found[0].low == tensor.values.statistics.min and found[-1].high == tensor.values.statistics.max
    assert [one.outside for one in found].count(True) >= 15
    text = text_histogram(tensor)
    assert "!" in text and "20 % clipped" in text and len(text.splitlines()) == 25
    picture = svg_histograms([tensor, replace(tensor, name="<odd>")])
    assert ElementTree.fromstring(picture).tag.endswith("svg") and "&lt;odd&gt;" in picture


def test_another_network_is_refused() -> None:
    graph, data = network(), samples()
    made = quantize(graph, {n: (e.min, e.max) for n, e in calibrate(graph, data, "max").items()})
    with pytest.raises(CompareError, match="other weights"):
        analyze(network(stem=0.9), made, data)
    with pytest.raises(UsageError, match="no integers"):
        analyze(graph, graph, data)
    with pytest.raises(UsageError, match="Did you mean 'stem'"):
        analyze(graph, made, data, threads=1).tensor("stam")


def test_two_runs_say_the_same() -> None:
    graph = network(channel=20.0)
    assert analyzed(graph).as_json() == analyzed(graph).as_json()
