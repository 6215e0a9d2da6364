"""Whole networks under torch.compile: ten architectures, and the trained ResNet-20, whose bits are those of `npuc quantize`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from npuc.calib.sources import open_data  # noqa: E402
from npuc.flow import compile_network, network_to_quantize, quantize_on_data  # noqa: E402
from npuc.frontend.options import ImportOptions  # noqa: E402
from npuc.integrations.torch.backend import npuc_backend, report  # noqa: E402
from npuc.runtime import Runner  # noqa: E402
from npuc.target import load_target  # noqa: E402
from support.networks.torch_zoo import ZOO  # noqa: E402

MODELS = (
    "KeywordDsCnn", "Residual", "MobileNetV3", "SqueezeExcite", "ShuffleNet", "UNet", "FPN", "ViT", "ConvNeXt", "SuperResolution",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [tensor for part in parts for tensor in _tensors(part)]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_it_runs_under_torch_compile(name: str) -> None:
    module, example = ZOO[name]()
    module = module.eval()
    generator = torch.Generator().manual_seed(0)

    def varied() -> list[Any]:
        return [
            x + 0.1 * torch.randn(x.shape, generator=generator) if x.is_floating_point() else x
            for x in example
        ]

    compiled = torch.compile(
        module, backend=npuc_backend, options={"target": "edge-4t", "calibrate": 4, "fallback": False}
    )
    with torch.no_grad():
        for _ in range(4):
            compiled(*varied())
        inputs = varied()
        found, wanted = _tensors(compiled(*inputs)), _tensors(module(*inputs))
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        if theirs.is_floating_point():
            cosine = functional.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0)
            assert float(cosine) > 0.97, name
    assert report(compiled).npu_share > 0.9


class _Shortcut(nn.Module):
    def __init__(self, planes: int) -> None:
        super().__init__()
        self.planes = planes

    def forward(self, x: Any) -> Any:
        pad = self.planes // 4
        return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, pad, pad))


class _Block(nn.Module):
    def __init__(self, channels: int, planes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, planes, 3, 1 + (channels != planes), 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = _Shortcut(planes) if channels != planes else nn.Identity()

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


class ResNet20(nn.Module):
    """As the shared file has it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        widths = {1: (16, 16), 2: (16, 32), 3: (32, 64)}
        for number, (before, planes) in widths.items():
            blocks = [_Block(before, planes), _Block(planes, planes), _Block(planes, planes)]
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        x = self.layer3(self.layer2(self.layer1(torch.relu(self.bn1(self.conv1(x))))))
        return self.linear(functional.avg_pool2d(x, 8).flatten(1))


def _images(folder: Path, count: int) -> list[Any]:
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return [
        torch.from_numpy(
            ((np.asarray(Image.open(file)) / 255 - mean) / deviation)
            .astype(np.float32)
            .transpose(2, 0, 1)[None]
        )
        for file in sorted(folder.glob("*.png"))[:count]
    ]


@pytest.mark.slow
def test_resnet20_has_the_bits_of_npuc_quantize(shared: Path) -> None:
    file = shared / "models/pytorch/cifar10_resnet20.torchscript.pt"
    model = ResNet20().eval()
    model.load_state_dict(torch.jit.load(file).state_dict())
    calibration = _images(shared / "data/cifar10/calib", 32)
    images = _images(shared / "data/cifar10/val", 200)
    labels = [int(line.split()[1]) for line in (shared / "data/cifar10/val.txt").read_text().splitlines()]

    target = load_target("edge-4t")
    graph = network_to_quantize(file, ImportOptions(input_shapes={"x": (1, 3, 32, 32)}))
    [name] = [port.name for port in graph.inputs]
    source = open_data(graph, [{name: image.numpy()} for image in calibration])
    quantized, _ = quantize_on_data(graph, source, target=target)
    runner = Runner(compile_network(quantized.graph, target).model)

    compiled = torch.compile(model, backend=npuc_backend, options={"target": "edge-4t", "fallback": False})
    right = {"torch.compile": 0, "npuc quantize": 0, "torch": 0}
    with torch.no_grad():
        for image in calibration:
            compiled(image)
        for image, label in zip(images, labels, strict=False):
            ours, theirs = compiled(image).numpy(), next(iter(runner.run([image.numpy()]).values()))
            np.testing.assert_array_equal(ours, theirs)
            right["torch.compile"] += int(ours.argmax()) == label
            right["npuc quantize"] += int(theirs.argmax()) == label
            right["torch"] += int(model(image).argmax()) == label
    assert right["torch.compile"] == right["npuc quantize"] >= right["torch"] - 4 and right["torch"] > 170
    assert report(compiled).npu_share == 1.0
