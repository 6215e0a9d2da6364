"""A program for the NPU alone: what would run on the CPU is refused, each layer with the reason and what would change it."""

from __future__ import annotations

from npuc.errors import CompileError
from npuc.ir import result_names
from npuc.partition import Partition
from npuc.target import Target
from npuc.words import counted

_SHOWN = 8


def refuse_offload(parted: Partition, target: Target) -> None:
    """Raise `CompileError` if any layer of a partition is not on the NPU; conversions at the ends are the host's always."""
    left = [
        result_names(op)[0]
        for part in parted.parts
        if part.device not in ("npu", "convert")
        for op in part.ops
    ]
    if not left:
        return
    reasons = [f"'{name}': {parted.reasons.get(name, 'it runs on another device')}" for name in left[:_SHOWN]]
    more = [f"and {counted(len(left) - _SHOWN, 'more layer')}"] if len(left) > _SHOWN else []
    levers = list(dict.fromkeys(parted.levers[name] for name in left if name in parted.levers))
    cut = "Cut the network so that it ends before them (--outputs), or leave out --npu-only"
    raise CompileError(
        f"the NPU alone is asked for, and {counted(len(left), 'layer')} cannot run on {target.name}: "
        + "; ".join([*reasons, *more]),
        fix=". ".join([*levers[:3], cut]),
    )
