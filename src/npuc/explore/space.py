"""A space of machines: a base target, and for each parameter the values that are tried. Every combination is a machine.

    base: edge-4t
    parameters:
      lanes: [8x8x8, 16x16x8, 32x32x8]        # output channels x input channels x pixels
      local_memory: [512KiB, 1MiB, 2MiB]
      bandwidth: [4GB/s, 8GB/s, 16GB/s]
      compute.clock: [800MHz, 1GHz]           # any field of a target, by its place

Machines are numbered: the last parameter runs fastest. A combination that contradicts itself (banks that do not divide the
memory, say) is no machine of the space.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import yaml

from npuc.errors import UsageError
from npuc.files import read_short
from npuc.plain_yaml import load_yaml
from npuc.target import Target, load_target
from npuc.target.load import merge

BITS = "bits"
"""The parameter that changes the networks and not the machine: bits of activations x bits of weights."""
MOST_MACHINES = 200_000
_MAX_BYTES = 1 << 18
_LANES = re.compile(r"(\d{1,5})x(\d{1,5})x(\d{1,5})", re.ASCII)
_BITS = re.compile(r"(8|16)x(4|8|16)", re.ASCII)
_PLACE = re.compile(r"(compute|memory|arithmetic|limits)(\.[a-z_0-9]{1,40}){1,4}", re.ASCII)


def _lanes(text: str) -> dict[str, Any]:
    match = _LANES.fullmatch(text)
    if match is None:
        raise UsageError(
            f"lanes: '{text[:60]}' is not of the form OUTPUTSxINPUTSxPIXELS", fix="Such as 16x16x8"
        )
    outputs, inputs, pixels = map(int, match.groups())
    array = {"output_channels": outputs, "input_channels": inputs, "pixels": pixels}
    return {"compute": {"array": array}}


def _vector_lanes(text: str) -> dict[str, Any]:
    # Each lane has a table, as in the reference machines.
    count = _number("vector_lanes", text)
    return {"compute": {"vector_lanes": count, "table_units": count}}


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"{name}: '{text[:60]}' is not a whole number")
    return int(text)


def _bits(text: str) -> dict[str, Any]:
    if _BITS.fullmatch(text) is None:
        raise UsageError(
            f"bits: '{text[:60]}' is not of the form ACTIVATIONSxWEIGHTS",
            fix="Activations have 8 or 16 bits, weights 4, 8 or 16: 8x8, 8x4, 16x8",
        )
    return {}


PARAMETERS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "lanes": _lanes,
    "vector_lanes": _vector_lanes,
    "local_memory": lambda text: {"memory": {"local": {"size": text}}},
    "banks": lambda text: {"memory": {"local": {"banks": _number("banks", text)}}},
    "bandwidth": lambda text: {"memory": {"dram": {"bandwidth": text}}},
    "cores": lambda text: {"compute": {"cores": _number("cores", text)}},
    "decoder": lambda text: {"memory": {"weight_decoder": None if text == "none" else text}},
    "contexts": lambda text: {
        "memory": {"weight_contexts": None if text == "none" else _number("contexts", text)}
    },
    "shared_memory": lambda text: {"memory": {"shared": {"size": text}}},
    "clock": lambda text: {"compute": {"clock": text}},
    BITS: _bits,
}
"""Parameters with a name, and what a value changes of a target."""


@dataclass(frozen=True)
class Parameter:
    """A field of a machine and the values that are tried."""

    name: str
    values: tuple[str, ...]

    def change(self, value: str) -> dict[str, Any]:
        """What a value changes of a target, as data."""
        if self.name in PARAMETERS:
            return PARAMETERS[self.name](value)
        changed: Any = int(value) if value.isdecimal() and len(value) < 10 else value
        for part in reversed(self.name.split(".")):
            changed = {part: changed}
        return dict(changed)


@dataclass(frozen=True)
class Space:
    """A base and its parameters."""

    base: Target
    parameters: tuple[Parameter, ...] = field(default=())

    @property
    def size(self) -> int:
        """Combinations of values."""
        return prod(len(parameter.values) for parameter in self.parameters)

    @cached_property
    def _base(self) -> dict[str, Any]:
        return self.base.to_dict()

    def choice(self, number: int) -> tuple[int, ...]:
        """The number of the value of each parameter of a machine.

        >>> from npuc.target import load_target
        >>> Space.of(load_target("edge-4t"), {"cores": [1, 2], "banks": [4, 8, 16]}).choice(4)
        (1, 1)
        """
        chosen: list[int] = []
        for parameter in reversed(self.parameters):
            number, at = divmod(number, len(parameter.values))
            chosen.append(at)
        return tuple(reversed(chosen))

    def values(self, number: int) -> dict[str, str]:
        """The value of each parameter of a machine."""
        pairs = zip(self.parameters, self.choice(number), strict=True)
        return {parameter.name: parameter.values[at] for parameter, at in pairs}

    def name(self, number: int) -> str:
        """What a machine is called, in tables and as a target."""
        return f"{self.base.name[:48]}-m{number}"

    def bits(self, number: int) -> int:
        """The number of the value of `bits`; 0 if it is not a parameter."""
        names = [parameter.name for parameter in self.parameters]
        return self.choice(number)[names.index(BITS)] if BITS in names else 0

    @property
    def bit_widths(self) -> tuple[str, ...]:
        """The values of `bits`; one empty text if it is not a parameter: networks stay as they are."""
        return next((p.values for p in self.parameters if p.name == BITS), ("",))

    def description(self, number: int) -> dict[str, Any]:
        """The target of a machine, as data."""
        data = dict(self._base)
        for parameter, at in zip(self.parameters, self.choice(number), strict=True):
            data = merge(data, parameter.change(parameter.values[at]))
        words = ", ".join(f"{name} {value}" for name, value in self.values(number).items() if name != BITS)
        data["name"] = self.name(number)
        data["description"] = f"{self.base.name} with {words}." if words else self.base.description
        data.pop("extends", None)
        return data

    def target(self, number: int) -> Target:
        """The target of a machine."""
        return Target.from_dict(self.description(number), where=self.name(number))

    @staticmethod
    def of(base: Target, parameters: Mapping[str, Any]) -> Space:
        """A space from plain data."""
        known: list[Parameter] = []
        for name, values in parameters.items():
            if not isinstance(name, str) or not (name in PARAMETERS or _PLACE.fullmatch(name)):
                raise UsageError(
                    f"'{str(name)[:60]}' is no parameter of machines",
                    fix=f"The parameters are {', '.join(PARAMETERS)}; any other field of a target by its place, such as "
                    "memory.dram.latency",
                )
            texts = tuple(map(str, values)) if isinstance(values, list | tuple) else ()
            if not texts or len(set(texts)) < len(texts) or any(isinstance(v, list | dict) for v in values):
                raise UsageError(
                    f"{name}: its values have to be a list of different texts or numbers",
                    fix=f"Such as {name}: [A, B]",
                )
            parameter = Parameter(name, texts)
            for text in texts:
                parameter.change(text)
            known.append(parameter)
        space = Space(base, tuple(known))
        if space.size > MOST_MACHINES:
            raise UsageError(
                f"the space has {space.size:,} machines, and {MOST_MACHINES:,} are possible",
                fix="Leave values out",
            )
        return space

    @staticmethod
    def load(path: Path | str) -> Space:
        """Read a space from a YAML file."""
        text = read_short(path, _MAX_BYTES, "a space of machines", UsageError)
        try:
            data = load_yaml(text.decode()) or {}
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
        if (
            not isinstance(data, dict)
            or not {"base", "parameters"} >= data.keys() >= {"base"}
            or not isinstance(data["base"], str)
            or not isinstance(data.get("parameters", {}), dict)
        ):
            raise UsageError(
                f"{path} is not a space of machines", fix="It has two keys: base (a target) and parameters"
            )
        return Space.of(load_target(data["base"]), data.get("parameters") or {})
