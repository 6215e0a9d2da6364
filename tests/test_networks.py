"""The networks that the benchmarks build have the sizes that their authors state."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PUBLISHED = {
    # parameters in millions, multiply-accumulates in thousand millions
    "resnet50": (25.56, 4.09),  # torchvision
    "yolov5s": (7.2, 8.25),  # ultralytics/yolov5: 16.5 GFLOPs of two each
    # tensorflow/tpu states 4.7 M and 407 M, without saying what counts; its table of layers has 385 M multiply-accumulates.
    "efficientnet_lite0": (4.65, 0.385),
    "vit_s16": (22.05, 4.6),  # "How to train your ViT?", timm
}


@pytest.fixture(scope="module")
def networks(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("networks", root / "benchmarks" / "networks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_network_has_its_published_size(networks: Any, name: str) -> None:
    parameters, macs = networks.size(networks.network(name))
    wanted, work = PUBLISHED[name]
    assert parameters == pytest.approx(wanted * 1e6, rel=0.015)
    assert macs == pytest.approx(work * 1e9, rel=0.015)


def test_all_built_networks_are_held_to_it(networks: Any) -> None:
    assert set(networks.BUILT) == set(PUBLISHED)


def test_a_network_is_the_same_each_time(networks: Any) -> None:
    one, two = (networks.efficientnet_lite0().SerializeToString(deterministic=True) for _ in range(2))
    assert one == two
