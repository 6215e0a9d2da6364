"""A plugin that takes subgraphs of ONNX models for the op of hard_glu.py: by the names of nodes, and by what they compute."""

from pathlib import Path

import npuc.plugins
from npuc.plugins.api import onnx_pattern, onnx_subgraph

npuc.plugins.load(Path(__file__).with_name("hard_glu.py"), installed=False)

# Named: all nodes below /block.0/glu, /block.1/glu, ... are one node each. The first of them makes the gate, the last uses it.
onnx_subgraph(
    "/block.*/glu",
    "com.example",
    "HardGlu",
    attributes=lambda nodes: {"slope": 1 / 6},
    inputs=lambda nodes: [nodes[-1].input[0], nodes[0].input[0]],
)


def slope(nodes):
    """The attributes of the new node; None leaves the nodes as they are."""
    attributes = {attribute.name: attribute.f for attribute in nodes[0].attribute}
    return {"slope": attributes.get("alpha", 0.2)} if attributes.get("beta", 0.5) == 0.5 else None


# By pattern: wherever a hard sigmoid gates another tensor, and nothing else reads the gate.
onnx_pattern(
    "com.example",
    "HardGlu(a, b)",
    """
    gate = HardSigmoid(b)
    y = Mul(a, gate)
    """,
    slope,
)
