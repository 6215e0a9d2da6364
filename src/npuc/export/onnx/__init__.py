"""Top IR to ONNX: what the float engine runs, and what `npuc export onnx` writes.

`registry` finds the rule of an op, `emitter` is what a rule writes nodes with, `rules/` has one module a family of ops
as `ir/top` does, `model` puts a whole model together, `opset` finds the oldest operator set that it is valid under, and `file`
writes it.
"""

from npuc.export.onnx.file import export_onnx, write_onnx
from npuc.export.onnx.model import ALL_TENSORS, ExportedModel, Fetch, embed, to_onnx

__all__ = ["ALL_TENSORS", "ExportedModel", "Fetch", "embed", "export_onnx", "to_onnx", "write_onnx"]
