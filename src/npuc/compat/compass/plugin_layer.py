"""What a parser plugin says of one layer: its shapes, the inputs that it keeps, its parameters and its constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import NpucError, PluginError
from npuc.ir import tensor_type


@dataclass(frozen=True)
class PluginLayer:
    """A layer of a type of the plugin's own."""

    kept: tuple[int, ...]
    """The inputs that it has, by their places."""
    shapes: tuple[tuple[int, ...], ...]
    constants: Mapping[str, Array]
    attributes: dict[str, Any]
    """What the op of the domain of layers says of it."""

    @property
    def types(self) -> list[Any]:
        """The types of its results."""
        return [tensor_type(shape, "f32") for shape in self.shapes]


def plugin_layer(
    cls: Any,
    kind: str,
    framework: str,
    name: str,
    info: Mapping[str, Any],
    given: Sequence[Any],
    count: int,
    starts: Sequence[int] | None = None,
    results: Sequence[Any] = (),
) -> PluginLayer:
    """Ask a plugin what it makes of an operator with these inputs and so many outputs.

    `starts` has the first inputs of the nodes of a subgraph: the plugin sees a list for each. `results` are taken where the
    plugin infers no shapes.
    """
    try:
        plugin = cls(framework, {"name": name, **info})
        arrays: Any = list(given)
        if starts is not None:
            arrays = [
                list(given[start:end]) for start, end in zip(starts, [*starts[1:], len(given)], strict=True)
            ]
        inferred = _inferred(plugin, arrays, results)
    except NpucError:
        raise
    except Exception as error:
        # The class is the user's own: anything may happen in it.
        raise PluginError(
            f"the parser plugin {cls.__name__} failed at '{name}': {type(error).__name__}: {error}"
        ) from error
    if isinstance(inferred, np.ndarray) and count == 1:
        inferred = [inferred]
    if not isinstance(inferred, list | tuple) or len(inferred) != count:
        raise PluginError(f"{cls.__name__}.infer_shape gives no list of {count} arrays")
    removed = {_removed(cls, starts or (0,), len(given), *place) for place in plugin.removed_inputs}
    return PluginLayer(
        tuple(index for index in range(len(given)) if index not in removed),
        tuple(np.shape(array) for array in inferred),
        {key: np.asarray(array) for key, array in plugin.constants.items()},
        {
            "layer": name,
            "constants": ",".join(plugin.constants),
            **{f"ir_{key}": _text(value) for key, value in plugin.params.items()},
        },
    )


def _inferred(plugin: Any, given: Any, results: Sequence[Any]) -> Any:
    try:
        return plugin.infer_shape(given)
    except NotImplementedError:
        if not results:
            raise
        return list(results)


def _removed(cls: Any, starts: Sequence[int], count: int, node: int, tensor: int) -> int:
    """The place of an input that a plugin removes."""
    if node < len(starts):
        place = starts[node] + tensor
        if place < [*starts[1:], count][node]:
            return place
    raise PluginError(f"{cls.__name__}.remove_inputs_at({tensor}, {node}): there is no such input")


def _text(value: Any) -> str:
    """A parameter as the text of an IR writes it."""
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(plain, bool):
        return str(plain).lower()
    return str(plain).replace(" ", "") if isinstance(plain, list | tuple | int | float) else str(plain)
