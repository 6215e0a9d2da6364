"""Caffe's Python layers: classes derived from `caffe.Layer`, in a file that the user names as a plugin.

    # my_layer.py, as it was written for Caffe
    import json
    import caffe

    class AbsAdd(caffe.Layer):
        def setup(self, bottom, top):
            self.b = json.loads(self.param_str)["b_val"]
        def reshape(self, bottom, top):
            top[0].reshape(*bottom[0].data.shape)
        def forward(self, bottom, top):
            top[0].data[...] = abs(bottom[0].data) + self.b

    npuc import net.prototxt --plugin my_layer.py

A layer of type Python runs on the CPU as an op of the domain `caffe.python`: `setup` and `reshape` say what shapes it has when
the network is imported, `forward` computes. While such a file is loaded, `import caffe` gives what is here, unless Caffe is
installed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import PluginError
from npuc.frontend.caffe.registry import RULES, CaffeContext
from npuc.ir import Value, tensor_type
from npuc.kernels.custom import Kernel, register_family
from npuc.registries import Registry

DOMAIN = "caffe.python"
LAYERS: Registry[str, type[Layer]] = Registry("a Python layer of Caffe")
"""By the name of the class."""


class Blob:
    """A tensor of a layer: its values, under a shape that the layer may change."""

    def __init__(self, data: Array | None = None) -> None:
        self.data: Array = np.zeros((), np.float32) if data is None else np.array(data, np.float32)

    def reshape(self, *sides: int) -> None:
        """Take another shape; the values are 0 until `forward` writes them."""
        shape = tuple(int(side) for side in sides)
        if shape != self.data.shape:
            self.data = np.zeros(shape, np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """All sides."""
        shape: tuple[int, ...] = self.data.shape
        return shape

    @property
    def count(self) -> int:
        """The number of values."""
        return prod(self.data.shape)

    @property
    def diff(self) -> Array:
        """Gradients, which nobody computes here."""
        return np.zeros_like(self.data)

    def _side(self, axis: int) -> int:
        return self.data.shape[axis] if axis < self.data.ndim else 1

    num = property(lambda self: self._side(0))
    channels = property(lambda self: self._side(1))
    height = property(lambda self: self._side(2))
    width = property(lambda self: self._side(3))


class Layer:
    """What a Python layer derives from; a subclass is known to the importer as soon as it is defined."""

    param_str = ""
    """The text of `python_param`, as the network states it."""
    phase = 1
    """Caffe's number for a network that runs and does not learn."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        LAYERS.add([cls.__name__], cls, replace=True, module=cls.__module__)
        RULES.add([f"Python:{cls.__name__}"], _imported, replace=True, module=cls.__module__)

    def __init__(self) -> None:
        self.blobs: list[Blob] = []

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the parameters."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the tops their shapes."""

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the tops."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Nothing learns here."""


@contextmanager
def caffe_module() -> Iterator[None]:
    """Inside, `import caffe` gives `Layer`; a Caffe that is installed goes first."""
    if "caffe" in sys.modules or importlib.util.find_spec("caffe") is not None:
        yield
        return
    module = ModuleType("caffe", "The part of Caffe that Python layers need.")
    module.Layer, module.TRAIN, module.TEST = Layer, 0, 1  # type: ignore[attr-defined]
    sys.modules["caffe"] = module
    try:
        yield
    finally:
        del sys.modules["caffe"]


def _imported(ctx: CaffeContext) -> list[Value]:
    """Runs on the CPU."""
    kind = ctx.layer.kind.partition(":")[2]
    text = ctx.parameters("python_param").string("param_str")
    bottoms = [np.zeros(ctx.shape(index), np.float32) for index in range(ctx.count)]
    _, tops = _prepared(kind, text, bottoms, len(ctx.layer.outputs))
    types = [tensor_type(top.shape, "f32") for top in tops]
    return ctx.onnx(
        kind, ctx.values(), types, "a Python layer", DOMAIN, param_str=text, tops=len(ctx.layer.outputs)
    )


def _prepared(kind: str, text: str, bottoms: Sequence[Array], tops: int) -> tuple[Layer, list[Blob]]:
    """A layer after `setup` and `reshape`, and its tops."""
    layer = LAYERS[kind]()
    layer.param_str = text
    given, tops_of_layer = [Blob(array) for array in bottoms], [Blob() for _ in range(tops)]
    layer.setup(given, tops_of_layer)
    layer.reshape(given, tops_of_layer)
    unshaped = [index for index, top in enumerate(tops_of_layer) if not top.shape]
    if unshaped:
        raise PluginError(f"the Python layer {kind} gives top {unshaped[0]} no shape in reshape()")
    return layer, tops_of_layer


def _kernel(kind: str) -> Kernel | None:
    if kind not in LAYERS:
        return None

    def compute(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
        layer, tops = _prepared(kind, str(attributes.get("param_str", "")), arrays, int(attributes["tops"]))
        layer.forward([Blob(array) for array in arrays], tops)
        return [np.ascontiguousarray(top.data, np.float32) for top in tops]

    return compute


register_family(DOMAIN, _kernel)
