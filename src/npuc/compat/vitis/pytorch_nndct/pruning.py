"""`pytorch_nndct.pruning`: the vendor's pruning runners, refused with the way to go."""

from __future__ import annotations

from typing import Any, NoReturn

from npuc.compat.vitis.notices import refusal

__all__ = [
    "IterativePruningRunner",
    "OFAPruner",
    "OneStepPruningRunner",
    "SparsePruner",
    "get_pruning_runner",
    "load_state_dict",
]


def _refused(name: str) -> NoReturn:
    raise refusal(
        "OPTIMIZER_UNSUPPORTED_OP_ERROR",
        f"{name} has no adapter yet",
        "Prune with npuc.train.pruning, by cycles of a target",
    )


class IterativePruningRunner:
    """Refused."""

    def __init__(self, model: Any, inputs: Any) -> None:
        _refused("IterativePruningRunner")


class OneStepPruningRunner:
    """Refused."""

    def __init__(self, model: Any, inputs: Any) -> None:
        _refused("OneStepPruningRunner")


class SparsePruner:
    """Refused."""

    def __init__(self, model: Any, inputs: Any) -> None:
        _refused("SparsePruner")


class OFAPruner:
    """Refused."""

    def __init__(self, model: Any, inputs: Any) -> None:
        _refused("OFAPruner")


def get_pruning_runner(model: Any, inputs: Any, method: str) -> Any:
    """Refused."""
    _refused("get_pruning_runner")


def load_state_dict(model: Any, state_dict: Any) -> Any:
    """`pytorch_nndct.utils.slim.load_state_dict`, refused."""
    _refused("slim.load_state_dict")
