"""Training for the machine: the network that is trained is the one that will run. It needs the extra `npuc[torch]`.

`data` has labelled samples as arrays, `network` a float network as a trainable module, `loop` trains any module, with `options`
and `checkpoint`s; `qat` is quantization-aware training, which `prepare` begins.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuc.train.data import TrainingData, load_data
    from npuc.train.loop import Epoch, TrainingResult, fit
    from npuc.train.network import TrainableNetwork
    from npuc.train.options import TrainingOptions
    from npuc.train.qat.module import QatModule
    from npuc.train.qat.options import QatOptions
    from npuc.train.qat.prepare import prepare

_HOMES = {
    "Epoch": "npuc.train.loop",
    "TrainableNetwork": "npuc.train.network",
    "TrainingData": "npuc.train.data",
    "TrainingOptions": "npuc.train.options",
    "TrainingResult": "npuc.train.loop",
    "QatModule": "npuc.train.qat.module",
    "QatOptions": "npuc.train.qat.options",
    "fit": "npuc.train.loop",
    "load_data": "npuc.train.data",
    "prepare": "npuc.train.qat.prepare",
}
"""Where each public name is: modules that import torch are loaded when they are used."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'npuc.train' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


__all__ = [
    "Epoch",
    "QatModule",
    "QatOptions",
    "TrainableNetwork",
    "TrainingData",
    "TrainingOptions",
    "TrainingResult",
    "fit",
    "load_data",
    "prepare",
]
