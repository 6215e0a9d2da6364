"""`pytorch_nndct`: the vendor's quantizer for PyTorch, on npuc."""

from npuc.compat.vitis.pytorch_nndct import apis, nn, utils
from npuc.compat.vitis.pytorch_nndct.pruning import (
    IterativePruningRunner,
    OFAPruner,
    OneStepPruningRunner,
    SparsePruner,
    get_pruning_runner,
)
from npuc.compat.vitis.pytorch_nndct.qat import QatProcessor

__version__ = "3.5.0"
"""The version of the vendor's package that this one stands in for."""

__all__ = [
    "IterativePruningRunner",
    "OFAPruner",
    "OneStepPruningRunner",
    "QatProcessor",
    "SparsePruner",
    "__version__",
    "apis",
    "get_pruning_runner",
    "nn",
    "utils",
]
