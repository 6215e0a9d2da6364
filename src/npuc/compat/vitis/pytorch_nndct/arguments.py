"""Arguments that all functions of `pytorch_nndct` take: modules, inputs, devices."""

from __future__ import annotations

from typing import Any

import torch

from npuc.compat.vitis.notices import refusal, warn


def module_of(module: Any) -> torch.nn.Module:
    """A module, and nothing else."""
    if not isinstance(module, torch.nn.Module):
        raise refusal(
            "QUANTIZER_TORCH_NOT_A_MODULE",
            f"the model is a {type(module).__name__}",
            "Give a torch.nn.Module",
        )
    if isinstance(module, torch.nn.DataParallel):
        warn("the module inside of DataParallel is taken", "QUANTIZER_TORCH_DATA_PARALLEL")
        inner: torch.nn.Module = module.module
        return inner
    return module


def arguments_tuple(input_args: Any) -> tuple[Any, ...]:
    """Inputs as a tuple; `(input)` is a tensor."""
    if isinstance(input_args, torch.Tensor):
        return (input_args,)
    if isinstance(input_args, tuple | list) and input_args:
        return tuple(input_args)
    raise refusal(
        "QUANTIZER_TORCH_FIX_INPUT_TYPE",
        f"input_args is {'missing' if input_args is None else f'a {type(input_args).__name__}'}",
        "Give a tensor, or a tuple of tensors",
    )


def placed(device: Any) -> None:
    """A word about a device that is not there. Integers are always computed on the CPU."""
    if device is not None and torch.device(device).type == "cuda" and not torch.cuda.is_available():
        warn("CUDA is not available: the CPU is used", "QUANTIZER_TORCH_CUDA_UNAVAILABLE")
