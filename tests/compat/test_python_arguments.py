"""Arguments of the vendors' Python functions: each is accepted, and none is passed over in silence."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuc.compat.tpumlir.tpulang as tpul
from npuc.compat.qubee import calibration, compiling, model_dict
from npuc.compat.qubee.settings import CompileSettings
from npuc.errors import NetworkError, UsageError

PACKAGES = ("acuity", "qubee", "tpumlir")
TOLD = {
    ("mxq_compile", "compile"): set(CompileSettings.__dataclass_fields__),  # by locals()
    ("requant_fp_to_int",): {"requant_mode"},  # means nothing in TPU-MLIR, either
    ("log_message",): {"format", "args"},  # of a server
}
"""Arguments that a function does not name in its body, and may not."""

TPULANG = """
init(device, assign) reset_default_graph(graph) reset_graph(graph) Tensor(shape, name, ttype, data, dtype, scale, zero_point,
is_const) conv_v2(tensor_i, weight, bias, stride, dilation, pad, group, input_zp, weight_zp, out_dtype, out_name) conv(input,
weight, bias, stride, dilation, pad, group, out_dtype, out_name) conv_quant(input, weight, bias, stride, dilation, pad,
group, input_scale, weight_scale, output_scale, input_zp, weight_zp, output_zp, out_dtype, out_name) deconv(input, weight,
bias, stride, dilation, pad, output_padding, group, out_dtype, out_name) matmul(input, right, bias, input_transpose,
right_transpose, output_transpose, keep_dims, out_dtype, out_name, do_relu, relu_limit) matmul_quant(input, right, bias,
right_transpose, keep_dims, input_scale, right_scale, output_scale, input_zp, right_zp, output_zp, out_dtype, out_name)
add(tensor_i0, tensor_i1, scale, zero_point, out_dtype, out_name) sub(tensor_i0, tensor_i1, scale, zero_point, out_dtype,
out_name) mul(tensor_i0, tensor_i1, scale, zero_point, out_dtype, out_name) div(tensor_i0, tensor_i1, out_name)
maxpool2d(input, kernel, stride, pad, ceil_mode, scale, zero_point, out_name, round_mode) avgpool2d(input, kernel, stride,
pad, ceil_mode, scale, zero_point, out_name, count_include_pad, round_mode, first_round_mode) relu(input, out_name)
prelu(input, slope, out_name) leaky_relu(input, negative_slope, out_name, round_mode) tanh(input, scale, zero_point,
out_name, round_mode) sigmoid(input, scale, zero_point, out_name, round_mode) elu(input, scale, zero_point, out_name)
swish(input, beta, scale, zero_point, round_mode, out_name) softmax(input, axis, out_name) concat(inputs, scales,
zero_points, axis, out_name, dtype, round_mode) split(input, axis, num, size, out_name) pad(input, method, value, padding,
out_name) tile(input, reps, out_name) broadcast(input, reps, out_name) reshape(tensor, new_shape, out_name) permute(input,
order, out_name) squeeze(tensor_i, axis, out_name) unsqueeze(input, axes, out_name) reduce(input, method, axes, keep_dims,
out_name) arg(input, method, axis, keep_dims, out_name) topk(input, axis, k, out_name) gather_elements(input, index, axis,
out_name) interpolate(input, scale_h, scale_w, method, coord_mode, out_name) requant_fp_to_int(tensor_i, scale, offset,
requant_mode, out_dtype, out_name, round_mode) dequant_int_to_fp(tensor_i, scale, offset, out_dtype, out_name, round_mode)
cast(tensor_i, out_dtype, out_name, round_mode) custom(tensors_in, shape_func, op_name, out_dtypes, out_names, params)
gts(tensor_i0, scalar_i1, scale, zero_point, out_name) compile(name, inputs, outputs, cmp, refs, mode, dynamic, asymmetric,
no_save, opt, mlir_inference, has_custom) compile_f32(name, inputs, outputs, cmp, refs, mode, dynamic, opt, no_save,
mlir_inference)
"""
_IMAGES = "data_dir save_dir save_name anno_json file_format max_size remove_npy seed save_calib_msg msg_path"
QUBEE = {
    compiling.mxq_compile: "model calib_data_path model_nickname save_path input_shape backend device quantize_method "
    "quantize_percentile topk_ratio smooth_factor is_quant_ch optimization optimization_level save_sample "
    "use_random_calib cpu_offload quant_output adaq_useadaquant adaq_weightDeltaLR adaq_biasDeltaLR adaq_weightScaleLR "
    "adaq_biasScaleLR adaq_actScaleLR adaq_batchSize adaq_epoch example_input",
    model_dict.Model_Dict: "model backend input_shape device",
    model_dict.Model_Dict.inference: "self input_tensor cast_cpu",
    model_dict.Model_Dict.inference_int8: "self input_tensor",
    model_dict.Model_Dict.inference_int8_input_dict: "self input_dict",
    calibration.make_calib: f"args_pre {_IMAGES}",
    calibration.make_calib_man: f"pre_ftn {_IMAGES}",
}


def _calls() -> list[tuple[str, list[str]]]:
    calls = [call.strip() for call in TPULANG.replace("\n", " ").split(")") if call.strip()]
    return [(name.strip(), given.split(", ")) for name, _, given in (call.partition("(") for call in calls)]


@pytest.mark.parametrize(("name", "documented"), [pytest.param(*call, id=call[0]) for call in _calls()])
def test_tpulang_takes_every_documented_argument(name: str, documented: list[str]) -> None:
    operator = getattr(tpul, name)
    taken = {*inspect.signature(operator).parameters, *getattr(operator, "other_names", {})}
    assert set(documented) <= taken, set(documented) - taken


@pytest.mark.parametrize("function", QUBEE, ids=lambda function: function.__qualname__)
def test_qubee_takes_every_documented_argument_in_its_order(function: Any) -> None:
    taken = list(inspect.signature(function).parameters)
    assert taken[: len(QUBEE[function].split())] == QUBEE[function].split()


def test_no_argument_is_left_unread(root: Path) -> None:
    """An argument that the body of a function never names is passed over in silence."""
    unread = []
    for path in sorted(
        file for package in PACKAGES for file in (root / "src/npuc/compat" / package).glob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            own = node.args
            names = {
                word.arg
                for word in (*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg)
                if word
            }
            read = {part.id for line in node.body for part in ast.walk(line) if isinstance(part, ast.Name)}
            told = {
                name
                for functions, names_told in TOLD.items()
                if node.name in functions
                for name in names_told
            }
            unread += [
                f"{path.name}:{node.name} {name}" for name in names - read - told - {"self", "cls", "_"}
            ]
    assert not unread, unread


def test_settings_without_effect_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    CompileSettings(
        quantize_method="max", quantize_percentile=0.9, topk_ratio=0.1, smooth_factor=2, adaq_epoch=3
    ).tell_unused()
    said = capsys.readouterr().err
    for name in ("quantize_percentile", "topk_ratio", "smooth_factor", "adaq_epoch"):
        assert f"{name} has no effect" in said
    CompileSettings(quantize_method="kl", smooth_factor=2, adaq_useadaquant=True, adaq_epoch=3).tell_unused()
    CompileSettings(
        quantize_method="max", quantize_percentile=0.9999
    ).tell_unused()  # Model_Dict.compile's own
    assert not capsys.readouterr().err
    with pytest.raises(UsageError, match="inference_scheme is 'turbo'"):
        CompileSettings(inference_scheme="turbo")


def test_tpulang_tells_what_has_no_effect(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    tpul.init("BM1684X", False)
    assert "assign=False has no effect" in capsys.readouterr().err
    x = tpul.Tensor([1, 4, 6, 6])
    y = tpul.relu(x)
    tpul.compile("net", [x], [y], False, no_save=True, log_level="quiet", gdma_check=False)
    said = capsys.readouterr().err
    assert "log_level='quiet' has no effect" in said and "gdma_check" not in said
    for wrong, words in (
        ({"num_core": 2}, "num_core=2"),
        ({"spec_op_mode": {"Add": "F16"}}, "spec_op_mode"),
        ({"fast": 1}, "no argument 'fast'"),
    ):
        with pytest.raises(UsageError, match=words):
            tpul.compile("net", [x], [y], False, no_save=True, **wrong)
    with pytest.raises(UsageError, match="one graph at a time"):
        tpul.reset_default_graph("other")


def test_a_scale_is_used_or_refused() -> None:
    tpul.init("BM1684X")
    x = tpul.Tensor([1, 4, 6, 6], dtype="int8", scale=0.1, zero_point=2)
    kept = tpul.permute(tpul.reshape(x, [4, 36]), [1, 0])
    assert (kept.scale, kept.zero_point, kept.dtype) == (0.1, 2, "int8")
    for call, words in (
        (lambda: tpul.softmax(x, 1), "has a scale, which this operator does not compute with"),
        (lambda: tpul.tanh(x), "its result has none"),
        (lambda: tpul.tanh(x, scale=[0.1]), "1 scales and 1 zero points for 1 operands"),
        (lambda: tpul.tanh(x, scale=[0.2, 0.1], zero_point=[2, 0]), "has the scale 0.1, and is given 0.2"),
        (
            lambda: tpul.tanh(x, scale=[0.1, 0.1], zero_point=[2, 0], round_mode="up"),
            "round_mode 'up' is not supported",
        ),
        (lambda: tpul.Tensor([1], scale=0.1), "float32, which has no scale"),
        (lambda: tpul.conv_quant(tpul.Tensor([1, 4, 6, 6]), x), "is float32, not int8"),
        (
            lambda: tpul.requant_fp_to_int(tpul.Tensor([1, 4]), [0.1, 0.2], 0, 2, "int8"),
            "a scale for each channel",
        ),
    ):
        with pytest.raises((NetworkError, UsageError), match=words):
            call()


@pytest.mark.parametrize("zero", [0, 5])
def test_integers_with_scales_are_those_of_numpy(zero: int, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    tpul.init("BM1684X")
    data = np.random.RandomState(0).randint(-100, 100, (1, 4, 6, 6)).astype(np.int8)
    x = tpul.Tensor([1, 4, 6, 6], dtype="int8", data=data)
    y = tpul.tanh(x, scale=[0.03, 1 / 128], zero_point=[zero, 1], out_name="y")
    z = tpul.add(x, y, scale=[0.03, 1 / 128, 0.05], zero_point=[zero, 1, -2], out_name="z")
    tpul.compile("net", [x], [y, z])
    found = np.load("net_top_outputs.npz")
    real = (data.astype(np.float64) - zero) * 0.03
    integers = np.clip(np.round(np.tanh(real) * 128) + 1, -128, 127)
    assert np.abs(found["y"] - integers).max() <= 1 and (found["y"] == integers).mean() > 0.99
    total = np.clip(np.round((real + (found["y"] - 1) / 128) / 0.05) - 2, -128, 127)
    assert np.abs(found["z"] - total).max() <= 1 and (found["z"] == total).mean() > 0.95
