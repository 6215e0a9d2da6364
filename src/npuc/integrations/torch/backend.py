"""The backend `npuc` of `torch.compile`.

    compiled = torch.compile(model, backend="npuc", options={"target": "edge-4t", "calibrate": 32})
    with torch.no_grad():
        for image in images:
            compiled(image)          # torch computes the first 32 calls, npuc's program all others

The entry point `torch_dynamo_backends` names `npuc_backend`, so that torch finds it without an import.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from npuc.errors import UsageError
from npuc.integrations.options import IntegrationOptions
from npuc.integrations.report import IntegrationReport, joined
from npuc.integrations.torch.module import NpuModule
from npuc.integrations.torch.session import GraphSession, sessions

_GRADIENTS = "gradients are wanted, and a program of the NPU has none"
_GRADIENTS_LEVER = "Call the model inside torch.no_grad() or torch.inference_mode()"


def npuc_backend(
    module: torch.fx.GraphModule,
    examples: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """What torch.compile calls for each graph: a callable in its place."""
    if mode is not None:
        raise UsageError(
            f"the backend npuc has no mode '{mode}'", fix="Leave it out; options say what is wanted"
        )
    parsed = IntegrationOptions.parse(options or {})
    tensors = [example for example in examples if isinstance(example, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        warnings.warn(
            f"npuc: a graph stays in torch: {_GRADIENTS}. {_GRADIENTS_LEVER}",
            stacklevel=2,
        )
        return GraphSession(module, examples, parsed, _GRADIENTS, _GRADIENTS_LEVER)
    return GraphSession(module, examples, parsed)


def report(model: torch.nn.Module | None = None) -> IntegrationReport:
    """What of a compiled model runs where, and why; without a model, of all that torch.compile gave to npuc."""
    if isinstance(model, NpuModule):
        return model.report
    return joined(session.report() for session in _sessions_of(model))


def reset(model: torch.nn.Module | None = None) -> None:
    """Forget the programs of a compiled model: its next calls calibrate again.

    Weights that are written through `parameter.data` need this, because torch does not count such writes.
    """
    for session in _sessions_of(model):
        session.reset()


def _sessions_of(model: torch.nn.Module | None) -> list[GraphSession]:
    if model is None:
        return sessions()
    own = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    return [session for session in sessions() if any(id(weight()) in own for weight in session.weights)]
