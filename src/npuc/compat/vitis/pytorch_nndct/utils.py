"""`pytorch_nndct.utils`: operators of one's own, and modules after pruning (`slim`)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from npuc.compat.vitis.notices import refusal
from npuc.compat.vitis.pytorch_nndct import slim
from npuc.frontend.torch.custom import custom_op

__all__ = ["register_custom_op", "slim"]


def register_custom_op(
    op_type: str, attrs_list: Sequence[str] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function `fn(ctx, tensors..., attributes...)` one operator of the network, which the CPU computes.

    `attrs_list` names the attributes, the last arguments of the function; callers give them by name.
    """
    if not isinstance(op_type, str) or not re.fullmatch(r"[A-Za-z_]\w*", op_type):
        raise refusal(
            "QUANTIZER_TORCH_OP_REGIST", f"{op_type!r} is no type of an operator", "Give a plain word"
        )
    attributes = tuple(attrs_list or ())

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        names = list(inspect.signature(function).parameters)[1:]
        tensors = [name for name in names if name not in attributes]
        ops: dict[tuple[Any, ...], Callable[..., Any]] = {}

        def call(*args: Any, **kwargs: Any) -> Any:
            wrong = [key for key in kwargs if key not in names]
            given = dict(zip(names, args, strict=False)) | kwargs
            missing = [name for name in tensors if name not in given]
            if wrong or missing or len(args) > len(names):
                raise refusal(
                    "QUANTIZER_TORCH_OP_REGIST",
                    f"{op_type} takes {', '.join(names)}, and is called with {len(args)} arguments"
                    + (f" and {', '.join(kwargs)}" if kwargs else ""),
                )
            values = tuple((name, given[name]) for name in attributes if name in given)
            key = tuple((name, repr(value)) for name, value in values)
            if key not in ops:
                ops[key] = _op(op_type, len(ops), function, tensors, dict(values))
            return ops[key](*(given[name] for name in tensors))

        return call

    return mark


def _op(
    op_type: str,
    number: int,
    function: Callable[..., Any],
    tensors: Sequence[str],
    attributes: dict[str, Any],
) -> Callable[..., Any]:
    """The operator of one set of attributes: torch wants its types stated."""

    def computed(*args: Any) -> Any:
        return function(None, *args, **attributes).clone()

    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=torch.Tensor)
        for name in tensors
    ]
    signature = inspect.Signature(parameters, return_annotation=torch.Tensor)
    computed.__signature__ = signature  # type: ignore[attr-defined]
    computed.__annotations__ = dict.fromkeys(tensors, torch.Tensor) | {"return": torch.Tensor}
    suffix = f"_{number}" if number else ""
    return custom_op(f"vai::{op_type}{suffix}")(computed)
