"""Npu IR to full-integer TFLite, Top IR to float TFLite.

`registry` finds the rule of an op, `emitter` is what a rule writes operators with, `layout` follows the order of axes,
`rules/` has one module a family of ops, `program` puts a whole model together and writes
it, `model` makes its bytes.
"""

from typing import Any

from npuc.export.tflite.model import TFLiteModel, serialize
from npuc.export.tflite.program import TFLiteOptions, export_tflite, float_layers, to_tflite
from npuc.registries import renamed

__all__ = ["TFLiteModel", "TFLiteOptions", "export_tflite", "float_layers", "serialize", "to_tflite"]


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Model": TFLiteModel, "Options": TFLiteOptions})
