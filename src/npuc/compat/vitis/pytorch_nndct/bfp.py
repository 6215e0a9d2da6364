"""`pytorch_nndct.bfp`: block floating point, to be evaluated; no machine here computes with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from npuc.compat.vitis.pytorch_nndct.arguments import arguments_tuple, module_of, traced
from npuc.errors import UsageError
from npuc.flow import expanded, quantize_network
from npuc.integrations.torch.integers import IntegerModule
from npuc.quant.config import QuantizationConfig

__all__ = ["quantize_model"]


def quantize_model(
    model: Any, inputs: Any, dtype: str = "mx6", config_file: Path | str | None = None
) -> IntegerModule:
    """The module with operands of products rounded to blocks: `mx6` or `mx9`."""
    if dtype not in ("mx6", "mx9"):
        raise UsageError(f"dtype is {dtype!r}", fix="Give 'mx6' or 'mx9'")
    if config_file is not None:
        raise UsageError(
            "config_file is not documented by the vendor, and npuc takes none", fix="Leave it out"
        )
    call = traced(module_of(model), arguments_tuple(inputs))
    done = quantize_network(expanded(call.graph), {}, QuantizationConfig(scheme=dtype))
    return IntegerModule(done.graph, call.signature)
