"""The first run of a graph in torch, watched: its multiply-accumulates, and what would be lost if npuc computed it.

A program of npuc has no side effects. A graph that writes into its arguments, or that draws random numbers, has to stay in torch:
nothing else would say so, and the model would be silently wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from npuc.integrations.torch.graph import Argument
from npuc.integrations.torch.tensors import same_values, version_of


@dataclass
class FirstRun:
    """What a run in torch told."""

    results: tuple[Any, ...]
    macs: dict[str, int] = field(default_factory=dict)
    """Node to multiply-accumulates, of convolutions and matrix products."""
    side_effect: str = ""
    """Why only torch can compute the graph; empty if npuc can, too."""


class _Counting(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a graph node by node and counts."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.macs: dict[str, int] = {}

    def run_node(self, node: torch.fx.Node) -> Any:
        """Run one node and remember its multiply-accumulates, half of its floating-point operations."""
        if node.op not in ("call_function", "call_method", "call_module"):
            return super().run_node(node)
        with FlopCounterMode(display=False) as counter:
            result = super().run_node(node)
        self.macs[node.name] = counter.get_total_flops() // 2
        return result


def first_run(module: torch.fx.GraphModule, args: Sequence[Any], arguments: Sequence[Argument]) -> FirstRun:
    """Run a graph in torch, and look at what it did beside its results."""
    named = [
        (argument.name, value)
        for argument, value in zip(arguments, args, strict=True)
        if isinstance(value, torch.Tensor)
    ]
    # A tensor of inference mode does not count how often it is written.
    before = [(version_of(value), value.clone() if value.is_inference() else None) for _, value in named]
    random = _random_states(value for _, value in named)
    interpreter = _Counting(module)
    results = interpreter.run(*args)
    run = FirstRun(tuple(results) if isinstance(results, tuple | list) else (results,), interpreter.macs)
    for (name, value), (version, copy) in zip(named, before, strict=True):
        if version != version_of(value) or (copy is not None and not same_values(copy, value)):
            run.side_effect = f"it writes into its argument '{name}'"
            return run
    after = _random_states(value for _, value in named)
    if any(not torch.equal(was, now) for was, now in zip(random, after, strict=True)):
        run.side_effect = "it draws random numbers"
    return run


def _random_states(tensors: Any) -> list[torch.Tensor]:
    devices = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    states = [torch.get_rng_state()]
    return states + [torch.cuda.get_rng_state(device) for device in sorted(devices, key=str)]


def rows_are_independent(
    module: Callable[..., Sequence[Any]], args: Sequence[Any], live: Sequence[int], numbers: Sequence[int]
) -> bool:
    """Whether each row of a batch is computed for itself, so that a batch of any size is a sequence of rows.

    The first and the last row are run alone and compared. `live` and `numbers` are positions of tensors and sizes.
    """
    rows = {args[position].shape[0] if args[position].dim() else 0 for position in live}
    if len(rows) != 1 or (count := rows.pop()) < 2:
        return False
    with torch.no_grad():
        whole = module(*args)
        for row in (0, count - 1):
            single = list(args)
            for position in live:
                single[position] = args[position][row : row + 1]
            for position in numbers:
                single[position] = 1 if args[position] == count else args[position]
            try:
                alone = module(*single)
            except Exception:
                return False
            for one_row, every in zip(alone, whole, strict=True):
                if not isinstance(every, torch.Tensor) or every.dim() == 0 or every.shape[0] != count:
                    return False
                expected = every[row : row + 1]
                if one_row.shape != expected.shape:
                    return False
                if not torch.allclose(one_row.double(), expected.double(), rtol=1e-3, atol=_step(every)):
                    return False
    return True


def _step(tensor: torch.Tensor) -> float:
    """A difference that reordered sums explain, of the largest value."""
    finite = torch.nan_to_num(tensor.double(), posinf=0.0, neginf=0.0)
    scale = 1e-2 if tensor.dtype in (torch.float16, torch.bfloat16) else 1e-5
    return scale * float(finite.abs().max()) if tensor.numel() else 0.0
