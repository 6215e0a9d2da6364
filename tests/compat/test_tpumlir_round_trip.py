"""Round trips with TPU-MLIR itself (`make test-tpumlir` installs it): tables and .npz files go both ways, and results agree."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from npuc.cli.app import run_command
from npuc.compare.tensors import compare_sets
from npuc.compat.install import install
from npuc.compat.registry import vendor_named
from npuc.tensors import TensorFile
from support.compat_examples import run_program
from support.paths import ROOT

PEER = Path(os.environ.get("NPUC_TPUMLIR", ROOT / "build" / "peers" / "tpumlir")) / "bin"

LIBRARIES = PEER.parent / "lib" / "python3.10" / "site-packages" / "tpu_mlir" / "lib"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PEER / "model_transform.py").exists(), reason="TPU-MLIR is not installed"),
]


def theirs(folder: Path, *words: object) -> None:
    """A command of TPU-MLIR itself."""
    environment = os.environ | {"PATH": f"{PEER}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    environment["LD_LIBRARY_PATH"] = str(LIBRARIES)
    command = [str(PEER / str(words[0])), *map(str, words[1:])]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def ours(*words: object) -> None:
    """The same command of npuc, in the working folder."""
    assert run_command(["compat", "run", "tpumlir", *map(str, words)]) == 0, words


def test_resnet20(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, peer = tmp_path / "own", tmp_path / "peer"
    own.mkdir()
    peer.mkdir()
    monkeypatch.chdir(own)
    calib = shared / "data" / "cifar10" / "calib"
    image = sorted(calib.iterdir())[0]
    transform = ["--model_name", "net", "--model_def", shared / "models/onnx/cifar10_resnet20.onnx", "--pixel_format", "rgb",
                 "--input_shapes", "[[1,3,32,32]]", "--mean", "123.675,116.28,103.53", "--scale", "0.0171,0.0175,0.0174",
                 "--test_input", image, "--test_result", "top.npz", "--mlir", "net.mlir"]  # fmt: skip
    deploy = ["--mlir", "net.mlir", "--quantize", "INT8", "--chip", "bm1684x", "--test_input", "net_in_f32.npz",
              "--test_reference", "top.npz", "--tolerance", "0.9,0.6", "--model", "net.bmodel", "--debug"]  # fmt: skip
    theirs(peer, "model_transform.py", *transform)
    ours("model_transform.py", *transform)
    ours("npz_tool.py", "compare", "net_in_f32.npz", peer / "net_in_f32.npz", "--tolerance", "0.9999,0.9999")
    ours("npz_tool.py", "compare", "top.npz", peer / "top.npz", "--tolerance", "0.9999,0.999")
    theirs(own, "npz_tool.py", "compare", "top.npz", peer / "top.npz", "--tolerance", "0.9999,0.999")
    assert set(TensorFile("top.npz")) == set(TensorFile(peer / "top.npz")), (
        "the names of all ops are the same"
    )

    theirs(peer, "run_calibration.py", "net.mlir", "--dataset", calib, "--input_num", 20, "-o", "table")
    theirs(peer, "model_deploy.py", *deploy, "--calibration_table", "table")
    runner = ["--input", "net_in_f32.npz", "--model", "net_bm1684x_int8_sym_tpu.mlir", "--output", "all.npz"]
    theirs(peer, "model_runner.py", *runner, "--dump_all_tensors")
    ours("model_deploy.py", *deploy, "--calibration_table", peer / "table")
    figures = compare_sets(TensorFile("net_bm1684x_int8_sym_tpu_outputs.npz"), TensorFile(peer / "all.npz"))
    assert len(figures) == 35 and all(entry.sqnr == inf for entry in figures), figures

    ours(
        "run_calibration.py",
        "net.mlir",
        "--dataset",
        calib,
        "--input_num",
        20,
        "--tune_num",
        2,
        "-o",
        "own_table",
    )
    theirs(peer, "model_deploy.py", *deploy, "--calibration_table", own / "own_table")


def test_mobilenet_v2(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A sensitive network: one integer in 300,000 that is off by one changes the cosine of a later block by 0.06. So every integer
    # of every op has to be that of the other tool.
    own, peer = tmp_path / "own", tmp_path / "peer"
    own.mkdir()
    peer.mkdir()
    monkeypatch.chdir(own)
    calib = shared / "data" / "imagenet" / "calib"
    transform = ["--model_name", "net", "--model_def", shared / "models/onnx/mobilenet_v2.onnx", "--pixel_format", "rgb",
                 "--input_shapes", "[[1,3,224,224]]", "--resize_dims", "256,256", "--mean", "123.675,116.28,103.53",
                 "--scale", "0.0171,0.0175,0.0174", "--test_input", sorted(calib.iterdir())[0], "--test_result", "top.npz",
                 "--mlir", "net.mlir"]  # fmt: skip
    deploy = ["--mlir", "net.mlir", "--quantize", "INT8", "--chip", "bm1684x", "--calibration_table", peer / "table",
              "--test_input", peer / "net_in_f32.npz", "--test_reference", "top.npz", "--tolerance", "0.5,0.1",
              "--model", "net.bmodel", "--debug"]  # fmt: skip
    theirs(peer, "model_transform.py", *transform)
    theirs(peer, "run_calibration.py", "net.mlir", "--dataset", calib, "--input_num", 20, "-o", "table")
    theirs(peer, "model_deploy.py", *deploy)
    runner = ["--input", "net_in_f32.npz", "--model", "net_bm1684x_int8_sym_tpu.mlir", "--output", "all.npz"]
    theirs(peer, "model_runner.py", *runner, "--dump_all_tensors")
    ours("model_transform.py", *transform)
    ours("model_deploy.py", *deploy)

    figures = compare_sets(TensorFile("net_bm1684x_int8_sym_tpu_outputs.npz"), TensorFile(peer / "all.npz"))
    assert len(figures) == 63 and all(entry.sqnr == inf for entry in figures), figures


OPERATORS = """
import numpy as np
import transform.TpuLang as tpul

rng = np.random.RandomState(0)
data = {name: rng.randn(1, 4, 6, 6).astype(np.float32) for name in "xz"}
kernel, slope = rng.randn(3, 4, 3, 3).astype(np.float32), rng.rand(1, 4, 1, 1).astype(np.float32)
constant = lambda array: tpul.Tensor(list(array.shape), ttype="coeff", data=array, dtype=str(array.dtype))
CASES = {
    "maxpool2d": lambda x, z, n: tpul.maxpool2d(x, [2, 2], out_name=n),
    "maxpool2d_border": lambda x, z, n: tpul.maxpool2d(x, [3, 3], [2, 2], [1, 1, 1, 1], True, out_name=n),
    "avgpool2d": lambda x, z, n: tpul.avgpool2d(x, [3, 3], [2, 2], [1, 1, 1, 1], out_name=n),
    "avgpool2d_border": lambda x, z, n: tpul.avgpool2d(x, [3, 3], None, [1, 1, 1, 1], count_include_pad=True, out_name=n),
    "cumsum": lambda x, z, n: tpul.cumsum(x, out_name=n),
    "unsqueeze": lambda x, z, n: tpul.unsqueeze(x, out_name=n),
    "reduce": lambda x, z, n: tpul.reduce(x, out_name=n),
    "arg": lambda x, z, n: tpul.arg(x, "max", 1, out_name=n),
    "swish": lambda x, z, n: tpul.swish(x, 1.7, out_name=n),
    "hsigmoid": lambda x, z, n: tpul.hsigmoid(x, out_name=n),
    "prelu": lambda x, z, n: tpul.prelu(x, constant(slope), out_name=n),
    "gelu": lambda x, z, n: tpul.gelu(x, out_name=n),
    "reshape": lambda x, z, n: tpul.reshape(x, [0, -1, 6], out_name=n),
    "broadcast": lambda x, z, n: tpul.broadcast(tpul.reduce(x, "ReduceMean", [2, 3]), [1, 1, 6, 6], out_name=n),
    "interpolate": lambda x, z, n: tpul.interpolate(x, 1.5, 2.5, "linear", out_name=n),
    "deconv": lambda x, z, n: tpul.deconv(x, constant(kernel), stride=[2, 2], pad=[1, 1, 1, 1], out_name=n),
    "conv": lambda x, z, n: tpul.conv(x, constant(kernel), stride=[2, 1], pad=[1, 1, 1, 1], out_name=n),
    "matmul": lambda x, z, n: tpul.matmul(x, z, right_transpose=True, do_relu=True, out_name=n),
    "layer_norm": lambda x, z, n: tpul.layer_norm(x, out_name=n),
    "normalize": lambda x, z, n: tpul.normalize(x, out_name=n),
    "gts": lambda x, z, n: tpul.gts(x, 0.5, out_name=n),
}
for name, build in CASES.items():
    tpul.init("BM1684X")
    x, z = (tpul.Tensor([1, 4, 6, 6], name=key, data=array) for key, array in data.items())
    made = build(x, z, name + "_out")
    inputs = [x, z] if name == "matmul" else [x]
    tpul.compile_f32(name, inputs, list(made) if isinstance(made, (list, tuple)) else [made], cmp=True)

tpul.init("BM1684X")
x = tpul.Tensor([1, 4, 12, 12], name="x", dtype="int8", data=rng.randint(-128, 128, (1, 4, 12, 12)).astype(np.int8))
w = constant(rng.randint(-127, 128, (8, 4, 3, 3)).astype(np.int8))
b = constant(rng.randint(-3000, 3000, (8,)).astype(np.int32))
scales = [0.01, 0.012, 0.008, 0.01, 0.02, 0.01, 0.009, 0.011]
y = tpul.conv_quant(x, w, b, pad=[1, 1, 1, 1], input_scale=0.05, weight_scale=scales, output_scale=0.2, input_zp=0, weight_zp=0,
                    output_zp=0, out_dtype="int8", out_name="y")
t = tpul.tanh(y, scale=[0.2, 1 / 127], zero_point=[0, 0], out_name="t")
s = tpul.add(y, t, scale=[0.2, 1 / 127, 0.25], zero_point=[0, 0, 0], out_dtype="int8", out_name="s")
p = tpul.maxpool2d(s, [2, 2], [2, 2], scale=[0.25, 0.25], zero_point=[0, 0], out_name="p")
tpul.compile("integers", [x], [tpul.dequant_int_to_fp(p, 0.25, 0, out_name="f")], MODE_ARGUMENTS)

tpul.init("BM1684X")
few = {name: rng.randint(-20, 20, (1, 4, 6, 6)).astype(np.int8) for name in "uv"}
u, v = (tpul.Tensor([1, 4, 6, 6], name=name, dtype="int8", data=data) for name, data in few.items())
both, one = {"scale": [0.1, 0.1, 0.5], "zero_point": [3, 3, 2]}, {"scale": [0.1, 0.5], "zero_point": [3, 2]}
truths = [getattr(tpul, mode)(u, v, **both, out_name=mode + "_t") for mode in ("gt", "le", "eq", "ne")]
truths += [getattr(tpul, mode)(u, 1.37, **one, out_name=mode + "_t") for mode in ("ges", "lts", "eqs", "nes")]
truths = [tpul.dequant_int_to_fp(t, 0.5, 2, out_name=t.name.replace("_t", "_f")) for t in truths]
tpul.compile("truths", [u, v], truths, MODE_ARGUMENTS)
"""


def test_tpulang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator, and a network of integers, as one program for both tools."""
    own, peer = tmp_path / "own", tmp_path / "peer"
    own.mkdir()
    peer.mkdir()
    # Importing the package of TPU-MLIR puts its modules on the path.
    program = "import tpu_mlir\n" + OPERATORS.replace("MODE_ARGUMENTS", "False, bmodel_inference=False")
    (peer / "program.py").write_text(program.replace("cmp=True", "cmp=False, bmodel_inference=False"))
    theirs(peer, "python", "program.py")
    monkeypatch.chdir(own)
    packages = install(vendor_named("tpumlir"), tmp_path / "tools").packages
    done = run_program(OPERATORS.replace("MODE_ARGUMENTS", 'True, mode="int8"'), [str(packages)])
    assert not done.returncode, done.stderr
    cases = [line.split('"')[1] for line in OPERATORS.splitlines() if "lambda x, z, n" in line]
    for name in cases:
        ours_too, expected = (
            TensorFile(own / f"{name}_top_outputs.npz"),
            TensorFile(peer / f"{name}_top_outputs.npz"),
        )
        outputs = [tensor for tensor in expected if tensor.startswith(f"{name}_out") and tensor in ours_too]
        assert outputs, name
        for tensor in outputs:
            np.testing.assert_allclose(ours_too[tensor], expected[tensor], rtol=1e-3, atol=1e-4, err_msg=name)
    truths, expected = (
        TensorFile(own / "truths_top_outputs.npz"),
        TensorFile(peer / "truths_int8_tpu_out.npz"),
    )
    compared = [name for name in truths if name.endswith("_f")]
    assert len(compared) == 8
    for name in compared:
        np.testing.assert_array_equal(truths[name], expected[name], err_msg=name)
    result = TensorFile(own / "integers_top_outputs.npz")["f"]
    expected_integers = TensorFile(peer / "integers_int8_tpu_out.npz")["f"]
    # Halves are rounded away from zero there, and to the even integer here.
    assert np.abs(result - expected_integers).max() <= 0.25 and (result == expected_integers).mean() > 0.99


def test_the_bytes_of_a_sensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the chip's functional model makes of 12-bit pixels under a mosaic, and our compiled program."""
    own, peer = tmp_path / "own", tmp_path / "peer"
    own.mkdir()
    peer.mkdir()
    monkeypatch.chdir(own)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 32, 32]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ports[:1], ports[1:])
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "raw.onnx")
    np.savez(
        tmp_path / "sensor.npz", x=np.random.RandomState(0).randint(0, 256, (1, 1, 64, 96)).astype(np.uint8)
    )
    transform = ["--model_name", "raw", "--model_def", tmp_path / "raw.onnx", "--input_shapes", "[[1,4,32,32]]",
                 "--pixel_format", "rggb", "--mlir", "raw.mlir"]  # fmt: skip
    theirs(peer, "model_transform.py", *transform)
    ours("model_transform.py", *transform)
    for order, kind in (("RGGB", "F32"), ("GBRG", "F16"), ("GRBG", "BF16"), ("BGGR", "F32")):
        deploy = ["--mlir", "raw.mlir", "--quantize", kind, "--chip", "bm1684x", "--fuse_preprocess",
                  "--customization_format", f"{order}_RAW", "--model", "raw.bmodel"]  # fmt: skip
        runner = ["--input", tmp_path / "sensor.npz", "--model", "raw.bmodel", "--output", "out.npz"]
        for run in (partial(theirs, peer), ours):
            run("model_deploy.py", *deploy)
            run("model_runner.py", *runner)
        (expected,) = TensorFile(peer / "out.npz").values()
        np.testing.assert_array_equal(TensorFile(own / "out.npz")["y_Relu"], expected, err_msg=order)
