"""A user's own torch module, pruned: its submodules, their names and its forward stay, and it is trained in any loop.

    channels = ModuleChannels(model, torch.randn(1, 3, 32, 32))
    widths = channels.widths(0.5)                       # half of the multiply-adds
    sparse = channels.masked(channels.dropped(widths))  # zeros that stay zeros while it is trained
    small = channels.slim(channels.dropped(widths))     # the channels are gone

`channels` cuts or masks channels, `elastic` trains subnets together (once-for-all), `sparse` keeps N of every M weights,
`resizing` gives a module the shapes of a state_dict.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuc.train.modules.channels import ModuleChannels
    from npuc.train.modules.elastic import ElasticModule
    from npuc.train.modules.resizing import with_state
    from npuc.train.modules.sparse import dense_weights, sparse_module

_HOMES = {
    "ElasticModule": "elastic",
    "ModuleChannels": "channels",
    "dense_weights": "sparse",
    "sparse_module": "sparse",
    "with_state": "resizing",
}
"""Where each public name is: modules that import torch are loaded when they are used."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'npuc.train.modules' has no attribute '{name}'")
    return getattr(import_module(f"npuc.train.modules.{_HOMES[name]}"), name)


__all__ = ["ElasticModule", "ModuleChannels", "dense_weights", "sparse_module", "with_state"]
