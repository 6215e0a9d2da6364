"""`qubee`: compile a model for a Mobilint NPU, prepare calibration data, compare float with integers.

from qubee import make_calib, mxq_compile
make_calib("resnet50.yaml", "images", "calibration", "resnet50")
mxq_compile("resnet50.onnx", "calibration/resnet50", save_path="resnet50.mxq")
"""

from __future__ import annotations

from npuc.compat.qubee import calibration, mmc, model_dict, utils
from npuc.compat.qubee.calibration import make_calib, make_calib_man
from npuc.compat.qubee.compiling import mxq_compile
from npuc.compat.qubee.model_dict import Model_Dict

__all__ = [
    "Model_Dict",
    "calibration",
    "make_calib",
    "make_calib_man",
    "mmc",
    "model_dict",
    "mxq_compile",
    "utils",
]
__version__ = "0.8.1+npuc"
