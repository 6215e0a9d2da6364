"""Every shared TensorFlow Lite model, on real inputs, against LiteRT's reference kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.flow import check_model, import_model
from npuc.frontend.options import ImportOptions
from npuc.ir import top
from support.judges.litert_models import FLOAT, INTEGER, Judged, float_twin

pytest.importorskip("ai_edge_litert")


def _path(shared: Path, name: str) -> Path:
    path = shared / "models" / "tflite" / f"{name}.tflite"
    if not path.is_file():
        pytest.skip(f"{path.name} is not here")
    return path


@pytest.mark.parametrize("name", INTEGER)
def test_integer_models_have_the_same_bits(shared: Path, name: str) -> None:
    judged = Judged(_path(shared, name)).run(shared, 20)
    assert judged.inputs == 20 and judged.equal == judged.compared >= 20
    left = [layer for layer in judged.integer.outcome.layers if not layer.integer]
    assert not left


@pytest.mark.parametrize("name", FLOAT)
def test_float_models_agree(shared: Path, name: str) -> None:
    path = _path(shared, name)
    mixed = name == "kws_float"  # its weights are integers, and LiteRT quantizes activations as it runs
    judged = Judged(path).run(shared, 4 if "mediapipe" in name else 20, float_twin(path) if mixed else None)
    assert judged.cosine >= 0.99999
    if mixed:
        assert 0.999 <= Judged(path).run(shared, 20).cosine < 0.99999


def test_no_turns_remain_but_at_the_ends(shared: Path) -> None:
    for name in ("mobilenet_v1_025_128_uint8", "mobilenet_v2_224_ptq", "resnet8_int8", "vww_float"):
        graph = import_model(_path(shared, name))
        assert sum(isinstance(op, top.Permute) for op in graph.ops) == 1, name


@pytest.mark.parametrize("name", ["kws_int8", "kws_float", "hello_world_int8", "resnet8_float"])
def test_the_import_check_asks_litert(shared: Path, name: str) -> None:
    path = _path(shared, name)
    report = check_model(path, import_model(path), ImportOptions())
    assert report.runtime == "LiteRT" and report.passed and report.layers
    assert bool(report.notes) == (name == "kws_float")
