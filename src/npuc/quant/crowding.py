"""Warnings about tensors whose parts differ in magnitude by more than their bits can represent, with a remedy.

All operands of a concat share one scale. An operand that is much smaller than another gets only a few of the 256 steps,
however accurate the layers before it are, and no later layer can restore what is lost there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npuc.ir import Graph, Value, result_names, top, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.joining import joining_ops
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.prequantized import integer_types

LEAST_STEPS = 8.0
"""A part with fewer steps than this counts as lost: it has about 20 dB at best."""
_NAMED = 4


def crowded(
    source: Graph,
    quantized: Graph,
    spans: Mapping[str, tuple[float, float]],
    scheme_of: LayerSchemes,
    *,
    wide: bool = True,
) -> tuple[str, ...]:
    """One sentence for each integer concat that leaves an operand too few steps.

    `spans` are the smallest and largest value of each tensor, by name; `wide` says whether 16-bit activations exist.
    """
    types = integer_types(quantized)
    last = set(joining_ops(source, scheme_of))
    sentences: list[tuple[float, str]] = []
    for op in source.ops:
        if not isinstance(op, top.Concat) or (kind := types.get(value_name(op.results[0]))) is None:
            continue
        steps = {value: _steps(value, kind, spans) for value in op.inputs}
        known = {value: count for value, count in steps.items() if count}
        small = [value for value, count in known.items() if count < LEAST_STEPS]
        if small and max(known.values()) >= LEAST_STEPS:
            large = max(known, key=lambda value: known[value])
            sentences.append(
                (min(known.values()), _sentence(op, small, large, known, spans, op in last, wide))
            )
    sentences.sort()
    words = [text for _, text in sentences[:_NAMED]]
    if len(sentences) > _NAMED:
        words.append(
            f"{len(sentences) - _NAMED} more concats leave an operand fewer than {LEAST_STEPS:.0f} steps"
        )
    return tuple(words)


def spans_of(ranges: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """The smallest and largest value of each tensor, from a calibration table, statistics, or (min, max) pairs."""
    return {
        name: (span[0], span[1]) if isinstance(span, tuple) else (span.min, span.max)
        for name, span in ranges.items()
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
        lines = ", ".join(f"{layer}: int16" for layer in names)
        return f"{has} {beside}: 16 bits help, 'layers: {{{lines}}}' in the file of --config"
    return f"{has} {beside}: --keep-float {','.join(names)} computes there in float"


def _size(value: Value, spans: Mapping[str, tuple[float, float]]) -> str:
    low, high = spans[value_name(value)]
    return f"{low:.3g} to {high:.3g}"
