"""Forty-odd architectures in miniature, with random weights: what people bring, block by block.

`ZOO` maps a name to a function that builds a module and its example inputs.
"""

from __future__ import annotations

from support.networks.torch_zoo import images, maps, sequences  # noqa: F401
from support.networks.torch_zoo.parts import ZOO

__all__ = ["ZOO"]
