"""Notes for tools on the layers of a subgraph: what each one is, and which others it reads.

Instructions know addresses only; a profile draws the network from these notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuc.schedule.layers import Tensor
from npuc.schedule.network import Network


def layer_notes(
    network: Network, first: int, inputs: Sequence[str], outputs: Sequence[str]
) -> dict[str, Any]:
    """`layers`: of each its kind, the type of its result, and what it reads, in numbers of the model's layer table (which it
    begins in at `first`) and names of tensors that others make. `makes`: each output and the number of the layer it is from.
    """
    origin: dict[Tensor, int | str] = {
        tensor.storage: name for tensor, name in zip(network.inputs, inputs, strict=True)
    }
    layers = []
    for number, layer in enumerate(network.layers, first):
        sources = [origin[operand.storage] for operand in layer.inputs if operand.storage in origin]
        result = layer.outputs[0]
        layers.append(
            [layer.kind, "x".join([*map(str, result.shape), result.dtype]), list(dict.fromkeys(sources))]
        )
        origin.update({tensor.storage: number for tensor in layer.outputs})
    makes = {}
    for tensor, name in zip(network.outputs, outputs, strict=True):
        last = network.joined.get(tensor, (tensor,))[-1]
        makes[name] = origin.get(last.storage)
    return {"layers": layers, "makes": makes}
