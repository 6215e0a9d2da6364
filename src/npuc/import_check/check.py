"""The check of an import: the original file and the imported graph, on the same inputs, tensor by tensor.

Every output is compared, and every intermediate tensor whose name both sides know. Memory is bounded: intermediates are
fetched in groups, each with a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.compare.tensors import Difference, Tolerance, difference
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import NumericMismatchError, OriginalError
from npuc.frontend.options import ImportOptions
from npuc.import_check.originals import original_of
from npuc.ir import Graph, dtype_of, is_static, result_names, shape_of
from npuc.quant.prequantized import Prequantized
from npuc.quant.scheme import SCHEMES
from npuc.words import counted

_GROUP_BYTES = 256 << 20
# Two float32 results within these are equal: rounding near one leaves errors of 1e-7, and a sigmoid that has come to
# rest at 1e-8 is nothing but such errors, which have no direction to take a cosine of.
_ABSOLUTE, _RELATIVE = 1e-6, 1e-4
_MIXED = Tolerance(0.99, 0.9)
"""The bar for a network whose own runtime adds the error of 8-bit activations."""


@dataclass(frozen=True)
class CheckReport:
    """What the check found."""

    outputs: tuple[Difference, ...]
    layers: tuple[Difference, ...]
    """Intermediate tensors, in the order of the original."""
    tolerance: Tolerance
    left_out: tuple[str, ...]
    notes: tuple[str, ...] = ()
    impossible: str = ""
    """Why the original could not be run, if it could not: then nothing was compared."""
    judge: str = "ONNX Runtime"
    """Who ran the original."""

    @property
    def failures(self) -> list[Difference]:
        """What is beyond the tolerance, in the order of the network, so the first is the likely cause."""
        return [entry for entry in (*self.layers, *self.outputs) if not entry.passes(self.tolerance)]

    @property
    def passed(self) -> bool:
        """True if there was a comparison and nothing is beyond the tolerance."""
        return not self.impossible and not self.failures

    def require(self) -> None:
        """Raise `NumericMismatchError` unless it passed."""
        failures = self.failures
        if not failures:
            return
        first = failures[0]
        what = first.note or f"cosine {first.cosine:.6f}, euclid {first.euclid:.6f}"
        raise NumericMismatchError(
            f"{len(failures)} of {len(self.layers) + len(self.outputs)} tensors differ from the original by more than "
            f"cosine {self.tolerance.cosine:g}, euclid {self.tolerance.euclid:g}; the first is '{first.name}' ({what})",
            fix="Check with real data (--check-input FILE), leave layers out (--except NAME,...) or lower --tolerance; "
            "--no-check writes the network as it is; if the difference is not in the data, please report it",
        )


def check_import(
    path: Path,
    graph: Graph,
    inputs: Mapping[str, Array],
    *,
    options: ImportOptions | None = None,
    original_inputs: Mapping[str, Array] | None = None,
    tolerance: Tolerance | None = None,
    leave_out: Collection[str] = (),
    threads: int | None = None,
) -> CheckReport:
    """Run both and compare.

    A file that its own runtime cannot run is no fault of the import: the report says so, and holds no differences.
    `options` are those of the import. `original_inputs` are what the original takes in place of `inputs`, where
    preprocessing has been fused.
    """
    theirs = dict(original_inputs or inputs)
    types = {port.name: port.type for port in graph.inputs}
    for name, array in theirs.items():
        types[name] = _type_of(array)
    tolerance = tolerance or Tolerance()
    notes: list[str] = []
    try:
        original = original_of(path)(path, graph, types, options or ImportOptions(), threads)
    except OriginalError as error:
        return CheckReport((), (), tolerance, tuple(leave_out), impossible=error.message)
    if original.mixed:
        tolerance = Tolerance(min(tolerance.cosine, _MIXED.cosine), min(tolerance.euclid, _MIXED.euclid))
        notes.append(
            f"LiteRT quantizes the activations of {counted(original.mixed, 'layer')} as it runs, which the file does not say: "
            f"the bar is cosine {tolerance.cosine:g}, euclid {tolerance.euclid:g}"
        )
    engine, names = _engine(graph, threads)
    outputs = [port.name for port in graph.outputs]
    # An output that one value serves twice, or that is an input, is known to both sides by name all the same.
    skipped = {*outputs, *leave_out}
    middle = [name for name in original.comparable if name in names and name not in skipped]
    sizes = _sizes(graph)
    layers: list[Difference] = []
    final: list[Difference] = []
    groups = _groups(middle, sizes)
    for index, group in enumerate(groups):
        # As the original is run: ONNX Runtime's own optimizations change results by more than an import does.
        named = outputs if index == 0 else []
        try:
            reference = original.run(theirs, [*named, *group])
        except OriginalError as error:
            return CheckReport((), (), tolerance, tuple(leave_out), impossible=error.message)
        ours = engine(group).run(inputs)
        layers.extend(
            _judge(name, ours[name], reference[name])
            for name in group
            if not _is_other_form(ours[name], reference[name])
        )
        final.extend(
            _judge(name, ours[name], reference[name])
            for name in named
            if name not in leave_out and name not in original.random
        )
        del ours, reference
    if original.random:
        notes.append(f"not compared: {counted(len(original.random), 'tensor')} made of random numbers")
    unknown = [name for name in leave_out if name not in original.comparable and name not in outputs]
    if unknown:
        notes.append(f"--except names tensors that were not compared anyway: {', '.join(unknown[:8])}")
    return CheckReport(
        tuple(final), tuple(layers), tolerance, tuple(leave_out), tuple(notes), judge=original.judge
    )


def _engine(graph: Graph, threads: int | None) -> tuple[Callable[[Sequence[str]], Any], set[str]]:
    """What runs the imported graph and fetches tensors, and the names that it knows.

    A network of TFLite's arithmetic is checked as integers: its float form differs by more than an import may.
    """
    if graph.arithmetic != "tflite":
        names = set(graph.tensor_names())
        return lambda fetch: FloatEngine(graph, fetch=fetch, threads=threads, optimize=False), names
    integer = Prequantized(graph).lower(SCHEMES["tflite"])
    return (
        lambda fetch: IntegerEngine(integer, fetch=fetch, threads=threads or 1, raw=True),
        set(integer.tensor_names()),
    )


def _type_of(array: Array) -> Any:
    from npuc.ir import tensor_type

    return tensor_type(array.shape, dtype_of(array.dtype))


def _is_other_form(ours: Array, reference: Array) -> bool:
    """True where the original holds integers and the import the reals they stand for: an op that stays float between a
    dequantize and a quantize. What the quantize makes of them is compared further on."""
    return ours.dtype.kind == "f" and reference.dtype.kind in "iu"


def _judge(name: str, ours: Array, reference: Array) -> Difference:
    found = difference(name, ours, reference)
    if found.note or min(found.cosine, found.euclid) >= 0.9999 or ours.dtype.kind in "OSUbiu":
        return found
    with np.errstate(all="ignore"):
        close = np.allclose(
            ours.astype(np.float64),
            reference.astype(np.float64),
            rtol=_RELATIVE,
            atol=_ABSOLUTE,
            equal_nan=True,
        )
    return replace(found, close=True) if close else found


def _sizes(graph: Graph) -> dict[str, int]:
    found = {}
    for op in graph.ops:
        for name, value in zip(result_names(op), op.results, strict=True):
            if is_static(value):
                found[name] = int(np.prod(shape_of(value), dtype=object)) * dtype_of(value.type).itemsize
    return found


def _groups(names: Sequence[str], sizes: Mapping[str, int]) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    total = 0
    for name in names:
        size = sizes.get(name, 1 << 20)
        if groups[-1] and total + size > _GROUP_BYTES:
            groups.append([])
            total = 0
        groups[-1].append(name)
        total += size
    return groups
