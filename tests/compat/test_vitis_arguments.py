"""Arguments of Vitis AI's Python packages: each changes what comes out, is refused by name, or is told to mean nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.compat.vitis import execution_provider, vai_q_onnx
from npuc.compat.vitis.quant_config import parse_quant_config
from npuc.compat.vitis.vart import Runner
from npuc.compat.vitis.xir import Graph as XirGraph
from npuc.errors import NpucError, UsageError
from npuc.export.onnx import export_onnx
from npuc.flow import compile_network, quantize_network
from npuc.program.file import save_compiled
from npuc.target import load_target

torch = pytest.importorskip("torch")


class Reader(vai_q_onnx.CalibrationDataReader):  # type: ignore[misc]
    """Six images."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.images = iter([{"image": rng.uniform(0, 1, (1, 1, 8, 8)).astype(np.float32)} for _ in range(6)])

    def get_next(self) -> dict[str, Array] | None:
        """The next one."""
        return next(self.images, None)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    x = lang.input("image", (1, 1, 8, 8))
    y = lang.conv(x, rng.standard_normal((4, 1, 3, 3), np.float32), pads=1, relu=True, name="conv1")
    y = lang.conv(y, rng.standard_normal((4, 4, 3, 3), np.float32), pads=1, relu=True, name="conv2")
    scores = lang.reshape(y, shape=(1, 256)) @ (0.1 * rng.standard_normal((256, 5), np.float32))
    export_onnx(lang.build({"scores": scores}), "net.onnx")
    yield "net.onnx"


def quantized(model: str, **options: Any) -> onnx.ModelProto:
    vai_q_onnx.quantize_static(model, "out.onnx", Reader(), **options)
    return onnx.load("out.onnx")


def integers(model: onnx.ModelProto) -> list[tuple[Any, ...]]:
    """Types and values of the constants of a file."""
    return [
        (entry.data_type, *onnx.numpy_helper.to_array(entry).reshape(-1)[:20].tolist())
        for entry in model.graph.initializer
    ]


MIN_MAX = vai_q_onnx.CalibrationMethod.MinMax
UNSIGNED = vai_q_onnx.QuantType.QUInt8
QDQ = vai_q_onnx.QuantFormat.QDQ


@pytest.mark.parametrize(
    ("before", "options"),
    [
        ({}, {"calibrate_method": MIN_MAX}),
        ({}, {"reduce_range": True}),
        ({}, {"per_channel": True}),
        ({}, {"nodes_to_quantize": ["conv1"]}),
        ({}, {"nodes_to_exclude": ["conv1/Conv"]}),
        ({}, {"op_types_to_quantize": ["MatMul"]}),
        ({}, {"input_nodes": ["conv2"]}),
        ({}, {"output_nodes": ["conv1"]}),
        ({}, {"quant_format": vai_q_onnx.QuantFormat.QOperator}),
        ({"calibrate_method": MIN_MAX}, {"activation_type": UNSIGNED}),
        ({"calibrate_method": MIN_MAX}, {"weight_type": UNSIGNED}),
        ({"calibrate_method": MIN_MAX}, {"extra_options": {"WeightSymmetric": False}}),
        ({"calibrate_method": MIN_MAX}, {"extra_options": {"ActivationSymmetric": True}}),
    ],
    ids=lambda entry: ",".join(map(str, entry)) or "plain",
)
def test_arguments_of_quantize_static_that_change_the_file(
    model: str, before: dict[str, Any], options: dict[str, Any]
) -> None:
    assert integers(quantized(model, **before)) != integers(quantized(model, **(before | options)))


def test_weights_beside_the_file(model: str) -> None:
    quantized(model, use_external_data_format=True)
    assert [path.name for path in Path().glob("out.onnx?*")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimize_model": False}, "optimize_model=False is accepted and means nothing here"),
        (
            {"extra_options": {"AddQDQPairToWeight": True}},
            "AddQDQPairToWeight'] is accepted and means nothing",
        ),
        (
            {"extra_options": {"ForceQuantizeNoInputCheck": True}},
            "ForceQuantizeNoInputCheck'] is accepted and means",
        ),
        ({"extra_options": {"CalibMovingAverage": True}}, "extra_options has no option 'CalibMovingAverage'"),
    ],
)
def test_arguments_of_quantize_static_without_effect_are_told(
    model: str, options: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    same = integers(quantized(model)) == integers(quantized(model, **options))
    assert same and words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"extra_options": {"WeightSymmetric": False}},
            "WeightSymmetric'] is False, and powers of two are symmetric",
        ),
        ({"extra_options": {"ActivationSymmetric": False}}, "ActivationSymmetric'] is False"),
        ({"extra_options": {"WeightSymmetric": "no"}}, "has to be True or False"),
        ({"extra_options": ["WeightSymmetric"]}, "extra_options is a list"),
        (
            {"calibrate_method": MIN_MAX, "weight_type": UNSIGNED, "reduce_range": True},
            "reduce_range is for symmetric",
        ),
        ({"calibrate_method": "MinMSE"}, "calibrate_method is 'MinMSE'"),
        ({"quant_format": "QDQ"}, "quant_format is 'QDQ'"),
        ({"activation_type": "int8"}, "activation_type is int8"),
        ({"nodes_to_quantize": ["conv9"]}, "no node 'conv9'"),
    ],
)
def test_arguments_of_quantize_static_that_are_refused(
    model: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(NpucError) as caught:
        vai_q_onnx.quantize_static(
            model, "out.onnx", Reader(), quant_format=options.pop("quant_format", QDQ), **options
        )
    assert words in str(caught.value) and not Path("out.onnx").exists()


def test_dump_model_takes_its_data_by_name(model: str) -> None:
    quantized(model)
    vai_q_onnx.dump_model("out.onnx", dump_data_reader=Reader(), output_dir="dumped")
    assert Path("dumped/quant_conv2.bin").is_file()


# torch


class Net(torch.nn.Module):  # type: ignore[misc]
    """Two convolutions, with a shared relu."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, padding=1)
        self.relu, self.fc = torch.nn.ReLU(), torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = self.relu(self.conv2(self.relu(self.conv1(x))))
        return self.fc(y.mean((2, 3)))


@pytest.fixture(scope="module")
def net() -> Any:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def calibrated(net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What makes quantizers of the mode 'test', after a calibration with other arguments."""
    from npuc.compat.vitis.pytorch_nndct.apis import torch_quantizer

    monkeypatch.chdir(tmp_path)
    batch = torch.randn(4, 3, 8, 8)

    def make(tested: dict[str, Any] | None = None, **options: Any) -> Any:
        first = torch_quantizer("calib", net, input_args=batch[:1], **options)
        first.quant_model(batch)
        first.export_quant_config()
        second = torch_quantizer("test", net, input_args=batch[:1], **(tested or {}))
        second.quant_model(batch[:1])
        return second

    return make


def test_exports_say_what_means_nothing_and_refuse_what_they_lack(
    calibrated: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    quantizer = calibrated()
    quantizer.export_onnx_model(verbose=True, opt_graph=True, native_onnx=False, opset_version=30)
    quantizer.export_torch_script(verbose=True)
    told = capsys.readouterr().err
    assert told.count("verbose is accepted and means nothing here") == 2
    assert "opt_graph is accepted and means nothing here" in told and "native_onnx=False" in told
    Path("quantize_result/Net_int.onnx").unlink()
    for options, words in (
        ({"dynamic_batch": True}, "dynamic_batch is not supported"),
        ({"dump_layers": True}, "dump_layers is not supported"),
        ({"opset_version": 7}, "and opset_version is 7"),
    ):
        with pytest.raises(UsageError, match=words):
            quantizer.export_onnx_model(**options)
        assert not Path("quantize_result/Net_int.onnx").exists()


def test_the_settings_of_test_are_those_of_calib(calibrated: Any) -> None:
    Path("int.json").write_text(
        '{"overall_quantize_config": {"method": "maxmin", "calib_statistic_method": "max"}}'
    )
    Path("more.json").write_text('{"overall_quantize_config": {"method": "percentile"}}')
    calibrated({"quant_config_file": "int.json"}, quant_config_file="int.json")
    calibrated({}, quant_config_file="int.json")
    for calib, test in (
        ({}, {"quant_config_file": "int.json"}),
        ({"quant_config_file": "int.json"}, {"quant_config_file": "more.json"}),
        ({}, {"bitwidth": 6}),
        ({}, {"target": "DPUCVDX8G_ISA3_C32B3"}),
    ):
        with pytest.raises(NpucError, match=f"CALIB_RESULT_MISMATCH. {next(iter(test))} is not that"):
            calibrated(test, **calib)


def test_fine_tuning_beside_methods_of_single_layers_is_refused(net: Any, tmp_path: Path) -> None:
    from npuc.compat.vitis.pytorch_nndct.apis import torch_quantizer

    layer = {
        "layer_type": "torch.nn.Conv2d",
        "layer_name": None,
        "overall_quantize_config": {"method": "percentile"},
    }
    config = {"overall_quantize_config": {"method": "maxmin"}, "layer_quantize_config": [layer]}
    (tmp_path / "c.json").write_text(json.dumps(config))
    batch = torch.randn(2, 3, 8, 8)
    quantizer = torch_quantizer(
        "calib", net, batch[:1], output_dir=tmp_path, quant_config_file=tmp_path / "c.json"
    )
    quantizer.fast_finetune(lambda module: module(batch), (quantizer.quant_model,))
    with pytest.raises(NpucError, match="fast_finetune is not supported beside methods for single layers"):
        quantizer.export_quant_config()


def overall(**settings: Any) -> dict[str, Any]:
    return {
        "target_device": "CPU",
        "overall_quantize_config": {"method": "maxmin", "calib_statistic_method": "max", **settings},
    }


FLOAT = {"scale_type": "float", "round_mode": "half_even"}


@pytest.mark.parametrize(
    "settings",
    [
        {"bit_width": 6},
        {"per_channel": True},
        {"narrow_range": True},
        {"method": "percentile"},
        {"round_mode": "half_up"},
        {"symmetry": False},
        {"scale_type": "poweroftwo", "round_mode": "std_round"},
        {"calib_statistic_method": "median"},
        {"datatype": "bfloat16"},
        {"data_type": "float16"},
        {"signed": False},
    ],
    ids=str,
)
def test_keys_of_a_quantizer_change_the_settings(settings: dict[str, Any]) -> None:
    assert parse_quant_config(overall(**FLOAT)) != parse_quant_config(overall(**{**FLOAT, **settings}))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"overall_quantize_config": {"bit_widht": 4}}, "has no option 'bit_widht'"),
        ({"tensor_quantize_config": {"weights": {"bitwidth": 4}}}, "has no option 'bitwidth'"),
        (
            {"layer_quantize_config": [{"layer_type": "Conv2d", "layer_name": None, "bit_width": 4}]},
            "no option 'bit_width'",
        ),
        ({"include_cle": False}, "include_cle=false: npuc equalizes where"),
        ({"tensor_quantize_config": {"bias": {"bit_width": 16}}}, "bit_width of bias means nothing here"),
        (overall(**FLOAT, per_channel=True), "activations have one scale a tensor"),
        (
            overall(**FLOAT) | {"tensor_quantize_config": {"activation": {"method": "percentile"}}},
            "calib_statistic_method max",
        ),
    ],
    ids=str,
)
def test_keys_without_effect_are_told(
    content: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parse_quant_config(content)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            {"tensor_quantize_config": {"input": {"bit_width": 16}}},
            "bit_width of input is 16, and that of activation is 8",
        ),
        ({"tensor_quantize_config": {"bias": {"scale_type": "float"}}}, "scale_type of bias is float"),
        ({"overall_quantize_config": {"round_mode": "half_even"}}, "the DPU rounds halves up"),
        ({"keep_add_layer_accuracy": True}, "keep_add_layer_accuracy is not documented"),
    ],
    ids=str,
)
def test_keys_that_would_be_passed_over_are_refused(content: dict[str, Any], words: str) -> None:
    with pytest.raises(NpucError, match=words):
        parse_quant_config(content)


def test_arguments_of_training(net: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from npuc.compat.vitis.pytorch_nndct.qat import QatProcessor

    processor = QatProcessor(net, torch.randn(1, 3, 8, 8), device="cuda")
    trained = processor.trainable_model(calib_dir="x", allow_reused_module=True)
    trained(torch.randn(2, 3, 8, 8))
    processor.to_deployable(trained, tmp_path)
    processor.deployable_model(tmp_path, used_for_xmodel=True)
    told = capsys.readouterr().err
    words = ["calib_dir", "allow_reused_module", "used_for_xmodel"]
    assert all(f"{word} is accepted and means nothing here" in told for word in words), told
    assert torch.cuda.is_available() or "CUDA is not available" in told


def test_arguments_of_pruning_that_contradict_each_other(
    net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from npuc.compat.vitis.pytorch_nndct.pruning import IterativePruningRunner, OneStepPruningRunner

    monkeypatch.chdir(tmp_path)
    image = torch.randn(1, 3, 8, 8)
    runner = IterativePruningRunner(net, image)
    with pytest.raises(NpucError, match="removal_ratio or threshold, and both"):
        runner.prune(removal_ratio=0.5, threshold=0.1)
    with pytest.raises(NpucError, match="spec_path says what is removed"):
        runner.prune(removal_ratio=0.5, spec_path="x.spec")
    search = OneStepPruningRunner(net, image)
    search.search(eval_fn=lambda module: 1.0, num_subnet=2, removal_ratio=0.3)
    Path(".vai/Net.search").rename("other.search")
    assert search.prune(pruning_info_path="other.search").conv1.out_channels < 8
    with pytest.raises(NpucError, match="OPTIMIZER_SUBNET_ERROR"):
        search.prune()


def test_the_search_for_subnetworks_takes_all_its_sizes(net: Any) -> None:
    from npuc.compat.vitis.pytorch_nndct.ofa import OFAPruner

    image = torch.randn(2, 3, 8, 8)
    pruner = OFAPruner(net, image[:1])
    elastic = pruner.ofa_model(expand_ratio=[0.5, 1], channel_divisible=2, auto_add_excludes=False)
    pruner.reset_bn_running_stats_for_calibration(elastic)
    calls: list[int] = []

    def searched(**sizes: Any) -> int:
        calls.clear()
        options = {
            "min_macs": 0.001,
            "max_macs": 0.06,
            "macs_step": 0.06,
            "iteration": 1,
            "parent_popu_size": 2,
        } | sizes
        pruner.run_evolutionary_search(
            elastic,
            lambda module: None,
            (),
            lambda module: calls.append(1) or 1.0,
            (),
            "acc1",
            "max",
            **options,
        )
        return len(calls)

    plain = searched(mutate_size=0, crossover_size=0)
    assert plain < searched(mutate_size=6, mutate_prob=0.9, crossover_size=0)
    assert plain <= searched(mutate_size=0, crossover_size=4)


def test_operators_of_ones_own_take_their_arguments_and_no_others() -> None:
    from npuc.compat.vitis.pytorch_nndct.utils import register_custom_op

    @register_custom_op("ScaledBy", attrs_list=["factor"])
    def scaled(ctx: Any, x: Any, factor: float) -> Any:
        return x * factor

    assert float(scaled(torch.ones(1), factor=3.0)) == 3
    for call in (lambda: scaled(torch.ones(1), faktor=3.0), lambda: scaled(factor=3.0)):
        with pytest.raises(NpucError, match=r"QUANTIZER_TORCH_OP_REGIST. ScaledBy takes x, factor"):
            call()


def test_wego_says_what_means_nothing(net: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from npuc.compat.vitis import wego_torch

    images, seen = [torch.randn(1, 3, 8, 8) for _ in range(3)], []

    def calibrator(module: Any, batch: Any, index: int, device: Any) -> None:
        seen.append(batch)
        module(batch)

    done = wego_torch.quantize(
        net,
        [(1, 3, 8, 8)],
        images,
        calibrator,
        export_dataloader=[torch.zeros(1, 3, 8, 8)],
        output_dir=tmp_path,
    )
    assert not seen[-1].any()
    options = wego_torch.CompileOptions(
        accuracy_mode=wego_torch.AccuracyMode.ReserveRedundantFixNeurons,
        partition_options=wego_torch.PartitionOptions(extra_accel_op_list=["softmax"]),
        optimize_options=wego_torch.OptimizeOptions(zendnn_enable=True),
    )
    wego_torch.compile(done, options=options)
    told = capsys.readouterr().err
    assert all(f"{word} means nothing" in told for word in ("extra_accel_op_list", "zendnn_enable")), told
    assert "accuracy_mode ReserveRedundantFixNeurons means nothing" in told


# Runners


def test_graphs_and_runners(tmp_path: Path) -> None:
    x = lang.input("x", (1, 4, 4, 4))
    y = lang.conv(x, np.ones((4, 4, 1, 1), np.float32), relu=True, name="y")
    target = load_target("dpuczdx8g-b4096-like")
    ranges = {name: (0.0, 1.0) for name in ("x", "y")}
    done = compile_network(
        quantize_network(lang.build({"y": y}), ranges, None, target).graph, target, name="net"
    )
    save_compiled(done.model, tmp_path / "net.xmodel")
    graph = XirGraph.deserialize(tmp_path / "net.xmodel")
    assert {op.get_name() for op in graph.get_ops()} == {op.get_name() for op in graph.toposort()}
    (dpu,) = [part for part in graph.get_root_subgraph().get_children() if part.get_attr("device") == "DPU"]
    assert dpu.set_attr("mark", 3).get_attr("mark") == 3
    runner = Runner.create_runner(dpu, mode="run")
    data, out = (
        np.ones(tensor.dims, np.int8)
        for tensor in (*runner.get_input_tensors(), *runner.get_output_tensors())
    )
    assert runner.wait(job_id=runner.execute_async([data], [out]), timeout=10_000) == 0
    with pytest.raises(UsageError, match="no mode 'fast'"):
        Runner.create_runner(dpu, mode="fast")


def test_arguments_of_sessions_beside_the_vendors_provider(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = execution_provider.NAME
    with pytest.raises(UsageError, match="disabled_optimizers cannot be given"):
        execution_provider.InferenceSession(model, providers=[name], disabled_optimizers=["x"])
    with pytest.raises(UsageError, match="provider_options has 1 entries for 2 providers"):
        execution_provider.InferenceSession(
            model, providers=["CPUExecutionProvider", name], provider_options=[{}]
        )
