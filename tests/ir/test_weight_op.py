"""The verifier of weights: short for a sound one, and whatever is wrong with one is said."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from xdsl.dialects.builtin import StringAttr, UnrankedTensorType, f32
from xdsl.ir import Operation
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from npuc.errors import VerificationError
from npuc.ir import Graph, tensor_type, top


def network() -> tuple[Graph, Operation]:
    graph = Graph.empty([("x", tensor_type((2, 3), "f32"))])
    weight = graph.add_weight("w", np.ones((2, 3), np.float32))
    graph.block.add_op(weight)
    made = top.Add.make(graph.block.args[0], weight.output, name="y")
    graph.block.add_op(made)
    graph.set_outputs([("y", made.y)])
    return graph, weight


def without_reference(op: Operation) -> None:
    del op.properties["ref"]


def with_text(op: Operation) -> None:
    op.properties["ref"] = StringAttr("w")


def with_more(op: Operation) -> None:
    op.properties["more"] = StringAttr("w")


def of_unknown_rank(op: Operation) -> None:
    op.results[0]._type = UnrankedTensorType(f32)


def of_no_tensor(op: Operation) -> None:
    op.results[0]._type = f32


def with_an_operand(op: Operation) -> None:
    assert op.parent is not None
    op.operands = [op.parent.args[0]]


def test_a_sound_weight_is_accepted() -> None:
    graph, weight = network()
    weight.verify()
    graph.verify()


@pytest.mark.parametrize(
    "spoil", [without_reference, with_text, with_more, of_unknown_rank, of_no_tensor, with_an_operand]
)
def test_a_spoiled_weight_is_refused(spoil: Callable[[Operation], None]) -> None:
    graph, weight = network()
    spoil(weight)
    with pytest.raises((VerifyException, DiagnosticException)):
        weight.verify()
    with pytest.raises(VerificationError):
        graph.verify()


def test_a_weight_does_not_end_a_program() -> None:
    graph, weight = network()
    weight.detach()
    graph.block.add_op(weight)
    with pytest.raises((VerifyException, DiagnosticException), match="terminat"):
        weight.verify()
