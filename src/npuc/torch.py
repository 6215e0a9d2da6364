"""PyTorch models in, without a file between: `npuc.from_torch`, `torch.compile` and ops of your own.

    import npuc
    graph = npuc.from_torch(model, (torch.zeros(1, 3, 224, 224),))      # ready for quantization
    compiled = torch.compile(model, backend="npuc", options={"target": "edge-4t"})
    print(npuc.torch.report(compiled))

`custom_op` makes a Python function one op of the network.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from npuc.frontend.torch.custom import custom_op
from npuc.integrations.torch.live import from_torch

if TYPE_CHECKING:
    from npuc.integrations.torch.backend import npuc_backend, report, reset
    from npuc.integrations.torch.module import NpuModule, compile_module, load

_NEED_TORCH = {
    "NpuModule": "npuc.integrations.torch.module",
    "compile_module": "npuc.integrations.torch.module",
    "load": "npuc.integrations.torch.module",
    "npuc_backend": "npuc.integrations.torch.backend",
    "report": "npuc.integrations.torch.backend",
    "reset": "npuc.integrations.torch.backend",
}
"""Names whose modules import torch, which `from_torch` asks for with a sentence of its own."""


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module 'npuc.torch' has no attribute '{name}'")
    from npuc.extras import require_torch

    require_torch()
    return getattr(import_module(_NEED_TORCH[name]), name)


__all__ = [
    "NpuModule",
    "compile_module",
    "custom_op",
    "from_torch",
    "load",
    "npuc_backend",
    "report",
    "reset",
]
