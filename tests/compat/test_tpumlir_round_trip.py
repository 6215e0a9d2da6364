"""Round trips with TPU-MLIR itself (`make test-tpumlir` installs it): tables and .npz files go both ways, and results agree."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.cli.app import run_command
from npuc.compare.tensors import compare_sets, difference
from npuc.compat.tpumlir.names import names_of
from npuc.engine.integer import prepare
from npuc.ir import Graph, top
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import dtype_of, quant_of
from npuc.ir.graph import Value
from npuc.ir.text import load_graph
from npuc.tensors import TensorFile
from support.paths import ROOT

PEER = Path(os.environ.get("NPUC_TPUMLIR", ROOT / "build" / "peers" / "tpumlir")) / "bin"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PEER / "model_transform.py").exists(), reason="TPU-MLIR is not installed"),
]


def theirs(folder: Path, *words: object) -> None:
    """A command of TPU-MLIR itself."""
    environment = os.environ | {"PATH": f"{PEER}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
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
    assert len(figures) >= 30 and min(entry.cosine for entry in figures) >= 0.99, figures

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


def layers_on(
    graph: Graph, tensors: Mapping[str, Array]
) -> Iterator[tuple[TensorOp, Array, Array, list[Array]]]:
    """Each op of an integer network by itself, on the other tool's tensors: its result, the other one's, its operands."""
    names, spelled = graph.distinct_names(), names_of(graph).vendor_name

    def integers(value: Value) -> Array | None:
        constant = graph.constant(value)
        scheme, name = quant_of(value), spelled(names.get(value, ""))
        if constant is not None or scheme is None or name not in tensors:
            return constant
        steps = np.rint(np.asarray(tensors[name]) / scheme.scale + scheme.zero_point)
        return steps.astype(dtype_of(value.type).numpy)

    def reals(array: Array, value: Value) -> Array:
        scheme = quant_of(value)
        return (
            array.astype(np.float64) if scheme is None else (array - float(scheme.zero_point)) * scheme.scale
        )

    for op in graph.ops:
        if not isinstance(op, TensorOp) or isinstance(op, top.WeightOp):
            continue
        operands, theirs_ = [integers(value) for value in op.operands], integers(op.results[0])
        if theirs_ is not None and all(array is not None for array in operands):
            given = [array for array in operands if array is not None]
            result = prepare(op, graph, 1)(given)[0]
            parts = [reals(array, value) for array, value in zip(given, op.operands, strict=True)]
            yield op, reals(result, op.results[0]), reals(theirs_.reshape(result.shape), op.results[0]), parts


def test_mobilenet_v2(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A sensitive network: one integer in 50,000 that is off by one changes the cosine ten blocks later by 0.05. So layers are
    # compared one by one, on the same operands, and the whole networks by their distance from the float one.
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

    check_layers(load_graph("net_bm1684x_int8_sym_tpu.mlir"), TensorFile(peer / "all.npz"))
    float_tensors = TensorFile(peer / "top.npz")
    from_float = {
        entry.name: entry.cosine
        for entry in compare_sets(TensorFile("net_bm1684x_int8_sym_tpu_outputs.npz"), float_tensors)
    }
    theirs_from_float = compare_sets(TensorFile(peer / "all.npz"), float_tensors)
    shared_names = [entry for entry in theirs_from_float if entry.name in from_float]
    assert len(shared_names) >= 60
    assert all(from_float[entry.name] >= entry.cosine - 0.002 for entry in shared_names)


def check_layers(graph: Graph, tensors: Mapping[str, Array]) -> None:
    """Layers have the other tool's integers, nearly; but additions, which it rounds twice, are nearer to the sum here."""
    kinds: dict[str, int] = {}
    for op, mine, yours, parts in layers_on(graph, tensors):
        kinds[op.name] = kinds.get(op.name, 0) + 1
        if op.name == "npu.add":
            exact = parts[0] + parts[1]
            assert np.linalg.norm(mine - exact) < np.linalg.norm(yours - exact), op
        else:
            assert difference(op.name, mine, yours).cosine >= 0.9995, op
    assert kinds["npu.conv"] >= 45 and kinds["npu.add"] == 10, kinds
