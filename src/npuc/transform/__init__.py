"""Top → Top passes, one module a pass; importing this package registers them all.

`CANONICAL` is the pipeline that brings a freshly imported network into canonical form, the form that the later stages
(calibration, quantization, scheduling) are written for. `canonicalize` runs it on a copy.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from npuc.errors import PassError, VerificationError
from npuc.ir.graph import Graph
from npuc.ir.passes import PASSES, PassEvent, run_pipeline

for _module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")

_ORDER = (
    # What plugins know becomes known before anything is made of it.
    "claim-custom-ops",
    # First what shrinks the graph, so that all that follows is cheaper.
    "eliminate-dead-code",
    "fold-constants",
    "remove-identities",
    "eliminate-common-subexpressions",
    # One spelling for arithmetic and movement, then the patterns that exporters spell out in primitives.
    "canonical-arithmetic",
    "merge-reshapes",
    "simplify-slices",
    "keep-reduced-axes",
    "recognize-softmax",
    "recognize-norms",
    "canonical-matmul",
    "recognize-attention",
    "recognize-pixel-shuffle",
    "recognize-channel-shuffle",
    # Movement out of the way, so that producers meet their consumers, and activations are whole.
    "move-permutes",
    "merge-reshapes",
    "move-reshapes",
    "recognize-activations",
    "canonical-pool",
    "fuse-pad",
    "fold-batch-norm",
    "fold-scale",
    "fuse-relu",
    # Layers are whole now: one spatial axis becomes two, and the reshapes for that cancel between neighbours.
    "canonical-conv",
    "keep-reduced-axes",
    "move-reshapes",
    "fold-scale",
    "fuse-relu",
    # What the folds left behind.
    "fold-constants",
    "simplify-slices",
    "remove-identities",
    "eliminate-common-subexpressions",
    "eliminate-dead-code",
)

CANONICAL = ",".join(name for name in _ORDER if name in PASSES)
"""The pipeline of the canonical form, as text for `npuc opt -p`."""


def canonicalize(
    graph: Graph, observe: Callable[[PassEvent], None] | None = None, *, verify_each: bool = False
) -> Graph:
    """A copy of the graph in canonical form; it computes the same outputs.

    The result is verified; `verify_each` verifies after every pass, which names the pass to blame and takes far longer.

    >>> from npuc.ir import Graph, tensor_type
    >>> graph = Graph.empty([("x", tensor_type((1, 3), "f32"))])
    >>> graph.set_outputs([("y", graph.inputs[0].value)])
    >>> canonicalize(graph).outputs[0].name
    'y'
    """
    result = run_pipeline(graph, CANONICAL, observe, verify=verify_each)
    if not verify_each:
        try:
            result.verify()
        except VerificationError as error:
            raise PassError(f"the canonical form is not valid: {error.message}") from error
    return result


__all__ = ["CANONICAL", "canonicalize"]
