"""`QatProcessor`: quantization-aware training under the vendor's names.

npuc's own training learns weights and scales, and is called otherwise. A program for this class is refused with the way to go.
"""

from __future__ import annotations

from typing import Any

from npuc.compat.vitis.notices import refusal

__all__ = ["QatProcessor"]


class QatProcessor:
    """Refused."""

    def __init__(self, model: Any, inputs: Any, bitwidth: int = 8, **settings: Any) -> None:
        raise refusal(
            "QUANTIZER_TORCH_QAT_PROCESS_ERROR",
            "QatProcessor has no adapter yet",
            "Train with npuc.train (docs/training.md), or calibrate with torch_quantizer and fast_finetune",
        )
