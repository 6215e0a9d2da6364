"""Build a network in Python, op by op, and compile it like any other.

    >>> import numpy as np
    >>> from npuc import lang
    >>> x = lang.input("image", (1, 3, 8, 8))
    >>> y = lang.conv(x, np.ones((4, 3, 3, 3), np.float32), pads=1, relu=True, name="stem")
    >>> y
    <Tensor 'stem' f32 [1, 4, 8, 8]>
    >>> graph = lang.build({"features": y})
    >>> [port.name for port in graph.outputs]
    ['features']

A tensor knows its shape and type as soon as it is made, and an op that cannot be says why at once. The functions are
those of the `top` dialect, one an op; NumPy arrays and numbers stand for constants. `build` gives the graph that an
importer would: save it with `npuc.flow.save_graph`, or hand it to any stage.
"""

from npuc.lang import ops
from npuc.lang.apply import ShapeFunction, custom
from npuc.lang.network import build
from npuc.lang.ops import *  # noqa: F403
from npuc.lang.tensor import Operand, Tensor, constant, input, quantized

__all__ = ["Operand", "ShapeFunction", "Tensor", "build", "constant", "custom", "input", "quantized"]
__all__ += ops.__all__
