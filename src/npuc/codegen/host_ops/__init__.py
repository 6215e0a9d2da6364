"""CPU subgraphs in host operators, for the C runtime: from the ONNX model of a subgraph to its section of a `.npu` file.

    @host_rule("Relu")
    def relu(node: Node, build: Builder) -> None: ...

A rule writes an ONNX node in the operators of `npuc.program.host_ops`, with every size and number worked out, so that the
interpreter in C (native/src/host.c) only computes. It raises `NoHostOperator` with the reason where C has nothing for a node;
the whole subgraph is then refused by C, with that reason.
"""

from npuc.codegen.host_ops.lower import host_section
from npuc.codegen.host_ops.rules import RULES, NoHostOperator

__all__ = ["RULES", "NoHostOperator", "host_section"]
