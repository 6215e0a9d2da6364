"""Import rules of Caffe's layers: see `npuc.frontend.layered.registry`.

from npuc.frontend.caffe import CaffeContext, rule

@rule("Python:MyLayer")
def my_layer(ctx: CaffeContext):
    return ctx.emit(top.Relu, ctx.value())
"""

from __future__ import annotations

from npuc.arrays import Array
from npuc.frontend.caffe.blobs import Blobs
from npuc.frontend.caffe.layers import RawLayer
from npuc.frontend.caffe.message import CaffeMessage
from npuc.frontend.layered.context import LayerContext, LayerScope
from npuc.frontend.layered.network import NetworkLayer, Shape
from npuc.frontend.layered.registry import Rule
from npuc.frontend.rules import limits
from npuc.ir import Value
from npuc.registries import Lenient, Registry


class CaffeContext(LayerContext):
    """What a rule sees: its layer, the parameters of it, its blobs."""

    def __init__(self, layer: NetworkLayer, scope: LayerScope, blobs: Blobs) -> None:
        super().__init__(layer, scope)
        self.raw: RawLayer = layer.data
        self.blobs = blobs

    def parameters(self, name: str) -> CaffeMessage:
        """The message of parameters of a name, like `convolution_param`."""
        return self.raw.message.message(name)

    @property
    def blob_count(self) -> int | None:
        """How many blobs the layer has; None where weights are random."""
        return self.blobs.count(self.layer.name)

    def array(self, index: int, shape: Shape, role: str = "weight") -> Array:
        """Blob `index` under a shape."""
        return self.blobs.get(self.layer.name, index, shape, role)

    def weight(self, index: int, shape: Shape, role: str = "weight") -> Value:
        """Blob `index` as a constant."""
        return self.literal(self.array(index, shape, role), f"blob{index}")


RULES: Registry[str, Rule[CaffeContext]] = Registry(
    "an import rule for", provider="npuc.frontend.caffe.rules", lenient=Lenient.OWN
)
"""By type of layer."""
rule = RULES.register


def supported() -> dict[str, str]:
    """All layers that are imported, with their limits in words."""
    return limits(RULES)
