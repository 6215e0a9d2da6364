"""`qubee.mmc`: a compiled model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npuc.arrays import Array
from npuc.engine import IntegerEngine
from npuc.program.model import CompiledModel
from npuc.runtime.engine import CompiledEngine

__all__ = ["Compiler"]


@dataclass(frozen=True)
class Compiler:
    """A program for the NPU, and the integer network that it was compiled from."""

    model: CompiledModel
    network: Any
    """All layers, also those that were cut off the program."""

    @property
    def input_names(self) -> list[str]:
        """The inputs of the program."""
        return list(self.model.inputs)

    @property
    def output_names(self) -> list[str]:
        """The outputs of the program."""
        return list(self.model.outputs)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the program for one set of its inputs."""
        return CompiledEngine(self.model).run(inputs)

    def engine(self) -> IntegerEngine:
        """What computes the integer network."""
        return IntegerEngine(self.network)
