"""Sparse constants made dense: TFLite's format of traversal order, block map and a description of every dimension.

The dimensions of the tensor, then those of its blocks, are visited in the traversal order; each is dense, or lists the
indices that are present in a compressed form (segments, as in CSR). Every number is checked against the sizes.
"""

from __future__ import annotations

from math import prod

import numpy as np

from npuc.arrays import Array
from npuc.errors import InvalidModelError, ResourceLimitError
from npuc.frontend.tflite.view import FlatbufferView

_MAX_DENSE = 1 << 28
_VECTORS = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}


def densify(values: Array, shape: tuple[int, ...], sparsity: FlatbufferView, name: str) -> Array:
    """The dense tensor of a shape behind the stored values."""

    def require(condition: bool, what: str) -> None:
        if not condition:
            raise InvalidModelError(f"the sparse tensor '{name}' {what}")

    if prod(shape) > _MAX_DENSE:
        raise ResourceLimitError(f"the sparse tensor '{name}' has the shape {list(shape)}")
    rank = len(shape)
    order, blocks = sparsity.integers("TraversalOrder"), sparsity.integers("BlockMap")
    dims = sparsity.views("DimMetadata", f"a dimension of '{name}'")
    require(sorted(order) == list(range(rank + len(blocks))), "has a traversal order that is none")
    require(all(axis >= rank for axis in order[rank:]), "visits blocks before it has left its own dimensions")
    require(all(0 <= axis < rank for axis in blocks), "has blocks of a dimension that is not there")
    require(len(set(blocks)) == len(blocks), "has blocks of blocks")
    require(len(dims) == len(order), f"describes {len(dims)} of its {len(order)} dimensions")
    block_sizes = {}
    for position, axis in enumerate(order):
        if axis >= rank:
            require(dims[position].number("Format") == 0, "has sparse blocks")
            size = int(dims[position].number("DenseSize"))
            require(size >= 1 and shape[blocks[axis - rank]] % size == 0, "has blocks that do not fit")
            block_sizes[axis] = size
    sizes = [
        n // prod(block_sizes[rank + i] for i, b in enumerate(blocks) if b == a) for a, n in enumerate(shape)
    ]
    sizes += [block_sizes[axis] for axis in range(rank, rank + len(blocks))]
    # Positions so far, in the order of the stored values: a column of coordinates for each dimension visited.
    count = 1
    columns: dict[int, Array] = {}
    # There are never more positions than values, or than segments that a sparse dimension will have for them.
    listed = [len(_numbers(dim, "ArraySegments")) for dim in dims if dim.number("Format") != 0]
    most = max(len(values), *listed, 1)
    for position, axis in enumerate(order):
        dim = dims[position]
        if dim.number("Format") == 0:
            require(int(dim.number("DenseSize")) == sizes[axis], "has a dimension of another size")
            require(count * sizes[axis] <= most, "has more positions than values")
            repeats = np.full(count, sizes[axis], np.int64)
            new = np.tile(np.arange(sizes[axis], dtype=np.int64), count)
        else:
            segments, indices = (_numbers(dim, what) for what in ("ArraySegments", "ArrayIndices"))
            rising = len(segments) == count + 1 and segments[0] == 0 and bool((np.diff(segments) >= 0).all())
            require(rising and segments[-1] == len(indices), "has segments that do not fit")
            require(bool(((indices >= 0) & (indices < sizes[axis])).all()), "has an index outside its shape")
            repeats, new = np.diff(segments), indices
        require(len(new) <= max(prod(shape), 1), "lists more positions than it has")
        columns = {done: np.repeat(column, repeats) for done, column in columns.items()}
        columns[axis] = new
        count = len(new)
    require(count == len(values), f"has {len(values)} values for {count} positions")
    place = [columns[axis] for axis in range(rank)]
    for number, axis in enumerate(blocks):
        size = block_sizes[rank + number]
        place[axis] = place[axis] * size + columns[rank + number]
    dense = np.zeros(shape, values.dtype)
    dense[tuple(place)] = values
    return dense


def _numbers(dim: FlatbufferView, name: str) -> Array:
    kind = _VECTORS.get(dim.number(f"{name}Type"))
    vector = dim.union(name, kind) if kind else None
    return np.zeros(0, np.int64) if vector is None else vector.numbers("Values").astype(np.int64)
