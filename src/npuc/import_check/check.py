"""The check of an import: the original file and the imported graph run on the same inputs and are compared tensor by tensor.

Every output is compared, and every intermediate tensor whose name exists on both sides. Memory is bounded: intermediates are
fetched in groups, each in its own run.
"""

from __future__ import annotations

import warnings
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
# Two float32 results within these tolerances count as equal. Rounding near 1 leaves errors of 1e-7, so a saturated sigmoid
# whose values are near 1e-8 consists of rounding errors only, and its cosine is meaningless.
_ABSOLUTE, _RELATIVE = 1e-6, 1e-4
_MIXED = Tolerance(0.99, 0.9)
"""The tolerance for a network whose own runtime quantizes activations to 8 bits."""


@dataclass(frozen=True)
class CheckReport:
    """The result of the check."""

    outputs: tuple[Difference, ...]
    layers: tuple[Difference, ...]
    """Intermediate tensors, in the order of the original."""
    tolerance: Tolerance
    notes: tuple[str, ...] = ()
    impossible: str = ""
    """Why the original could not be run, if it could not: then nothing was compared."""
    runtime: str = "ONNX Runtime"
    """The framework that ran the original."""

    @property
    def judge(self) -> str:
        """The former name of `runtime`."""
        warnings.warn("CheckReport.judge is now CheckReport.runtime", FutureWarning, stacklevel=2)
        return self.runtime

    @property
    def failures(self) -> list[Difference]:
        """The tensors beyond the tolerance, in the order of the network: the first is the likely cause."""
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
    """Run the original and the imported graph, and compare them.

    If the original's own runtime cannot run the file, the report says so in `impossible` and holds no differences.
    `options` are those of the import. `original_inputs` replace `inputs` for the original where preprocessing was fused
    into the graph.
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
        return CheckReport((), (), tolerance, impossible=error.message)
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
            return CheckReport((), (), tolerance, impossible=error.message)
        ours = engine(group).run(inputs)
        layers.extend(
            _compare(name, ours[name], reference[name])
            for name in group
            if not _is_other_form(ours[name], reference[name])
        )
        final.extend(
            _compare(name, ours[name], reference[name])
            for name in named
            if name not in leave_out and name not in original.random
        )
        del ours, reference
    if original.random:
        notes.append(f"not compared: {counted(len(original.random), 'tensor')} made of random numbers")
    unknown = [name for name in leave_out if name not in original.comparable and name not in outputs]
    if unknown:
        notes.append(f"--except names tensors that were not compared anyway: {', '.join(unknown[:8])}")
    return CheckReport(tuple(final), tuple(layers), tolerance, tuple(notes), runtime=_runtime_of(original))


def _runtime_of(original: Any) -> str:
    """The framework that runs an original; classes of plugins may still call it `judge`."""
    if hasattr(original, "runtime"):
        return str(original.runtime)
    warnings.warn(f"{type(original).__name__}.judge is now runtime", FutureWarning, stacklevel=3)
    return str(original.judge)


def _engine(graph: Graph, threads: int | None) -> tuple[Callable[[Sequence[str]], Any], set[str]]:
    """A function that makes an engine for the imported graph with the tensors to fetch, and the tensor names of the engine.

    A network of TFLite's arithmetic is checked as integers: its float form differs by more than the tolerance.
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
    """True if the original holds integers and the import the real values that they represent.

    This happens for an op that stays float between a dequantize and a quantize; the result of the quantize is compared.
    """
    return ours.dtype.kind == "f" and reference.dtype.kind in "iu"


def _compare(name: str, ours: Array, reference: Array) -> Difference:
    error = difference(name, ours, reference)
    if error.note or min(error.cosine, error.euclid) >= 0.9999 or ours.dtype.kind in "OSUbiu":
        return error
    with np.errstate(all="ignore"):
        close = np.allclose(
            ours.astype(np.float64),
            reference.astype(np.float64),
            rtol=_RELATIVE,
            atol=_ABSOLUTE,
            equal_nan=True,
        )
    return replace(error, close=True) if close else error


def _sizes(graph: Graph) -> dict[str, int]:
    sizes = {}
    for op in graph.ops:
        for name, value in zip(result_names(op), op.results, strict=True):
            if is_static(value):
                sizes[name] = int(np.prod(shape_of(value), dtype=object)) * dtype_of(value.type).itemsize
    return sizes


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
