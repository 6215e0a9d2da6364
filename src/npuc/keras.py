"""Keras 3: `npuc.keras.compile` makes a compiled callable of a live model, on any of its backends.

import npuc
compiled = npuc.keras.compile(model, images[:64], target="edge-4t")
compiled(images)                 # arguments and results of the original
compiled.save("model.npu")
print(compiled.report)
"""

from __future__ import annotations

from npuc.integrations.function import CompiledFunction
from npuc.integrations.keras import compile, load

__all__ = ["CompiledFunction", "compile", "load"]
