"""Sums that 32 bits do not hold: the scheduler asks for wide ones exactly where a sum of the layer could leave them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from npuc.ir import Graph, tensor_type
from npuc.ir.dtypes import QuantType
from npuc.schedule.rules.weights import _is_wide

END = 2**31


def wide(weights: list[int], bias: int | None, zero_point: int = 0, activation: int = 0) -> bool:
    graph = Graph.empty([("x", tensor_type((1, len(weights)), QuantType.of("i8", 0.1, activation)))])
    op = SimpleNamespace(x=graph.inputs[0].value)
    biases = None if bias is None else np.array([0, bias], np.int32)
    return _is_wide(op, np.array([np.zeros(len(weights)), weights], np.int8), zero_point, biases)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bias_near_the_end_leaves_room_for_the_products_only(sign: int) -> None:
    """An activation is at most 128 from its zero point, so that 3 weights of 1 take 384."""
    assert not wide([1, -1, 1, 0], sign * (END - 385))
    assert wide([1, -1, 1, 0], sign * (END - 384))


def test_zero_points_make_operands_larger() -> None:
    """Activations from -128 to 127 are up to 255 from a zero point at an end, and weights of 0 are 5 from theirs."""
    assert not wide([0, 0], END - 2 * 5 * 255 - 1, zero_point=5, activation=-128)
    assert wide([0, 0], END - 2 * 5 * 255, zero_point=5, activation=-128)
    assert wide([0, 0], END - 2 * 5 * 255, zero_point=-5, activation=127)


def test_weights_are_looked_at_where_their_type_alone_proves_nothing() -> None:
    many = END // (128 * 128)  # as many products of the largest operands reach the end
    assert wide([-128] * many, None)
    assert not wide([-128] * (many - 1), None)
    assert not wide([1] * many, None)
    assert not wide([1] * 4, None)
