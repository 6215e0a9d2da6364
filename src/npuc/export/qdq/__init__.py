"""QDQ: an integer network as a float network between quantize and dequantize ops, for every tool that reads such files.

`form` walks over Npu IR, `registry` finds the rule of an op, `rules/` has one module a family of ops. The result is Top IR: the
ONNX export writes it, and npuc's own prequantized path reads it back to the same integers.
"""

from npuc.export.qdq.file import export_quantized_onnx, to_qdq_onnx
from npuc.export.qdq.form import to_qdq

__all__ = ["export_quantized_onnx", "to_qdq", "to_qdq_onnx"]
