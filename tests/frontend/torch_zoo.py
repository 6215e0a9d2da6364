"""Forty-odd architectures in miniature, with random weights: what people bring, block by block.

`ZOO` maps a name to a function that builds a module and its example inputs.
"""

from __future__ import annotations

import torch_zoo_maps  # noqa: F401
import torch_zoo_pictures  # noqa: F401
import torch_zoo_sequences  # noqa: F401
from torch_zoo_parts import ZOO

__all__ = ["ZOO"]
