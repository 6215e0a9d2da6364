"""A plugin with rules of the house: what a verifier refuses, and a step of the quantization ladder."""

from dataclasses import replace

from npuc.ir import layer_name
from npuc.plugins.api import shape_of, step, top, verifier

MOST_CLASSES = 65536


@verifier("wide-softmax")
def narrow_softmax(graph):
    """A softmax has at most so many classes."""
    for op in graph.ops:
        if isinstance(op, top.Softmax) and shape_of(op.x)[op.axis] > MOST_CLASSES:
            yield f"layer '{layer_name(op)}': a softmax over {shape_of(op.x)[op.axis]} classes"


@step("wide-outputs", "16 bits for the layers that make an output", 90)
class WideOutputs:
    """The ladder keeps it only if it helps on samples that it has not seen."""

    def propose(self, best, context):
        """The best network so far, requantized."""
        last = {port.value.owner for port in best.source.outputs}

        def scheme_of(op):
            scheme = best.scheme_of(op)
            return replace(scheme, activation="i16") if scheme is not None and op in last else scheme

        return context.requantized(best.source, scheme_of, (*best.notes, "outputs of 16 bits"))
