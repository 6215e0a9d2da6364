"""npuc as an execution provider: sessions of ONNX Runtime have the bits of `npuc run`, and say what ran where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.calib.calibration import calibrate
from npuc.calib.sources import open_data
from npuc.calib.table import save_table
from npuc.errors import UsageError
from npuc.flow import compile_network, network_to_quantize, quantize_network
from npuc.integrations import onnxruntime as provider
from npuc.integrations.onnxruntime import compile_request
from npuc.program.file import load_compiled, save_compiled
from npuc.runtime import Runner
from npuc.target import load_target
from support.programs.ort_host import OrtHost, assert_same, npuc_command

ort = pytest.importorskip("onnxruntime", minversion="1.23.1")
Array = np.ndarray[Any, Any]
FAST = {"level": "0"}


@pytest.fixture(scope="module")
def images(root: Path) -> Array:
    with np.load(root / "examples/digits_samples.npz") as file:
        return np.asarray(file["image"], np.float32)


@pytest.fixture(scope="module")
def digits(root: Path) -> Path:
    return root / "examples/digits.onnx"


def table_of(model: Path, images: Array, to: Path) -> Path:
    graph = network_to_quantize(model)
    save_table(
        calibrate(graph, open_data(graph, [{"image": image[None]} for image in images[:8]]), "max"), to
    )
    return to


@pytest.fixture(scope="module")
def table(digits: Path, images: Array, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table_of(digits, images, tmp_path_factory.mktemp("table") / "digits.cali")


@pytest.fixture(scope="module")
def cached(digits: Path, table: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Options of a session whose program is in the cache."""
    options = {**FAST, "calibration": str(table), "cache_dir": str(tmp_path_factory.mktemp("cache"))}
    provider.session(digits, options)
    return options


@pytest.fixture()
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be compiled."""

    def refuse(folder: Path) -> None:
        raise AssertionError("the compiler was called")

    monkeypatch.setattr(compile_request, "compile_request", refuse)


def whole(model: Path, table: Path | None) -> Runner:
    """What `npuc compile` and `npuc run` make of a model."""
    from npuc.calib.table import load_table

    target = load_target("edge-4t")
    ranges = None if table is None else load_table(table)
    integers = quantize_network(network_to_quantize(model), ranges, None, target).graph
    return Runner(compile_network(integers, target, None).model)


def with_middle(digits: Path, to: Path, batch: str = "") -> Path:
    """The demo network with an operator between that no NPU here has, and a convolution behind it."""
    model = onnx.load(digits)
    graph = model.graph
    relu = next(node for node in graph.node if node.op_type == "MaxPool").output[0]
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == relu:
                node.input[index] = "evened"
    place = next(i for i, node in enumerate(graph.node) if "evened" in node.input)
    graph.node.insert(place, helper.make_node("LRN", [relu], ["evened"], "lrn", size=3))
    if batch:
        for value in (*graph.input, *graph.output):
            value.type.tensor_type.shape.dim[0].dim_param = batch
        del graph.value_info[:]
    onnx.save(model, to)
    return to


def device_of(path: Path, images: Array, **options: str) -> Any:
    return provider.session(path, {**FAST, **options}).run(None, {"image": images[:1]})[0]


def test_a_float_network_with_a_table_has_the_bits_of_npuc_run(
    digits: Path, table: Path, images: Array, cached: dict[str, str], no_compiler: None
) -> None:
    session, judge = provider.session(digits, cached), whole(digits, table)
    for image in images[20:30]:
        expected = judge.run({"image": image[None]})["logits"]
        np.testing.assert_array_equal(session.run(None, {"image": image[None]})[0], expected)
    report = provider.report(session)
    assert report.npu_share == 1 and report.graphs == 1 and not report.rest
    assert session.get_providers()[0] == provider.PROVIDER


def test_a_table_that_is_not_the_same_gives_other_bits(
    digits: Path, images: Array, cached: dict[str, str], tmp_path: Path
) -> None:
    """The key of the cache has the content of the calibration file, not its name."""
    text = Path(cached["calibration"]).read_text()
    other = tmp_path / "digits.cali"
    other.write_text("\n".join(_widened(line) for line in text.splitlines()) + "\n")
    expected = provider.session(digits, cached).run(None, {"image": images[:1]})[0]
    got = device_of(digits, images, calibration=str(other), cache_dir=cached["cache_dir"])
    assert not np.array_equal(got, expected)


def _widened(line: str) -> str:
    words = line.split()
    if not words or words[0].startswith("#"):
        return line
    return " ".join([words[0], *(str(2 * float(word)) for word in words[1:4]), *words[4:]])


def test_a_layer_without_a_range_in_the_table_stays_float(
    digits: Path, table: Path, images: Array, tmp_path: Path
) -> None:
    lines = [line for line in table.read_text().splitlines() if not line.startswith("pool ")]
    (tmp_path / "some.cali").write_text("\n".join(lines) + "\n")
    session = provider.session(digits, {**FAST, "calibration": str(tmp_path / "some.cali"), "cache": "off"})
    report = provider.report(session)
    assert {"pool", "widen/relu"} <= {node.name for node in report.rest} and report.graphs > 0
    assert any("no range for 1 tensor" in note for note in report.notes)
    (tmp_path / "other.cali").write_text("other 1 -1 1\n")
    with pytest.raises(Exception, match="it has no tensor of the model"):
        provider.session(digits, {"cache": "off", "calibration": str(tmp_path / "other.cali")})


def test_a_weight_that_is_an_input_is_compiled_in(
    digits: Path, table: Path, images: Array, cached: dict[str, str], tmp_path: Path
) -> None:
    """Old exporters list weights as inputs, which a run may then replace: not if they are part of a program."""
    model = onnx.load(digits)
    model.ir_version = 8
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    onnx.save(model, tmp_path / "inputs.onnx")
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    settings.add_session_config_entry("ep.context_enable", "1")
    settings.add_session_config_entry("ep.context_file_path", str(tmp_path / "compiled.onnx"))
    session = provider.session(
        tmp_path / "inputs.onnx", {**FAST, "calibration": str(table), "cache": "off"}, settings
    )
    expected = provider.session(digits, cached).run(None, {"image": images[:1]})[0]
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"image": images[:1]})[0], expected)
    compiled = provider.session(tmp_path / "compiled.onnx")
    np.testing.assert_array_equal(compiled.run(None, {"image": images[:1]})[0], expected)
    gemm = next(node for node in model.graph.node if node.op_type == "Gemm").input[2]
    bias = next(numpy_helper.to_array(t) for t in model.graph.initializer if t.name == gemm)
    fed = bias.copy()
    np.testing.assert_array_equal(session.run(None, {"image": images[:1], gemm: fed})[0], expected)
    fed += 1  # Another value at the same address.
    with pytest.raises(Exception, match="another value for a weight"):
        session.run(None, {"image": images[:1], gemm: fed})


def test_samples_calibrate(digits: Path, images: Array, tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", image=images[:4])
    cache = tmp_path / "cache"
    got = device_of(digits, images, calibration=str(tmp_path / "samples.npz"), cache_dir=str(cache))
    (entry,) = cache.iterdir()
    judge = Runner(load_compiled(entry / "part0.npu"))
    np.testing.assert_array_equal(got, next(iter(judge.run({"image": images[:1]}).values())))


def test_a_qdq_network_has_the_bits_of_npuc_run(digits: Path, images: Array, tmp_path: Path) -> None:
    path = qdq_of(digits, images, tmp_path, fused=True)
    session = provider.session(path, {**FAST, "cache": "off"})
    report = provider.report(session)
    assert report.npu_share == 1 and report.graphs == 1
    judge = whole(path, None)
    for image in images[20:30]:
        expected = judge.run({"image": image[None]})["logits"]
        np.testing.assert_array_equal(session.run(None, {"image": image[None]})[0], expected)


def test_a_qdq_network_with_float_layers_between(digits: Path, images: Array, tmp_path: Path) -> None:
    """Normalizations that were not folded have no integers: their neighbours read one quantized tensor from both devices."""
    path = qdq_of(digits, images, tmp_path, fused=False)
    session = provider.session(path, {**FAST, "cache": "off"})
    report = provider.report(session)
    assert report.graphs == 3 and 0.2 < report.npu_share < 1
    judge = whole(path, None)
    for image in images[20:24]:
        expected = judge.run({"image": image[None]})["logits"]
        np.testing.assert_allclose(session.run(None, {"image": image[None]})[0], expected, rtol=0, atol=1e-5)


def qdq_of(digits: Path, images: Array, folder: Path, *, fused: bool) -> Path:
    if fused:  # normalizations become part of convolutions
        settings = ort.SessionOptions()
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        settings.optimized_model_filepath = str(folder / "fused.onnx")
        ort.InferenceSession(str(digits), settings, providers=["CPUExecutionProvider"])
        digits = folder / "fused.onnx"
    quantization = pytest.importorskip("onnxruntime.quantization")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.rest = iter([{"image": image[None]} for image in images[:8]])

        def get_next(self) -> Any:
            return next(self.rest, None)

    quantization.quantize_static(str(digits), str(folder / "qdq.onnx"), Reader(), per_channel=True)
    return folder / "qdq.onnx"


def test_what_the_npu_cannot_do_stays_with_the_cpu(digits: Path, images: Array, tmp_path: Path) -> None:
    path = with_middle(digits, tmp_path / "middle.onnx")
    table = table_of(path, images, tmp_path / "middle.cali")
    session = provider.session(path, {**FAST, "calibration": str(table), "cache": "off"})
    report = provider.report(session)
    assert report.graphs == 2 and 0.9 < report.npu_share <= 1
    (left,) = report.rest
    assert left.name == "evened" and left.reason and left.device == "framework"
    judge = whole(path, table)
    for image in images[20:24]:
        expected = judge.run({"image": image[None]})["logits"]
        np.testing.assert_allclose(session.run(None, {"image": image[None]})[0], expected, rtol=0, atol=1e-5)


def test_without_ranges_a_float_network_stays_with_the_cpu(digits: Path, images: Array) -> None:
    session = provider.session(digits, {**FAST, "cache": "off"})
    report = provider.report(session)
    assert report.npu_share == 1 and report.graphs == 0 and len(report.rest) == len(report.nodes) > 10
    assert "no ranges" in report.rest[0].reason and "calibration" in report.rest[0].lever
    plain = ort.InferenceSession(str(digits), providers=["CPUExecutionProvider"])
    inputs = {"image": images[:1]}
    np.testing.assert_array_equal(session.run(None, inputs)[0], plain.run(None, inputs)[0])


def test_a_float_target_needs_no_ranges(digits: Path, images: Array) -> None:
    options = {**FAST, "cache": "off", "target": "bm1684x-like", "scheme": "f32"}
    session = provider.session(digits, options)
    assert provider.report(session).npu_share == 1
    plain = ort.InferenceSession(str(digits), providers=["CPUExecutionProvider"])
    inputs = {"image": images[:1]}
    np.testing.assert_allclose(session.run(None, inputs)[0], plain.run(None, inputs)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tagret": "edge-4t"}, "no provider option 'tagret': did you mean 'target'?"),
        ({"threads": "many"}, "threads is a number from 1 to 64, not 'many'"),
        ({"device": "gpu"}, "no device 'gpu'"),
        ({"level": "9"}, "level is a number from 0 to 3"),
        ({"cache": "yes"}, "cache is on or off"),
        ({"cache_key": "../x"}, "cache_key is the name of a folder"),
        ({"calibration": "nowhere.npz"}, "calibration file 'nowhere.npz' is not there"),
        ({"target": "edge-5t"}, "did you mean 'edge-4t'? The targets"),
        ({"scheme": "int7"}, "int7"),
    ],
)
def test_a_wrong_option_is_an_error(digits: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(Exception) as caught:
        provider.session(digits, {"cache": "off", **options})
    assert words in str(caught.value)


def test_calibration_data_that_make_no_sense_are_an_error(
    digits: Path, images: Array, tmp_path: Path
) -> None:
    np.savez(tmp_path / "nan.npz", image=np.full_like(images[:2], np.nan))
    (tmp_path / "text.cali").write_text("what?\n")
    for name in ("nan.npz", "text.cali"):
        with pytest.raises(Exception, match="the provider option calibration"):
            provider.session(digits, {"cache": "off", "calibration": str(tmp_path / name)})


def test_a_second_session_compiles_nothing(digits: Path, cached: dict[str, str], no_compiler: None) -> None:
    assert provider.report(provider.session(digits, cached)).npu_share == 1


@pytest.mark.parametrize(
    ("file", "damage"),
    [("plan", "flip"), ("plan", "shorten"), ("part0.npu", "flip"), ("part0.npu", "remove")],
)
def test_a_damaged_entry_of_the_cache_is_compiled_again(
    digits: Path, table: Path, images: Array, tmp_path: Path, capfd: Any, file: str, damage: str
) -> None:
    options = {**FAST, "calibration": str(table), "cache_dir": str(tmp_path), "cache_key": "digits"}
    source = _source_entry(digits, options, tmp_path)
    expected = provider.session(digits, options).run(None, {"image": images[:1]})[0]
    path = tmp_path / "digits" / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(content if damage == "flip" else content[: len(content) // 2])
    capfd.readouterr()
    got = provider.session(digits, options).run(None, {"image": images[:1]})[0]
    np.testing.assert_array_equal(got, expected)
    assert "is not used" in capfd.readouterr().err
    assert path.read_bytes() == source[file]
    assert [entry.name for entry in tmp_path.iterdir()] == ["digits"]


_ENTRY: dict[str, bytes] = {}


def _source_entry(digits: Path, options: dict[str, str], folder: Path) -> dict[str, bytes]:
    """The files of a sound entry, compiled once."""
    if not _ENTRY:
        provider.session(digits, options)
        _ENTRY.update({file.name: file.read_bytes() for file in (folder / "digits").iterdir()})
    else:
        (folder / "digits").mkdir()
        for name, content in _ENTRY.items():
            (folder / "digits" / name).write_bytes(content)
    return _ENTRY


def test_an_entry_of_something_else_is_compiled_again(
    digits: Path, cached: dict[str, str], tmp_path: Path, capfd: Any
) -> None:
    options = {**cached, "cache_dir": str(tmp_path), "cache_key": "mine"}
    provider.session(digits, options)
    before = (tmp_path / "mine" / "plan").read_bytes()
    capfd.readouterr()
    provider.session(digits, {**options, "level": "1"})
    assert "made for another model, other options" in capfd.readouterr().err
    assert (tmp_path / "mine" / "plan").read_bytes() != before


def test_a_cache_that_cannot_be_written_costs_time_only(
    digits: Path, table: Path, images: Array, cached: dict[str, str], tmp_path: Path, capfd: Any
) -> None:
    (tmp_path / "file").write_text("no folder")
    options = {**FAST, "calibration": str(table), "cache_dir": str(tmp_path / "file" / "cache")}
    got = provider.session(digits, options).run(None, {"image": images[:1]})[0]
    assert "cannot be written" in capfd.readouterr().err
    np.testing.assert_array_equal(got, provider.session(digits, cached).run(None, {"image": images[:1]})[0])


def test_a_killed_compilation_leaves_no_entry(
    digits: Path, table: Path, images: Array, cached: dict[str, str], tmp_path: Path
) -> None:
    script = (
        "import os, signal, sys\n"
        "from npuc.integrations import onnxruntime as provider\n"
        "from npuc.integrations.onnxruntime import compile_request\n"
        "def killed(*args): os.kill(os.getpid(), signal.SIGKILL)\n"
        "compile_request.sha256 = killed\n"  # after the first program is written
        "provider.session(sys.argv[1], {'level': '0', 'calibration': sys.argv[2], 'cache_dir': sys.argv[3]})\n"
    )
    done = subprocess.run([sys.executable, "-c", script, digits, table, tmp_path], capture_output=True)
    assert done.returncode == -9, done.stderr.decode()
    left = [path.name for path in tmp_path.iterdir()]
    assert len(left) == 1 and left[0].startswith(".work-") and (tmp_path / left[0] / "part0.npu").is_file()
    options = {**FAST, "calibration": str(table), "cache_dir": str(tmp_path)}
    got = provider.session(digits, options).run(None, {"image": images[:1]})[0]
    np.testing.assert_array_equal(got, provider.session(digits, cached).run(None, {"image": images[:1]})[0])
    # What the killed one left goes when it is a day old.
    os.utime(tmp_path / left[0], (0, 0))
    provider.session(digits, {**options, "level": "1"})
    assert not (tmp_path / left[0]).exists()


def test_a_symbolic_batch_runs_sample_by_sample(digits: Path, images: Array, tmp_path: Path) -> None:
    path = with_middle(digits, tmp_path / "batch.onnx", "N")
    samples = tmp_path / "samples.npz"
    np.savez(samples, image=images[:2])
    session = provider.session(path, {**FAST, "calibration": str(samples), "cache": "off"})
    assert provider.report(session).graphs == 2
    together = session.run(None, {"image": images[:5]})[0]
    apart = [session.run(None, {"image": image[None]})[0] for image in images[:5]]
    np.testing.assert_array_equal(together, np.concatenate(apart))


def test_samples_that_are_mixed_stay_with_the_cpu(images: Array, tmp_path: Path) -> None:
    """A softmax over the batch keeps all shapes, and is not what one sample gives."""
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"], axis=0),
    ]
    dims = ["N", 1, 8, 8]
    graph = helper.make_graph(
        nodes,
        "mix",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [numpy_helper.from_array(np.ones((1, 1, 1, 1), np.float32), "w")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    np.savez(tmp_path / "s.npz", image=images[:2])
    session = provider.session(
        tmp_path / "m.onnx", {**FAST, "calibration": str(tmp_path / "s.npz"), "cache": "off"}
    )
    got = session.run(None, {"image": images[:4]})[0]
    np.testing.assert_allclose(got.sum(axis=0), 1, atol=1e-2)


def test_a_symbolic_size_stays_with_the_cpu_unless_it_is_fixed(
    digits: Path, table: Path, images: Array, tmp_path: Path
) -> None:
    model = onnx.load(digits)
    model.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "width"
    onnx.save(model, tmp_path / "wide.onnx")
    options = {**FAST, "calibration": str(table), "cache": "off"}
    (reason,) = {n.reason for n in provider.report(provider.session(tmp_path / "wide.onnx", options)).nodes}
    assert "axis 3 of the input 'image' has no fixed size ('width')" in reason
    fixed = ort.SessionOptions()
    fixed.add_free_dimension_override_by_name("width", 8)
    session = provider.session(tmp_path / "wide.onnx", options, fixed)
    assert provider.report(session).npu_share == 1 and not provider.report(session).rest


def test_eight_threads_lose_nothing(
    digits: Path, images: Array, cached: dict[str, str], no_compiler: None
) -> None:
    load(provider.session(digits, cached), images, 8, 40)


@pytest.mark.slow
def test_eight_threads_of_a_thousand_runs_lose_nothing(
    digits: Path, images: Array, cached: dict[str, str], no_compiler: None
) -> None:
    load(provider.session(digits, cached), images, 8, 1000)


def load(session: Any, images: Array, threads: int, runs: int) -> None:
    expected = [session.run(None, {"image": image[None]})[0] for image in images[:16]]
    wrong: list[int] = []

    def work(first: int) -> None:
        for number in range(first, first + runs):
            got = session.run(None, {"image": images[number % 16][None]})[0]
            if not np.array_equal(got, expected[number % 16]):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.parametrize("embedded", [True, False])
def test_a_compiled_model_runs_without_the_compiler(
    digits: Path, images: Array, cached: dict[str, str], tmp_path: Path, no_compiler: None, embedded: bool
) -> None:
    settings = ort.SessionOptions()
    path = tmp_path / "compiled.onnx"
    settings.add_session_config_entry("ep.context_enable", "1")
    settings.add_session_config_entry("ep.context_file_path", str(path))
    settings.add_session_config_entry("ep.context_embed_mode", "1" if embedded else "0")
    expected = provider.session(digits, cached, settings).run(None, {"image": images[:1]})[0]
    assert [node.op_type for node in onnx.load(path).graph.node] == ["EPContext"]
    assert len(list(tmp_path.iterdir())) == (1 if embedded else 2)
    session = provider.session(path)
    np.testing.assert_array_equal(session.run(None, {"image": images[:1]})[0], expected)
    with pytest.raises(UsageError, match="no report"):
        provider.report(session)
    again = ort.SessionOptions()
    again.add_session_config_entry("ep.context_enable", "1")
    again.add_session_config_entry("ep.context_file_path", str(tmp_path / "again.onnx"))
    if not embedded:
        next(file for file in tmp_path.iterdir() if file.suffix == ".bin").unlink()
        with pytest.raises(Exception, match="is not beside the model"):
            provider.session(path)


def test_an_exported_program_runs_in_a_session(
    images: Array, cached: dict[str, str], digits: Path, tmp_path: Path
) -> None:
    from npuc.cli import main

    provider.session(digits, {**cached, "cache_dir": str(tmp_path), "cache_key": "digits"})
    program, out = tmp_path / "digits" / "part0.npu", tmp_path / "digits.onnx"
    with pytest.raises(SystemExit) as ended:
        main(["export", "ort-context", str(program), "-o", str(out)])
    assert ended.value.code == 0
    onnx.load(out)
    session = provider.session(out)
    expected = provider.session(digits, cached).run(None, {"image": images[:1]})[0]
    np.testing.assert_array_equal(session.run(None, {"image": images[:1]})[0], expected)
    damaged = bytearray(out.read_bytes())
    damaged[damaged.index(b"\x7fELF") + 300] ^= 255
    with pytest.raises(Exception, match="cannot be used"):
        provider.session(bytes(damaged))


def test_a_program_with_cpu_parts_is_not_exported(digits: Path, images: Array, tmp_path: Path) -> None:
    from npuc.errors import ExportError
    from npuc.integrations.onnxruntime.context import export_context

    path = with_middle(digits, tmp_path / "middle.onnx")
    table = table_of(path, images, tmp_path / "middle.cali")
    from npuc.calib.table import load_table

    target = load_target("edge-4t")
    integers = quantize_network(network_to_quantize(path), load_table(table), None, target).graph
    save_compiled(compile_network(integers, target).model, tmp_path / "middle.npu")
    try:
        export_context(tmp_path / "middle.npu", tmp_path / "out.onnx")
    except ExportError as error:
        assert error.fix
        assert not (tmp_path / "out.onnx").exists()
    else:  # a C runtime that has the operator
        provider.session(tmp_path / "out.onnx").run(None, {"image": images[:1]})


def test_reports_are_removed_with_the_process_and_not_by_a_forked_child(tmp_path: Path) -> None:
    program = """
import os
from npuc.integrations import onnxruntime as provider
folder = provider._report_folder(os.getpid())
child = os.fork()
if not child:
    raise SystemExit(provider._report_folder(os.getpid()) == folder)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), folder.is_dir(), folder)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)})  # fmt: skip
    assert done.stdout.split()[:2] == ["0", "True"]
    assert str(tmp_path) in done.stdout and not list(tmp_path.iterdir())


def test_a_profile_is_written_when_a_session_ends(
    digits: Path, images: Array, cached: dict[str, str], tmp_path: Path, no_compiler: None
) -> None:
    session = provider.session(digits, {**cached, "profile": str(tmp_path / "profile.json")})
    for _ in range(3):
        session.run(None, {"image": images[:1]})
    left = provider._REPORTS[session]
    del session
    assert not left.exists()
    (part,) = json.loads((tmp_path / "profile.json").read_text())["parts"]
    assert part["calls"] == 3 and 0 < part["min_ns"] <= part["max_ns"] <= part["total_ns"]


def test_another_shape_is_refused_with_words(
    digits: Path, images: Array, cached: dict[str, str], no_compiler: None
) -> None:
    with pytest.raises(Exception, match="Expected: 8"):
        provider.session(digits, cached).run(None, {"image": images[:1, :, :, :4]})


def test_sessions_outlive_the_registration(
    digits: Path, images: Array, cached: dict[str, str], no_compiler: None
) -> None:
    session = provider.session(digits, cached)
    expected = session.run(None, {"image": images[:1]})[0]
    provider.unregister()
    np.testing.assert_array_equal(session.run(None, {"image": images[:1]})[0], expected)
    del session
    assert provider.register() == provider.PROVIDER


def test_a_report_of_a_strange_session_is_refused(digits: Path) -> None:
    with pytest.raises(UsageError, match="nothing is known"):
        provider.report(ort.InferenceSession(str(digits), providers=["CPUExecutionProvider"]))
    with pytest.raises(UsageError, match="a report is that of a session"):
        provider.report(str(digits))


def test_a_cpp_program_runs_a_compiled_model_without_python(
    digits: Path, images: Array, cached: dict[str, str], tmp_path: Path, cpp_host: OrtHost
) -> None:
    x = images[:1]
    without = {"PATH": ""}
    host = cpp_host.run(digits, [x], tmp_path, cached, threads=8, runs=20, environment=without)
    assert_same(host, provider.session(digits, cached).run(None, {"image": x}))
    assert "160 runs, 0 wrong" in host.said


@pytest.mark.slow
def test_eight_threads_of_a_cpp_program_lose_nothing_in_a_thousand_runs(
    digits: Path, table: Path, images: Array, tmp_path: Path, cpp_host: OrtHost
) -> None:
    """Two programs with a layer of the CPU provider between them, several samples a run."""
    path = with_middle(digits, tmp_path / "batch.onnx", "N")
    np.savez(tmp_path / "samples.npz", image=images[:2])
    options = {**FAST, "calibration": str(tmp_path / "samples.npz"), "cache_dir": str(tmp_path / "cache")}
    expected = provider.session(path, options).run(None, {"image": images[:3]})
    host = cpp_host.run(path, [images[:3]], tmp_path, options, threads=8, runs=1000, environment={"PATH": ""})
    assert_same(host, expected)
    assert "8000 runs, 0 wrong" in host.said


def test_a_cpp_program_compiles_by_the_command(
    digits: Path, table: Path, images: Array, cached: dict[str, str], tmp_path: Path, cpp_host: OrtHost
) -> None:
    x = images[:1]
    options = {**FAST, "calibration": str(table), "cache": "off", "compiler": str(npuc_command(tmp_path))}
    assert_same(
        cpp_host.run(digits, [x], tmp_path, options), provider.session(digits, cached).run(None, {"image": x})
    )
    none = cpp_host.run(digits, [x], tmp_path, {"cache": "off", "compiler": f"{tmp_path}/none"})
    assert none.status == 0 and "cannot be started" in none.said


@pytest.mark.parametrize("victim", [pytest.param("compiler", marks=pytest.mark.slow), "program"])
def test_a_first_compilation_of_a_cpp_program_that_is_killed_leaves_no_entry(
    victim: str,
    digits: Path,
    table: Path,
    images: Array,
    cached: dict[str, str],
    tmp_path: Path,
    cpp_host: OrtHost,
) -> None:
    """The command dies alone, and the session goes on with the CPU provider; or the whole program dies with it."""
    cache = tmp_path / "cache"
    fatal = tmp_path / "fatal"
    parent = "os.kill(os.getppid(), signal.SIGKILL); " if victim == "program" else ""
    fatal.write_text(
        f"#!{sys.executable}\nimport os, signal, sys\n"
        "from npuc.cli import main\n"
        "from npuc.integrations.onnxruntime import compile_request\n"
        f"def killed(*args): {parent}os.kill(os.getpid(), signal.SIGKILL)\n"
        "compile_request.sha256 = killed\n"  # after the first program is written
        "sys.exit(main())\n"
    )
    fatal.chmod(0o755)
    options = {**FAST, "calibration": str(table), "cache_dir": str(cache)}
    first = cpp_host.run(digits, [images[:1]], tmp_path, {**options, "compiler": str(fatal)})
    assert first.status == (0 if victim == "compiler" else -9), first.said
    assert all(path.name.startswith(".work-") for path in cache.iterdir()), list(cache.iterdir())
    second = cpp_host.run(
        digits, [images[:1]], tmp_path, {**options, "compiler": str(npuc_command(tmp_path))}
    )
    assert_same(second, provider.session(digits, cached).run(None, {"image": images[:1]}))
    assert any(not path.name.startswith(".work-") for path in cache.iterdir())


@pytest.mark.slow
def test_a_wrong_option_is_an_error_in_cpp_too(
    digits: Path, images: Array, tmp_path: Path, cpp_host: OrtHost
) -> None:
    options = {"cache": "off", "compiler": str(npuc_command(tmp_path)), "target": "edge-5t"}
    wrong = cpp_host.run(digits, [images[:1]], tmp_path, options)
    assert wrong.status == 3 and "there is no target 'edge-5t'" in wrong.said


def test_a_compiled_node_that_lies_about_its_program_is_refused(tmp_path: Path) -> None:
    """A program that writes more than the model has room for: another type of elements, or several samples for one."""
    from npuc.integrations.onnxruntime.context import export_context
    from support.programs.host_models import cpu_model, file_of

    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 512]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negated", infos[:1], infos[1:])
    imports = [helper.make_opsetid("", 17)]
    (tmp_path / "m.npu").write_bytes(
        file_of(cpu_model(helper.make_model(graph, opset_imports=imports, ir_version=8)))
    )
    path = export_context(tmp_path / "m.npu", tmp_path / "m.onnx")
    x = np.arange(2048, dtype=np.float32).reshape(4, 512)
    np.testing.assert_array_equal(provider.session(path).run(None, {"x": x})[0], -x)
    proto = onnx.load(path)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    with pytest.raises(Exception, match="2048 bytes in the model and 8192 in the program"):
        provider.session(proto.SerializeToString()).run(None, {"x": x})
    proto = onnx.load(path)
    (data,) = (item for item in proto.graph.node[0].attribute if item.name == "ep_cache_context")
    data.s = data.s.replace(b"batched 0", b"batched 1")
    for info in (*proto.graph.input, *proto.graph.output):
        info.type.tensor_type.shape.dim[0].dim_value = 1
    with pytest.raises(Exception, match="not for one sample"):
        provider.session(proto.SerializeToString()).run(None, {"x": x[:1]})
