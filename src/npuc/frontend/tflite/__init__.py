"""The TensorFlow Lite importer.

>>> from npuc.frontend.tflite import import_tflite
>>> graph = import_tflite("model.tflite")  # doctest: +SKIP
"""

from npuc.frontend.options import ImportOptions
from npuc.frontend.tflite.importer import import_tflite

__all__ = ["ImportOptions", "import_tflite"]
