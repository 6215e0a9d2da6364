"""ONNX attributes as values that the IR can hold, and back.

`top.onnx` keeps the attributes of a node that npuc has no form for. Numbers, strings and non-empty lists of them are
plain Python values; what those cannot say without doubt (protobufs, empty lists, bytes that are not text) is a
dictionary with one key that names its kind. The importer encodes, the exporter decodes, and nobody else looks inside.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto

from npuc.errors import InvalidModelError

_MESSAGES: dict[str, tuple[Any, str]] = {
    "tensor": (AttributeProto.TENSOR, "t"),
    "graph": (AttributeProto.GRAPH, "g"),
    "sparse_tensor": (AttributeProto.SPARSE_TENSOR, "sparse_tensor"),
    "type": (AttributeProto.TYPE_PROTO, "tp"),
}
_MESSAGE_LISTS: dict[str, tuple[Any, str]] = {
    "tensors": (AttributeProto.TENSORS, "tensors"),
    "graphs": (AttributeProto.GRAPHS, "graphs"),
    "sparse_tensors": (AttributeProto.SPARSE_TENSORS, "sparse_tensors"),
    "types": (AttributeProto.TYPE_PROTOS, "type_protos"),
}


def _pack(message: Message) -> str:
    return b64encode(message.SerializeToString(deterministic=True)).decode("ascii")


def _text(value: bytes) -> str | None:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def encode_attribute(attribute: AttributeProto) -> Any:
    """The value that stands for an attribute in `onnx_attributes`.

    >>> encode_attribute(AttributeProto(name="axes", type=AttributeProto.INTS, ints=[1, 2]))
    (1, 2)
    >>> encode_attribute(AttributeProto(name="mode", type=AttributeProto.STRING, s=b"linear"))
    'linear'
    """
    match attribute.type:
        case AttributeProto.INT:
            return int(attribute.i)
        case AttributeProto.FLOAT:
            return float(attribute.f)
        case AttributeProto.STRING:
            text = _text(attribute.s)
            return {"bytes": b64encode(attribute.s).decode("ascii")} if text is None else text
        case AttributeProto.INTS:
            return tuple(int(x) for x in attribute.ints) or {"ints": ()}
        case AttributeProto.FLOATS:
            return tuple(float(x) for x in attribute.floats) or {"floats": ()}
        case AttributeProto.STRINGS:
            texts = [_text(x) for x in attribute.strings]
            if None in texts:
                return {"bytes_list": tuple(b64encode(x).decode("ascii") for x in attribute.strings)}
            return tuple(texts) or {"strings": ()}
    for key, (kind, field) in _MESSAGES.items():
        if attribute.type == kind:
            return {key: _pack(getattr(attribute, field))}
    for key, (kind, field) in _MESSAGE_LISTS.items():
        if attribute.type == kind:
            return {key: tuple(_pack(message) for message in getattr(attribute, field))}
    raise InvalidModelError(f"attribute '{attribute.name}' has no type that ONNX knows ({attribute.type})")


def decode_attribute(name: str, value: Any) -> AttributeProto:
    """The attribute that an encoded value stands for.

    >>> decode_attribute("axes", (1, 2)).ints
    [1, 2]
    """
    attribute = AttributeProto(name=name)
    try:
        _fill(attribute, value)
    except (ValueError, TypeError, DecodeError) as error:
        raise InvalidModelError(f"attribute '{name}' cannot be decoded: {error}") from error
    return attribute


def _fill(attribute: AttributeProto, value: Any) -> None:
    match value:
        case bool() | int():
            attribute.type, attribute.i = AttributeProto.INT, int(value)
        case float():
            attribute.type, attribute.f = AttributeProto.FLOAT, value
        case str():
            attribute.type, attribute.s = AttributeProto.STRING, value.encode("utf-8")
        case tuple() | list():
            _fill_list(attribute, value)
        case {"bytes": str(text)}:
            attribute.type, attribute.s = AttributeProto.STRING, b64decode(text, validate=True)
        case {"bytes_list": tuple(texts)}:
            attribute.type = AttributeProto.STRINGS
            attribute.strings.extend(b64decode(text, validate=True) for text in texts)
        case {"ints": ()}:
            attribute.type = AttributeProto.INTS
        case {"floats": ()}:
            attribute.type = AttributeProto.FLOATS
        case {"strings": ()}:
            attribute.type = AttributeProto.STRINGS
        case dict() if len(value) == 1:
            _fill_messages(attribute, *next(iter(value.items())))
        case _:
            raise ValueError(f"{type(value).__name__} is no ONNX attribute")


def _fill_list(attribute: AttributeProto, value: Sequence[Any]) -> None:
    if value and all(isinstance(item, int) for item in value):
        attribute.type = AttributeProto.INTS
        attribute.ints.extend(value)
    elif value and all(isinstance(item, float) for item in value):
        attribute.type = AttributeProto.FLOATS
        attribute.floats.extend(value)
    elif value and all(isinstance(item, str) for item in value):
        attribute.type = AttributeProto.STRINGS
        attribute.strings.extend(item.encode("utf-8") for item in value)
    else:
        raise ValueError("a list of one kind of value was expected, and an empty one must name its kind")


def _fill_messages(attribute: AttributeProto, key: str, value: Any) -> None:
    if key in _MESSAGES:
        kind, field = _MESSAGES[key]
        getattr(attribute, field).ParseFromString(b64decode(value, validate=True))
    elif key in _MESSAGE_LISTS:
        kind, field = _MESSAGE_LISTS[key]
        for text in value:
            getattr(attribute, field).add().ParseFromString(b64decode(text, validate=True))
    else:
        raise ValueError(f"'{key}' is no kind of attribute")
    attribute.type = kind


__all__ = ["decode_attribute", "encode_attribute"]
