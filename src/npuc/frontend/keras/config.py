"""The description of a network, in any dialect of Keras, as layers and the calls that join them.

Keras 1 and 2 write a call as a list of `[layer, call, tensor, arguments]`; Keras 3 writes its arguments as they are, with
tensors as dictionaries. A Sequential model is a chain. Here each is a `Network` whose calls have `Ref`s for tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from npuc.errors import InvalidModelError, ResourceLimitError, UnsupportedOpError

MAX_LAYERS = 10_000


@dataclass(frozen=True)
class Ref:
    """The tensor that a call of a layer gives."""

    layer: str
    call: int
    tensor: int
    shape: tuple[int, ...] | None = None
    """As far as the file states it, -1 where a size is open."""


@dataclass(frozen=True)
class Call:
    """One use of a layer: arguments with `Ref`s in them."""

    arguments: list[Any]
    keywords: dict[str, Any]


@dataclass(frozen=True)
class KerasLayer:
    """One layer, and its uses."""

    name: str
    kind: str
    """Its class; `ops.Add` for an operation that is no layer."""
    config: Mapping[str, Any]
    calls: list[Call]
    number: int = 0
    """How many layers of its class come before it."""
    class_name: str = ""


@dataclass(frozen=True)
class Network:
    """Layers by name, and where the network begins and ends."""

    layers: dict[str, KerasLayer]
    inputs: list[Ref]
    outputs: list[Ref]
    shapes: dict[tuple[str, int, int], tuple[int, ...]] = field(default_factory=dict)
    """Shapes that calls state of the tensors that they take."""


def is_model(description: Mapping[str, Any]) -> bool:
    """True if a layer is a network itself."""
    config = description.get("config")
    return (isinstance(config, dict) and isinstance(config.get("layers"), list)) or (
        isinstance(config, list) and description.get("class_name") == "Sequential"
    )


def read_network(description: Mapping[str, Any]) -> Network:
    """A model's description as a network."""
    kind = description.get("class_name")
    config = description.get("config")
    if not is_model(description):
        raise UnsupportedOpError(
            f"the model is a class of its own ('{str(kind)[:80]}'), whose code is not in the file",
            fix="Build it as a Functional or Sequential model, or give what model.export(FOLDER) writes",
        )
    listed = config if isinstance(config, list) else config["layers"]  # type: ignore[index]
    if len(listed) > MAX_LAYERS:
        raise ResourceLimitError(f"the model has {len(listed)} layers, more than {MAX_LAYERS}")
    entries = [_entry(item, index) for index, item in enumerate(listed)]
    if kind == "Sequential" or isinstance(config, list) or "input_layers" not in config:  # type: ignore[operator]
        return _chain(entries)
    return _joined(entries, config)  # type: ignore[arg-type]


def _entry(item: Any, index: int) -> dict[str, Any]:
    if not isinstance(item, dict) or not isinstance(item.get("class_name"), str):
        raise InvalidModelError(f"layer {index} has no class")
    config = item.get("config")
    if not isinstance(config, dict | list):
        raise InvalidModelError(f"layer {index} ({item['class_name'][:80]}) has no configuration")
    return item


def _name(item: Mapping[str, Any], index: int) -> str:
    inner = item["config"].get("name") if isinstance(item["config"], dict) else None
    name = item.get("name") or inner or f"layer_{index}"
    if not isinstance(name, str) or len(name) > 1000:
        raise InvalidModelError(f"layer {index} has no proper name")
    return name


def _kind(item: Mapping[str, Any]) -> str:
    module = item.get("module")
    name = str(item["class_name"]).rpartition(">")[2]
    if isinstance(module, str):
        operation = ".ops" in module and "layers" not in module
    else:
        # An .h5 file does not say where a class is from; but Keras 3 says of every layer whether it is trainable.
        settings = item["config"]
        operation = _is_new(item) and "trainable" not in settings and "dtype" not in settings
    return f"ops.{name}" if operation and not is_model(item) else name


def _is_new(item: Mapping[str, Any]) -> bool:
    """True if the calls of a layer are written as Keras 3 writes them."""
    nodes = item.get("inbound_nodes")
    return isinstance(nodes, list) and any(isinstance(node, dict) and "args" in node for node in nodes)


def _layers(entries: list[dict[str, Any]], calls: list[list[Call]]) -> dict[str, KerasLayer]:
    layers: dict[str, KerasLayer] = {}
    counts: dict[str, int] = {}
    for index, (item, own) in enumerate(zip(entries, calls, strict=True)):
        name, kind = _name(item, index), _kind(item)
        if name in layers:
            raise InvalidModelError(f"two layers are called '{name}'")
        class_name = str(item["class_name"]).rpartition(">")[2]
        number = counts.get(class_name, 0) if not kind.startswith("ops.") else 0
        if not kind.startswith("ops."):
            counts[class_name] = number + 1
        config = item["config"] if isinstance(item["config"], dict) else {"layers": item["config"]}
        if is_model(item):
            config, kind = {"description": item}, "Model"
        layers[name] = KerasLayer(name, kind, config, own, number, class_name)
    return layers


def _chain(entries: list[dict[str, Any]]) -> Network:
    """A Sequential model: an input of its own is made where the first layer is none."""
    if not entries:
        raise InvalidModelError("the model has no layers")
    if entries[0]["class_name"] != "InputLayer":
        first = entries[0]["config"]
        inner = first if isinstance(first, dict) else {}
        shape = inner.get("batch_input_shape") or inner.get("batch_shape")
        dtype = inner.get("dtype") if entries[0]["class_name"] != "Embedding" else "int32"
        if shape is None and is_model(entries[0]):
            nested = read_network(entries[0])
            own = nested.layers[nested.inputs[0].layer].config if nested.inputs else {}
            shape, dtype = own.get("batch_input_shape") or own.get("batch_shape"), own.get("dtype")
        name = f"{_name(entries[0], 0)}_input"
        config = {"name": name, "batch_input_shape": shape, "dtype": dtype}
        entries = [{"class_name": "InputLayer", "name": name, "config": config}, *entries]
    names = [_name(item, index) for index, item in enumerate(entries)]
    calls = [[Call([Ref(names[i - 1], 0, 0)] if i else [], {})] for i in range(len(entries))]
    return Network(_layers(entries, calls), [Ref(names[0], 0, 0)], [Ref(names[-1], 0, 0)])


def _joined(entries: list[dict[str, Any]], config: Mapping[str, Any]) -> Network:
    shapes: dict[tuple[str, int, int], tuple[int, ...]] = {}
    calls = []
    for index, item in enumerate(entries):
        nodes = item.get("inbound_nodes") or []
        if not isinstance(nodes, list):
            raise InvalidModelError(f"the calls of layer '{_name(item, index)}' are no list")
        own = [_call(node, shapes) for node in nodes]
        calls.append(own or [Call([], {})])
    layers = _layers(entries, calls)
    outputs = _ports(config.get("output_layers"))
    if any(_is_new(item) for item in entries):
        outputs = [_external(ref, layers) for ref in outputs]
    return Network(layers, _ports(config.get("input_layers")), outputs, shapes)


def _external(ref: Ref, layers: Mapping[str, KerasLayer]) -> Ref:
    """Keras 3 counts the calls of a Functional model from 1 where it names the outputs of the model around."""
    layer = layers.get(ref.layer)
    if layer is None or layer.kind != "Model" or layer.class_name == "Sequential":
        return ref
    return replace(ref, call=ref.call - 1 if ref.call else len(layer.calls) - 1)


def _call(node: Any, shapes: dict[tuple[str, int, int], tuple[int, ...]]) -> Call:
    if isinstance(node, dict) and "args" in node:
        arguments, keywords = (
            _resolved(node.get("args", []), shapes),
            _resolved(node.get("kwargs", {}), shapes),
        )
        if isinstance(arguments, list) and isinstance(keywords, dict):
            return Call(arguments, keywords)
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list):
        if node and isinstance(node[0], str):
            node = [node]
        refs, keywords = [], {}
        for item in node:
            if not isinstance(item, list) or len(item) < 3:
                raise InvalidModelError("a call of a layer is not written as Keras writes them")
            refs.append(item[2] if item[0] == "_CONSTANT_VALUE" else _ref(item))
            if len(item) > 3 and isinstance(item[3], dict):
                keywords.update({key: _tensors(value) for key, value in item[3].items()})
        return Call([refs] if len(refs) > 1 else refs, keywords)
    raise InvalidModelError("a call of a layer is not written as Keras writes them")


def _ref(item: Any, shape: tuple[int, ...] | None = None) -> Ref:
    layer, call, tensor = item[:3]
    if not isinstance(layer, str) or not isinstance(call, int) or not isinstance(tensor, int):
        raise InvalidModelError("a call of a layer is not written as Keras writes them")
    return Ref(layer, call, tensor, shape)


def _tensors(value: Any) -> Any:
    """A keyword of Keras 2: a tensor is a list that begins with the name of a layer."""
    if isinstance(value, list) and len(value) in (3, 4) and isinstance(value[0], str):
        return value[2] if value[0] == "_CONSTANT_VALUE" else _ref(value)
    return [_tensors(item) for item in value] if isinstance(value, list) else value


def _resolved(value: Any, shapes: dict[tuple[str, int, int], tuple[int, ...]]) -> Any:
    """Arguments of Keras 3 with `Ref`s in place of its tensors."""
    if isinstance(value, list):
        return [_resolved(item, shapes) for item in value]
    if not isinstance(value, dict):
        return value
    kind, config = value.get("class_name"), value.get("config")
    if kind == "__keras_tensor__" and isinstance(config, dict):
        history = config.get("keras_history")
        if not isinstance(history, list) or len(history) != 3:
            raise InvalidModelError("a tensor does not say which layer made it")
        stated = config.get("shape")
        shape = None
        if isinstance(stated, list) and all(n is None or isinstance(n, int) for n in stated):
            shape = tuple(-1 if n is None else n for n in stated)
            shapes[(str(history[0]), int(history[1]), int(history[2]))] = shape
        return _ref(history, shape)
    if kind == "__tuple__" or kind == "__list__":
        items = value.get("items") or value.get("config") or []
        return [_resolved(item, shapes) for item in items]
    return {key: _resolved(item, shapes) for key, item in value.items()}


def _ports(listed: Any) -> list[Ref]:
    """Inputs or outputs: one `[layer, call, tensor]`, or any nest of them."""
    if isinstance(listed, dict):
        listed = list(listed.values())
    if not isinstance(listed, list):
        raise InvalidModelError("the model does not say which layers it begins and ends with")
    if len(listed) == 3 and isinstance(listed[0], str) and isinstance(listed[1], int):
        return [_ref(listed)]
    return [ref for item in listed for ref in _ports(item)]
