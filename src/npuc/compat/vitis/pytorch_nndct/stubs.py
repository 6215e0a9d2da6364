"""Stubs, the vendor's marks of what is quantized: what lies between a QuantStub and a DeQuantStub.

A module with stubs at its ends, or with none, is quantized whole. With stubs inside, the layers outside of them stay float: the
module is imported once more with an op in the place of each stub, and what depends on the begin of a part is in it.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import torch

from npuc.compat.vitis.pytorch_nndct.nn import DeQuantStub, QuantStub
from npuc.compat.vitis.quantization import float_layers
from npuc.frontend.torch.custom import custom_op
from npuc.integrations.torch.live import from_torch
from npuc.ir import Graph, result_names, top
from npuc.quant.config import QuantizationConfig

_BEGIN, _END = "quant_stub", "dequant_stub"
_DOMAIN = "vai"


@cache
def _marks() -> tuple[Any, Any]:
    """The ops that stand for stubs: they give what they get."""

    def same(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    # Annotations are strings here, and torch wants types.
    same.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    return custom_op(f"{_DOMAIN}::{_BEGIN}")(same), custom_op(f"{_DOMAIN}::{_END}")(same)


def layers_between_stubs(module: Any, arguments: tuple[Any, ...]) -> frozenset[str] | None:
    """The names of the layers between stubs; None if the module has none, and is quantized whole."""
    if not any(isinstance(part, QuantStub | DeQuantStub) for part in module.modules()):
        return None
    copy = deepcopy(module)
    begin, end = _marks()
    for part in copy.modules():
        if isinstance(part, QuantStub | DeQuantStub):
            part.forward = begin if isinstance(part, QuantStub) else end
    inside: set[Any] = set()
    names: set[str] = set()
    for op in from_torch(copy, arguments, canonical=False).ops:
        mark = op.op_type if isinstance(op, top.Onnx) and op.domain == _DOMAIN else ""
        if mark == _BEGIN:
            inside.update(op.results)
        elif mark != _END and inside.intersection(op.operands):
            inside.update(op.results)
            names.update(result_names(op))
    return frozenset(names)


def with_float_layers(
    config: QuantizationConfig, graph: Graph, quantized: frozenset[str] | None
) -> QuantizationConfig:
    """The configuration with float layers outside of stubs; `graph` is the network that is quantized."""
    if quantized is None:
        return config
    outside = float_layers(graph, quantized.__contains__)
    return config.with_layers(outside, "float") if outside else config
