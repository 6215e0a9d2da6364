"""Real models: what their exporters spelled out is found, and the outputs stay."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from npuc.frontend.onnx import ImportOptions, import_onnx
from npuc.transform import canonicalize
from support.graphs import assert_same_function
from support.passes import ops_of

CASES: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, int]]] = {
    "yolox_nano": ({}, {"silu": 104, "space_to_depth": 1, "sigmoid": 6, "mul": 0, "slice": 0}),
    "mediapipe_face_landmark": ({}, {"prelu": 23, "relu": 0, "neg": 0}),
    "fastestdet": ({}, {"shuffle_channel": 13, "gather": 0}),
    "shufflenet_v2_int8": ({}, {"shuffle_channel": 16, "permute": 0}),
    "super_resolution": ({"input": (1, 1, 224, 224)}, {"depth_to_space": 1, "permute": 0, "reshape": 0}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_real_model(name: str, shared: Path) -> None:
    shapes, expected = CASES[name]
    before = import_onnx(shared / "models" / "onnx" / f"{name}.onnx", ImportOptions(input_shapes=shapes))
    after = canonicalize(before)
    found = Counter(ops_of(after))
    assert {key: found[key] for key in expected} == expected
    assert_same_function(before, after, tolerance=1e-3)
