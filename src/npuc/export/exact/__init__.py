"""The exact integer arithmetic of the `npu` dialect over the operations of any framework, and its form in ONNX.

`algebra` lists the operations, `rounding` and `stage` have requantization, `rules/` one module a family of ops, `onnx` writes
the integer form of a network; `npuc.export.torch` runs the same rules on tensors.
"""

from npuc.export.exact.onnx import to_integer_onnx

__all__ = ["to_integer_onnx"]
