"""Vitis AI's names on npuc: targets, configurations, dumps, and the page for people who come from there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc.cli.app import run_command
from npuc.compat.install import install
from npuc.compat.registry import vendor_named
from npuc.compat.vitis.dumps import DumpFolder, file_stem, read_tensor
from npuc.compat.vitis.quant_config import parse_quant_config, read_quant_config
from npuc.compat.vitis.targets import B4096, resolve_target
from npuc.errors import FileFormatError, FileMissingError, NpucError, TargetError, UnknownTargetError
from npuc.target import load_target
from npuc.target.fingerprint import fingerprint_of
from npuc.target.vendor_names import NEAREST
from support.paths import ROOT, SHARED

PAGE = ROOT / "docs" / "migrate-vitis-ai.md"
EXAMPLES = ROOT / "examples"
PROGRAM = ROOT / "tests" / "compat" / "programs" / "vitis_digits.py"


@pytest.mark.parametrize(
    "name",
    [
        "DPUCZDX8G_ISA1_B4096",
        "dpuczdx8g-isa0-b4096",
        "DPUCZDX8G_ISA1_B4096_SP",
        "0x0101000016010407",
        "0x101000016010407",
    ],
)
def test_names_and_fingerprints_of_a_dpu(name: str) -> None:
    assert resolve_target(name).name == B4096


def test_npucs_own_names_and_fingerprints() -> None:
    assert resolve_target("edge-4t").name == "edge-4t"
    assert resolve_target(f"0x{fingerprint_of(load_target('edge-4t')):x}").name == "edge-4t"


@pytest.mark.parametrize("name", [name for name in NEAREST if name.startswith("DPUC")])
def test_a_dpu_without_figures_is_refused_with_the_nearest_preset(name: str) -> None:
    nearest = "dpucahx8h-dwc-like" if name.startswith("DPUCA") else "dpucvdx8g-c32b3-like"
    with pytest.raises(UnknownTargetError, match=f"figures of '{name}-SP' are not published.*{nearest}"):
        resolve_target(f"{name}-SP")


@pytest.mark.parametrize(
    ("name", "preset", "operations"),
    [
        # The peaks that the vendor's product guides state for these configurations.
        ("DPUCVDX8G-ISA3-C32B3", "dpucvdx8g-c32b3-like", 30.72e12),
        ("0x603000b56011831", "dpucvdx8g-c32b3-like", 30.72e12),
        ("/opt/vitis_ai/compiler/arch/DPUCVDX8G/VCK190/arch.json", "dpucvdx8g-c32b3-like", 30.72e12),
        ("DPUCAHX8H_ISA2_DWC", "dpucahx8h-dwc-like", 7.373e12),
        ("0x20200000010002b", "dpucahx8h-dwc-like", 7.373e12),
        ("/opt/vitis_ai/compiler/arch/DPUCAHX8H/U50/arch.json", "dpucahx8h-dwc-like", 7.373e12),
    ],
)
def test_other_dpus_have_their_published_peak(name: str, preset: str, operations: float) -> None:
    target = resolve_target(name)
    assert target.name == preset and target.peak_operations() == pytest.approx(operations, rel=1e-4)


def test_a_fingerprint_of_a_dpu_without_figures_names_it() -> None:
    with pytest.raises(UnknownTargetError, match="DPUCADF8H_ISA0"):
        resolve_target("0x700000000000000")


def test_arch_json(tmp_path: Path) -> None:
    path = tmp_path / "arch.json"
    for content in ({"target": "DPUCZDX8G_ISA1_B4096"}, {"fingerprint": "0x0101000016010407"}):
        path.write_text(json.dumps(content))
        assert resolve_target(path).name == B4096
    assert resolve_target("/opt/vitis-ai/compiler/arch/DPUCZDX8G/ZCU104/arch.json").name == B4096
    for text, words in (
        ("{", "not JSON"),
        ("{}", "neither"),
        ('{"target": 7}', "neither"),
        ('{"target": "DPUCX"}', "no target 'DPUCX'.*DPUCVDX8G_ISA3_C32B3"),
    ):
        path.write_text(text)
        with pytest.raises((TargetError, UnknownTargetError), match=words):
            resolve_target(path)
    with pytest.raises(FileMissingError):
        resolve_target(tmp_path / "other.json")
    with pytest.raises(UnknownTargetError, match="no board 'ZCU999'"):
        resolve_target("/opt/vitis_ai/compiler/arch/DPUCZDX8G/ZCU999/arch.json")


def test_levels_of_a_quant_config(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        """{"target_device": "CPU", "convert_relu6_to_relu": true,
        "overall_quantize_config": {"method": "maxmin", "round_mode": "half_even", "scale_type": "float",
                                    "calib_statistic_method": "max",},
        "tensor_quantize_config": {"activation": {"symmetry": false, },},
        "layer_quantize_config": [{"layer_type": "torch.nn.Conv2d", "layer_name": null,
            "tensor_quantize_config": {"weights": {"per_channel": true}, "activation": {"method": "percentile"}}}]}"""
    )
    settings = read_quant_config(path)
    scheme: Any = settings.config.scheme
    assert (scheme["activation_scales"], scheme["weight_scales"]) == ("affine", "symmetric")
    assert scheme["requant"] == "float_scale" and not scheme["per_channel"]
    assert settings.config.types["conv"]["per_channel"]  # type: ignore[index]
    assert settings.method == "max" and settings.type_methods == {"conv": "percentile"}
    assert settings.config.activation_forms == ("relu6-to-relu",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"overall_quantize_config": {"method": "median"}}, "method is 'median'"),
        ({"overall_quantize_config": {"scale_type": "float"}}, "powers of two and one scale a tensor"),
        ({"target_device": "TPU"}, "target_device"),
        ({"include_cle": 1}, "include_cle is 1"),
        (
            {"target_device": "CPU", "overall_quantize_config": {"method": "mse", "scale_type": "float"}},
            "modal is not for the method mse",
        ),
        ({"tensor_quantize_config": {"bias": {"datatype": "float16"}}}, "different data types"),
        ({"layer_quantize_config": [{"layer_type": "torch.nn.Conv9d", "layer_name": None}]}, "no layer_type"),
        ({"layer_quantize_config": [{}]}, "layer_type or a layer_name"),
        ({"keep_add_layer_accuracy": True}, "not documented"),
        ({"layer_quantize_config": {}}, "not a list"),
    ],
)
def test_a_quant_config_that_cannot_be(content: dict[str, Any], words: str) -> None:
    with pytest.raises(NpucError, match=words):
        parse_quant_config(content)


def test_dumps_are_channels_last(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.int8).reshape(1, 2, 3, 4)
    path = DumpFolder(tmp_path / "d").write("a/b:0", array)
    assert path.name == "a_b:0.bin" and file_stem("..") == "_"
    assert path.read_bytes() == array.transpose(0, 2, 3, 1).tobytes()
    assert path.with_suffix(".txt").read_text().split()[:3] == ["0", "12", "1"]
    np.testing.assert_array_equal(read_tensor(path, array.shape, array.dtype), array)
    with pytest.raises(FileFormatError, match="24 bytes, and the tensor has 48"):
        read_tensor(path, array.shape, np.dtype(np.int16))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the digits model and the vendor's names on the paths."""
    for name in ("digits.onnx", "digits_samples.npz"):
        shutil.copy(EXAMPLES / name, tmp_path)
    tools = install(vendor_named("vitis"), tmp_path / "tools")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tools.scripts}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{tools.packages}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(sys, "path", [str(tools.packages), *sys.path])
    yield tmp_path  # type: ignore[misc]
    for name in {top.split(".")[0] for top in vendor_named("vitis").modules}:
        for module in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[module]


def test_every_block_of_the_page_runs(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    space: dict[str, Any] = {}
    for language, text in re.findall(r"```(\w*)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), space)
            continue
        for line in text.splitlines():
            words = line.split()
            if words[0] == "export":
                continue
            command = words[1:] if words[0] == "npuc" else ["compat", "run", "vitis", *words]
            assert run_command(command) == 0, (line, capfd.readouterr().err)
    # The runtime gives the integers that the file of the quantizer states, and the torch module those of its program.
    said = capfd.readouterr().out
    assert '"device": "DPU"' in said and re.search(r"logits: \[1, 10\] int8, md5 \w{32}", said)
    assert np.array_equal(np.fromfile("logits.bin", np.int8), space["scores"].ravel())
    signal, noise = space["expected"].square().sum(), (space["exact"] - space["expected"]).square().sum()
    assert signal / noise > 100
    # Pruning has cut the module, and training with quantization ends in the integers of the program.
    assert space["slim_model"][0].out_channels < 4
    trained = space["trainable"].eval()(space["batch"])
    assert bool((trained == space["deployable"](space["batch"])).all())
    for name in (
        "inspected/inspect_DPUCZDX8G_ISA1_B4096.txt",
        "quantized/quant_info.json",
        "quantized/Sequential.py",
        "quantized/Sequential_int.xmodel",
        "quantized/Sequential_int.onnx",
        "quantized/deploy_check_data_int/1.bin",
        ".vai/Sequential.sens",
        "qat_result/Sequential_int.xmodel",
        "compiled/torch.xmodel",
    ):
        assert (workspace / name).is_file(), name


@pytest.mark.slow
def test_a_users_program_is_as_accurate_as_npuc_itself(workspace: Path) -> None:
    told = subprocess.run(
        [sys.executable, str(PROGRAM), "digits.onnx", "digits_samples.npz"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    figures = re.search(r"float (\S+) dpu (\S+)", told.stdout)
    assert figures is not None and float(figures[2]) == pytest.approx(_own_accuracy(), abs=0.0026)


@pytest.mark.slow
def test_a_users_program_prunes_trains_and_deploys(workspace: Path) -> None:
    """The documented loops on some images of CIFAR-10: 40 % of the multiply-adds go, and the DPU has the trained integers."""
    pytest.importorskip("torch")
    folder = SHARED / "data" / "cifar10"
    if not folder.is_dir():
        pytest.skip("CIFAR-10 is not here")
    rows = [line.split() for line in (folder / "val.txt").read_text().splitlines() if line.strip()]
    pixels = [np.asarray(Image.open(folder / "val" / Path(name).name).convert("RGB")) for name, _ in rows]
    images = (np.stack(pixels)[:, ::2, ::2].transpose(0, 3, 1, 2).astype(np.float32) / 255 - 0.5) * 4
    labels = np.array([int(label) for _, label in rows])
    np.savez(
        "cifar.npz", image=images[:800], label=labels[:800], val_image=images[800:], val_label=labels[800:]
    )
    told = subprocess.run(
        [sys.executable, str(PROGRAM.with_name("vitis_train.py")), "cifar.npz", "3"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    sizes = re.search(r"parameters (\d+) pruned (\d+)", told.stdout)
    figures = re.search(r"float (\S+) pruned (\S+) qat (\S+) dpu (\S+)", told.stdout)
    assert sizes is not None and int(sizes[2]) < int(sizes[1]) and figures is not None
    before, pruned, trained, dpu = (float(figure) for figure in figures.groups())
    # The program rounds images half up, and graph mode half away from zero: an image may be classified otherwise.
    assert before > 0.2 and pruned > before - 0.1 and trained > pruned - 0.1 and abs(dpu - trained) <= 0.005


def _own_accuracy() -> float:
    """Of npuc's own functions on the same data."""
    from npuc.calib.sources import open_data
    from npuc.flow import compile_network, network_to_quantize, quantize_on_data
    from npuc.runtime import Runner

    data = np.load("digits_samples.npz")
    target, graph = load_target(B4096), network_to_quantize("digits.onnx")
    samples = [{"image": image[None]} for image in data["image"][:50]]
    quantized, _ = quantize_on_data(graph, open_data(graph, samples), None, target)
    with Runner(compile_network(quantized.graph, target).model) as runner:
        return float((runner.run(data["image"])["logits"].argmax(1) == data["label"]).mean())
