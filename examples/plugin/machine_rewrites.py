"""A plugin with rewrites for a machine: one of the float network, before calibration, and one of the integer network."""

from npuc.plugins.api import target_rewrite, top


def forward(graph, op, value):
    """Let everything that reads an op's result read this value instead, and take the op away."""
    op.results[0].replace_all_uses_with(value)
    graph.block.erase_op(op)


@target_rewrite("drop-factors-of-one", "edge-*", stage="float")
def drop_factors(graph, target):
    """x * 1 is x; the machines of this family have no free multiplication for it."""
    for op in list(graph.ops):
        factor = graph.constant(op.b) if isinstance(op, top.Mul) and not op.relu else None
        if factor is not None and (factor == 1).all() and op.results[0].type == op.a.type:
            forward(graph, op, op.a)


@target_rewrite("drop-windows-of-one", "edge-*")
def drop_windows(graph, target):
    """A maximum over one element at every place is that element."""
    for op in list(graph.ops):
        if (
            isinstance(op, top.MaxPool)
            and {*op.kernel, *op.strides} == {1}
            and op.results[0].type == op.x.type
        ):
            forward(graph, op, op.x)
