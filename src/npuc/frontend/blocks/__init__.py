"""What Keras and TensorFlow share: tensors that have their channels last, and the layers that both are made of.

`canvas` holds tensors in either order of axes; the other modules build ops on it, one family each.
"""

from npuc.arrays import Array
from npuc.frontend.blocks.canvas import Absent, Canvas, Held

__all__ = ["Absent", "Array", "Canvas", "Held"]
