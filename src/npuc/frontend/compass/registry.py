"""Import rules of Compass IR's layers: see `npuc.frontend.layered.registry`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from npuc.arrays import Array
from npuc.export.compass.text import CompassLayer, Nested, integers_in
from npuc.frontend.layered.context import LayerContext, LayerScope, NoForm
from npuc.frontend.layered.network import NetworkLayer
from npuc.frontend.layered.registry import Rule
from npuc.frontend.rules import limits
from npuc.ir import Value, shape_of, top
from npuc.registries import Registry

_TO_LAST, _TO_SECOND = (0, 2, 3, 1), (0, 3, 1, 2)


class CompassContext(LayerContext):
    """What a rule sees: the keys of its block, and its constants. Images are N x H x W x C."""

    def __init__(
        self, layer: NetworkLayer, scope: LayerScope, constants: dict[str, dict[str, Array]]
    ) -> None:
        super().__init__(layer, scope)
        self.block: CompassLayer = layer.data
        self.constants = constants.get(layer.name, {})

    def word(self, key: str, default: str = "") -> str:
        """A value as text, in capitals."""
        return self.block.values.get(key, default).upper()

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer; required without a default."""
        text = self.block.values.get(key)
        if text is None and default is not None:
            return default
        try:
            return int(text or "")
        except ValueError:
            raise self.invalid(f"{key} is {text!r}, not an integer") from None

    def real(self, key: str, default: float | None = None) -> float:
        """A number; required without a default."""
        text = self.block.values.get(key)
        if text is None and default is not None:
            return default
        try:
            return float(text or "")
        except ValueError:
            raise self.invalid(f"{key} is {text!r}, not a number") from None

    def flag(self, key: str, default: bool = False) -> bool:
        """A truth value."""
        return {"TRUE": True, "FALSE": False, "1": True, "0": False}.get(self.word(key), default)

    def list(self, key: str) -> tuple[int, ...]:
        """A list of integers; a single one is a list, too."""
        return tuple(integers_in(self.block.nested(key), f"{key} of '{self.block.name}'"))

    def nested(self, key: str) -> Nested:
        """A nested list of words."""
        return self.block.nested(key)

    def axis_of(self, key: str = "axis", default: int = -1) -> int:
        """An axis that counts from the front."""
        return self.axis(self.integer(key, default))

    def constant(self, key: str) -> Array:
        """A constant of the layer."""
        if key not in self.constants:
            raise self.invalid(f"its constant '{key}' is missing")
        return self.constants[key]

    def permuted(self, value: Value, order: Sequence[int]) -> Value:
        """The value with its axes in another order."""
        return self.emit(top.Permute, value, order=tuple(order))

    def image(self, index: int = 0) -> Value:
        """An image with its channels second, as the ops of windows take it."""
        value = self.value(index)
        if len(shape_of(value)) != 4:
            raise NoForm(f"its input has rank {len(shape_of(value))}, not 4")
        return self.channels_second(value)

    def is_turned(self, value: Value) -> bool:
        """Whether a value is there with its channels second, and was turned."""
        return isinstance(value.owner, top.Permute) and tuple(value.owner.order) == _TO_LAST

    def channels_second(self, value: Value) -> Value:
        """A value of rank 4 with its channels second; as it was before it was turned, if it was."""
        if isinstance(value.owner, top.Permute) and self.is_turned(value):
            before: Value = value.owner.operands[0]
            return before
        return self.permuted(value, _TO_SECOND)

    def channels_last(self, value: Value) -> Value:
        """The way back from `image`."""
        return self.permuted(value, _TO_LAST)

    def by_elements(self, values: Sequence[Value], compute: Callable[[Sequence[Value]], Value]) -> Value:
        """A function of single elements; images that were turned are computed as they were, so that the result is the layer's own
        tensor there, too."""
        shapes = {shape_of(value) for value in values}
        if len(shapes) == 1 and any(map(self.is_turned, values)):
            return self.channels_last(compute([self.channels_second(value) for value in values]))
        return compute(values)

    def weights(self) -> Array:
        """The weights as float32."""
        return np.asarray(self.constant("weights"), np.float32)

    def biases(self, channels: int) -> Value:
        """The biases; zeros if there are none."""
        array = self.constants.get("biases")
        return self.literal(
            np.zeros(channels, np.float32) if array is None else np.asarray(array, np.float32).reshape(-1),
            "biases",
        )


RULES: Registry[str, Rule[CompassContext]] = Registry(
    "an import rule for", provider="npuc.frontend.compass.rules"
)
"""By type of layer."""
rule = RULES.register


def supported() -> dict[str, str]:
    """All layers that are imported, with their limits in words."""
    return limits(RULES)
