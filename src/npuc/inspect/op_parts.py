"""Where the facts about an op are: which function gives each of its forms, found from one place.

Rules register beside the family that they belong to, each in the package that uses it. This is the way back: from an op to its
formula, its integer form, its layer on the NPU, its form on the CPU and in other tools. `docs/ops.md` prints it, and a test
holds what has to be there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npuc.engine.handlers import HANDLERS
from npuc.export.onnx.registry import RULES as ONNX_RULES
from npuc.export.tflite.registry import RULES as TFLITE_RULES
from npuc.ir import npu
from npuc.ir.definition import TOP_OPS, TensorOp
from npuc.ir.top.functions import FUNCTIONS
from npuc.partition.host import RULES as HOST_RULES
from npuc.quant.lowering.registry import RULES as LOWERING_RULES
from npuc.schedule.rules import RULES as LAYER_RULES

OPS: dict[str, type[TensorOp]] = {**TOP_OPS, **npu.NPU_OPS}
"""The ops of both dialects by name."""


@dataclass(frozen=True)
class OpParts:
    """The parts of an op: names of functions, `module.function`; empty where there is none."""

    name: str
    formula: str
    """Of a real function of one value: the module that has its record."""
    integers: str
    """Its form in Npu IR (`quant/lowering`); ops on integers have none, they are it."""
    graph_mode: str
    """How the integer engine computes it (`engine/handlers`)."""
    layer: str
    """What it is to the scheduler: how it is cut, what it costs, which instructions it becomes (`schedule/rules`)."""
    host: str
    """How the CPU computes it on integers to the bit (`partition/host`)."""
    onnx: str
    tflite: str


def parts_of(kind: type[TensorOp]) -> OpParts:
    """The parts of an op.

    >>> parts_of(OPS["top.tanh"]).integers, parts_of(OPS["npu.table"]).layer
    ('tables.table', 'elementwise.table')
    """
    formula = kind.__module__.rpartition(".")[2] if kind in FUNCTIONS else ""
    lowering, handler, host = LOWERING_RULES.get(kind), HANDLERS.get(kind), HOST_RULES.get(kind)
    onnx = ONNX_RULES.get(kind)
    return OpParts(
        kind.name,
        formula,
        _shown(None if lowering is None else lowering.rule),
        _shown(None if handler is None else handler.handler),
        _shown(LAYER_RULES.get(kind)),
        _shown(None if host is None else host.rule or onnx),
        _shown(onnx),
        _shown(TFLITE_RULES.get(kind)),
    )


def _shown(rule: Callable[..., Any] | None) -> str:
    return "" if rule is None else f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"
