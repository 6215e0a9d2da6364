"""The ONNX importer.

>>> from npuc.frontend.onnx import ImportOptions, import_onnx
>>> graph = import_onnx("model.onnx", ImportOptions(input_shapes={"x": (1, 3, 224, 224)}))  # doctest: +SKIP
"""

from npuc.frontend.onnx.importer import import_onnx
from npuc.frontend.options import ImportOptions

__all__ = ["ImportOptions", "import_onnx"]
