"""A copy of a module whose tensors have other sizes: those of a state_dict.

A layer of torch states its sizes beside its tensors (`Conv2d.out_channels`, `BatchNorm2d.num_features`); both change here. What
a `forward` states in numbers of its own, such as `view(-1, 512)`, cannot be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch

from npuc.errors import TrainingError


def _conv(part: Any) -> None:
    outputs, width = part.weight.shape[:2]
    if part.groups > 1 and part.groups == part.in_channels:  # depthwise: a group for each input channel
        part.groups = outputs // (part.out_channels // part.groups)
    part.in_channels, part.out_channels = width * part.groups, outputs


def _deconv(part: Any) -> None:
    inputs, width = part.weight.shape[:2]
    if part.groups > 1 and part.groups == part.in_channels:
        part.groups = inputs
    part.in_channels, part.out_channels = inputs, width * part.groups


def _linear(part: Any) -> None:
    part.out_features, part.in_features = part.weight.shape


def _batch_norm(part: Any) -> None:
    tensor = part.weight if part.weight is not None else part.running_mean
    part.num_features = len(tensor)


def _group_norm(part: Any) -> None:
    width = part.num_channels // part.num_groups
    part.num_channels = len(part.weight)
    part.num_groups = part.num_channels // width


def _layer_norm(part: Any) -> None:
    part.normalized_shape = tuple(part.weight.shape)


def _prelu(part: Any) -> None:
    part.num_parameters = part.weight.numel()


def _embedding(part: Any) -> None:
    part.num_embeddings, part.embedding_dim = part.weight.shape


_nn = torch.nn
_STATE_SIZES: tuple[tuple[tuple[type, ...], Callable[[Any], None]], ...] = (
    ((_nn.ConvTranspose1d, _nn.ConvTranspose2d, _nn.ConvTranspose3d), _deconv),
    ((_nn.Conv1d, _nn.Conv2d, _nn.Conv3d), _conv),
    ((_nn.Linear,), _linear),
    ((_nn.modules.batchnorm._NormBase,), _batch_norm),
    ((_nn.GroupNorm,), _group_norm),
    ((_nn.LayerNorm, _nn.RMSNorm), _layer_norm),
    ((_nn.PReLU,), _prelu),
    ((_nn.Embedding,), _embedding),
)
"""Layers of torch that can have other sizes, and how they state them once their tensors are there."""


def _rule_for(part: Any) -> Callable[[Any], None] | None:
    return next((rule for kinds, rule in _STATE_SIZES if isinstance(part, kinds)), None)


def fixed_tensors(module: Any) -> dict[str, str]:
    """The tensors of a module whose sizes cannot change, each with the reason: those of layers of torch without a rule."""
    fixed: dict[str, str] = {}
    for path, part in module.named_modules():
        if _rule_for(part) is not None or not type(part).__module__.startswith("torch."):
            continue
        kind = type(part).__name__
        for name in [*part._parameters, *part._buffers]:
            full = f"{path}.{name}" if path else name
            fixed[full] = f"a {kind} cannot get other sizes"
    return fixed


def with_state(module: Any, state: Mapping[str, Any]) -> Any:
    """A copy of the module with the tensors of a state_dict, whatever their sizes; `TrainingError` if names do not fit.

    >>> small = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
    >>> with_state(torch.nn.Linear(3, 4), small)
    Linear(in_features=3, out_features=2, bias=True)
    """
    copy = deepcopy(module)
    own = copy.state_dict()
    for name in own.keys() ^ state.keys():
        here = "is in the state and not in the module" if name in state else "is missing in the state"
        raise TrainingError(
            f"'{name}' {here}", fix="Give the model that was pruned, with the names that it had"
        )
    replaced: dict[int, Any] = {}
    for path, part in copy.named_modules():
        changed = False
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                full = f"{path}.{name}" if path else name
                if tensor is None or full not in state:
                    continue
                stored = state[full]
                if not isinstance(stored, torch.Tensor) or stored.dim() != tensor.dim():
                    raise TrainingError(f"'{full}' of the state is not a tensor of {tensor.dim()} dimensions")
                if stored.shape != tensor.shape:
                    tensors[name] = replaced.setdefault(id(tensor), _like(tensor, stored.shape))
                    changed = True
        if changed:
            rule = _rule_for(part)
            if rule is not None:
                rule(part)
            elif type(part).__module__.startswith("torch."):
                raise TrainingError(
                    f"'{path or type(part).__name__}' cannot get other sizes: it is a {type(part).__name__}"
                )
    copy.load_state_dict(state)
    return copy


def _like(tensor: Any, shape: Any) -> Any:
    """A tensor of another shape, a parameter where it was one."""
    new = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    return torch.nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else new
