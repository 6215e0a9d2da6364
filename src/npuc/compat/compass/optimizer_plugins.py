"""Optimizer plugins (`AIPUBuilder.Optimizer.framework`): data sets, metrics, and operators.

    @register_plugin(PluginType.Dataset, "1.0")
    class MyDataset(Dataset): ...        # __init__(data_file, label_file), __len__, __getitem__ -> [[inputs...], label]

    @register_plugin(PluginType.Metric, "1.0")
    class MyMetric(OptBaseMetric): ...   # __init__(*texts), __call__(pred, target), reset, compute, report

An operator of a plugin computes all layers of its type in a Compass IR, also where npuc has the type itself: in float, on the
CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Any, TypeVar

import numpy as np

from npuc.compat.compass.builder_plugins import OpType, register_optype
from npuc.compat.compass.logger import OPT_DEBUG, OPT_ERROR, OPT_FATAL, OPT_INFO, OPT_WARN, say
from npuc.compat.compass.operator_plugins import compute_layers
from npuc.compat.compass.parser_plugins import version_of
from npuc.errors import PluginError, UsageError
from npuc.frontend.compass.importer import of_a_plugin
from npuc.frontend.compass.registry import RULES
from npuc.registries import Registry

_ClassT = TypeVar("_ClassT", bound=type)
_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])
DATASETS: Registry[str, Any] = Registry("a data set of Compass", provider="npuc.compat.compass.datasets")
"""Classes by their names in lower case."""
METRICS: Registry[str, Any] = Registry("a metric of Compass", provider="npuc.compat.compass.metrics")
"""Classes by their names in lower case."""
QCONFIGS: Registry[str, Any] = Registry("a QConfig plugin of Compass")
"""Classes by their names in lower case."""
OPERATORS: Registry[tuple[str, str], Any] = Registry("an operator of Compass")
"""Functions by what they do, `forward` or `quantize`, and the type of layer."""


@unique
class PluginType(Enum):
    """Kinds of plugins of the optimizer."""

    Dataset = 0x110
    Metric = 0x120
    QConfig = 0x130
    Train = 0x140


class Dtype(Enum):
    """Element types."""

    FP32 = "float32"
    FP16 = "float16"
    BFP16 = "bfloat16"
    BOOL = "bool"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    UINT64 = "uint64"


class OptBaseMetric:
    """What a metric derives from; the methods are the metric's own."""

    def __init__(self, *args: str) -> None:
        pass

    def __call__(self, pred: Any, target: Any, *args: Any) -> None:
        """Take the outputs and labels of a batch."""
        raise NotImplementedError

    def compute(self) -> float:
        """The figure of all calls."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forget all calls."""
        raise NotImplementedError

    def report(self) -> str:
        """The figure in words."""
        raise NotImplementedError


@dataclass
class PyTensor:
    """A tensor of a layer: its numbers, and what stands for them."""

    name: str
    betensor: Any = None
    ir_shape: tuple[int, ...] = ()
    dtype: Dtype = Dtype.FP32
    scale: float = 1.0
    zerop: int = 0
    qbits: int | None = None
    qmin: int | None = None
    qmax: int | None = None
    qinvariant: bool = False
    min: float = 0.0
    max: float = 0.0


@dataclass
class PyNode:
    """A layer with its tensors and parameters."""

    name: str
    type: str
    inputs: list[PyTensor] = field(default_factory=list)
    outputs: list[PyTensor] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, PyTensor] = field(default_factory=dict)
    placeholders: list[PyTensor] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    current_batch_size: int = 1
    quantized: bool = False

    def get_param(self, key: str, optional: bool = False, default_value: Any = None) -> Any:
        """A parameter; an error if it is neither there nor optional."""
        return _entry(self.params, key, optional, default_value, self.name)

    def get_constant(self, key: str, optional: bool = False, default_value: Any = None) -> Any:
        """A constant; an error if it is neither there nor optional."""
        return _entry(self.constants, key, optional, default_value, self.name)

    def get_attrs(self, key: str, optional: bool = False, default_value: Any = None) -> Any:
        """An attribute; an error if it is neither there nor optional."""
        return _entry(self.attrs, key, optional, default_value, self.name)

    get_attr = get_attrs


@dataclass
class PyGraph:
    """Layers in their order."""

    name: str = "unamed"
    nodes: list[PyNode] = field(default_factory=list)
    input_tensors: tuple[PyTensor, ...] = ()
    output_tensors: tuple[PyTensor, ...] = ()


def _entry(table: dict[str, Any], key: str, optional: bool, default: Any, name: str) -> Any:
    if key not in table and not optional:
        raise PluginError(f"layer '{name}' has no '{key}'")
    return table.get(key, default)


def register_plugin(type: PluginType, version: str | float = 0) -> Callable[[_ClassT], _ClassT]:
    """Class decorator: register a data set, a metric or a QConfig; of two with one name, the higher version wins."""
    if not isinstance(type, PluginType):
        raise PluginError(f"{type!r} is no PluginType of the optimizer")
    if type is PluginType.Train:
        raise PluginError(
            "plugins of the type Train are not supported: their loops train modules of the vendor's own",
            fix="'npuc train qat' learns the weights and scales of a network on its integers; npuc.train is the same in Python",
        )
    number = version_of(version)
    table = {PluginType.Dataset: DATASETS, PluginType.Metric: METRICS, PluginType.QConfig: QCONFIGS}[type]

    def register(cls: _ClassT) -> _ClassT:
        name = cls.__name__.lower()
        known = table.get(name)
        if known is None or getattr(known, "compass_version", -1.0) <= number:
            cls.compass_version = number  # type: ignore[attr-defined]
            table.add([name], cls, replace=True, module=cls.__module__)
        return cls

    return register


def op_register(optypes: Any, version: str | float = 1.0, *_: Any) -> Callable[[_FunctionT], _FunctionT]:
    """Function decorator: what an operator computes."""
    return _operator("forward", optypes, version)


def quant_register(optypes: Any, version: str | float = 1.0, *_: Any) -> Callable[[_FunctionT], _FunctionT]:
    """Function decorator: how an operator is quantized."""
    return _operator("quantize", optypes, version)


def _operator(what: str, optypes: Any, version: str | float) -> Callable[[_FunctionT], _FunctionT]:
    number = version_of(version)
    kinds = optypes if isinstance(optypes, tuple | list) else [optypes]

    def register(function: _FunctionT) -> _FunctionT:
        function.compass_version = number  # type: ignore[attr-defined]
        for kind in map(str, kinds):
            known = OPERATORS.get((what, kind))
            if known is None or known.compass_version <= number:
                OPERATORS.add([(what, kind)], function, replace=True, module=function.__module__)
            if what == "forward" and kind in RULES:
                RULES.add([kind], of_a_plugin, replace=True, module=function.__module__)
        compute_layers(OPERATORS, PyNode, PyTensor)
        return function

    return register


def check_operator_plugins(types: Collection[str]) -> None:
    """Say which layers of a network plugins compute; an error if one says how to quantize layers that npuc computes itself."""
    for (what, kind), function in OPERATORS.items():
        if kind not in types:
            continue
        own = ("forward", kind) in OPERATORS or kind not in RULES
        if what == "forward":
            say("I", f"layers of the type {kind} are computed by {function.__module__}, in float, on the CPU")
        elif own:
            say(
                "W",
                f"quant_register has no effect here: layers of the type {kind} stay float, and run on the CPU",
            )
        else:
            raise PluginError(
                f"the plugin {function.__module__} registers how to {what} {kind}, and the network has such a layer: npuc "
                "quantizes those itself",
                fix="Let op_register compute the layer, too, or leave out the plugin",
            )


def plugin_types() -> set[str]:
    """The types of layers that plugins compute."""
    return {kind for what, kind in OPERATORS if what == "forward"}


def dataset_named(name: str) -> Any:
    """The class of a data set, whatever the capitals; the suffix `dataset` may be left out."""
    return _named(DATASETS, name, "dataset", "data set")


def metric_named(name: str) -> Any:
    """The class of a metric, whatever the capitals; the suffix `metric` may be left out."""
    return _named(METRICS, name, "metric", "metric")


def qconfig_named(name: str) -> Any:
    """The class of a QConfig plugin, whatever the capitals."""
    return _named(QCONFIGS, name, "qconfig", "QConfig")


def _named(table: Registry[str, Any], name: str, suffix: str, what: str) -> Any:
    for key in (name.lower(), f"{name.lower()}{suffix}"):
        if key in table:
            return table[key]
    known = ", ".join(sorted(table[key].__name__ for key in table))
    raise UsageError(
        f"there is no {what} plugin '{name}'",
        fix=f"{f'There are {known}; ' if known else ''}AIPUPLUGIN_PATH names the folders of aipubt_*.py files",
    )


def as_tensor(array: Any) -> Any:
    """An array as plugins take it: a torch tensor if torch is there."""
    try:
        import torch
    except ImportError:
        return np.asarray(array)
    return torch.from_numpy(np.array(array)) if isinstance(array, np.ndarray) else array


__all__ = [
    "OPT_DEBUG",
    "OPT_ERROR",
    "OPT_FATAL",
    "OPT_INFO",
    "OPT_WARN",
    "Dtype",
    "OpType",
    "OptBaseMetric",
    "PluginType",
    "PyGraph",
    "PyNode",
    "PyTensor",
    "op_register",
    "quant_register",
    "register_optype",
    "register_plugin",
]
