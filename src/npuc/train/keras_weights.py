"""Trained weights as variables of the Keras file that the network came from.

An imported network is in canonical form: batch norms are folded into convolutions, kernels have another order of axes, and
machines may want other forms of layers. How its weights follow from the variables of the file is asked of the importer itself,
so that no second table of layers says it: variables are changed by known steps, the file is imported again, and the
differences show which variable each weight is, times which factor.

    kernel + 1           ->  weight + s                the factor s = gamma / sqrt(variance + epsilon)
    kernel + its index   ->  weight + s * index        the element that each element of the weight comes from

Kernels, biases and betas then get the values from which the import makes the trained weights; gammas and statistics of batch
norms stay, so that Keras can go on training. The import of the result is compared with the trained network before anything is
written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from npuc.arrays import Array
from npuc.errors import TrainingError
from npuc.frontend.keras.variables import read_variables, write_variables
from npuc.ir import Graph, top, value_name

Network = Callable[[Path], Graph]
"""Imports a file as the network was imported that was trained."""

_BASE = 1 << 16
"""Indices are told in digits to this base: float32 tells their products with factors apart."""
_WHOLE = 0.1
"""How far from a whole number a digit may be."""
_ROUNDS = 4
_JITTER = 1e-5
_NOTHING = 1e-7
"""The share of the largest value of a tensor that is taken for zero."""
_CLOSE = 1e-5
"""The difference from a trained weight, relative to the largest of its tensor, at the most."""


def keras_variables(source: Path, network: Network, trained: Graph) -> dict[str, Array]:
    """The variables of a Keras file with which it is the trained network; an error names what cannot be written back."""
    goal = _float_weights(trained)
    with tempfile.TemporaryDirectory(prefix="npuc-") as folder:
        imported = _ImportedWeights(source, network, Path(folder) / f"probe{source.suffix}")
        variables = _without_closed_channels(read_variables(source))
        _require_same_network(imported(variables), goal)
        sources = _sources(imported, variables, goal)
        for _ in range(_ROUNDS):
            weights = imported(variables)
            far = _far(weights, goal)
            if not far:
                return {path: array.astype(np.float32) for path, array in variables.items()}
            variables = _moved(variables, weights, goal, sources)
    raise TrainingError(
        f"the trained weights cannot be written back to {source}: no variables of it give {', '.join(far[:3])}",
        fix="Keep the network as .mlir or .onnx (its float form) or as integers",
    )


class _ImportedWeights:
    """The float weights of the imported network, as a function of the variables of its file."""

    def __init__(self, source: Path, network: Network, file: Path) -> None:
        self._source, self._network, self._file = source, network, file

    def __call__(self, variables: Mapping[str, Array]) -> dict[str, Array]:
        write_variables(self._source, self._file, variables)
        return _float_weights(self._network(self._file))


@dataclass(frozen=True)
class _Source:
    """Where the elements of a weight come from."""

    paths: Sequence[str]
    """The variables, in the order in which their elements are counted."""
    index: Array
    """For each element of the weight the number of its element."""
    factor: Array
    """How much the element of the weight moves for a step of one."""


def _float_weights(graph: Graph) -> dict[str, Array]:
    """The float weights by layer and operand: tensors that happen to be equal are one weight of the network."""
    weights = {}
    for op in graph.ops:
        for number, operand in enumerate(() if isinstance(op, top.WeightOp) else op.operands):
            array = graph.constant(operand)
            if array is not None and array.dtype.kind == "f":
                weights[f"{value_name(op.results[0])} (operand {number})"] = array.astype(np.float64)
    return weights


def _without_closed_channels(variables: dict[str, Array]) -> dict[str, Array]:
    """Variables in double precision; a batch norm's gamma of zero, behind which no kernel counts, is one.

    A batch norm is known by its four vectors of one length. Whatever its gamma is, its beta and the kernel before it are chosen
    to give the trained weights.
    """
    changed = {path: array.astype(np.float64) for path, array in variables.items()}
    for parent in _parents(variables):
        paths = _members(variables, parent)
        shapes = {variables[path].shape for path in paths}
        if len(paths) == 4 and len(shapes) == 1 and len(shapes.pop()) == 1:
            gamma = next((path for path in paths if "gamma" in path.rpartition("/")[2]), paths[0])
            changed[gamma] = np.where(changed[gamma] == 0.0, 1.0, changed[gamma])
    return changed


def _parents(variables: Mapping[str, Array]) -> list[str]:
    return list({path.rpartition("/")[0]: None for path in variables})


def _members(variables: Mapping[str, Array], parent: str) -> list[str]:
    return [path for path in variables if path.rpartition("/")[0] == parent]


def _groups(variables: Mapping[str, Array]) -> list[list[str]]:
    """Variables that can be moved at once: of any weight, a group has one at most. Kernels are first.

    Vectors beside a kernel (biases) and vectors of a layer without one (batch norms) are told apart, and each by their place in
    the layer: a convolution's bias and the mean and beta of the batch norm behind it all move one bias of the network.
    """
    kernels = [path for path, array in variables.items() if array.ndim > 1]
    groups: dict[tuple[bool, int], list[str]] = {}
    for parent in _parents(variables):
        paths = _members(variables, parent)
        beside = any(variables[path].ndim > 1 for path in paths)
        for place, path in enumerate(paths):
            if variables[path].ndim == 1:
                groups.setdefault((beside, place), []).append(path)
    return [kernels, *groups.values()]


def _sources(
    imported: _ImportedWeights, variables: dict[str, Array], goal: Mapping[str, Array]
) -> dict[str, _Source]:
    """For each trained weight the elements that it comes from: of kernels, else of the vectors that move the fewest weights."""
    distinct = _distinct(variables)
    base = imported(distinct)

    def differences(paths: Sequence[str], steps: Array) -> dict[str, Array]:
        weights = imported({**distinct, **_parted(distinct, paths, steps, add=True)})
        return {name: weights[name] - base[name] for name in goal}

    kernels, *vectors = _groups(variables)
    factors = {
        tuple(paths): differences(paths, np.ones(_count(variables, paths))) for paths in [kernels, *vectors]
    }
    vectors.sort(key=lambda paths: sum(factor.any() for factor in factors[tuple(paths)].values()))
    chosen: dict[str, _Source] = {}
    for paths in (kernels, *vectors):
        whole = {
            name: factor
            for name, factor in factors[tuple(paths)].items()
            if name not in chosen and factor.all()
        }
        if whole:
            index_of = _indices(partial(differences, paths), whole, _count(variables, paths))
            chosen |= {name: _Source(paths, index, whole[name]) for name, index in index_of.items()}
    return chosen


def _distinct(variables: Mapping[str, Array]) -> dict[str, Array]:
    """Variables of which no two are equal, no zero and no one, so that the import simplifies none of them away."""
    random = np.random.default_rng(0)
    return {
        path: array * (1 + _JITTER * random.uniform(size=array.shape))
        + _JITTER * random.uniform(size=array.shape)
        for path, array in variables.items()
    }


def _count(variables: Mapping[str, Array], paths: Sequence[str]) -> int:
    return sum(variables[path].size for path in paths)


def _indices(
    differences: Callable[[Array], dict[str, Array]], factors: Mapping[str, Array], count: int
) -> dict[str, Array]:
    """The weights of which each element moves with one of `count` elements alone, and with which."""
    indices = {name: np.zeros(factor.shape, np.int64) for name, factor in factors.items()}
    unit = 1
    while unit < count:
        moved = differences(np.arange(count) // unit % _BASE + 1.0)
        for name in list(indices):
            digit = moved[name] / factors[name] - 1
            near = np.rint(digit)
            if np.isfinite(digit).all() and np.abs(digit - near).max() < _WHOLE and near.min() >= 0:
                indices[name] += near.astype(np.int64) * unit
            else:
                del indices[name]
        unit *= _BASE
    return {
        name: index
        for name, index in indices.items()
        if index.max() < count and np.unique(index).size == index.size
    }


def _parted(
    variables: Mapping[str, Array], paths: Sequence[str], flat: Array, *, add: bool
) -> dict[str, Array]:
    """Elements in the order in which they are counted, as variables."""
    parts, begin = {}, 0
    for path in paths:
        array = variables[path]
        part = flat[begin : begin + array.size].reshape(array.shape)
        parts[path] = array + part if add else part
        begin += array.size
    return parts


def _moved(
    variables: dict[str, Array],
    weights: Mapping[str, Array],
    goal: Mapping[str, Array],
    sources: Mapping[str, _Source],
) -> dict[str, Array]:
    """The variables, each moved by what its weights are away from the trained ones."""
    steps = {path: np.zeros(array.shape) for path, array in variables.items()}
    for name, source in sources.items():
        flat = np.zeros(_count(variables, source.paths))
        flat[source.index] = (goal[name] - weights[name]) / source.factor
        for path, step in _parted(variables, source.paths, flat, add=False).items():
            steps[path] = np.where(step != 0.0, step, steps[path])
    return {path: _with_zeros(array + steps[path]) for path, array in variables.items()}


def _with_zeros(array: Array) -> Array:
    """What only rounding keeps from zero is zero: weights that were masked stay so."""
    return np.where(np.abs(array) > _NOTHING * np.abs(array).max(initial=0.0), array, 0.0)


def _far(weights: Mapping[str, Array], goal: Mapping[str, Array]) -> list[str]:
    """The weights that are not the trained ones."""
    return [
        name
        for name, array in goal.items()
        if array.size and np.abs(weights[name] - array).max() > _CLOSE * np.abs(array).max()
    ]


def _require_same_network(base: Mapping[str, Array], goal: Mapping[str, Array]) -> None:
    other = [name for name in goal if name not in base or base[name].shape != goal[name].shape]
    if other or len(base) != len(goal):
        names = f" ({', '.join(other[:3])})" if other else ""
        raise TrainingError(
            f"the trained network has other weights than the Keras file{names}: their shapes have changed",
            fix="Write a network whose channels were pruned as .mlir or .onnx",
        )
