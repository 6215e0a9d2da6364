"""Arguments that all functions of `pytorch_nndct` take: modules, inputs, devices."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch

from npuc.compat.vitis.notices import refusal, warn
from npuc.errors import UsageError
from npuc.integrations.torch.calls import ImportedCall, import_call


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
    given = "missing" if input_args is None else f"a {type(input_args).__name__}"
    if isinstance(input_args, tuple | list) and input_args:
        other = next((part for part in input_args if isinstance(part, str | np.ndarray)), None)
        if other is None:
            return tuple(input_args)
        given = f"a {type(input_args).__name__} with a {type(other).__name__}"
    raise refusal(
        "QUANTIZER_TORCH_FIX_INPUT_TYPE",
        f"input_args is {given}",
        "Give a tensor, or a tuple of tensors",
    )


def placed(device: Any) -> None:
    """A word about a device that is not there. Integers are always computed on the CPU."""
    try:
        kind = None if device is None else torch.device(device).type
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"device is {device!r}", fix="Give torch.device('cpu') or 'cuda'") from error
    if kind == "cuda" and not torch.cuda.is_available():
        warn("CUDA is not available: the CPU is used", "QUANTIZER_TORCH_CUDA_UNAVAILABLE")


def traced(module: torch.nn.Module, arguments: tuple[Any, ...]) -> ImportedCall:
    """A module as a network, by a call with example inputs."""
    try:
        return import_call(module, arguments, {}, single_row=True)
    except UsageError as error:
        try:
            deepcopy(module).eval()(*arguments)
        except (RuntimeError, TypeError, ValueError, IndexError) as reason:
            raise refusal(
                "QUANTIZER_TORCH_FIX_INPUT_TYPE",
                f"the module does not run on input_args: {str(reason).splitlines()[0]}",
                "Give what its forward takes, in a tuple",
            ) from error
        raise
