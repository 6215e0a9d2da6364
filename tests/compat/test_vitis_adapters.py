"""Small adapters of Vitis AI: what they say, sessions with the vendor's provider, whole graphs, and the inspector."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.compat.vitis import execution_provider, notices
from npuc.compat.vitis.graph_runner import GraphRunner
from npuc.compat.vitis.targets import B4096
from npuc.compat.vitis.xir import Graph as XirGraph
from npuc.errors import FileFormatError, NpucError, UsageError
from npuc.flow import compile_network, quantize_network
from npuc.program.file import save_compiled
from npuc.runtime import Runner
from npuc.target import load_target

# What the adapters say


def test_notices_have_the_form_of_the_vendors(capsys: pytest.CaptureFixture[str]) -> None:
    notices.note("three layers")
    notices.warn("no CUDA", "QUANTIZER_TORCH_CUDA_UNAVAILABLE")
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        "[VAIQ_NOTE]: three layers",
        "[VAIQ_WARN][QUANTIZER_TORCH_CUDA_UNAVAILABLE]: no CUDA",
    ]
    assert not told.out
    error = notices.refusal("XCOM_SOMETHING", "it is wrong", "Mend it", FileFormatError)
    assert (
        isinstance(error, FileFormatError) and str(error) == "[E102] [XCOM_SOMETHING] it is wrong. Mend it."
    )


def test_a_terminal_gets_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    notices.say("ERROR", "no")
    assert capsys.readouterr().err == "\033[0;31m[VAIQ_ERROR]\033[0m: no\n"


def test_unknown_options_warn_and_are_errors_if_one_wants(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notices.unknown_option("colour", "the quantizer")
    assert "[VAIQ_WARN]: the quantizer has no option 'colour': it is ignored" in capsys.readouterr().err
    monkeypatch.setenv("NPUC_COMPAT_STRICT", "1")
    with pytest.raises(UsageError, match="has no option 'colour'"):
        notices.unknown_option("colour", "the quantizer")


def test_near_names_are_suggested() -> None:
    assert notices.near_names("conv1", ["conv_1", "pool"]) == "Did you mean conv_1?"
    assert notices.near_names("zzz", ["a", "b"]) == "There are a, b and others"


# Sessions of ONNX Runtime


def test_options_of_the_vendors_provider(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XLNX_CACHE_DIR", raising=False)
    assert execution_provider.translated({}) == {"target": B4096}
    config = tmp_path / "vaip_config.json"
    config.write_text('{"target": "DPUCVDX8G_ISA3_C32B3", "passes": []}')
    own = execution_provider.translated(
        {"config_file": str(config), "cacheDir": str(tmp_path / "cache"), "cacheKey": "net", "speed": "1"}
    )
    assert own == {"target": "dpucvdx8g-c32b3-like", "cache_dir": str(tmp_path / "cache"), "cache_key": "net"}
    assert (tmp_path / "cache").is_dir() and "no option 'speed'" in capsys.readouterr().err
    config.write_text('{"passes": []}')  # the vendor's own file names no target
    assert execution_provider.translated({"config_file": config})["target"] == B4096
    monkeypatch.setenv("XLNX_CACHE_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("XLNX_ENABLE_CACHE", "0")
    assert execution_provider.translated({}) == {
        "target": B4096,
        "cache_dir": str(tmp_path / "other"),
        "cache": "off",
    }
    config.write_text("{")
    with pytest.raises(FileFormatError, match="is not JSON"):
        execution_provider.translated({"config_file": config})
    with pytest.raises(UsageError, match="config_file is a int"):
        execution_provider.translated({"config_file": 7})


@pytest.mark.parametrize("stated", ["beside", "inside", "absent"])
def test_a_session_goes_to_npuc_if_the_vendors_provider_is_named(
    stated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, Any]] = []
    monkeypatch.setattr(
        execution_provider.provider,
        "session",
        lambda path, options, session: calls.append(("npuc", options)),
    )
    monkeypatch.setattr(
        execution_provider.onnxruntime,
        "InferenceSession",
        lambda *args, **kwargs: calls.append(("onnxruntime", args[2])),
    )
    own = {"cacheKey": "k"}
    if stated == "beside":
        providers: list[Any] = ["VitisAIExecutionProvider", "CPUExecutionProvider"]
        execution_provider.InferenceSession("m.onnx", providers=providers, provider_options=[own, {}])
    elif stated == "inside":
        execution_provider.InferenceSession("m.onnx", providers=[("VitisAIExecutionProvider", own)])
    else:
        execution_provider.InferenceSession("m.onnx", None, ["CPUExecutionProvider"])
    expected = ("onnxruntime", ["CPUExecutionProvider"]) if stated == "absent" else ("npuc", None)
    assert calls[0][0] == expected[0]
    if stated != "absent":
        assert calls[0][1]["cache_key"] == "k" and calls[0][1]["target"] == B4096


# Whole graphs


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution on the NPU and a softmax on the CPU."""
    rng = np.random.default_rng(0)
    x = lang.input("image", (1, 3, 6, 6))
    y = lang.conv(x, rng.standard_normal((4, 3, 3, 3), np.float32), relu=True, name="conv1")
    graph = lang.build({"scores": lang.softmax(lang.reshape(y, shape=(1, 64)), axis=1)})
    ranges = dict.fromkeys(["image", *graph.tensor_names()], (-4.0, 4.0))
    target = load_target(B4096)
    model = compile_network(quantize_network(graph, ranges, None, target).graph, target).model
    path = tmp_path_factory.mktemp("graph") / "net.xmodel"
    save_compiled(model, path)
    return path


def test_a_graph_runner_runs_a_whole_model_in_place(compiled: Path) -> None:
    runner = GraphRunner.create_graph_runner(XirGraph.deserialize(str(compiled)))
    inputs, outputs = runner.get_inputs(), runner.get_outputs()
    assert inputs[0].get_tensor().name == "image" and np.asarray(inputs[0]).shape == (1, 6, 6, 3)
    pixels = np.random.default_rng(1).standard_normal((1, 3, 6, 6), np.float32)
    np.asarray(inputs[0])[...] = pixels.transpose(0, 2, 3, 1)
    job, status = runner.execute_async(inputs, outputs)
    assert status == 0 and runner.wait(job) == 0
    with Runner(compiled) as own:
        np.testing.assert_array_equal(np.asarray(outputs[0]), own.run({"image": pixels})["scores"])
    assert np.asarray(outputs[0]).sum() == pytest.approx(1, abs=1e-5)
    assert np.asarray(outputs[0], np.float64).dtype == np.float64
    again, _ = runner.execute_async(inputs, outputs)
    assert again != job
    with pytest.raises(UsageError, match="made of a graph, not of a str"):
        GraphRunner("net.xmodel")  # type: ignore[arg-type]
    with pytest.raises(NpucError):
        runner.execute_async([], outputs)


# Modules of torch


def test_layers_outside_of_stubs_are_not_quantized() -> None:
    torch = pytest.importorskip("torch")
    from npuc.compat.vitis.pytorch_nndct.nn import DeQuantStub, QuantStub
    from npuc.compat.vitis.pytorch_nndct.stubs import layers_between_stubs

    class Part(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = QuantStub(), DeQuantStub()
            self.first, self.middle, self.last = (torch.nn.Conv2d(3, 3, 1) for _ in range(3))

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            return self.last(self.dequant(torch.relu(self.middle(self.quant(x))))) + x

    batch = torch.randn(1, 3, 4, 4)
    assert layers_between_stubs(Part(), (batch,)) == {"middle", "relu"}
    assert layers_between_stubs(torch.nn.Conv2d(3, 3, 1), (batch,)) is None
    whole = torch.nn.Sequential(QuantStub(), torch.nn.Conv2d(3, 3, 1), DeQuantStub())
    assert layers_between_stubs(whole, (batch,)) == {"1"}


def test_an_inspector_says_which_layers_the_dpu_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    from npuc.compat.vitis.pytorch_nndct.inspector import Inspector

    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Softmax(1)
    )
    inspector = Inspector("DPUCZDX8G_ISA1_B4096")
    inspection = inspector.inspect(net, torch.randn(1, 3, 32, 32), output_dir=tmp_path, image_format="png")
    assert inspection.count("npu") >= 1 and inspection.count("cpu") == 1
    told = capsys.readouterr().err
    assert told.index("=>Start to inspect model...") < told.index("=>Finish inspecting.")
    assert re.search(r"\(softmax\) is assigned to CPU: .*Softmax is left to the CPU", told)
    stem = "inspect_DPUCZDX8G_ISA1_B4096"
    report = (tmp_path / f"{stem}.txt").read_text()
    assert "layers on the CPU: 1" in report and "(conv) is assigned to DPU" in report
    assert (tmp_path / f"{stem}.svg").read_text().startswith("<svg")
    drawing = (tmp_path / f"{stem}.gv").read_text()
    assert drawing.startswith("digraph") and drawing.count("orange") == 1 and "->" in drawing
    with pytest.raises(UsageError, match="image_format is 'bmp'"):
        inspector.inspect(net, torch.randn(1, 3, 32, 32), output_dir=tmp_path, image_format="bmp")
    with pytest.raises(NpucError, match="QUANTIZER_TORCH_INSPECTOR_INPUT_FORMAT"):
        Inspector(7)  # type: ignore[arg-type]
    assert json.dumps(inspection.target) == f'"{B4096}"'
