"""Plugins change what npuc knows: every test here gets registries of its own, which are put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

import npuc
from npuc.datasets.data import DATASETS
from npuc.engine import handlers
from npuc.export.onnx import registry as export_registry
from npuc.frontend import formats, sniff
from npuc.frontend.caffe import registry as caffe_registry
from npuc.frontend.darknet import registry as darknet_registry
from npuc.frontend.keras import registry as keras_registry
from npuc.frontend.onnx import registry as onnx_registry
from npuc.frontend.onnx import subgraphs
from npuc.frontend.tensorflow import registry as tensorflow_registry
from npuc.frontend.tflite import registry as tflite_registry
from npuc.frontend.torch import registry as torch_registry
from npuc.ir import claims, verification
from npuc.ir.definition import TOP_OPS
from npuc.ir.npu import NPU_OPS
from npuc.kernels import custom
from npuc.metrics.measuring import METRICS
from npuc.partition import accelerators, host, kinds
from npuc.plugins import api, loading
from npuc.program import custom_kernels as kernels
from npuc.quant.ladder import STEPS
from npuc.quant.lowering import registry as lowering_registry
from npuc.schedule import rules
from npuc.target import vocabulary


@cache
def _load_all() -> None:
    """Fill the registries before they are copied: what a test was the first to load would be gone after it."""
    for module in walk_packages(npuc.__path__, "npuc."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    nothing: Any = None
    export_registry.rules(), onnx_registry.rules(), tflite_registry.rules(), rules.load_rules()
    for one in (caffe_registry, darknet_registry, keras_registry, tensorflow_registry):
        one.RULES.all()
    torch_registry.supported()
    handlers.find_handler(nothing), host.host_rule(nothing), lowering_registry.find_rule(nothing)


def _registries() -> list[Any]:
    _load_all()
    return [
        loading._LOADED, TOP_OPS, NPU_OPS, export_registry._RULES, onnx_registry._RULES, tflite_registry._RULES,
        subgraphs.RULES, claims.CLAIMS, verification.VERIFIERS, formats.FORMATS, sniff.RECOGNIZERS,
        custom._KERNELS, custom._FAMILIES, handlers._HANDLERS, rules.RULES, host._RULES, lowering_registry._RULES,
        kinds._KINDS, vocabulary._OP_KINDS, accelerators.ACCELERATORS, STEPS, kernels.KERNELS, DATASETS._things,
        DATASETS._modules, METRICS._things, METRICS._modules, torch_registry._RULES,
        *(one.RULES.table for one in (caffe_registry, darknet_registry, keras_registry, tensorflow_registry)),
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def own_registries() -> Iterator[None]:
    assert api
    registries = _registries()
    before = [one.copy() for one in registries]
    # Tests of other rooms may have loaded plugins in this process.
    loading._LOADED.clear()
    yield
    for one, was in zip(registries, before, strict=True):
        one.clear()
        one.extend(was) if isinstance(one, list) else one.update(was)
