"""Loops of TensorFlow 1, which are drawn into the graph: Enter, Merge, Switch, NextIteration, Exit.

A loop variable is a Merge of what comes in (Enter) and what the last turn made (NextIteration); a Switch on the loop's
condition sends it into the body or out (Exit). The loop is written out: its condition has to be known at import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npuc.errors import InvalidModelError, UnsupportedOpError
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tensorflow.body import Body
from npuc.frontend.tensorflow.graph import TensorflowNode, readers_of
from npuc.frontend.tensorflow.meaning import Meaning

_MERGE, _ENTER, _NEXT = ("Merge", "RefMerge"), ("Enter", "RefEnter"), ("NextIteration", "RefNextIteration")
_SWITCH, EXIT = ("Switch", "RefSwitch"), ("Exit", "RefExit")


def _maker(nodes: Mapping[str, TensorflowNode], tensor: str, *ops: str) -> TensorflowNode | None:
    node = nodes.get(tensor.partition(":")[0])
    return node if node is not None and node.op in ops else None


def _parts(
    nodes: Mapping[str, TensorflowNode], merge: TensorflowNode
) -> tuple[TensorflowNode, TensorflowNode] | None:
    """The Enter and the NextIteration that a Merge of a loop joins."""
    if len(merge.data_inputs) != 2:
        return None
    enter = next((n for t in merge.data_inputs if (n := _maker(nodes, t, *_ENTER))), None)
    following = next((n for t in merge.data_inputs if (n := _maker(nodes, t, *_NEXT))), None)
    return None if enter is None or following is None else (enter, following)


def _of_exit(
    nodes: Mapping[str, TensorflowNode], leave: TensorflowNode
) -> tuple[TensorflowNode, TensorflowNode] | None:
    """The Merge whose value an Exit hands on, and the condition."""
    switch = _maker(nodes, leave.data_inputs[0], *_SWITCH) if leave.data_inputs else None
    if switch is None or len(switch.data_inputs) != 2:
        return None
    merge = _maker(nodes, switch.data_inputs[0], *_MERGE)
    condition = _maker(nodes, switch.data_inputs[1], "LoopCond")
    return None if merge is None or condition is None else (merge, condition)


def _members(
    body: Body, merges: Mapping[str, tuple[TensorflowNode, TensorflowNode]], leaving: TensorflowNode
) -> frozenset[str]:
    """The nodes that a loop variable reaches, up to the exits of the loop."""
    nodes, readers = body.nodes, body.budget.once("readers", body.nodes, readers_of)
    members: set[str] = set(merges)
    pending = list(merges)
    while pending:
        for node in readers.get(pending.pop(), ()):
            body.budget.look(leaving)
            if node.name in members:
                continue
            if node.op in EXIT:
                left = _of_exit(nodes, node)
                if left is not None and left[0].name in merges:
                    continue
            members.add(node.name)
            pending.append(node.name)
    return frozenset(members)


def leave(body: Body, node: TensorflowNode) -> Meaning:
    """What an Exit means: the loop is written out when the first of its exits is asked for."""
    nodes = body.nodes
    left = _of_exit(nodes, node)
    joined = None if left is None else _parts(nodes, left[0])
    if left is None or joined is None:
        raise InvalidModelError(f"{node.label} leaves a loop that is not drawn as loops are")
    frame = joined[0].text("frame_name")
    if frame not in body.loops:
        body.loops[frame] = _run(body, frame, left[1], node)
    return body.loops[frame][left[0].name]


def _frames(
    nodes: Mapping[str, TensorflowNode],
) -> dict[str, dict[str, tuple[TensorflowNode, TensorflowNode]]]:
    """The variables of all loops, by frame: Merge nodes, and the Enter and the NextIteration that each joins."""
    frames: dict[str, dict[str, tuple[TensorflowNode, TensorflowNode]]] = {}
    for node in nodes.values():
        parts = _parts(nodes, node) if node.op in _MERGE else None
        if parts is not None:
            frames.setdefault(parts[0].text("frame_name"), {})[node.name] = parts
    return frames


def _run(body: Body, frame: str, condition: TensorflowNode, node: TensorflowNode) -> Mapping[str, Meaning]:
    merges = body.budget.once("frames", body.nodes, _frames)[frame]
    members = _members(body, merges, node)
    state = {name: body.meaning(enter.data_inputs[0]) for name, (enter, _) in merges.items()}
    count = 0
    while True:
        turn = body.turn(members, state, f"{body.suffix}[{count}]", node)
        if not decided(turn.meaning(condition.data_inputs[0]), node):
            return state
        state = {name: turn.meaning(following.data_inputs[0]) for name, (_, following) in merges.items()}
        body.budget.spend(node)
        count += 1


def decided(meaning: Meaning, node: TensorflowNode) -> bool:
    """A condition that is known."""
    return bool(_known(meaning, node, "condition"))


def chosen_branch(meaning: Meaning, node: TensorflowNode, count: int) -> int:
    """Which of so many branches is taken; TensorFlow takes the last for a number that none has."""
    number = int(_known(meaning, node, "branch"))
    return number if 0 <= number < count else count - 1


def _known(meaning: Meaning, node: TensorflowNode, what: str) -> Any:
    array = meaning.array if isinstance(meaning, LayoutTensor) else None
    if array is None or array.size != 1:
        raise UnsupportedOpError(
            f"{node.label} has no form in npuc: its {what} is computed at run time",
            fix="If it depends on a placeholder, give that a value with --constant NAME=VALUE; else cut the network before "
            "it with --outputs",
        )
    return array.reshape(-1)[0]
