"""Checker plugins (`AIPUBuilder.core._checker`): each looks at the layers of one type of an IR, and tells what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from npuc.compat.compass.builder_plugins import Node, OpTypeName, Tensor, TensorShape
from npuc.compat.compass.parser_plugins import PLUGINS
from npuc.errors import InvalidModelError, PluginError
from npuc.export.compass.text import CompassLayer, parse_value
from npuc.frontend.compass.reader import read_text


class IRErrorType(Enum):
    """What is wrong with a parameter."""

    MissingParam = "is missing"
    InvalidParam = "is invalid"


@dataclass(frozen=True)
class IRError:
    """A fault of a layer."""

    type: IRErrorType
    key: str
    message: str = ""


class CheckerOpPlugin:
    """What a checker derives from."""

    def get_op_type(self) -> OpTypeName:
        """The type of the layers that it checks."""
        raise NotImplementedError

    def check(self, node: Node) -> list[IRError]:
        """What is wrong with a layer."""
        return []

    def infer_shape(self, node: Node) -> list[TensorShape]:
        """The shapes of its results; empty if it does not tell."""
        return []


def check_layers(path: Path) -> None:
    """Run the checkers over the layers of an IR; the first fault is an error."""
    checkers = [cls() for (kind, _), cls in PLUGINS.items() if kind == "Checker"]
    if not checkers:
        return
    for layer in read_text(path).layers:
        for checker in checkers:
            if str(checker.get_op_type()) != layer.kind:
                continue
            node = node_of(layer)
            try:
                faults, shapes = checker.check(node) or [], checker.infer_shape(node) or []
            except Exception as error:
                raise PluginError(
                    f"{type(checker).__name__} failed: {type(error).__name__}: {error}"
                ) from error
            for fault in faults:
                raise InvalidModelError(
                    f"layer '{layer.name}' ({layer.kind}): {fault.key} {fault.type.value}: {fault.message}",
                    where=str(path),
                )
            stated = [tuple(tensor.shape) for tensor in node.outputs]
            if shapes and [tuple(shape) for shape in shapes] != stated:
                raise InvalidModelError(
                    f"layer '{layer.name}' ({layer.kind}): its results are {stated}, and {type(checker).__name__} infers "
                    f"{[tuple(shape) for shape in shapes]}",
                    where=str(path),
                )


def node_of(layer: CompassLayer) -> Node:
    """A layer of an IR as plugins see it."""
    constants = layer.constants()
    own = [f"{key}_{part}" for key in constants for part in ("type", "shape", "offset", "size")]
    params = {
        key: parse_value(text, key)
        for key, text in layer.values.items()
        if not key.startswith("layer_") and key not in own
    }
    return Node(
        layer.name,
        OpTypeName(layer.kind),
        params,
        {"layer_id": layer.values.get("layer_id", "")},
        dict.fromkeys(constants),
        _tensors(layer, "bottom"),
        _tensors(layer, "top"),
    )


def _tensors(layer: CompassLayer, end: str) -> list[Tensor]:
    shapes = layer.nested(f"layer_{end}_shape")
    kinds = layer.names(f"layer_{end}_type")
    return [
        Tensor(name, TensorShape(int(str(side)) for side in shape), kind)
        for name, shape, kind in zip(layer.names(f"layer_{end}"), shapes, kinds, strict=False)
    ]


__all__ = ["CheckerOpPlugin", "IRError", "IRErrorType", "OpTypeName"]
