"""`pytorch_nndct.nn.modules.functional`: operators as modules. Plain `+` and `-` are quantized just as well here."""

from __future__ import annotations

import torch

__all__ = ["Add", "Sub"]


class Add(torch.nn.Module):  # type: ignore[misc]
    """A sum."""

    def forward(self, input: torch.Tensor, other: torch.Tensor, alpha: float = 1) -> torch.Tensor:
        """input + alpha * other."""
        return torch.add(input, other, alpha=alpha)


class Sub(torch.nn.Module):  # type: ignore[misc]
    """A difference."""

    def forward(self, input: torch.Tensor, other: torch.Tensor, alpha: float = 1) -> torch.Tensor:
        """input - alpha * other."""
        return torch.sub(input, other, alpha=alpha)
