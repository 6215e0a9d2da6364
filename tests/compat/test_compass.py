"""Compass's names on npuc: cfg files, targets, plugins, statistics, and the page for people who come from there."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.calib.calibration import table_from
from npuc.calib.collection import collect
from npuc.calib.sources import open_data
from npuc.calib.statistics import Statistics, regrouped
from npuc.cli.app import run_command
from npuc.compat.compass.builder_plugins import refuse_builder_plugins
from npuc.compat.compass.cfg import CfgSection, read_cfg
from npuc.compat.compass.checker_plugins import check_layers
from npuc.compat.compass.opt_search import auto_search, ladder_of, learning_of, refuse_beside
from npuc.compat.compass.opt_settings import settings_of
from npuc.compat.compass.optimizer_plugins import check_operator_plugins
from npuc.compat.compass.per_layer import IrLayer
from npuc.compat.compass.pickled import load_npy
from npuc.compat.compass.plugin_files import load_plugins
from npuc.compat.compass.statistic_file import load_statistic_info, save_statistic_info
from npuc.compat.compass.targets import resolve_target, with_memory
from npuc.compat.install import install
from npuc.compat.registry import vendor_named
from npuc.errors import FileFormatError, InvalidModelError, PluginError, UnknownTargetError, UsageError
from npuc.flow import network_to_quantize
from npuc.quant.weight_ranges import weight_thresholds
from npuc.registries import isolated
from npuc.target import load_target
from npuc.target.vendor_names import NEAREST, ZHOUYI
from support.paths import ROOT

PAGE = ROOT / "docs" / "migrate-compass.md"
EXAMPLES = ROOT / "examples"
PROGRAM = ROOT / "tests" / "compat" / "programs" / "compass_digits.py"
X2 = load_target("zhouyi-x2-like")
LAYERS = [
    IrLayer(0, "image", "Input"),
    IrLayer(1, "stem/relu", "Convolution"),
    IrLayer(2, "logits", "FullyConnected"),
]


@pytest.fixture(scope="module")
def digits() -> Any:
    return network_to_quantize(EXAMPLES / "digits.onnx")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the digits model, its data and the vendor's names on the paths."""
    for name in ("digits.onnx", "digits_samples.npz"):
        shutil.copy(EXAMPLES / name, tmp_path)
    tools = install(vendor_named("compass"), tmp_path / "tools")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tools.scripts}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{tools.packages}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with isolated():
        yield tmp_path
    for name in [key for key in sys.modules if key.startswith(("aipubt_", "AIPUBuilder"))]:
        del sys.modules[name]


@pytest.mark.parametrize("name", [*ZHOUYI, "x2_1204", "edge-4t"])
def test_names_of_parts(name: str) -> None:
    assert resolve_target(name).name == ZHOUYI.get(name.upper(), name)


@pytest.mark.parametrize("name", [*(name for name in NEAREST if name.startswith("Z")), "X2_9999"])
def test_a_part_without_figures_is_refused(name: str) -> None:
    with pytest.raises(UnknownTargetError, match=name):
        resolve_target(name)


def test_sizes_of_memories() -> None:
    target = with_memory(resolve_target("X2_1204"), local=1024, shared=512)
    assert target.memory.local.size == 1 << 20 and target.memory.shared is not None
    assert target.memory.shared.size == 512 << 10
    with pytest.raises(UnknownTargetError, match="no global memory"):
        with_memory(resolve_target("X1_1204"), shared=512)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mode = run", "is not a cfg file"),
        ("[Common]\nmode run", "is not a cfg file"),
        ("[Common]\nmode = run\nmode = build", "is not a cfg file"),
        ("[Compiler]\nmode = run", "section .Compiler"),
        ("", "no section"),
        ("[Common]\n\xff", "not a text file"),
    ],
)
def test_cfg_files_that_cannot_be(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.cfg"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(FileFormatError, match=words):
        read_cfg(path)


def section(**values: str) -> CfgSection:
    return CfgSection("Optimizer", values)


def test_an_empty_value_is_none_and_blanks_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "x.cfg"
    path.write_text("[Parser]\ndetection_postprocess=\ninput  =  a , b\nforce_float_ir = True\n")
    values = read_cfg(path)["Parser"]
    assert "detection_postprocess" not in values.values
    assert values.names("input") == ["a", "b"] and values.flag("force_float_ir")


def test_keys_become_a_scheme(digits: Any) -> None:
    settings = settings_of(
        section(
            weight_bits="8 & <[fullyconnected]:16>",
            activation_bits="16 & <[(1,1)]:8>",
            quantize_method_for_weight="per_channel_symmetric_restricted_range",
            calibration_strategy_for_activation="mean & <{log.*}:3std>",
            running_statistic_momentum="0.5",
            bias_effective_bits="16",
            lut_items_in_bits="10",
        ),
        digits,
        LAYERS,
        X2,
    )
    config = settings.config
    assert config.options == {
        "per_channel": True,
        "narrow_weights": True,
        "weight": "i8",
        "activation": "i16",
        "wide_table_entries": 1025,
        "bias_significant_bits": 16,
    }
    assert (
        config.layers == {"logits": {"weight": "i16"}, "stem/relu": {"activation": "i8"}} and not config.widen
    )
    assert settings.method == "mean:momentum=0.5" and settings.overrides == {"logits": "std:n=3"}


def test_layers_that_compute_in_float(digits: Any, capsys: pytest.CaptureFixture[str]) -> None:
    values = section(
        trigger_float_op="disable & <[FullyConnected]:bfloat16_act_int_wht> <{stem.*}:float16_preferred!>",
        weight_bits="4",
    )
    short = settings_of(values, digits, LAYERS, load_target("bm1684x-like"))
    assert short.config.layers == {"logits": {"weight": "i4", "activation": "bf16"}, "stem/relu": "f16"}
    assert not capsys.readouterr().err
    other = settings_of(values, digits, LAYERS, X2)
    assert other.config.layers == {"logits": {"classes": ["weights"]}, "stem/relu": "float"}
    told = capsys.readouterr().err
    assert (
        "does not compute with bfloat16: logits computes in float32, on the CPU" in told
        and "float16: stem/relu" in told
    )
    assert settings_of(section(trigger_float_op="disable"), digits, LAYERS, X2).config.layers == {}


def test_symmetric_activations_are_unsigned_where_they_can_be(digits: Any) -> None:
    settings = settings_of(
        section(quantize_method_for_activation="per_tensor_symmetric_full_range"), digits, LAYERS, X2
    )
    assert settings.config.options["activation"] == "ui8" and settings.config.options["unsigned_from_zero"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"weight_bits": "3"}, "not from 4 to 16"),
        ({"activation_bits": "8 & [Softmax]:16"}, "has exceptions"),
        ({"activation_bits": "8 & <{(}:16>"}, "regular expression"),
        ({"bias_bits": "99"}, "not from 16 to 48"),
        ({"calibration_strategy_for_activation": "median"}, "not supported"),
        ({"calibration_strategy_for_weight": "mean"}, "none of extrema"),
        ({"quantize_method_for_weight": "per_row"}, "none of per_tensor"),
        ({"quantize_method_for_activation": "signed"}, "none of per_tensor"),
        ({"fake_quant_operators_for_debug": "Tile"}, "which no layer is"),
        ({"quantize_method_for_weight": "per_block_symmetric_full_range"}, "one scale for a tensor"),
        ({"trigger_float_op": "float16"}, "neither disable nor a float type"),
        ({"trigger_float_op": "disable & <[Softmax]:float8_preferred>, "}, "has exceptions"),
        ({"trigger_float_op": "float16_act_fp8e4m3fn_wht"}, "no weights of fp8e4m3fn"),
        ({"fake_quant_scopes_for_debug": "3"}, "no list of ranges"),
        ({"running_statistic_momentum": "2", "calibration_strategy_for_activation": "mean"}, "not from 0"),
    ],
)
def test_values_that_cannot_be(digits: Any, values: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        settings_of(section(**values), digits, LAYERS, X2)


def test_an_opt_config(tmp_path: Path, digits: Any) -> None:
    path = tmp_path / "c.json"
    path.write_text(
        '{"logits": {"q_bits_weight": 16, "q_strategy_activation": "extrema", "just_for_display": {}}}'
    )
    settings = settings_of(section(opt_config=str(path)), digits, LAYERS, X2)
    assert settings.config.layers == {"logits": {"weight": "i16"}} and settings.overrides == {"logits": "max"}
    for text, words in (("{", "not JSON"), ("[]", "no object"), ('{"a": {"b": 1}}', "a key 'b'")):
        path.write_text(text)
        with pytest.raises(FileFormatError, match=words):
            settings_of(section(opt_config=str(path)), digits, LAYERS, X2)


def collected(graph: Any) -> Statistics:
    images = np.load(EXAMPLES / "digits_samples.npz")["image"]
    return collect(graph, open_data(graph, [{"image": image[None]} for image in images[:6]]), threads=1)


def test_statistics_go_to_a_file_and_come_back(tmp_path: Path, digits: Any) -> None:
    statistics = collected(digits)
    save_statistic_info(statistics, tmp_path / "s.npy", 2048, 0.9)
    again = load_statistic_info(tmp_path / "s.npy")
    assert set(again) == set(statistics)
    for method in ("max", "mean:momentum=0.9", "std:n=3", "kl"):
        ours, theirs = table_from(statistics, method), table_from(again, method)
        for name, entry in ours.items():
            assert theirs[name].threshold == pytest.approx(entry.threshold, rel=0.06, abs=1e-6), (
                method,
                name,
            )


def test_a_pickle_with_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.npy"
    path.write_bytes(pickle.dumps({"a": os.system}))
    with pytest.raises(FileFormatError, match="which is no data"):
        load_npy(path)
    np.save(path, {"a": np.arange(3)}, allow_pickle=True)  # type: ignore[arg-type]
    assert load_npy(path)["a"].tolist() == [0, 1, 2]
    path.write_bytes(b"\x93NUMPY\x01\x00")
    with pytest.raises(FileFormatError, match="is no array"):
        load_npy(path)


def test_samples_in_batches_have_the_extremes_of_the_batch(digits: Any) -> None:
    statistics = collected(digits)
    pairs = regrouped(statistics, 2)["logits"].extremes
    single = statistics["logits"].extremes
    assert pairs.tolist() == [
        [min(single[i, 0], single[i + 1, 0]), max(single[i, 1], single[i + 1, 1])] for i in (0, 2, 4)
    ]
    average = 0.9 * (0.9 * pairs[0] + 0.1 * pairs[1]) + 0.1 * pairs[2]
    assert regrouped(statistics, 2)["logits"].running[0.9] == pytest.approx(tuple(average))


def test_weights_by_divergence_drop_outliers() -> None:
    rng = np.random.default_rng(0)
    row = np.append(rng.standard_normal(4000), 100.0)[None]
    assert 2.0 < weight_thresholds(row, "kl", 7)[0] < 100.0
    assert weight_thresholds(np.zeros((1, 4)), "kl", 127).tolist() == [0.0]


def plugin(folder: Path, text: str) -> None:
    (folder / "aipubt_mine.py").write_text(text)


def test_plugins_that_cannot_run_are_refused_where_they_are_used(workspace: Path) -> None:
    plugin(
        workspace,
        "from AIPUBuilder.Optimizer.framework import OpType, quant_register\n"
        "from AIPUBuilder.core import BuilderOpPlugin, OpType as Kind\n"
        "from AIPUBuilder.plugin_loader import PluginType, register_plugin\n"
        "@quant_register(OpType.Softmax, version='2.0')\n"
        "def quantize(self, *args): pass\n"
        "@register_plugin(PluginType.Builder, 0)\n"
        "class Mine(BuilderOpPlugin):\n"
        "    def get_graph_pattern(self): return [('a', Kind.Pooling)], []\n",
    )
    assert load_plugins() == ["aipubt_mine"]
    check_operator_plugins({"Convolution"})
    refuse_builder_plugins({"Convolution"})
    with pytest.raises(PluginError, match=r"quantize Softmax.*npuc quantizes those itself"):
        check_operator_plugins({"Softmax"})
    with pytest.raises(PluginError, match="machine code"):
        refuse_builder_plugins({"Pooling"})


def test_a_parser_plugin_is_refused_where_it_is_used(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin(
        workspace,
        "from AIPUBuilder.Parser.plugin_op import ParserOp\n"
        "from AIPUBuilder.Parser.plugin_loader import PluginType, register_plugin\n"
        "@register_plugin(PluginType.Parser, '0.1')\n"
        "class MyConv(ParserOp):\n"
        "    op_type = 'Conv'\n",
    )
    (workspace / "p.cfg").write_text(
        "[Common]\nmodel_type = onnx\nmodel_name = d\ninput_model = digits.onnx\n"
    )
    assert run_command(["compat", "run", "compass", "aipuparse", "-c", "p.cfg"]) == 2
    assert "parser plugin MyConv" in capfd.readouterr().err and not (workspace / "d.txt").exists()


def test_a_checker_plugin_looks_at_layers(workspace: Path) -> None:
    from npuc.export.compass import export_compass

    path, _ = export_compass(network_to_quantize("digits.onnx"), "d.txt")
    plugin(
        workspace,
        "from AIPUBuilder.core._checker import CheckerOpPlugin, IRError, IRErrorType\n"
        "from AIPUBuilder.core import OpType, TensorShape\n"
        "from AIPUBuilder.plugin_loader import PluginType, register_plugin\n"
        "@register_plugin(PluginType.Checker, 0)\n"
        "class Pools(CheckerOpPlugin):\n"
        "    def get_op_type(self): return OpType.Pooling\n"
        "    def infer_shape(self, node): return [node.outputs[0].shape]\n"
        "    def check(self, node):\n"
        "        ok = node.params['kernel_x'] == '2'\n"
        "        return [] if ok else [IRError(IRErrorType.InvalidParam, 'kernel_x', 'too large')]\n",
    )
    load_plugins()
    with pytest.raises(InvalidModelError, match="kernel_x is invalid: too large"):
        check_layers(Path(path))


def test_a_plugin_that_fails_is_named(workspace: Path) -> None:
    plugin(workspace, "1 / 0\n")
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        load_plugins()


@pytest.mark.parametrize(
    ("level", "shown"), [("1", "DIWE"), ("2", "IWE"), ("3", "IE"), ("6", "E"), ("10", "")]
)
def test_levels_of_messages(
    level: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from npuc.compat.compass.logger import say

    monkeypatch.setenv("AIPUBUILDER_LOG", level)
    for kind in "DIWE":
        say(kind, "text")
    assert re.findall(r"^\[(.)\]", capsys.readouterr().err, re.MULTILINE) == list(shown)


def test_heads_of_detectors_are_those_of_npuc() -> None:
    from npuc.compat.compass.parse_command import POSTPROCESS
    from npuc.frontend.postprocess import PostprocessOptions

    for words in filter(None, POSTPROCESS.values()):
        PostprocessOptions.parse(words)


def test_every_block_of_the_page_runs(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {}
    for language, text in re.findall(r"```(\w*)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), space)
            continue
        for line in text.splitlines():
            words = line.split()
            if words[0] == "export":
                continue
            command = words[1:] if words[0] == "npuc" else ["compat", "run", "compass", *words]
            assert run_command(command) == 0, (line, capfd.readouterr().err)
    assert (workspace / "scores.bin").read_bytes() == (workspace / "output.bin").read_bytes()
    figures = dict(re.findall(r"(float|quantized) TopKMetric: (\S+)", capfd.readouterr().out))
    assert float(figures["quantized"]) >= float(figures["float"]) - 0.01


@pytest.mark.slow
def test_a_users_program_is_as_accurate_as_npuc_itself(workspace: Path) -> None:
    pytest.importorskip("torch")
    told = subprocess.run(
        [sys.executable, str(PROGRAM), "digits.onnx", "digits_samples.npz"], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    figures = re.search(r"float (\S+) npu (\S+) first (\d) of 3", told.stdout)
    assert figures is not None and figures[3] == "3"
    assert float(figures[2]) == pytest.approx(_own_accuracy(), abs=1e-6)


def _own_accuracy() -> float:
    """Of npuc's own functions on the same data."""
    from npuc.flow import compile_network, quantize_on_data
    from npuc.runtime import Runner

    data = np.load("digits_samples.npz")
    target, graph = resolve_target("X2_1204"), network_to_quantize("digits.onnx")
    samples = [{"image": image[None]} for image in data["image"][:50]]
    quantized, _ = quantize_on_data(graph, open_data(graph, samples), None, target)
    with Runner(compile_network(quantized.graph, target).model) as runner:
        return float((runner.run(data["image"])["logits"].argmax(1) == data["label"]).mean())


def test_a_layer_has_what_plugins_ask_for() -> None:
    from npuc.compat.compass.optimizer_plugins import PyNode

    node = PyNode("a", "Softmax", params={"axis": 1})
    assert node.get_param("axis") == 1 and node.get_attr("x", optional=True, default_value=2) == 2
    with pytest.raises(PluginError, match="no 'beta'"):
        node.get_param("beta")


def test_keys_that_search() -> None:
    section = partial(CfgSection, "Optimizer")
    assert (
        auto_search(section({})) is None
        and auto_search(section({"mixed_precision_auto_search": "0,0.,L"})) is None
    )
    words = {"mixed_precision_auto_search": " 4, -0.5, g ", "metric": "RMSEMetric"}
    search = auto_search(section(words))
    assert search is not None and (search.batches, search.drop, search.lower_is_better) == (4, 0.5, True)
    for text, told in (
        ("4,0.1", "is not BATCHES"),
        ("4,x,L", "is not BATCHES"),
        ("4,-0.1,L", "better than the float"),
    ):
        with pytest.raises(UsageError, match=told):
            auto_search(section(words | {"mixed_precision_auto_search": text}))
    learned = learning_of(section({"global_calibration": "adaround & adaquant_zy[10, 3, 8, 1e-5, 0, 1e-4]"}))
    assert learned.adaquant.iterations == 30 and learned.adaquant.batch == 8 and learned.adaquant.real_rates
    assert (learned.adaquant.weight_rate, learned.adaquant.bias_rate, learned.adaquant.weight_scale_rate) == (
        1e-5,
        0,
        1e-4,
    )
    steps = ladder_of(
        section({"global_calibration": "easy_quant & adaround[1,2] & mvn_correction[rms,0.5]"}),
        lambda *_: 0.0,
    )
    assert steps is not None and steps.steps == ("ranges", "round") and steps.goal is None
    for text, told in (
        ("adaround[1,2][Convolution]", "for single layers"),
        ("adaround[x]", "numbers that are none"),
        ("svd_quant", "is none of"),
        ("adaround[1", "for single layers|is none of"),
    ):
        with pytest.raises(UsageError, match=told):
            ladder_of(section({"global_calibration": text}), lambda *_: 0.0)
    with pytest.raises(UsageError, match="global_calibration is not supported beside statistic_file"):
        refuse_beside(section({"global_calibration": "adaround", "statistic_file": "x.npy"}), {})


def test_nothing_is_left_behind_by_a_build_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "digits.onnx", "digits.onnx")
    data = np.load(EXAMPLES / "digits_samples.npz")
    np.save("calib.npy", data["image"][:4])
    np.save("label.npy", data["label"][:4])
    parser = (
        "model_type = onnx\nmodel_name = d\nmodel_domain = image_classification\ninput_model = digits.onnx\n"
    )
    for optimizer, builder, told in (
        ("dataset = NumpyDataset\ncalibration_data = none.npy", "X2_1204", "none.npy: does not exist"),
        ("dataset = NumpyDatset\ncalibration_data = calib.npy", "X2_1204", "There are NumpyDataset"),
        (
            "dataset = NumpyDataset\ncalibration_data = label.npy",
            "X2_1204",
            r"and the input 'image' is \[1, 1, 8, 8\].$",
        ),
        (
            "dataset = NumpyDataset\ncalibration_data = calib.npy\nmetric = CosDistanceMetric\n"
            "data = calib.npy\nlabel = label.npy",
            "X2_1204",
            "compares outputs with labels",
        ),
        (
            "dataset = NumpyDataset\ncalibration_data = calib.npy",
            "X9",
            "Names of that kind with a preset are X1_1204",
        ),
    ):
        text = (
            f"[Parser]\n{parser}[Optimizer]\noutput_dir = out\n{optimizer}\n[GBuilder]\ntarget = {builder}\n"
        )
        Path("net.cfg").write_text(f"[Common]\nmode = build\n{text}")
        before = set(tmp_path.iterdir())
        assert run_command(["compat", "run", "compass", "aipubuild", "net.cfg"]) == 2
        assert re.search(told, capsys.readouterr().err.strip())
        assert set(tmp_path.iterdir()) == before
