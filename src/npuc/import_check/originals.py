"""The classes that run the original of an imported model, by format.

They are given by name and imported on use, so that a framework has to be installed only to check files of its format.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from npuc.errors import OriginalError
from npuc.frontend.formats import FORMATS, foreign, named

_ORIGINALS = {
    "onnx": "npuc.import_check.original:Original",
    "tflite": "npuc.import_check.original_tflite:LiteRtOriginal",
    "keras": "npuc.import_check.original_tensorflow:KerasOriginal",
    "tensorflow": "npuc.import_check.original_tensorflow:TensorFlowOriginal",
    "caffe": "npuc.import_check.original_opencv:CaffeOriginal",
    "caffemodel": "npuc.import_check.original_opencv:CaffeOriginal",
    "darknet": "npuc.import_check.original_opencv:DarknetOriginal",
    "torch-exported": "npuc.import_check.original_torch:ExportedOriginal",
    "torchscript": "npuc.import_check.original_torch:TorchScriptOriginal",
}
"""By the kind of a format."""


def original_of(path: Path | str) -> Any:
    """The class that runs the original of a file; its interface is that of `npuc.import_check.original.Original`."""
    form = foreign(path)[1]
    kind = next(kind for kind, other in FORMATS.items() if other is form)
    place = form.original or _ORIGINALS.get(kind)
    if place is None:
        raise OriginalError(f"there is no framework that runs {form.words}", where=str(path))
    return named(place)
