"""Ops that ONNX Runtime does not know, computed by Python functions.

A custom op of a network is a node of a domain of its own. Whoever knows it registers a kernel for it, and a model that
has such nodes is run in stretches: what lies between them by ONNX Runtime, they themselves by their kernels.

    def twice(arrays, attributes):
        return [arrays[0] * 2]

    register_kernel("mine", "twice", twice)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from npuc.arrays import Array
from npuc.registries import Lenient, Registry, fill

Kernel = Callable[[Sequence[Array], Mapping[str, Any]], Sequence[Array]]
"""From the operands and the attributes of a node to its results."""

KERNELS: Registry[tuple[str, str], Kernel] = Registry("a kernel of the custom op", lenient=Lenient.ALL)
"""By domain and op."""
FAMILIES: Registry[str, Callable[[str], Kernel | None]] = Registry(
    "a family of kernels of the domain", lenient=Lenient.ALL
)
"""By domain."""
_KNOWN = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "org.pytorch.aten")
_OWN = "com.microsoft"


def register_kernel(domain: str, op_type: str, kernel: Kernel, *, replace: bool = False) -> None:
    """Compute the ops of a name by a function."""
    KERNELS.add([(domain, op_type)], kernel, replace=replace)


def register_family(domain: str, find: Callable[[str], Kernel | None], *, replace: bool = False) -> None:
    """Compute the ops of a whole domain: `find` gives the kernel of an op, or None."""
    FAMILIES.add([domain], find, replace=replace)


def kernel_of(domain: str, op_type: str) -> Kernel | None:
    """The kernel of a custom op, or None."""
    kernel = KERNELS.get((domain, op_type))
    if kernel is None:
        fill(f"kernels of {domain}")
    if kernel is None and domain in FAMILIES:
        kernel = FAMILIES[domain](op_type)
    return kernel


def custom_nodes(model: Any) -> list[int]:
    """The places of the nodes of an ONNX model that ONNX Runtime does not know."""
    local = {(function.domain, function.name) for function in model.functions}
    return [
        index
        for index, node in enumerate(model.graph.node)
        if node.domain not in _KNOWN
        and not node.domain.startswith(_OWN)
        and (node.domain, node.op_type) not in local
    ]


def open_session(model: bytes, options: Any) -> Any:
    """A session for a model, with its custom ops if it has any; what counts is its method `run`."""
    import onnxruntime as ort

    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:
        # ONNX Runtime says of a custom op only that it is not registered.
        from onnx import ModelProto

        from npuc.kernels.stretched import StretchedSession

        proto = ModelProto.FromString(model)
        if custom_nodes(proto):
            return StretchedSession(proto, options)
        raise
