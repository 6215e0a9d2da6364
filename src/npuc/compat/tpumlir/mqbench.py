"""The functions of MQBench that TPU-MLIR's training page uses: refused in words, because training is `npuc.train` here."""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn

from npuc.errors import UsageError

__all__ = [
    "BackendType",
    "convert_deploy",
    "disable_all",
    "enable_calibration",
    "enable_quantization",
    "prepare_by_platform",
]


class BackendType(Enum):
    """The platforms of that library that the page names."""

    sophgo_tpu = "sophgo_tpu"
    Sophgo_TPU = "Sophgo_TPU"


def _refuse(name: str) -> NoReturn:
    raise UsageError(
        f"mqbench's {name} is not supported: its trained scales have no form here",
        fix="Train with npuc's own quantization-aware training, whose integers are those that are deployed",
    )


def prepare_by_platform(model: Any, backend: Any, *args: Any, **options: Any) -> Any:
    """Refused."""
    _refuse("prepare_by_platform")


def enable_calibration(model: Any) -> None:
    """Refused."""
    _refuse("enable_calibration")


def enable_quantization(model: Any) -> None:
    """Refused."""
    _refuse("enable_quantization")


def disable_all(model: Any) -> None:
    """Refused."""
    _refuse("disable_all")


def convert_deploy(model: Any, backend: Any, *args: Any, **options: Any) -> None:
    """Refused."""
    _refuse("convert_deploy")
