"""What selects: the first elements in order, and non-maximum suppression, whose number of results depends on the data."""

from __future__ import annotations

from npuc.codegen.host_ops.builder import Builder
from npuc.codegen.host_ops.rules import Node, NoHostOperator, axis_of, host_rule


@host_rule("TopK")
def top_k(node: Node, build: Builder) -> None:
    """The largest or smallest elements; how many may be known only at run time."""
    x, count = node.input(0), node.input(1)
    axis = axis_of(node.attribute("axis", -1), len(x.shape))
    shape = list(x.shape)
    rows, least = (None, 0) if axis == 0 else (x.rows, x.least_rows)
    if count.array is not None:
        shape[axis] = int(count.array.reshape(()))
        if axis == 0 and x.rows is not None and x.least_rows < shape[0]:
            raise NoHostOperator("it may have fewer elements than are asked for")
    elif axis:
        raise NoHostOperator("how many elements are asked for is not a constant")
    else:
        rows = build.view(count, (1,))
    values = node.bind(build.tensor(x.dtype, shape, rows, least), 0)
    places = node.bind(build.tensor("i64", shape, rows, least), 1)
    scratch = build.tensor("i64", (x.shape[axis],))
    build.add("top_k", [x, scratch], [values, places], axis, node.attribute("largest", 1))


@host_rule("NonMaxSuppression")
def non_maximum_suppression(node: Node, build: Builder) -> None:
    """Selected boxes, as many as there are: the result has room for all that there can be."""
    boxes, scores = node.static(0), node.static(1)
    batches, classes, each = scores.shape
    most = node.given(2)
    if most is not None and most.array is not None:
        each = min(each, int(most.array.reshape(())))
    if each < 1 or most is None:
        raise NoHostOperator("it selects nothing")
    count = build.tensor("i64", (1,))
    y = node.bind(build.tensor("i64", (batches * classes * each, 3), count))
    scratch = build.tensor("i64", (scores.shape[2],))
    operands = [boxes, scores, *(node.given(k) for k in (2, 3, 4)), scratch]
    build.add("nms", operands, [y, count], node.attribute("center_point_box", 0))
