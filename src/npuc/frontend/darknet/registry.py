"""Import rules of Darknet's layers: see `npuc.frontend.layered.registry`."""

from __future__ import annotations

from npuc.arrays import Array
from npuc.frontend.darknet.cfg import Section
from npuc.frontend.darknet.weights import DarknetWeights
from npuc.frontend.layered.context import LayerContext, LayerScope
from npuc.frontend.layered.network import NetworkLayer, Shape
from npuc.frontend.layered.registry import Rule
from npuc.frontend.rules import limits
from npuc.ir import Value
from npuc.registries import Lenient, Registry


class DarknetContext(LayerContext):
    """What a rule sees: its section of the .cfg, and the weights that come next."""

    def __init__(self, layer: NetworkLayer, scope: LayerScope, weights: DarknetWeights, net: Section) -> None:
        super().__init__(layer, scope)
        self.section: Section = layer.data
        self.net = net
        self.weights = weights
        self._place = 0

    def array(self, shape: Shape, role: str) -> Array:
        """The next weights of the file."""
        self._place += 1
        return self.weights.get(self.section.label, self._place - 1, shape, role)

    def weight(self, shape: Shape, role: str) -> Value:
        """The next weights of the file as a constant."""
        return self.literal(self.array(shape, role), role)


RULES: Registry[str, Rule[DarknetContext]] = Registry(
    "an import rule for", provider="npuc.frontend.darknet.rules", lenient=Lenient.OWN
)
"""By type of layer."""
rule = RULES.register


def supported() -> dict[str, str]:
    """All layers that are imported, with their limits in words."""
    return limits(RULES)
