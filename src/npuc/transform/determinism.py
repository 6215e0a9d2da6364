"""Which ops compute the same thing every time: only those may be folded, merged or moved across each other."""

from __future__ import annotations

from xdsl.ir import Operation

from npuc.ir.top import Onnx

_RANDOM = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
        "Dropout",
    }
)
_STANDARD_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")


def is_deterministic(op: Operation) -> bool:
    """True if equal operands always give equal results; a graph attribute may hide a random node, so it does not."""
    if not isinstance(op, Onnx):
        return True
    if op.op_type in _RANDOM or op.domain not in _STANDARD_DOMAINS:
        return False
    return not any(isinstance(value, dict) and "graph" in value for value in op.onnx_attributes.values())
