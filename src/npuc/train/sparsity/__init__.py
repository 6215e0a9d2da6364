"""N:M sparsity: which weights go, how a network gets used to it, and orders of channels that lose less (docs/sparsity.md).

    result = sparsify(graph, train, held, "2:4", TrainingOptions(epochs=10))
    save_graph(result.graph, "sparse.mlir")

`masks` choose weights by magnitude, `permutation` orders channels, `training` keeps zeros in any training loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuc.train.sparsity.activations import half_of_blocks
    from npuc.train.sparsity.api import SparsityResult, sparsify
    from npuc.train.sparsity.masks import PrunableWeight, masked_graph, masks_of, prunable_weights
    from npuc.train.sparsity.permutation import PermutedNetwork, permuted
    from npuc.train.sparsity.training import SparseTraining, sparse_parameters

_HOMES = {
    "PermutedNetwork": "permutation",
    "PrunableWeight": "masks",
    "SparseTraining": "training",
    "SparsityResult": "api",
    "half_of_blocks": "activations",
    "masked_graph": "masks",
    "masks_of": "masks",
    "permuted": "permutation",
    "prunable_weights": "masks",
    "sparse_parameters": "training",
    "sparsify": "api",
}
"""Where each public name is: modules that import torch are loaded when they are used."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'npuc.train.sparsity' has no attribute '{name}'")
    return getattr(import_module(f"npuc.train.sparsity.{_HOMES[name]}"), name)


__all__ = [
    "PermutedNetwork",
    "PrunableWeight",
    "SparseTraining",
    "SparsityResult",
    "half_of_blocks",
    "masked_graph",
    "masks_of",
    "permuted",
    "prunable_weights",
    "sparse_parameters",
    "sparsify",
]
