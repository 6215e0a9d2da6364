"""Which machine do some networks want: a space of machines searched for those that no other machine betters (docs/explore.md).

`explore(networks, space, folder)` is the way in.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuc.explore.exploration import Exploration, explore
    from npuc.explore.networks import ExploredNetwork
    from npuc.explore.proxies import Coefficients
    from npuc.explore.search import SearchOptions
    from npuc.explore.space import Space

_HOMES = {
    "Coefficients": "npuc.explore.proxies",
    "Exploration": "npuc.explore.exploration",
    "ExploredNetwork": "npuc.explore.networks",
    "SearchOptions": "npuc.explore.search",
    "Space": "npuc.explore.space",
    "explore": "npuc.explore.exploration",
}
"""What is loaded at first use."""

__all__ = ["Coefficients", "Exploration", "ExploredNetwork", "SearchOptions", "Space", "explore"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'npuc.explore' has no attribute '{name}'")
