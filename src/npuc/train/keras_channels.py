"""The channels of a live Keras model: which can be removed, the model with zeros for them, and the model without them.

    channels = KerasChannels(model)
    widths = channels.widths(0.5)                       # half of the multiply-adds
    sparse = channels.masked(channels.dropped(widths))  # zeros that fit leaves zeros
    small = channels.slim(channels.dropped(widths))     # the channels are gone

The model is imported from its file as it is, batch norms and all: each weight of the network is a variable with its axes in
another order. Which variable, and which axes, is asked of the importer itself, by models whose variables count along one axis.
Keras computes on any of its backends.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import TrainingError, UsageError
from npuc.flow import ImportOptions, import_model
from npuc.frontend.formats import declared_inputs
from npuc.integrations.keras import keras_package, require_model
from npuc.ir import Graph, shape_of
from npuc.train.pruning.channels import Channels
from npuc.train.pruning.groups import DependencyGraph
from npuc.train.pruning.slimming import Selection, mask_arrays

_CLOSE = 1e-3
"""How far the slim model may be from the masked one, relative to the largest output."""


@dataclass(frozen=True)
class _Source:
    """The variable that a weight of the network is, by its place in `model.weights`."""

    place: int
    axes: tuple[int | None, ...]
    """For each axis of the weight that of the variable; None where both have length 1."""


class KerasChannels(Channels):
    """The groups of channels of a functional or sequential Keras model.

    `input_shapes` states the shapes of its inputs, in their order, where they have free sizes; `exclude` names layers whose
    channels stay.
    """

    _separator = "/"

    def __init__(
        self,
        model: Any,
        input_shapes: Sequence[tuple[int, ...]] = (),
        exclude: Collection[str] = (),
    ) -> None:
        require_model(
            model, "channels are those of a Keras model", "For a torch module, use npuc.train.modules"
        )
        self.model = model
        self._clone()
        with tempfile.TemporaryDirectory(prefix="npuc-") as folder:
            imported = _Importer(self._clone(), Path(folder) / "model.keras", input_shapes)
            graph = imported(model.get_weights())
            self._sources = _sources(imported, [tuple(weight.shape) for weight in model.weights])
        stays = _fixed_variables(model)
        uses = Counter(source.place for source in self._sources.values())
        stays |= {
            place: "several weights of the network are this variable" for place in uses if uses[place] > 1
        }
        self._fixed = {
            ref: "it is no variable of the model with its axes in another order"
            if ref not in self._sources
            else stays[self._sources[ref].place]
            for ref in graph.weights
            if ref not in self._sources or self._sources[ref].place in stays
        }
        self.dependencies = DependencyGraph(graph, (), self._fixed)
        if exclude:
            self.dependencies = self.excluding(exclude).dependencies

    def arrays(self) -> dict[str, Array]:
        """The variables of the model, by the names of the weights of the network."""
        values, weights = self.model.get_weights(), self.dependencies.graph.weights
        return {
            ref: np.ascontiguousarray(
                _as_weight(np.asarray(values[source.place]), source).reshape(weights[ref].shape)
            )
            for ref, source in self._sources.items()
        }

    def original(self) -> Any:
        """A copy of the model."""
        copy = self._clone()
        copy.set_weights(self.model.get_weights())
        return copy

    def masked(self, selection: Selection) -> Any:
        """A copy of the model with zeros for the selected channels, which `fit` leaves zeros.

        They are constraints of the variables: an optimizer of Keras applies them, and a loop of one's own has to.
        """
        self._left(selection)
        copy = self.original()
        values = copy.get_weights()
        for place, mask in self._masks(selection).items():
            values[place] = values[place] * mask
            variable = copy.weights[place]
            variable.constraint = _Masked(mask, variable.constraint)
        copy.set_weights(values)
        return copy

    def slim(self, selection: Selection) -> Any:
        """A copy of the model without the selected channels; it computes what the masked one does."""
        left = self._left(selection)
        values = [np.asarray(value) for value in self.model.get_weights()]
        for ref, source in self._sources.items():
            for axis, size in enumerate(self.dependencies.graph.weights[ref].shape):
                own = source.axes[axis]
                kept = left.weight_indices(ref, axis, size)
                if own is not None and len(kept) != size:
                    values[source.place] = np.take(values[source.place], kept, own)
        places = {id(variable): place for place, variable in enumerate(self.model.weights)}

        def sizes(layer: Any) -> dict[str, Any]:
            rule = _rule_for(layer)
            shapes = [values[places[id(variable)]].shape for variable in layer.weights]
            return {} if rule is None or not shapes else rule(shapes)

        try:
            cut = self._clone(sizes)
            cut.set_weights(values)
        except (ValueError, TypeError) as error:
            raise TrainingError(
                f"the model without its channels cannot be built: {str(error).splitlines()[0]}",
                fix="One of its layers states a size, such as Reshape does: exclude the layer before it",
            ) from error
        self._check(cut, selection)
        return cut

    def _check(self, cut: Any, selection: Selection) -> None:
        random = np.random.default_rng(0)
        ports = self.dependencies.graph.inputs
        inputs = [
            random.normal(
                size=[size or known for size, known in zip(tensor.shape, shape_of(port.value), strict=True)]
            ).astype(np.float32)
            for tensor, port in zip(cut.inputs, ports, strict=True)
        ]
        keras = keras_package()
        results, expected = (
            [
                np.asarray(keras.ops.convert_to_numpy(value))
                for value in keras.tree.flatten(
                    model(inputs if len(inputs) > 1 else inputs[0], training=False)
                )
            ]
            for model in (cut, self.masked(selection))
        )
        for result, other in zip(results, expected, strict=True):
            far = float(np.abs(result - other).max()) if result.shape == other.shape else float("inf")
            if not far <= _CLOSE * max(1.0, float(np.abs(other).max())):
                raise TrainingError(
                    "the model without its channels computes something else than with zeros for them",
                    fix="One of its layers depends on the sizes of its tensors; exclude the layers before it",
                )

    def _masks(self, selection: Selection) -> dict[int, Array]:
        """For each variable that removed channels touch, ones where it stays and zeros where it goes."""
        removed = self.dependencies.removed(selection)
        masks: dict[int, Array] = {}
        for ref, mask in mask_arrays(self.dependencies, removed).items():
            source = self._sources[ref]
            rank = len(self.model.weights[source.place].shape)
            sizes = [1] * rank
            for axis, own in enumerate(source.axes):
                if own is not None:
                    sizes[own] = mask.shape[axis]
            order = [own for own in source.axes if own is not None]
            turned = np.transpose(
                mask.reshape([mask.shape[axis] for axis, own in enumerate(source.axes) if own is not None]),
                np.argsort(order),
            ).reshape(sizes)
            masks[source.place] = masks.get(source.place, np.float32(1)) * turned
        return masks

    def _clone(self, sizes: Callable[[Any], Mapping[str, Any]] = lambda _: {}) -> Any:
        """The model anew, with other sizes of some of its layers."""
        return _cloned(self.model, sizes)


def _cloned(model: Any, sizes: Callable[[Any], Mapping[str, Any]]) -> Any:
    keras = keras_package()

    def anew(layer: Any) -> Any:
        if isinstance(layer, keras.Model):
            return _cloned(layer, sizes)
        return type(layer).from_config({**layer.get_config(), **sizes(layer)})

    if not {"Functional", "Sequential"} & {kind.__name__ for kind in type(model).__mro__}:
        raise UsageError(
            f"'{model.name}' cannot be built anew: it is no functional or sequential model",
            fix="Write the model with keras.Model(inputs, outputs) or keras.Sequential",
        )
    return keras.models.clone_model(model, clone_function=anew)


class _Masked:
    """A constraint of a variable: zeros stay zeros, beside the constraint that it had."""

    def __init__(self, mask: Array, other: Callable[[Any], Any] | None) -> None:
        self._mask, self._other = mask, other

    def __call__(self, value: Any) -> Any:
        """The value with its zeros."""
        value = value if self._other is None else self._other(value)
        return value * keras_package().ops.convert_to_tensor(self._mask, dtype=value.dtype)


class _Importer:
    """The network of the model with given values of its variables."""

    def __init__(self, model: Any, file: Path, shapes: Sequence[tuple[int, ...]]) -> None:
        self._model, self._file = model, file
        model.save(file)
        names = declared_inputs(file, ImportOptions()) if shapes else ()
        self._options = ImportOptions(input_shapes=dict(zip(names, shapes, strict=True)))

    def __call__(self, values: list[Any]) -> Graph:
        self._model.set_weights(values)
        self._model.save(self._file)
        return import_model(self._file, self._options, canonical=False)


def _sources(imported: _Importer, shapes: list[tuple[int, ...]]) -> dict[str, _Source]:
    """Which variable each weight of the network is; what is not one as it is, is left out."""

    def arrays(values: list[Array]) -> dict[str, Array]:
        return {ref: weight.array() for ref, weight in imported(values).weights.items()}

    numbered = arrays([np.full(shape, place + 1, np.float32) for place, shape in enumerate(shapes)])
    candidates: dict[str, tuple[int, dict[int, int]]] = {}
    for ref, array in numbered.items():
        value = float(array.flat[0]) if array.size else 0.0
        if (array == value).all() and value.is_integer() and 1 <= value <= len(shapes):
            place = int(value) - 1
            if array.size == int(np.prod(shapes[place])):
                candidates[ref] = place, {}
    for own in range(max(map(len, shapes), default=0)):
        counted = arrays([_counting(shape, own) for shape in shapes])
        for ref, (place, axes) in candidates.items():
            if own < len(shapes[place]) and shapes[place][own] > 1:
                for axis, size in enumerate(counted[ref].shape):
                    line = np.arange(1, size + 1, dtype=np.float32)
                    line = line.reshape([-1 if at == axis else 1 for at in range(counted[ref].ndim)])
                    if size == shapes[place][own] and (counted[ref] == line).all():
                        axes[axis] = own
    return {
        ref: _Source(place, tuple(axes.get(axis) for axis in range(numbered[ref].ndim)))
        for ref, (place, axes) in candidates.items()
        if len(axes) == sum(size > 1 for size in shapes[place])
    }


def _counting(shape: tuple[int, ...], axis: int) -> Array:
    """Ones, or 1, 2, 3, ... along an axis."""
    if axis >= len(shape):
        return np.ones(shape, np.float32)
    line = np.arange(1, shape[axis] + 1, dtype=np.float32)
    return np.broadcast_to(line.reshape([-1 if at == axis else 1 for at in range(len(shape))]), shape).copy()


def _as_weight(value: Array, source: _Source) -> Array:
    order = [own for own in source.axes if own is not None]
    rest = [axis for axis in range(value.ndim) if axis not in order]
    return np.transpose(value, [*order, *rest])


# Layers that can have other sizes, and how their configuration states them


def _filters(shapes: list[tuple[int, ...]]) -> dict[str, Any]:
    return {"filters": shapes[0][-1]}


def _transposed(shapes: list[tuple[int, ...]]) -> dict[str, Any]:
    return {"filters": shapes[0][-2]}


def _separable(shapes: list[tuple[int, ...]]) -> dict[str, Any]:
    return {"filters": shapes[1][-1]}


def _units(shapes: list[tuple[int, ...]]) -> dict[str, Any]:
    return {"units": shapes[0][-1]}


def _by_input(_: list[tuple[int, ...]]) -> dict[str, Any]:
    return {}


_RULES: dict[str, Callable[[list[tuple[int, ...]]], dict[str, Any]]] = {
    "Conv1D": _filters,
    "Conv2D": _filters,
    "Conv3D": _filters,
    "Conv1DTranspose": _transposed,
    "Conv2DTranspose": _transposed,
    "Conv3DTranspose": _transposed,
    "SeparableConv1D": _separable,
    "SeparableConv2D": _separable,
    "Dense": _units,
    "DepthwiseConv1D": _by_input,
    "DepthwiseConv2D": _by_input,
    "BatchNormalization": _by_input,
    "LayerNormalization": _by_input,
    "PReLU": _by_input,
}
"""By the names of the layers of Keras: the fields of their configuration that follow from the shapes of their variables."""


def _rule_for(layer: Any) -> Callable[[list[tuple[int, ...]]], dict[str, Any]] | None:
    kind = getattr(keras_package().layers, type(layer).__name__, None)
    return _RULES.get(type(layer).__name__) if kind is type(layer) else None


def _layers(model: Any) -> Iterator[Any]:
    keras = keras_package()
    for layer in model.layers:
        yield from _layers(layer) if isinstance(layer, keras.Model) else (layer,)


def _fixed_variables(model: Any) -> dict[int, str]:
    """The variables whose sizes cannot change, by their place, each with the reason."""
    places = {id(variable): place for place, variable in enumerate(model.weights)}
    fixed: dict[int, str] = {}
    for layer in _layers(model):
        kind = type(layer).__name__
        grouped = getattr(layer, "groups", 1) != 1
        if _rule_for(layer) is None or grouped:
            why = (
                f"a {kind} in groups cannot get other sizes"
                if grouped
                else f"a {kind} cannot get other sizes"
            )
            fixed |= {places[id(variable)]: why for variable in layer.weights if id(variable) in places}
    return fixed
