"""Tensors whose parts differ in size by more than their bits can hold, said in a sentence with what helps.

A concat gives its operands one scale. An operand that is much smaller than another is left a few of its 256 steps, whatever the
layers before it did; no later layer brings back what is lost there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from npuc.ir import Graph, Value, result_names, top, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.joining import joining_ops
from npuc.quant.prequantized import integer_types
from npuc.quant.scheme import Scheme

LEAST_STEPS = 8.0
"""A part that has fewer steps than this is lost: about 20 dB at best."""
_NAMED = 4


def crowded(
    source: Graph,
    made: Graph,
    spans: Mapping[str, tuple[float, float]],
    scheme_of: Callable[[Any], Scheme | None],
    *,
    wide: bool = True,
) -> tuple[str, ...]:
    """A sentence for each concat of integers that leaves an operand too few steps.

    `spans` are the least and largest value of tensors by name; `wide` says whether there are activations of 16 bits.
    """
    types = integer_types(made)
    last = set(joining_ops(source, scheme_of))
    found: list[tuple[float, str]] = []
    for op in source.ops:
        if not isinstance(op, top.Concat) or (kind := types.get(value_name(op.results[0]))) is None:
            continue
        steps = {value: _steps(value, kind, spans) for value in op.inputs}
        known = {value: count for value, count in steps.items() if count}
        small = [value for value, count in known.items() if count < LEAST_STEPS]
        if small and max(known.values()) >= LEAST_STEPS:
            large = max(known, key=lambda value: known[value])
            found.append((min(known.values()), _sentence(op, small, large, known, spans, op in last, wide)))
    found.sort()
    words = [text for _, text in found[:_NAMED]]
    if len(found) > _NAMED:
        words.append(
            f"{len(found) - _NAMED} more concats leave an operand fewer than {LEAST_STEPS:.0f} steps"
        )
    return tuple(words)


def spans_of(ranges: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """The least and largest values of a calibration table, of statistics, or of (min, max) pairs."""
    return {
        name: (found[0], found[1]) if isinstance(found, tuple) else (found.min, found.max)
        for name, found in ranges.items()
    }


def _steps(value: Value, kind: QuantType, spans: Mapping[str, tuple[float, float]]) -> float:
    low, high = spans.get(value_name(value), (0.0, 0.0))
    return (high - low) / kind.scale


def _sentence(
    op: Any,
    small: list[Value],
    large: Value,
    steps: Mapping[Value, float],
    spans: Mapping[str, tuple[float, float]],
    last: bool,
    wide: bool,
) -> str:
    name = result_names(op)[0]
    parts = ", ".join(f"'{value_name(v)}' ({_size(v, spans)}) {max(1, round(steps[v]))}" for v in small)
    has = f"'{name}' has one scale, which leaves {parts} of the {round(max(steps.values()))} steps"
    beside = f"of '{value_name(large)}' ({_size(large, spans)})"
    if last:
        return f"{has} {beside}: --keep-float {name} joins them in float"
    readers = dict.fromkeys(
        result_names(use.operation)[0] for use in op.results[0].uses if use.operation.results
    )
    names = [name, *readers]
    if wide:
        lines = ", ".join(f"{one}: int16" for one in names)
        return f"{has} {beside}: 16 bits help, 'layers: {{{lines}}}' in the file of --config"
    return f"{has} {beside}: --keep-float {','.join(names)} computes there in float"


def _size(value: Value, spans: Mapping[str, tuple[float, float]]) -> str:
    low, high = spans[value_name(value)]
    return f"{low:.3g} to {high:.3g}"
