"""Npu IR to full-integer TFLite, Top IR to float TFLite.

`registry` finds the rule of an op, `emitter` is what a rule writes operators with, `layout` follows the order of axes,
`rules/` has one module a family of ops, `program` puts a whole model together and writes
it, `model` makes its bytes.
"""

from npuc.export.tflite.model import Model, serialize
from npuc.export.tflite.program import Options, export_tflite, float_layers, to_tflite

__all__ = ["Model", "Options", "export_tflite", "float_layers", "serialize", "to_tflite"]
