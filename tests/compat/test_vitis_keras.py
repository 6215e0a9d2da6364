"""The arguments of Vitis AI's Keras quantizer as npuc's settings; the quantizer itself is in `examples_vitis.yaml`."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from npuc.compat.vitis.keras_strategy import strategy_of
from npuc.compat.vitis.targets import B4096
from npuc.errors import UnknownTensorError, UsageError
from npuc.flow import import_model
from support.networks.small_onnx import image_model


def test_the_dpu_is_the_default_and_other_arithmetic_has_no_machine() -> None:
    plain = strategy_of("pof2s", {"activation_bit": 8, "weight_round_mode": 0})
    assert plain.target is not None and plain.target.name == B4096 and plain.scheme is None
    assert plain.method is None and plain.ladder is None and plain.needs_data
    assert strategy_of("pow2s", {"activation_method": 0}).method == "max"
    wide = strategy_of("pof2s", {"weight_bit": 4})
    assert wide.target is None and wide.scheme["weight"] == "i4" and wide.scheme["activation"] == "i8"
    affine = strategy_of("fs", {"activation_symmetry": False, "weight_per_channel": True})
    assert affine.scheme["activation_scales"] == "affine" and affine.scheme["per_channel"] is True
    half = strategy_of("pof2s", {"convert_datatype": "float16"})
    assert half.scheme == "f16" and not half.needs_data
    steps = strategy_of("pof2s", {"forced_cle": True, "include_fast_ft": True}).ladder
    assert steps is not None and steps.steps == ("equalize", "adaquant")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("pof3s", {}, "there is no quantize_strategy 'pof3s'"),
        ("pof2s", {"weight_symmetry": False}, "weight_symmetry=False is not what the DPU computes with"),
        ("pof2s", {"activation_round_mode": 2}, "activation_round_mode=2 is not supported"),
        ("pof2s", {"activation_bit": "8"}, "activation_bit is '8'"),
        ("pof2s", {"activation_method": 7}, "activation_method is 7"),
        ("pof2s", {"convert_datatype": "int3"}, "convert_datatype is 'int3'"),
    ],
)
def test_what_cannot_be(name: str, arguments: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        strategy_of(name, arguments)


def test_unknown_arguments_warn_or_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    strategy_of("pof2s", {"frobnicate": 1, "cle_steps": 5})
    told = capsys.readouterr().err
    assert "quantize_model has no option 'frobnicate'" in told and "cle_steps has no effect here" in told
    monkeypatch.setenv("NPUC_COMPAT_STRICT", "1")
    with pytest.raises(UsageError, match="no option 'frobnicate'"):
        strategy_of("pof2s", {"frobnicate": 1})


def test_a_layer_that_was_fused_is_the_one_behind_it(tmp_path: Path) -> None:
    onnx.save(image_model(), str(tmp_path / "net.onnx"))
    graph = import_model(tmp_path / "net.onnx")
    strategy = strategy_of("pof2s", {"ignore_layers": ["gone"]})
    assert dict(strategy.config(graph, {"gone": "also_gone", "also_gone": "r"}).layers) == {"r": "float"}
    with pytest.raises(UnknownTensorError, match="the model has no layer 'gone'"):
        strategy.config(graph, {})
    with pytest.raises(UsageError, match="is no list of layers"):
        strategy_of("pof2s", {"ignore_layers": "r"}).config(graph, {})
