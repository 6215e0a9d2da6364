"""Import rules by layer: `@rule("Conv2D")` above a function is all it takes to add one.

A rule gets a `KerasContext` and returns the layer's outputs. Its docstring says what it takes, and is what `supported()` tells
users of its limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import InvalidModelError, UnsupportedOpError
from npuc.frontend.keras.weights import KerasWeights
from npuc.frontend.layout import ChannelsLastBuilder, LayoutTensor
from npuc.frontend.rules import limits
from npuc.registries import Lenient, Registry, renamed

Outcome = LayoutTensor | Sequence[LayoutTensor]


@dataclass
class KerasContext:
    """What a rule sees: the layer, its operands, its weights, and the builder."""

    name: str
    kind: str
    config: Mapping[str, Any]
    arguments: list[Any]
    keywords: dict[str, Any]
    weights: KerasWeights
    c: ChannelsLastBuilder
    version: tuple[int, ...]
    notes: list[str] = field(default_factory=list)
    inner: Callable[[Any, list[LayoutTensor], KerasWeights, str], list[LayoutTensor]] | None = None
    """Translates a layer that this one wraps: its description, its inputs, its weights, its name."""

    @property
    def label(self) -> str:
        """How messages speak of it."""
        return f"the layer '{self.name}' ({self.kind})"

    def refuse(self, why: str, fix: str = "Cut the network before it with --outputs") -> UnsupportedOpError:
        """The error for a form of the layer that has no `top` form."""
        return UnsupportedOpError(f"{self.label} has no form in npuc: {why}", fix=fix)

    def wrong(self, why: str) -> InvalidModelError:
        """The error for a layer that no valid model has."""
        return InvalidModelError(f"{self.label}: {why}")

    # Operands

    @property
    def inputs(self) -> list[LayoutTensor]:
        """All tensors among the arguments, in order."""
        return list(tensors_in(self.arguments))

    def x(self, index: int = 0) -> LayoutTensor:
        """Tensor `index` of the arguments."""
        inputs = self.inputs
        if index >= len(inputs):
            raise self.wrong(f"input {index} is missing")
        return inputs[index]

    def keyword(self, name: str, position: int, default: Any = None) -> Any:
        """An argument by name or position."""
        if name in self.keywords:
            return self.keywords[name]
        return self.arguments[position] if position < len(self.arguments) else default

    def wrapped(
        self, description: Any, tensors: list[LayoutTensor], weights: KerasWeights
    ) -> list[LayoutTensor]:
        """The outputs of a layer that this one wraps."""
        if self.inner is None or not isinstance(description, dict):
            raise self.wrong("it does not say which layer it wraps")
        return self.inner(description, tensors, weights, self.name)

    # Configuration

    def get(self, name: str, default: Any = None) -> Any:
        """An entry, or the default if it is absent or null."""
        entry = self.config.get(name)
        return default if entry is None else entry

    def number(self, name: str, default: float | None = None) -> float:
        """A number."""
        entry = self.get(name, default)
        if isinstance(entry, bool) or not isinstance(entry, int | float) or not np.isfinite(entry):
            raise self.wrong(f"its '{name}' is {str(entry)[:60]}, not a number")
        return float(entry)

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        entry = self.get(name, default)
        if isinstance(entry, bool) or not isinstance(entry, int) or abs(entry) > 1 << 40:
            raise self.wrong(f"its '{name}' is {str(entry)[:60]}, not a whole number")
        return entry

    def flag(self, name: str, default: bool) -> bool:
        """A truth value; some writers put 1 and 0, which Python takes for one too."""
        entry = self.get(name, default)
        if not isinstance(entry, bool | int) or entry not in (0, 1):
            raise self.wrong(f"its '{name}' is {str(entry)[:60]}, not true or false")
        return bool(entry)

    def integers(self, name: str, count: int, default: Any = None) -> tuple[int, ...]:
        """`count` whole numbers, or one for all."""
        entry = self.get(name, default)
        if isinstance(entry, int) and not isinstance(entry, bool):
            entry = [entry] * count
        if not isinstance(entry, list | tuple) or len(entry) != count:
            raise self.wrong(f"its '{name}' is {str(entry)[:60]}, not {count} numbers")
        if any(isinstance(n, bool) or not isinstance(n, int) or abs(n) > 1 << 40 for n in entry):
            raise self.wrong(f"its '{name}' is {str(entry)[:60]}, not {count} numbers")
        return tuple(entry)

    @property
    def channels_first(self) -> bool:
        """True if the layer says that its channels come second."""
        data_format = self.get("data_format", "channels_last")
        if data_format not in ("channels_last", "channels_first"):
            raise self.wrong(f"its data format is {str(data_format)[:60]}")
        return bool(data_format == "channels_first")

    # Weights

    def arrays(self, *counts: int, of: KerasWeights | None = None) -> list[Array]:
        """Its weights, as many as one of these numbers."""
        weights = (of or self.weights).arrays()
        if len(weights) not in counts:
            words = " or ".join(str(count) for count in counts)
            raise self.wrong(f"it has {len(weights)} weights in the file, not {words}")
        return [array.astype(np.float32) if array.dtype.kind == "f" else array for array in weights]

    def weight(self, array: Array, title: str) -> LayoutTensor:
        """A weight as a tensor."""
        return self.c.constant(array, f"{self.name}/{title}")


def tensors_in(value: Any) -> Sequence[LayoutTensor]:
    """All tensors in a nest of lists and dictionaries."""
    if isinstance(value, LayoutTensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [held for item in inner for held in tensors_in(item)]


Rule = Callable[[KerasContext], Outcome]
RULES: Registry[str, Rule] = Registry(
    "an import rule for", provider="npuc.frontend.keras.rules", lenient=Lenient.OWN
)
"""By class; an operation goes by `ops.` and its class."""
rule = RULES.register
find_rule = RULES.get


def supported() -> dict[str, str]:
    """All layers that are imported, with their limits in words."""
    layers = limits(RULES)
    layers["Model"] = (
        "Functional and Sequential models as layers, to any depth; subclassed models are refused."
    )
    layers["InputLayer"] = "An open batch is taken as 1 unless --input-shape says otherwise."
    layers["Lambda"] = "Refused: code in a file is never run."
    return dict(sorted(layers.items()))


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Context": KerasContext})
