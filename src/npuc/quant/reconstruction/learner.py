"""The interface of what is learned in a block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from npuc.ir import Value
from npuc.ir.dtypes import QuantType
from npuc.quant.reconstruction.blocks import LayerBlock
from npuc.quant.reconstruction.student import Student


class Learner(ABC):
    """The learnable parameters of one block."""

    fades = False
    """Whether learning rates decay to zero along a cosine."""
    checked = False
    """Whether the learned parameters are discarded if they do not bring the outputs of the network closer to float."""

    def __init__(self, student: Student, block: LayerBlock) -> None:
        self.student, self.block = student, block

    @abstractmethod
    def groups(self) -> list[dict[str, Any]]:
        """The parameter groups with their learning rates, for a torch optimizer."""

    @abstractmethod
    def weights(self, hard: bool) -> dict[str, Any]:
        """The constants of the layers by name: soft while learning, or `hard` as in the integer network."""

    def after(self, value: Value, tensor: Any, keep: Any = None) -> Any:
        """A value quantized as in the integer network, but for the elements where the mask `keep` is 1."""
        return self.student.after(value, tensor, keep)

    @property
    def positions(self) -> list[Any]:
        """Scalars that are searched in whole steps before the others are learned: positions of powers of two."""
        return []

    def loss(self, error: Any, iteration: int) -> Any:
        """The loss to minimize, given the error of the block's outputs."""
        return error

    @property
    def changed(self) -> dict[Value, QuantType]:
        """The learned types of values."""
        return {}
