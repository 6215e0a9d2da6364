"""Keras 3: `npuc.keras.compile` makes a compiled callable of a live model, on any of its backends; `prepare_qat` trains one.

import npuc
compiled = npuc.keras.compile(model, images[:64], target="edge-4t")
compiled(images)                 # arguments and results of the original
compiled.save("model.npu")
print(compiled.report)

qat = npuc.keras.prepare_qat(model, (images, labels), target="edge-4t")
npuc.train.fit(qat.module, (images, labels))
qat.write_back("trained.keras")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npuc.integrations.function import CompiledFunction
from npuc.integrations.keras import compile, load

if TYPE_CHECKING:
    from npuc.train.keras import KerasQat, prepare_qat, write_keras

_TRAINING = ("KerasQat", "prepare_qat", "write_keras")
"""What imports torch is loaded when it is used."""


def __getattr__(name: str) -> Any:
    if name not in _TRAINING:
        raise AttributeError(f"module 'npuc.keras' has no attribute '{name}'")
    from npuc.extras import require_torch

    require_torch("training needs PyTorch, which is not installed")
    from npuc.train import keras

    return getattr(keras, name)


__all__ = ["CompiledFunction", "KerasQat", "compile", "load", "prepare_qat", "write_keras"]
