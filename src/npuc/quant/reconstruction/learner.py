"""What a block learns, as the loop over blocks sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from npuc.ir import Value
from npuc.ir.dtypes import QuantType
from npuc.quant.reconstruction.blocks import Block
from npuc.quant.reconstruction.student import Student


class Learner(ABC):
    """What is learned in one block."""

    fades = False
    """Whether rates fall to zero along half a cosine."""
    checked = False
    """Whether what was learned is dropped where it brings the outputs of the network no closer to float."""

    def __init__(self, student: Student, block: Block) -> None:
        self.student, self.block = student, block

    @abstractmethod
    def groups(self) -> list[dict[str, Any]]:
        """The parameters, with their rates, as an optimizer of torch wants them."""

    @abstractmethod
    def weights(self, hard: bool) -> dict[str, Any]:
        """What the layers compute with, by the names of the weights: while learning, or as it will be."""

    def after(self, value: Value, tensor: Any) -> Any:
        """A value as the integer network will have it."""
        return self.student.after(value, tensor)

    def loss(self, error: Any, iteration: int) -> Any:
        """What is to be small, of the error of the block's outputs."""
        return error

    @property
    def changed(self) -> dict[Value, QuantType]:
        """Types that some values have got."""
        return {}
