"""A model that is trained under MQBench's names is deployed with the very integers that it was trained with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.cli.app import run_command
from npuc.errors import UsageError

torch = pytest.importorskip("torch")

from npuc.compat.tpumlir import mqbench  # noqa: E402

TPU = mqbench.BackendType.sophgo_tpu


class Net(torch.nn.Module):  # type: ignore[misc]
    """A convolution with batch norm, one without, a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1 = torch.nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(8)
        self.conv2 = torch.nn.Conv2d(8, 8, 3, 2, 1)
        self.fc = torch.nn.Linear(128, 10)
        self.stride = 32

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return self.fc(x.flatten(1))


def batches(count: int) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(16, 1, 8, 8, generator=generator) for _ in range(count)]


def trained() -> Any:
    model = mqbench.prepare_by_platform(Net(), TPU, {"preserve_attr": {"": ["stride"]}})
    assert model.stride == 32
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    mqbench.enable_calibration(model)
    for images in batches(2):
        model(images)
    mqbench.enable_quantization(model)
    before = [p.detach().clone() for p in model.qat.weight_parameters()]
    for images in batches(6):
        loss = torch.nn.functional.cross_entropy(model(images), torch.arange(16) % 10)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, model.qat.weight_parameters(), strict=True)), (
        "the optimizer that was made before trains nothing"
    )
    return model.eval()


def test_the_deployed_integers_are_the_trained_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = trained()
    rows = batches(1)[0]
    mqbench.convert_deploy(model, TPU, {"data": [16, 1, 8, 8]}, model_name="net")
    table = Path("net_cali_table_from_mqbench_sophgo_tpu")
    assert (
        table.read_text().startswith("# work_mode:QAT_all_int8 ") and Path("net_clip_ranges.json").is_file()
    )
    assert "_weight 8 " in table.read_text()
    np.savez("in.npz", data=rows.numpy())
    deploy = [
        "--quantize",
        "INT8",
        "--chip",
        "bm1684x",
        "--calibration_table",
        str(table),
        "--test_input",
        "in.npz",
    ]
    for line in (
        [
            "model_transform.py",
            "--model_name",
            "net",
            "--model_def",
            "net_deploy_model.onnx",
            "--channel_format",
            "none",
            "--mlir",
            "net.mlir",
        ],
        ["model_deploy.py", "--mlir", "net.mlir", *deploy, "--model", "net.bmodel"],
        ["model_runner.py", "--input", "in.npz", "--model", "net.bmodel", "--output", "out.npz"],
        ["model_runner.py", "--input", "in.npz", "--model", "net.onnx", "--output", "qdq.npz"],
    ):
        assert run_command(["compat", "run", "tpumlir", *line]) == 0
    expected = model(rows).numpy()
    with np.load("out.npz") as out, np.load("qdq.npz") as qdq:
        assert np.array_equal(out[out.files[0]], expected)
        assert np.abs(qdq[qdq.files[0]] - expected).max() <= 1.01 * np.abs(expected).max() / 127
    mqbench.disable_all(model)
    assert not np.array_equal(model(rows).detach().numpy(), expected)


def test_what_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="takes a torch module, and was given a NoneType"):
        mqbench.prepare_by_platform(None, TPU)
    with pytest.raises(UsageError, match="'tensorrt' is no platform here"):
        mqbench.prepare_by_platform(Net(), "tensorrt")
    with pytest.raises(UsageError, match="w_qscheme: bit = 4"):
        mqbench.prepare_by_platform(Net(), TPU, {"extra_qconfig_dict": {"w_qscheme": {"bit": 4}}})
    with pytest.raises(UsageError, match="enable_quantization takes a model that prepare_by_platform gave"):
        mqbench.enable_quantization(Net())
    model = mqbench.prepare_by_platform(Net(), TPU, {"leaf_module": []})
    assert "leaf_module" in capsys.readouterr().err
    with pytest.raises(UsageError, match="was never quantized"):
        mqbench.convert_deploy(model, TPU, {"data": [1, 1, 8, 8]})
    mqbench.enable_quantization(model)
    model(batches(1)[0])
    assert "no batch was given for calibration" in capsys.readouterr().err
    with pytest.raises(UsageError, match="has 2 shapes, and the model has 1 input"):
        mqbench.convert_deploy(model, TPU, {"a": [2, 1, 8, 8], "b": [1]}, model_name="x")
    assert not list(tmp_path.iterdir())
