"""The Keras importer: `.keras` archives and `.h5` files of Keras 1, 2 and 3, without Keras or TensorFlow.

>>> from npuc.frontend.keras import import_keras
>>> graph = import_keras("model.keras")  # doctest: +SKIP
"""

from npuc.frontend.keras.importer import import_keras
from npuc.frontend.options import ImportOptions

__all__ = ["ImportOptions", "import_keras"]
