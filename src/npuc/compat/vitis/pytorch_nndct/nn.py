"""`pytorch_nndct.nn`: marks of what is quantized, and additions as modules.

A whole module between a QuantStub and a DeQuantStub is quantized as one without them is.
"""

from __future__ import annotations

import sys

import torch

from npuc.compat.vitis.pytorch_nndct.functional import Add, Sub

__all__ = ["Add", "DeQuantStub", "QuantStub", "Sub", "functional", "modules"]


class QuantStub(torch.nn.Identity):  # type: ignore[misc]
    """Marks where quantization begins."""


class DeQuantStub(torch.nn.Identity):  # type: ignore[misc]
    """Marks where it ends."""


functional = sys.modules["npuc.compat.vitis.pytorch_nndct.functional"]
modules = sys.modules[__name__]
