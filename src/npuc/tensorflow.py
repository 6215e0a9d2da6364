"""TensorFlow: `npuc.tensorflow.compile` makes a compiled callable of a SavedModel.

import npuc
compiled = npuc.tensorflow.compile("saved_model/", images[:64], target="edge-4t")
compiled(images)                 # arguments and results of the original
compiled.save("model.npu")
print(compiled.report)
"""

from __future__ import annotations

from npuc.integrations.function import CompiledFunction
from npuc.integrations.tensorflow import compile, load

__all__ = ["CompiledFunction", "compile", "load"]
