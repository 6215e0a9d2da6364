"""`pytorch_nndct.utils.slim`: a pruned module from the model before pruning and the state of the slim one."""

from __future__ import annotations

from typing import Any

from npuc.compat.vitis.pytorch_nndct.arguments import module_of
from npuc.train.modules.resizing import with_state

__all__ = ["load_state_dict"]


def load_state_dict(model: Any, state_dict: Any) -> Any:
    """A copy of the model with the sizes and values of a `slim_state_dict`."""
    return with_state(module_of(model), state_dict)
