"""A quantized network as a torch program: `.pt2` of `torch.export`, or TorchScript. Both load where npuc is not installed.

`algebra` has the operations of `npuc.export.exact` on tensors, `module` the network as a module, `file` writes it.
"""

from npuc.export.torch.file import SUFFIXES, export_torch

__all__ = ["SUFFIXES", "export_torch"]
