"""Keras to Top IR: from the outputs back to what they need, call by call.

A layer that has no rule becomes a custom op of the domain `npuc.keras`, with its plain settings and its weights kept. Code
that a file brings along (Lambda layers) is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from npuc.errors import (
    InvalidModelError,
    ResourceLimitError,
    UnknownTensorError,
    UnsupportedOpError,
    UsageError,
)
from npuc.frontend.keras.archive import Archive, open_archive
from npuc.frontend.keras.config import MAX_LAYERS, Call, KerasLayer, Network, Ref, is_model, read_network
from npuc.frontend.keras.custom import custom
from npuc.frontend.keras.inputs import declared_shape, input_type
from npuc.frontend.keras.masks import Masks
from npuc.frontend.keras.registry import KerasContext, find_rule, tensors_in
from npuc.frontend.keras.weights import KerasWeights
from npuc.frontend.layout import Absent, ChannelsLastBuilder, LayoutTensor
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import check_inputs, input_constant, input_shape
from npuc.frontend.support import Names, check_names, erase_dead, guarded
from npuc.ir import DType, Graph, dtype_of, tensor_type
from npuc.ir.definition import ShapeError
from npuc.words import counted

_DEPTH = 32


def import_keras(path: Path | str, options: ImportOptions | None = None) -> Graph:
    """Import a `.keras` or `.h5` model; the result is verified, not yet canonical."""
    options = options or ImportOptions()
    return guarded(path, lambda: _imported(_KerasImporter(open_archive(path, options.weights), options)))


def _imported(importer: _KerasImporter) -> Graph:
    """The graph; where sizes that the file fixes were replaced and the layers do not take them, that is told first."""
    try:
        graph = importer.run()
    except InvalidModelError as error:
        if not importer.replaced:
            raise
        raise UsageError(
            f"--input-shape: {importer.replaced[0]}, and its layers do not take that: {error.message}",
            where=error.where,
            fix="Give sizes that all layers take, or leave the option out",
        ) from error
    graph.notes.extend(f"{words}, as asked" for words in importer.replaced)
    return graph


@dataclass
class _Level:
    """A network under way: the model itself, or one that is a layer of another."""

    network: Network
    weights: KerasWeights
    prefix: str = ""
    depth: int = 0
    given: dict[str, LayoutTensor] = field(default_factory=dict)
    """What its input layers mean."""
    outputs: dict[tuple[str, int], list[LayoutTensor]] = field(default_factory=dict)
    """By layer and number of the call, what was translated so far."""


class _KerasImporter:
    def __init__(self, archive: Archive, options: ImportOptions) -> None:
        self.archive = archive
        self.options = options
        self.network = read_network(archive.config)
        self.known: dict[str, LayoutTensor] = {}
        """Everything that was made, by the names that users know."""
        self.notes: list[str] = []
        self.replaced: list[str] = []
        """Sizes that the file fixes and --input-shape replaces, in words."""
        self.unknown: list[str] = []
        self.calls = 0
        self.inner: dict[int, Network] = {}
        """Models that are layers, by their description: one may be called often."""
        self.masks = Masks()
        self.builder = ChannelsLastBuilder(Graph.empty([]))
        self.begins: dict[str, LayoutTensor] = {}
        names = Names()
        for ref in (*self.network.inputs, *self.network.outputs):
            if ref.layer not in self.network.layers:
                raise InvalidModelError(
                    f"there is no layer '{ref.layer}', which the model begins or ends with"
                )
        self.ends = [(names.unique(_tensor_name(ref.layer, ref.tensor)), ref) for ref in self.network.outputs]

    # Ports

    def _before(self) -> Mapping[str, LayoutTensor]:
        """The tensors of the whole network: the shapes of those at which a user cuts."""
        own = {ref.layer for ref in self.network.inputs}
        shapes = {name: shape for name, shape in self.options.input_shapes.items() if name in own}
        plain = replace(self.options, inputs=(), outputs=(), input_shapes=shapes, preprocess={})
        whole = _KerasImporter(self.archive, plain)
        whole.run()
        return whole.known

    def _types(
        self, names: Sequence[str], before: Mapping[str, LayoutTensor]
    ) -> list[tuple[tuple[int, ...], DType]]:
        types = []
        for name in names:
            given_shape = self.options.input_shapes.get(name)
            layer = self.network.layers.get(name)
            if layer is not None and layer.kind == "InputLayer":
                shape = input_shape(
                    name, declared_shape(layer), given_shape, self.notes, replaced=self.replaced
                )
                types.append((shape, input_type(layer)))
            else:
                # A cut with a shape of its own needs no look at what lies before it, which may be none of npuc's business.
                known = before.get(name)
                shape = given_shape if given_shape is not None else known.shape if known is not None else ()
                types.append((tuple(shape), dtype_of("f32") if known is None else known.dtype))
        return types

    def run(self) -> Graph:
        """The graph between the inputs and the outputs."""
        own = [ref.layer for ref in self.network.inputs]
        check_names(self.options.constants, own, "--constant")
        names = list(self.options.inputs) or [name for name in own if name not in self.options.constants]
        plain = {*own, *(set(self.network.layers) & set(self.options.input_shapes))}
        middle = [name for name in names if name not in plain]
        ends = {name: ref for name, ref in self.ends}
        output_names = list(self.options.outputs) or list(ends)
        if not output_names:
            raise InvalidModelError("the model has no outputs")
        inner_names = [name for name in output_names if name not in ends and name not in self.network.layers]
        before = self._before() if middle or inner_names else {}
        check_names(self.options.inputs, {**self.network.layers, **before}, "--inputs")
        check_names(self.options.outputs, {**ends, **self.network.layers, **before}, "--outputs")
        check_inputs(names, self.options.input_shapes, self.options.constants)
        types = self._types(names, before)
        graph = Graph.empty(
            [(name, tensor_type(shape, dtype)) for name, (shape, dtype) in zip(names, types, strict=True)],
            preprocess={name: item.to_dict() for name, item in self.options.preprocess.items()},
        )
        self.builder = ChannelsLastBuilder(graph)
        for port in graph.inputs:
            self.builder.scope.unique(port.name)
            self.begins[port.name] = LayoutTensor(port.value, name=port.name)
        level = _Level(self.network, self.archive.weights)
        outputs = []
        for name in output_names:
            ref = ends.get(name) or (Ref(name, 0, 0) if name in self.network.layers else None)
            if ref is None:
                self._walk(level, [ref for _, ref in self.ends])
                if name not in self.known:
                    raise UnknownTensorError(
                        f"--outputs: '{name}' is not made between the inputs and the outputs"
                    )
                outputs.append((name, self.builder.value(self.known[name])))
            else:
                self._walk(level, [ref])
                outputs.append((name, self.builder.value(self._tensor(level, ref))))
        self.builder.finish_layer([], [])
        graph.set_outputs(outputs)
        erase_dead(graph)
        if self.unknown:
            self.notes.append(
                f"{counted(len(self.unknown), 'layer', 'has', 'have')} no form in npuc and became "
                f"custom ops of the domain 'npuc.keras', "
                f"which somebody has to provide before the network can run: {'; '.join(self.unknown[:6])}"
            )
        graph.notes += self.notes
        return graph

    # The walk

    def _tensor(self, level: _Level, ref: Ref) -> LayoutTensor:
        outputs = level.outputs[(ref.layer, ref.call)]
        if not 0 <= ref.tensor < len(outputs):
            raise InvalidModelError(f"the layer '{level.prefix}{ref.layer}' has no output {ref.tensor}")
        return outputs[ref.tensor]

    def _walk(self, level: _Level, refs: Sequence[Ref]) -> None:
        """Translate the calls that these tensors need; the stack is a list, so that deep networks cost no recursion."""
        stack = [(ref.layer, ref.call) for ref in refs]
        open_: set[tuple[str, int]] = set()
        while stack:
            key = stack[-1]
            if key in level.outputs:
                stack.pop()
                continue
            layer = level.network.layers.get(key[0])
            if layer is None or not 0 <= key[1] < len(layer.calls):
                raise InvalidModelError(f"there is no call {key[1]} of a layer '{level.prefix}{key[0]}'")
            call = layer.calls[key[1]]
            full = f"{level.prefix}{layer.name}"
            missing = []
            if full not in self.begins:
                needed = ((ref.layer, ref.call) for ref in _refs([call.arguments, call.keywords]))
                missing = [item for item in needed if item not in level.outputs]
            if missing:
                if key in open_:
                    raise InvalidModelError(f"the layer '{full}' depends on itself")
                open_.add(key)
                stack += missing
                continue
            level.outputs[key] = self._called(level, layer, call, full)
            open_.discard(key)
            stack.pop()

    def _called(self, level: _Level, layer: KerasLayer, call: Call, full: str) -> list[LayoutTensor]:
        self.calls += 1
        if self.calls > MAX_LAYERS:
            raise ResourceLimitError(
                f"the model comes to more than {MAX_LAYERS} layers when its parts are written out"
            )
        if full in self.begins:
            return [self.begins[full]]
        if layer.name in level.given:
            return [level.given[layer.name]]
        if layer.kind == "InputLayer":
            return [self._fixed(layer)]
        arguments = self._meant(level, call.arguments)
        keywords = self._meant(level, call.keywords)
        weights = level.weights.layer(layer.name, layer.class_name, layer.number)
        if layer.kind == "Model":
            outputs = self._inner(level, layer, arguments, weights, full)
        else:
            stated = level.network.shapes.get((layer.name, layer.calls.index(call), 0))
            outputs = self.translated(layer.kind, layer.config, arguments, keywords, weights, full, stated)
        for index, held in enumerate(outputs):
            self.known.setdefault(_tensor_name(full, index), held)
        return outputs

    def _meant(self, level: _Level, value: Any) -> Any:
        if isinstance(value, Ref):
            return self._tensor(level, value)
        if isinstance(value, list):
            return [self._meant(level, item) for item in value]
        if isinstance(value, dict):
            return {key: self._meant(level, item) for key, item in value.items()}
        return value

    def _fixed(self, layer: KerasLayer) -> LayoutTensor:
        """An input that is no input of the import: a constant, or cut off."""
        if layer.name not in self.options.constants:
            return Absent(layer.name)
        shape = self.options.input_shapes.get(layer.name, declared_shape(layer))
        text = self.options.constants[layer.name]
        return self.builder.constant(input_constant(layer.name, text, shape, input_type(layer)), layer.name)

    def _inner(
        self, level: _Level, layer: KerasLayer, arguments: list[Any], weights: KerasWeights, full: str
    ) -> list[LayoutTensor]:
        """A model that is a layer."""
        return self._model(
            layer.config["description"], list(tensors_in(arguments)), weights, full, level.depth
        )

    def _model(
        self,
        description: Mapping[str, Any],
        tensors: list[LayoutTensor],
        weights: KerasWeights,
        full: str,
        depth: int,
    ) -> list[LayoutTensor]:
        if depth >= _DEPTH:
            raise ResourceLimitError(f"models are nested more than {_DEPTH} deep")
        if id(description) not in self.inner:
            self.inner[id(description)] = read_network(description)
        network = self.inner[id(description)]
        if len(tensors) != len(network.inputs):
            raise InvalidModelError(
                f"the model '{full}' takes {len(network.inputs)} inputs, not {len(tensors)}"
            )
        given = {ref.layer: x for ref, x in zip(network.inputs, tensors, strict=True)}
        inner = _Level(network, weights, f"{full}/", depth + 1, given)
        self._walk(inner, network.outputs)
        return [self._tensor(inner, ref) for ref in network.outputs]

    def wrapped(
        self, description: Mapping[str, Any], tensors: list[LayoutTensor], weights: KerasWeights, full: str
    ) -> list[LayoutTensor]:
        """The outputs of a layer or model that another layer wraps."""
        self.builder.first = full
        self.builder.finish_layer([], [], full)
        if full.count("//") >= _DEPTH:
            raise ResourceLimitError(f"layers are wrapped more than {_DEPTH} deep")
        if is_model(description):
            outputs = self._model(description, tensors, weights, f"{full}//", 0)
        else:
            kind, config = description.get("class_name"), description.get("config")
            if not isinstance(kind, str) or not isinstance(config, dict):
                raise InvalidModelError(f"the layer that '{full}' wraps has no class")
            name = f"{full}//{config.get('name', kind)}"
            outputs = self.translated(kind.rpartition(">")[2], config, list(tensors), {}, weights, name)
        self.builder.first = full
        return outputs

    def translated(
        self,
        kind: str,
        config: Mapping[str, Any],
        arguments: list[Any],
        keywords: dict[str, Any],
        weights: KerasWeights,
        full: str,
        stated: tuple[int, ...] | None = None,
    ) -> list[LayoutTensor]:
        """The outputs of a layer."""
        self.builder.first = full
        context = KerasContext(
            full,
            kind,
            config,
            arguments,
            keywords,
            weights,
            self.builder,
            self.archive.version,
            self.notes,
            self.wrapped,
        )
        check_code(context)
        self.masks.check(context)
        translate = find_rule(kind)
        try:
            if translate is None:
                self.unknown.append(context.label)
                outputs: list[LayoutTensor] = custom(context, stated)
            else:
                outcome = translate(context)
                outputs = list(outcome) if isinstance(outcome, list | tuple) else [outcome]  # type: ignore[list-item]
        except ShapeError as error:
            raise InvalidModelError(f"{context.label}: {error}") from error
        except (ValueError, TypeError, KeyError, IndexError, OverflowError, ArithmeticError) as error:
            # What a rule trips over is something in the layer that no valid model has.
            words = next(iter(str(error).splitlines()), type(error).__name__)[:200]
            raise InvalidModelError(f"{context.label}: it is malformed ({words})") from error
        self.builder.finish_layer(outputs, [_tensor_name(full, index) for index in range(len(outputs))], full)
        self.masks.note(context, outputs)
        return outputs


def check_code(context: KerasContext) -> None:
    """A layer must not bring code along."""
    if context.kind == "Lambda" or _has_lambda(context.config):
        raise UnsupportedOpError(
            f"{context.label} is Python code in the file, and code from a file is never run",
            fix="Write what it computes with ordinary layers, or as a layer class of your own, which becomes a custom op; or cut "
            "the network before it with --outputs",
        )


def _has_lambda(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("class_name") == "__lambda__" or any(_has_lambda(item) for item in value.values())
    return isinstance(value, list) and any(_has_lambda(item) for item in value)


def _refs(value: Any) -> list[Ref]:
    if isinstance(value, Ref):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [ref for item in inner for ref in _refs(item)]


def _tensor_name(full: str, index: int) -> str:
    return f"{full}:{index}" if index else full
