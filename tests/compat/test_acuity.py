"""Acuity on npuc: a whole conversion directory, the case code built by make, the files, and what newcomers do wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from npuc.cli.app import run_command
from npuc.compat.acuity.chips import known_names, optimize_value, target_of
from npuc.compat.acuity.quantize_file import NumberType, read_quantize_file, write_quantize_file
from npuc.compat.install import install
from npuc.compat.registry import vendor_named
from npuc.errors import FileFormatError, NpucError, UnknownTargetError, UsageError
from support.networks.small_onnx import image_model
from support.paths import ROOT, TESTS

COUNT = 100


def run(*words: str) -> int:
    """A `pegasus` command in this process."""
    return run_command(["compat", "run", "acuity", "pegasus", *words])


def prepare() -> None:
    """A model, images and their list in the working folder."""
    onnx.save(image_model(), "net.onnx")
    rng = np.random.default_rng(0)
    for number in range(2):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(f"{number}.png")
    Path("dataset.txt").write_text("0.png\n1.png\n")


@pytest.mark.slow
def test_a_users_conversion_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from npuc.calib.sources import DataOptions, open_data
    from npuc.engine import FloatEngine, IntegerEngine
    from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
    from npuc.ir.target_rewrites import rewritten_for
    from npuc.quant.config import QuantizationConfig
    from npuc.target import load_target

    monkeypatch.chdir(tmp_path)
    install(vendor_named("acuity"), tmp_path)
    data = np.load(ROOT / "examples" / "digits_samples.npz")
    images, labels = data["image"], data["label"]
    for name, part in (("calibration", images[:50]), ("test", images[50 : 50 + COUNT])):
        for number, image in enumerate(part):
            np.save(f"{name}{number:03}.npy", image)
        lines = [f"{name}{number:03}.npy\n" for number in range(len(part))]
        Path(f"{name}.txt").write_text("".join(lines))
    Path("labels.txt").write_text("".join(f"{label}\n" for label in labels[50 : 50 + COUNT]))
    program = TESTS / "compat" / "programs" / "acuity_user.sh"
    assert len(program.read_text().splitlines()) >= 40
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    words = ["bash", program, ROOT / "examples" / "digits.onnx", "calibration.txt", "test.txt", "labels.txt"]
    told = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Env Pass: Env check SUCCESS!!!" in told.stdout
    figures = {kind: float(value) for kind, value in re.findall(r"(\w+) accuracy ([\d.]+)", told.stdout)}

    target = load_target("vipnano-like")
    graph = rewritten_for(network_to_quantize(ROOT / "examples" / "digits.onnx"), target, "float")
    config = QuantizationConfig(scheme="uint8-weights")
    source = open_data(graph, "calibration.txt", DataOptions())
    ranges = ranges_from(graph, source, schemes_of(graph, config, target), "max")
    integers = quantize_network(graph, ranges, config, target).graph
    test = images[50 : 50 + COUNT]
    for kind, engine in (("float32", FloatEngine(graph)), ("quantized", IntegerEngine(integers))):
        rows = [next(iter(engine.run(image[None]).values())) for image in test]
        assert figures[kind] == round(
            float(np.mean([row.argmax() == label for row, label in zip(rows, labels[50:], strict=False)])), 4
        )
    stored = next(Path("results_quantized").glob("attach_*_out0_0_out0_*.tensor"))
    assert np.array_equal(np.loadtxt(stored, np.float32), np.concatenate(rows).ravel()), "the bits differ"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("make"), reason="make builds the application")
@pytest.mark.parametrize("hybrid", [False, True])
def test_the_case_code_has_the_bits_of_inference(
    hybrid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare()
    files = ["--model", "net.json", "--model-data", "net.data", "--with-input-meta", "net_inputmeta.yml"]
    assert run("import", "onnx", "--model", "net.onnx") == 0
    assert (
        run("generate", "inputmeta", "--model", "net.json", "--channel-mean-value", "128 128 128 0.0078125")
        == 0
    )
    assert run("quantize", "--rebuild", "--iterations", "2", *files) == 0
    model = "net.json"
    if hybrid:
        text = Path("net.quantize").read_text()
        layers = "customized_quantize_layers: {relu_1: dynamic_fixed_point-i16, classify_4: float32}"
        Path("net.quantize").write_text(re.sub("customized_quantize_layers:.*", layers, text))
        assert run("quantize", "--hybrid", *files) == 0
        model = "net.quantize.json"
    assert run("inference", "--dtype", "quantized", *files) == 0
    words = [
        "--dtype",
        "quantized",
        "--optimize",
        "VIPNANOQI_PID0X88",
        "--pack-nbg-unify",
        "--output-path",
        "demo/",
    ]
    assert run("export", "ovxlib", "--model", model, *files[2:], *words) == 0
    folder = tmp_path / "demo_nbg_unify"
    subprocess.run(["make", "-s", "-f", "makefile.linux", "CFLAGS=-O1"], cwd=folder, check=True)
    expected = np.loadtxt(next(tmp_path.glob("attach_*_out0_0_out0_1_5.tensor")), np.float32)
    Image.open("0.png").save("0.bmp")
    for given in ("0.bmp", next(tmp_path.glob("attach_x_*.tensor")).name):
        subprocess.run([folder / "net", folder / "network_binary.nb", given], check=True)
        same = np.loadtxt("output0.tensor", np.float32)
        assert (
            np.allclose(same, expected, atol=1e-5 * np.abs(expected).max())
            if hybrid
            else np.array_equal(same, expected)
        )
    done = subprocess.run(
        [folder / "net", folder / "network_binary.nb", "no.bmp"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "cannot be opened" in done.stderr


def test_chips() -> None:
    assert {target_of(name).name for name in known_names()} == {"vipnano-like", "vipnano-e8-like"}
    assert target_of("VIPNANOQI_PID0XE8").name == "vipnano-e8-like"
    assert target_of("edge-1t").name == "edge-1t"
    assert optimize_value("Serial\t\t: 2b0b0f0001082d000015363043575050") == "VIPNANOQI_PID0X99"
    with pytest.raises(UnknownTargetError, match=r"not published.*vipnano-like"):
        target_of("VIP8000NANOSI_PID0X9F")
    with pytest.raises(UsageError, match="no known chip"):
        optimize_value("1234")


def test_a_quantize_file_of_the_vendor_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.quantize"
    path.write_text(
        "quantize_parameters:\n"
        "  '@Conv2d_0_1:weight':\n    dtype: asymmetric_quantized\n    method: layer\n"
        "    max_value:\n    - 2.7051823139190674\n    min_value:\n    - -2.880463123321533\n"
        "    zero_point:\n    - 132\n    scale:\n    - 0.021990729495882988\n    qtype: u8\n"
        "customized_quantize_layers: {conv2_3: float32, conv1_1: dynamic_fixed_point-16}\n"
    )
    file = read_quantize_file(path)
    weight = file.tensors["@Conv2d_0_1:weight"]
    assert weight.kind == NumberType("asymmetric_affine", "u8") and weight.zero_point == (132,)
    assert abs(weight.scale[0] - (weight.max_value[0] - weight.min_value[0]) / 255) < 1e-3
    assert file.customized["conv1_1"] == NumberType("dynamic_fixed_point", "i16")
    write_quantize_file(file, tmp_path / "y.quantize")
    assert read_quantize_file(tmp_path / "y.quantize") == file


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("quantize_parameters: [", "is no YAML"),
        ("version: 3", "has no quantize_parameters"),
        ("quantize_parameters: {'@a_1:out0': {qtype: u9, quantizer: asymmetric_affine}}", "no qtype 'u9'"),
        ("quantize_parameters: {'@a_1:out0': {qtype: u8, quantizer: other}}", "no quantizer 'other'"),
        ("quantize_parameters: {'@a_1:out0': {qtype: u8, quantizer: asymmetric_affine, max_value: [x]}}", "is no number"),
        ("quantize_parameters: {'@a_1:out0': {qtype: u8, quantizer: asymmetric_affine, max_value: 1, min_value: 2}}", "above"),
        ("quantize_parameters: {}\ncustomized_quantize_layers: {a: int3}", "'int3' is none of"),
        ("quantize_parameters: {}\nnpuc_network: ../x", "no file beside"),
    ],
)  # fmt: skip
def test_a_half_written_quantize_file(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.quantize"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=words):
        read_quantize_file(path)


def test_edited_ranges_change_the_integers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare()
    files = ["--model", "net.json", "--model-data", "net.data", "--with-input-meta", "net_inputmeta.yml"]
    for words in (
        ["import", "onnx", "--model", "net.onnx"],
        ["generate", "inputmeta", "--model", "net"],
        ["quantize", *files],
        ["inference", "--dtype", "quantized", "--output-dir", "before", *files],
    ):
        assert run(*words) == 0, capsys.readouterr().err
    file = read_quantize_file("net.quantize")
    lid = next(name for name in file.tensors if name.endswith(":weight"))
    weight = file.tensors[lid]
    text = Path("net.quantize").read_text()
    Path("net.quantize").write_text(text.replace(repr(weight.max_value[0]), repr(weight.max_value[0] / 2)))
    capsys.readouterr()
    assert run("inference", "--dtype", "quantized", "--output-dir", "after", *files) == 0
    assert "are clipped to" in capsys.readouterr().err
    name = next(Path("before").glob("attach_*_out0_0_*")).name
    assert (Path("before") / name).read_text() != (Path("after") / name).read_text()


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("acuity")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare()
        assert run("import", "onnx", "--model", "net.onnx") == 0
        assert run("generate", "inputmeta", "--model", "net.json") == 0
        text = Path("net_inputmeta.yml").read_text()
        Path("lid.yml").write_text(text.replace("lid: x_0", "lid: y_0"))
        Path("shape.yml").write_text(text.replace("- 8\n      - 8\n", "- 8\n      - 9\n", 1))
        Path("lost.yml").write_text(text.replace("dataset.txt", "lost.txt"))
        Path("tabs.yml").write_text("input_meta:\n\tdatabases: []\n")
        shutil.copy("net.data", "other.data")
        Path("stale.json").write_text(Path("net.json").read_text().replace('"sha256": "', '"sha256": "0'))
        Path("outside.json").write_text(
            Path("net.json").read_text().replace("net.npuc.mlir", "../net.npuc.mlir")
        )
    return folder


_FILES = "--model net.json --model-data net.data --with-input-meta"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import", "needs a word that says what"),
        ("import onx --model net.onnx", "Did you mean 'onnx'"),
        ("import onnx", "required: --model"),
        ("import onnx --model net.onnx --output-model no/x.json", "no/x.json"),
        ("import onnx --model net.onnx --input-size-list 3,8,8#1", "has 2 sizes"),
        ("import onnx --model net.onnx --input-size-list 0,8,8", "not above 0"),
        ("import onnx --model 0.png", "no model of onnx"),
        ("generate inputmeta --model no.json", "no.json"),
        ("generate inputmeta --model stale.json", "another version"),
        ("generate inputmeta --model outside.json", "outside of its folder"),
        ("generate inputmeta --model net --source-file a#b#c", "names 3 lists"),
        (f"quantize {_FILES} lid.yml", "lid 'y_0' is no input"),
        (f"quantize {_FILES} shape.yml", "and that of the network"),
        (f"quantize {_FILES} lost.yml", "lost.txt"),
        (f"quantize {_FILES} tabs.yml", "is no YAML"),
        (f"quantize {_FILES} net_inputmeta.yml --hybrid", "net.quantize"),
        (f"quantize {_FILES} net_inputmeta.yml --iterations 0", "no whole number above 0"),
        (f"quantize {_FILES} net_inputmeta.yml --qtype int7", "'int7' is none of"),
        ("quantize --model net.json --model-data other.data --with-input-meta net_inputmeta.yml", "is not of net.json"),
        (f"inference {_FILES} net_inputmeta.yml --dtype quantized", "needs --model-quantize"),
        (f"export ovxlib {_FILES} net_inputmeta.yml --dtype int8", "'int8' is none of"),
        ("export ovx --model net.json", "Did you mean 'ovxlib'"),
        ("measure", "required: --model"),
        ("--serial", "takes the serial code"),
    ],
)  # fmt: skip
def test_what_newcomers_do_wrong(
    line: str, words: str, ready: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ready)
    before = set(ready.iterdir())
    assert run(*line.split()) == 2
    told = capsys.readouterr()
    assert "error[E" in told.err and words in told.err and "Traceback" not in told.err, told.err
    assert set(ready.iterdir()) == before, "something is left behind"


def test_names_go_both_ways(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from npuc.compat.acuity.layers import names_of
    from npuc.compat.acuity.model_files import open_model

    monkeypatch.chdir(ready)
    graph = open_model("net.json", "net.data").graph
    names = names_of(graph)
    spelled = [
        names.vendor_name(name) for name in ("x", *graph.tensor_names()) if "@" in names.vendor_name(name)
    ]
    assert "@x_0:out0" in spelled and len(set(spelled)) == len(spelled)
    assert all(names.vendor_name(names.npuc_name(name)) == name for name in spelled)
    with pytest.raises(NpucError):
        open_model("net.onnx")
