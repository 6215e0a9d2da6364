"""A target: everything the compiler knows about a machine, as data.

A `Target` is frozen, hashable and complete: inheritance and defaults are resolved, and it is consistent in itself. Its
`fingerprint` covers what can change a compiled program and nothing else. `load_target` makes one from a file;
`Target.from_dict` from plain data.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import StringConstraints, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from npuc.arithmetic.machine import Machine
from npuc.errors import TargetError
from npuc.format_versions import TARGET_FILE
from npuc.target.arithmetic import Arithmetic
from npuc.target.base import Part
from npuc.target.compute import Compute
from npuc.target.limits import Limits
from npuc.target.memory import Memory

InstructionSet = Literal["npuc", "bm1684x"]
TargetName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Target(Part):
    """A machine that npuc compiles for."""

    name: TargetName
    """What it is called; a file without it is called by its file name."""
    description: Annotated[str, StringConstraints(strip_whitespace=True, max_length=2000)] = ""
    """What it is, in a sentence or two."""
    extends: Annotated[str, StringConstraints(max_length=200)] | None = None
    """The target that this one is a change of: a name, or a file in the same folder or below."""
    compute: Compute
    """Engines."""
    memory: Memory
    """Memories."""
    arithmetic: Arithmetic
    """Numbers and rounding."""
    limits: Limits = Limits.model_construct()
    """What runs and what does not."""
    instruction_set: InstructionSet = "npuc"
    """What programs are made of: `npuc`, npuc's own instructions, which machines that only a file describes have; or the
    commands of a chip."""
    version: Literal[1] = 1
    """Of the format of the file; the fingerprint does not depend on it."""

    @model_validator(mode="after")
    def _consistent(self) -> Target:
        from npuc.target.consistency import contradictions

        problems = contradictions(self)
        if problems:
            raise PydanticCustomError(
                "contradiction", "{first}", {"first": problems[0].message, "contradictions": problems}
            )
        return self

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str | None = None) -> Target:
        """Make a target from plain data; a TargetError lists every problem."""
        from npuc.target.problems import problems_of, target_error

        TARGET_FILE.check(data.get("version"), where, TargetError)
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise target_error(problems_of(error, data), where) from error

    def to_dict(self) -> dict[str, Any]:
        """The whole target as plain data with readable units; `from_dict` makes an equal target of it."""
        # Compiled models hold this text: what says nothing new is left out, so that theirs stays as it is.
        usual = {
            name
            for name, value in (("version", 1), ("instruction_set", "npuc"))
            if getattr(self, name) == value
        }
        return self.model_dump(mode="json", exclude_none=True, exclude=usual)

    @cached_property
    def machine(self) -> Machine:
        """The figures that simulators need."""
        return Machine.from_dict(self.to_dict())

    @cached_property
    def fingerprint(self) -> int:
        """64 bits that change with anything that can change a compiled program, and with nothing else."""
        from npuc.target.fingerprint import fingerprint_of

        return fingerprint_of(self)

    @property
    def fingerprint_text(self) -> str:
        """The fingerprint as users see it, like `0x0123456789abcdef`."""
        return f"0x{self.fingerprint:016x}"

    @cached_property
    def figures(self) -> dict[str, int]:
        """The machine's figures, by the names that limits use."""
        array, local, shared = self.compute.array, self.memory.local, self.memory.shared
        return {
            "cores": self.compute.cores,
            "input_lanes": array.input_channels,
            "output_lanes": array.output_channels,
            "pixel_lanes": array.pixels,
            "vector_lanes": self.compute.vector_lanes,
            "local_bytes": local.size,
            "banks": local.banks,
            "bank_bytes": local.bank_size,
            "alignment": local.alignment,
            "shared_bytes": shared.size if shared else 0,
        }

    @property
    def dram_bytes_per_cycle(self) -> float:
        """Bytes that DRAM moves in one cycle."""
        return float(self.memory.dram.bandwidth.bytes_per_cycle(self.compute.clock))

    def peak_operations(self, activation: str = "i8", weight: str = "i8") -> float:
        """Operations a second of all cores, two for each multiply-add; 0 for a pair of types that it cannot multiply.

        >>> from npuc.target import load_target
        >>> load_target("edge-4t").peak_operations() / 1e12
        4.096
        """
        rate = self.compute.array.rate(activation, weight)
        compute = self.compute
        return float(2 * compute.array.multiplications * compute.cores * compute.clock * (rate or 0))
