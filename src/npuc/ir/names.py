"""Layer names: every op carries the names its user knows it by, as MLIR locations.

The location of an op names its results: `loc("conv1_out")`, or `loc(fused["a", "b"])` for several. A name may carry the
name of the node that made it: `loc("conv1_out"("conv1"))`. The rule that passes keep: **a result has the name of the
tensor of the original network whose value it equals**, so that any tensor can be compared with the original by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, FusedLoc, LocationAttr, NameLoc, NoneAttr, StringAttr, UnknownLoc
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

Location = LocationAttr
_UNKNOWN = UnknownLoc()


def location(names: str | Sequence[str], layer: str | None = None) -> Location:
    """The location for results called `names`, made by the node called `layer`."""
    inner = NameLoc(StringAttr(layer), _UNKNOWN) if layer else _UNKNOWN
    names = (names,) if isinstance(names, str) else tuple(names)
    each = [NameLoc(StringAttr(name), inner) for name in names]
    return each[0] if len(each) == 1 else FusedLoc(ArrayAttr(each), NoneAttr())


def _each(loc: Attribute) -> list[Attribute]:
    if isinstance(loc, FusedLoc):
        assert isinstance(loc.locations, ArrayAttr)
        return list(loc.locations.data)
    return [loc]


def _text(loc: Attribute) -> str | None:
    return loc.desc.data if isinstance(loc, NameLoc) else None


def value_name(value: SSAValue) -> str:
    """The name of a value; empty if it has none."""
    if isinstance(value, BlockArgument):
        return _text(value.location) or ""
    assert isinstance(value, OpResult)
    parts = _each(value.op.location)
    return (_text(parts[value.index]) or "") if value.index < len(parts) else ""


def result_names(op: Operation) -> tuple[str, ...]:
    """The names of all results of an op."""
    return tuple(value_name(result) for result in op.results)


def layer_name(op: Operation) -> str:
    """The name of the node that an op came from, or of its first result if the node had none."""
    for part in _each(op.location):
        if isinstance(part, NameLoc):
            return _text(part.location) or part.desc.data
    return ""


def shown_name(op: Operation) -> str:
    """How all commands call a layer: by the tensor that it makes, which no two have in common; else by its node."""
    return next((name for name in result_names(op) if name), "") or layer_name(op)


def describe(op: Operation) -> str:
    """How an error message speaks of an op: its kind and the user's name for it."""
    name = layer_name(op)
    return f"{op.name} '{name}'" if name else op.name
