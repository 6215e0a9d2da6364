"""N:M sparse weights in a user's own module: before each forward, what is masked is zero.

sparse = sparse_module(model, SparsityPattern(2, 4))
...                                       # any loop: masked weights stay zero
dense = dense_weights(sparse)             # an ordinary module again, with the zeros in its weights
"""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from typing import Any

import torch

from npuc.arithmetic.sparsity import SparsityPattern
from npuc.errors import TrainingError, UsageError
from npuc.train.sparsity.activations import check_activation_sparsity, half_of_blocks
from npuc.train.sparsity.masks import magnitude_mask
from npuc.train.sparsity.training import sparse_parameters


def sparse_module(
    module: Any,
    pattern: SparsityPattern | None,
    *,
    exclude: Collection[str] = (),
    activation_sparsity: float = 0.0,
    least_channels: int = 1,
) -> Any:
    """A copy of the module whose convolutions and linear layers keep N of every M weights along their input channels.

    `exclude` names submodules that stay dense, and so do layers with fewer than `least_channels` input channels. With an
    `activation_sparsity` of 0.5 only the larger half of each block of M channels goes into a sparse layer. Without a pattern
    nothing is masked.
    """
    copy = deepcopy(module)
    if pattern is None:
        return copy
    check_activation_sparsity(activation_sparsity, pattern.block)
    layers = {name for name, _ in copy.named_modules()}
    for name in exclude:
        if name not in layers:
            raise UsageError(
                f"the module has no submodule '{name}'", fix="Names are those of named_modules()"
            )
    tensors = dict(copy.named_parameters())
    axes = {
        name: axis
        for name, axis in sparse_parameters(copy, pattern, exclude).items()
        if tensors[name].shape[axis] >= least_channels
    }
    if not axes:
        raise TrainingError(
            f"no layer of the module can be {pattern} sparse",
            fix=f"Sparse layers have multiples of {pattern.block} input channels, {least_channels} at the least",
        )
    for name, axis in axes.items():
        owner = copy.get_submodule(name.rpartition(".")[0])
        array = tensors[name].detach().cpu().numpy()
        hook = _SparseLayer(
            torch.from_numpy(magnitude_mask(array, pattern.kept, pattern.block, axis)),
            pattern.block if activation_sparsity else 0,
        )
        hook(owner, ())
        owner.register_forward_pre_hook(hook)
    return copy


def dense_weights(module: Any) -> Any:
    """A copy of a sparse module without its masks; the weights that they left out are zeros in it."""
    copy = deepcopy(module)
    for part in copy.modules():
        for key, hook in list(part._forward_pre_hooks.items()):
            if isinstance(hook, _SparseLayer):
                hook(part, ())
                del part._forward_pre_hooks[key]
    return copy


class _SparseLayer:
    """Clears the masked weights of a layer before it runs, and the smaller half of its activations if it is to."""

    def __init__(self, mask: Any, activation_block: int) -> None:
        self.mask, self.activation_block = mask, activation_block

    def __call__(self, layer: Any, args: tuple[Any, ...]) -> Any:
        with torch.no_grad():
            layer.weight.data.mul_(self.mask.to(layer.weight))
        if not self.activation_block or not args:
            return None
        axis = -1 if isinstance(layer, torch.nn.Linear) else 1
        return (half_of_blocks(args[0], self.activation_block, axis), *args[1:])
