"""Nodes that are no arithmetic: constants, variables, calls, branches and loops.

They steer what is walked (`npuc.frontend.tensorflow.body`), and none of them is left in the imported network.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tensorflow.body import Body
from npuc.frontend.tensorflow.graph import TensorflowNode
from npuc.frontend.tensorflow.loops import chosen_branch, decided, leave
from npuc.frontend.tensorflow.meaning import DEAD, Dead, Meaning, Text, Variable, tensor
from npuc.frontend.tensorflow.tensors import STRING
from npuc.frontend.tensorflow.walker import Walker, structure
from npuc.ir import top

# Constants, inputs, variables


@structure("Const")
def _const(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """Numbers; text only where nothing but text is made of it."""
    if node.type_code("dtype") == STRING:
        return [Text(tuple(node.strings()))]
    return [LayoutTensor(weight=node.tensor(), name=body.name(node))]


@structure("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")
def _placeholder(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """An input of the network; one with a default is that constant, unless --inputs names it."""
    return [inputs[0]] if inputs else [walker.placeholder(body, node)]


@structure("VarHandleOp", "VariableV2", "Variable")
def _variable(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """A variable, with its value from the checkpoint of a SavedModel, or from one beside a graph."""
    return [Variable(node)]


@structure("ReadVariableOp")
def _read(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """The value of a variable, as the checkpoint has it."""
    (given,) = inputs[:1]
    if isinstance(given, Dead):
        return [DEAD]
    if not isinstance(given, Variable):
        return [tensor(node, given, 0)]
    return [LayoutTensor(weight=walker.variable(given.node), name=given.node.name)]


@structure("ResourceGather")
def _resource_gather(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """Rows of a variable, as an embedding reads them."""
    (table,) = _read(walker, body, node, inputs[:1])
    if isinstance(table, Dead) or isinstance(inputs[1], Dead):
        return [DEAD]
    c = walker.builder
    rows = c.emit(top.Gather, c.value(tensor(node, table, 0)), c.value(tensor(node, inputs[1], 1)), axis=0).y
    return [LayoutTensor(rows)]


@structure(
    "Identity",
    "IdentityN",
    "StopGradient",
    "PreventGradient",
    "CheckNumerics",
    "Snapshot",
    "EnsureShape",
    "Enter",
    "RefEnter",
    "LoopCond",
    "NextIteration",
    "RefNextIteration",
    "RefIdentity",
)
def _same(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """What comes in goes out."""
    if node.op == "Identity" and inputs and isinstance(inputs[0], Variable):
        return _read(walker, body, node, inputs)
    return list(inputs)


# Branches, loops, calls


@structure("Switch", "RefSwitch")
def _switch(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """One of two ways; the condition must be constant."""
    data, condition = inputs[:2]
    if isinstance(data, Dead) or isinstance(condition, Dead):
        return [DEAD, DEAD]
    return [DEAD, data] if decided(condition, node) else [data, DEAD]


@structure("Merge", "RefMerge")
def _merge(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """The way that was taken."""
    taken = [(index, item) for index, item in enumerate(inputs) if not isinstance(item, Dead)]
    if not taken:
        return [DEAD, DEAD]
    index, item = taken[0]
    return [item, walker.builder.constant(np.array(index, np.int32))]


@structure("Exit", "RefExit")
def _exit(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """A loop whose number of turns is known at import, written out."""
    return [leave(body, node)]


def _call(
    walker: Walker,
    body: Body,
    node: TensorflowNode,
    name: str,
    arguments: Sequence[Meaning],
    suffix: str = "",
) -> list[Meaning]:
    function = walker.called(name, node)
    if len(arguments) != len(function.arguments):
        raise InvalidModelError(
            f"{node.label} gives {len(arguments)} arguments to '{name}', which takes {len(function.arguments)}"
        )
    scope = re.sub(r"(^|/)(Stateful)?(PartitionedCall|While|If|Case)(_\d+)?$", "", node.name)
    prefix = body.prefix if not scope else f"{body.prefix}{scope}/"
    given = dict(zip(function.arguments, arguments, strict=True))
    inner = body.inner(function.nodes, prefix, given, node)
    inner.suffix = body.suffix + suffix
    inner.walk(value for _, value in function.results)
    return [inner.meaning(value) for _, value in function.results]


@structure("PartitionedCall", "StatefulPartitionedCall")
def _partitioned(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """A function, written out where it is called."""
    return _call(walker, body, node, node.function("f"), inputs)


@structure("If", "StatelessIf")
def _if(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """One of two functions; the condition must be constant."""
    name = "then_branch" if decided(inputs[0], node) else "else_branch"
    return _call(walker, body, node, node.function(name), inputs[1:])


@structure("Case", "StatelessCase")
def _case(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """One of several functions; its number must be constant."""
    branches = node.functions("branches")
    return _call(walker, body, node, branches[chosen_branch(inputs[0], node, len(branches))], inputs[1:])


@structure("While", "StatelessWhile")
def _while(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """A loop whose number of turns is known at import, written out."""
    state, count = list(inputs), 0
    while decided(_call(walker, body, node, node.function("cond"), state, f"[{count}]")[0], node):
        state = _call(walker, body, node, node.function("body"), state, f"[{count}]")
        body.budget.spend(node)
        count += 1
    return state
