"""Functions of your own as ops of a network: `@npuc.torch.custom_op("mine::gate")`.

torch sees one op with the shape that a run on fake tensors gives; an import makes it one `top.onnx` op of the domain
`mine`, which the function itself computes on the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from npuc.errors import UsageError
from npuc.extras import require_torch

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*\Z")


def custom_op(
    name: str, *, shape: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function of tensors as one op called `domain::op`.

    The function must have type annotations, as `torch.library.custom_op` asks, and must not change its arguments.
    `shape` makes an empty result of the right shape and type from the same arguments; without it the function itself is
    run on fake tensors, which any function made of torch's ops allows.

    >>> @custom_op("mine::gate")                                            # doctest: +SKIP
    ... def gate(x: torch.Tensor, threshold: float) -> torch.Tensor:
    ...     return torch.where(x > threshold, x, 0.0)
    """
    torch = require_torch()
    if not _NAME.match(name):
        raise UsageError(f"'{name}' is no name of an op", fix="Give it a domain and a name: 'mine::gate'")
    if name.split("::")[0] in ("aten", "prims", "prim", "npuc"):
        raise UsageError(f"the domain of '{name}' is taken", fix="Choose a domain of your own")

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            definition = torch.library.custom_op(name, function, mutates_args=())
        except (ValueError, TypeError, RuntimeError) as error:
            words = next(iter(str(error).splitlines()), "")[:300]
            raise UsageError(f"'{name}' cannot be made an op: {words}") from error
        definition.register_fake(shape or function)
        domain, _, op_type = name.partition("::")
        from npuc.frontend.torch.kernels import overload_kernel
        from npuc.kernels.custom import KERNELS

        # torch takes a second definition, of a cell that is run again, for the new one.
        kernel = overload_kernel(definition._opoverload)
        KERNELS.add([(domain, op_type)], kernel, replace=True, module=function.__module__)
        op: Callable[..., Any] = definition
        return op

    return mark
