"""The page of operators by framework: every rule is in it, and what it says of where ops run is what the partition does."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from npuc import flow
from npuc.calib.random_inputs import random_inputs
from npuc.cli.frameworks import FRAMEWORKS, PARTLY, device_of, frameworks_page, ops_of, runs_on
from npuc.engine import ALL_TENSORS, FloatEngine
from npuc.ir import top
from npuc.ir.definition import TOP_OPS
from npuc.partition import partition
from npuc.target import load_target
from npuc.transform import canonicalize
from support.networks.every_op import CASES, network_of

SPELLED = {"not_": "not"}


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], tuple[str, str]]:
    """Framework and operator to where it runs and as what."""
    found, title = {}, ""
    for line in frameworks_page():
        if line.startswith("## "):
            title = line[3:].strip()
        elif line.startswith("| `") and not title.startswith("Ops"):
            name, device, made, _ = line.removeprefix("| ").removesuffix(" |").split(" | ", 3)
            found[title, name.strip("`")] = device, made
    return found


def test_every_rule_of_every_importer_has_a_row(rows: dict[tuple[str, str], tuple[str, str]]) -> None:
    from npuc.frontend.caffe.registry import supported as caffe
    from npuc.frontend.compass.registry import supported as compass
    from npuc.frontend.darknet.registry import supported as darknet
    from npuc.frontend.keras.registry import supported as keras
    from npuc.frontend.onnx.registry import RULES as onnx_rules
    from npuc.frontend.tensorflow.registry import supported as tensorflow
    from npuc.frontend.tflite.registry import RULES as tflite_rules
    from npuc.frontend.torch.registry import supported as torch

    expected = {("ONNX", ":".join(filter(None, key))) for key in onnx_rules}
    expected |= {("TensorFlow Lite", name) for name in tflite_rules}
    for title, names in (
        ("PyTorch", torch()), ("TensorFlow", tensorflow()), ("Keras", keras()), ("Caffe", caffe()), ("Darknet", darknet()),
        ("Compass IR", compass()),
    ):  # fmt: skip
        expected |= {(title, name) for name in names}
    assert set(rows) == expected
    assert len(FRAMEWORKS) == 8


@pytest.mark.parametrize(
    ("framework", "operator", "device", "made"),
    [
        ("ONNX", "Conv", "NPU", "`conv`"),
        ("ONNX", "LSTM", "NPU", "`lstm`"),
        ("ONNX", "TopK", "NPU or CPU", "`topk`"),
        ("ONNX", "Identity", "–", ""),
        ("ONNX", "Softmax", "NPU", "`softmax`"),
        ("ONNX", "Gather", "NPU", "`gather`"),
        ("ONNX", "ReduceL2", "NPU", "`reduce`"),
        ("ONNX", "ReduceProd", "CPU", "`reduce`"),
        ("PyTorch", "aten.prod", "CPU", "`reduce`"),
        ("ONNX", "ScatterND", "NPU or CPU", "`scatter_nd`"),
        ("TensorFlow Lite", "CONV_2D", "NPU", "`conv`"),
        ("PyTorch", "aten.view", "NPU", "`reshape`"),
        ("PyTorch", "aten.cumsum", "NPU", "`cumsum`"),
        ("TensorFlow", "MatMul", "NPU", "`matmul`"),
        ("Keras", "Lambda", "refused", ""),
        ("Keras", "Dropout", "–", ""),
        ("Keras", "LSTM", "NPU", "`lstm`"),
        ("Caffe", "Pooling", "NPU", "`avg_pool`, `max_pool`"),
        ("Darknet", "dropout", "–", ""),
    ],
)
def test_well_known_operators(
    rows: dict[tuple[str, str], tuple[str, str]], framework: str, operator: str, device: str, made: str
) -> None:
    found, ops = rows[framework, operator]
    assert found == device
    assert set(filter(None, made.split(", "))) <= set(ops.split(", "))


def test_what_it_says_of_an_op_is_what_the_partition_does() -> None:
    target = load_target("edge-4t")
    for name, make in CASES.items():
        kind = TOP_OPS[f"top.{SPELLED.get(name, name)}"]
        # A quantized LSTM is for files that bring their integers (tests/frontend/test_tflite_lstm.py).
        if kind in (top.Quantize, top.Dequantize, top.QuantizedLSTM) or kind in PARTLY:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = flow.expanded(canonicalize(network_of(name, make)))
            inputs = random_inputs(graph)
            seen = FloatEngine(graph, ALL_TENSORS).run(inputs) | inputs
        ranges = {
            tensor: (min(float(np.min(array)), 0.0), max(float(np.max(array)), 1e-3))
            for tensor, array in seen.items()
            if array.dtype == np.float32 and array.size
        }
        if not all(np.isfinite(pair).all() for pair in ranges.values()):
            ranges = dict.fromkeys(ranges, (-4.0, 4.0))
        made = flow.quantize_network(graph, ranges, target=target).graph
        devices = {part.device for part in partition(made, target, island_threshold=0).parts} - {"convert"}
        assert (devices == {"npu"}) == (device_of(kind)[0] == "NPU"), name


def test_a_rule_is_followed_through_functions_and_tables() -> None:
    from npuc.frontend.onnx.registry import find_rule

    assert ops_of(find_rule("", "Celu"), "Celu", ["Elu", "ThresholdedRelu"]) == [top.Celu]
    assert ops_of(None, "Nothing") == []
    assert runs_on([top.Conv, top.TopK]) == "NPU or CPU"
    assert runs_on([], "Refused: it is code.") == "refused"
