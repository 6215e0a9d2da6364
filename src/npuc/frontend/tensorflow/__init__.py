"""The TensorFlow importer: frozen graphs (`.pb`) and SavedModel folders, without TensorFlow.

>>> from npuc.frontend.tensorflow import import_tensorflow
>>> graph = import_tensorflow("saved_model/")  # doctest: +SKIP
"""

from npuc.frontend.options import ImportOptions
from npuc.frontend.tensorflow.importer import import_tensorflow

__all__ = ["ImportOptions", "import_tensorflow"]
