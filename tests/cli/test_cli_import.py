"""`npuc import`: what it writes, what it checks, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from npuc.flow import importing
from npuc.frontend.onnx import import_onnx
from npuc.ir import load_graph
from support.networks.small_onnx import image_model


def test_it_writes_the_program_beside_its_weights_and_says_what_it_is(
    npuc: Any, model: Path, here: Path
) -> None:
    done = npuc("import", "model.onnx")
    assert done.status == 0
    assert (here / "model.mlir").is_file() and (here / "model.safetensors").is_file()
    assert "x 1x3x8x8xf32" in done.out and "scores 1x5xf32" in done.out
    assert "agrees with ONNX Runtime on the original: 1 output" in done.out
    assert "6932 MACs" in done.out  # 8*8*4 * 27 + 4*5
    assert done.err == ""


def test_quiet_prints_nothing(npuc: Any, model: Path) -> None:
    done = npuc("import", model, "-q")
    assert (done.status, done.out, done.err) == (0, "", "")


def test_json_is_the_whole_of_stdout(npuc: Any, model: Path) -> None:
    done = npuc("import", model, "--json")
    result = json.loads(done.out)
    assert result["check"]["passed"] is True
    assert result["summary"]["macs"] == 6932
    assert [entry["name"] for entry in result["check"]["outputs"]] == ["scores"]
    assert "model.mlir" in done.err


def test_an_open_dimension_is_refused_with_the_flag_to_add(npuc: Any, here: Path) -> None:
    model = image_model("N")
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "H"
    onnx.save(model, "open.onnx")
    done = npuc("import", "open.onnx")
    assert done.status == 2
    assert "--input-shape x=1,3,224,8" in done.err
    assert npuc("import", "open.onnx", "--input-shape", "x=2,3,8,8").status == 0
    assert load_graph("open.mlir").outputs[0].value.type.get_shape() == (2, 5)


def test_the_name_may_be_left_out_if_there_is_one_input(npuc: Any, here: Path) -> None:
    onnx.save(image_model("N"), "open.onnx")
    assert npuc("import", "open.onnx", "--input-shape", "4,3,8,8").status == 0


def test_with_two_inputs_an_option_must_say_which(npuc: Any, two: Path) -> None:
    done = npuc("import", two, "--input-shape", "3,2")
    assert done.status == 2
    assert "ids, x" in done.err


@pytest.mark.parametrize("text", ["x=1,a", "x=1,-3", "1;2"])
def test_a_malformed_shape_shows_how_to_write_it(npuc: Any, model: Path, text: str) -> None:
    done = npuc("import", model, "--input-shape", text)
    assert done.status == 2 and "--input-shape" in done.err


def test_cut_at_tensors_inside_and_checked_there(npuc: Any, model: Path) -> None:
    done = npuc("import", model, "--inputs", "r", "--outputs", "f")
    assert done.status == 0, done.err
    assert "r 1x4x8x8xf32" in done.out and "f 1x4xf32" in done.out
    assert "agrees with" in done.out


def test_preprocessing_travels_in_the_program(npuc: Any, model: Path) -> None:
    flags = ["--mean", "1,2,3", "--scale", "0.5", "--pixel-format", "bgr", "--resize-dims", "10,10"]
    assert npuc("import", model, *flags).status == 0
    assert load_graph("model.mlir").inputs[0].preprocess == {
        "mean": (1.0, 2.0, 3.0),
        "scale": (0.5,),
        "pixel_format": "bgr",
        "resize": (10, 10),
        "layout": "nchw",
    }


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--mean", "1,2"], "3 channels"),
        (["--mean", "1,x,3"], "--mean"),
        (["--pixel-format", "cmyk"], "rgb"),
        (["--pixel-format", "gray"], "1 channel"),
        (["--resize-dims", "4,4"], "8 x 8"),
        (["--crop", "9"], "8 x 8"),
        (["--pad-value", "300"], "255"),
        (["--mean", "y:1,2,3"], "y"),
    ],
)
def test_preprocessing_that_does_not_fit_is_refused(
    npuc: Any, model: Path, flags: list[str], word: str
) -> None:
    done = npuc("import", model, *flags)
    assert done.status == 2
    assert word in done.err


def test_check_with_a_picture(npuc: Any, model: Path, here: Path) -> None:
    Image.fromarray(np.full((20, 30, 3), 100, np.uint8)).save(here / "p.png")
    done = npuc("import", model, "--check-input", "p.png", "--mean", "127.5", "--scale", "0.01")
    assert done.status == 0, done.err
    assert "on the given data" in done.out


@pytest.fixture
def another(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The importer takes another model than the one it is given: the last weights differ."""
    other = image_model()
    matrix = next(tensor for tensor in other.graph.initializer if tensor.name == "m")
    matrix.raw_data = (np.frombuffer(matrix.raw_data, np.float32) * -1).tobytes()
    monkeypatch.setattr(importing, "import_foreign", lambda path, options: import_onnx(other, options))


@pytest.mark.usefixtures("another")
def test_a_wrong_import_is_caught_and_the_first_wrong_layer_named(npuc: Any, model: Path) -> None:
    done = npuc("import", model)
    assert done.status == 2
    assert "error[E208]" in done.err and "'scores'" in done.err
    assert "DIFFERS" in done.out and "-1.000000" in done.out


@pytest.mark.usefixtures("another")
def test_layers_can_be_left_out_of_the_check(npuc: Any, model: Path) -> None:
    assert npuc("import", model, "--except", "scores").status == 0
    assert npuc("import", model, "--tolerance", "-1,-1").status == 0
    assert npuc("import", model, "--no-check").status == 0


def test_dump_ir_writes_a_file_a_pass(npuc: Any, model: Path, here: Path) -> None:
    assert npuc("import", model, "--dump-ir", "ir/deep").status == 0
    files = sorted(path.name for path in (here / "ir/deep").iterdir())
    assert files[0].startswith("001-") and len(files) > 5


def test_a_missing_file_lists_what_is_there(npuc: Any, model: Path) -> None:
    done = npuc("import", "modle.onnx")
    assert done.status == 2
    assert "does not exist" in done.err and "model.onnx" in done.err


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("a.onnx", b"", "empty"),
        ("a.onnx", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("a.onnx", b"<!DOCTYPE html><html>", "web page"),
        ("a.tflite", b"\x1c\0\0\0TFL3\0\0", "TensorFlow Lite"),
        ("a.pt", b"\x80\x02}q\0.", "pickle"),
        ("a.cfg", b"[net]\nwidth=3\n", "no layers"),
        ("a.weights", b"\0\0\0\0\2\0\0\0" + bytes(12), "Darknet weights"),
        ("a.prototxt", b'name: "x"\nlayer {\n}', "has no type"),
        ("a.h5", b"\x89HDF\r\n\x1a\n", "HDF5"),
        ("a.pb", b"\x0a\x10abc", "TensorFlow graph"),
        ("a.txt", b"hello", "plain text"),
        ("a.png", b"\x89PNG\r\n\x1a\n", "PNG"),
        ("a.onnx", b"\x08\x07\x12\xff\xff\xff\xff", "ONNX"),
        ("a.onnx", b"\xff" * 100, "ONNX"),
    ],
)
def test_a_file_of_another_kind_is_called_by_its_name(
    npuc: Any, here: Path, name: str, content: bytes, word: str
) -> None:
    (here / name).write_bytes(content)
    done = npuc("import", name)
    assert done.status == 2
    assert word in done.err


def test_an_npz_file_is_recognized(npuc: Any, here: Path) -> None:
    np.savez("a.npz", x=np.zeros(1))
    assert "npuc run --input" in npuc("import", "a.npz").err


def test_an_mlir_file_is_already_imported(npuc: Any, program: Path) -> None:
    done = npuc("import", program, "-o", "b.mlir")
    assert done.status == 2 and "already imported" in done.err


@pytest.mark.parametrize("target", ["missing/folder/a.mlir", "."])
def test_a_target_that_cannot_be_written(npuc: Any, model: Path, target: str) -> None:
    done = npuc("import", model, "-o", target)
    assert done.status == 2 and "error[E" in done.err


def test_the_target_must_be_an_mlir_file(npuc: Any, model: Path) -> None:
    done = npuc("import", model, "-o", "a.onnx")
    assert done.status == 2 and "-o a.mlir" in done.err


@pytest.mark.parametrize("text", ["a", "2,1", "0.9,0.9,0.9", ""])
def test_a_tolerance_that_makes_no_sense(npuc: Any, model: Path, text: str) -> None:
    assert npuc("import", model, "--tolerance", text).status == 2


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_fused_preprocessing_takes_pixels_and_computes_the_same(
    npuc: Any, model: Path, here: Path, layout: str
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save("p.png")
    if layout == "nhwc":
        proto = onnx.load(str(model))
        proto.graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("hwc", 1, [1, 8, 8, 3]))
        proto.graph.node.insert(0, onnx.helper.make_node("Transpose", ["hwc"], ["x"], perm=[0, 3, 1, 2]))
        onnx.save(proto, str(model))
    flags = [
        "--mean",
        "100,110,120",
        "--scale",
        "0.02,0.01,0.03",
        "--pixel-format",
        "bgr",
        "--channel-format",
        layout,
    ]
    assert npuc("import", model, *flags, "-o", "plain.mlir").status == 0
    done = npuc("import", model, *flags, "--fuse-preprocess", "-o", "fused.mlir")
    assert done.status == 0 and "xui8" in done.out and "agrees with" in done.out
    for name in ("plain", "fused"):
        assert npuc("run", f"{name}.mlir", "--input", "p.png", "-o", f"{name}.npz").status == 0
    assert npuc("tensors", "compare", "fused.npz", "plain.npz", "--tolerance", "0.99999,0.9999").status == 0


def test_fusing_nothing_is_refused(npuc: Any, model: Path) -> None:
    done = npuc("import", model, "--fuse-preprocess")
    assert done.status == 2 and "--mean" in done.err
