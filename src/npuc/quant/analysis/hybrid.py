"""A hybrid network: more bits for the few layers that cost most, as a configuration to be read, edited and used.

Tensors and weights are taken in the order of what their rounding costs at the outputs. A tensor has 16 bits only if the
layers that make it and those that read it compute with them, so one tensor can be several lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from npuc.ir import result_names
from npuc.quant.analysis.finding import percent
from npuc.quant.analysis.levels import Change
from npuc.quant.analysis.measurements import Measurements, TensorMeasure, WeightMeasure, decibels
from npuc.quant.config import Level, QuantizationConfig

_SHARE = 0.05
"""What makes less of the noise than this part is left alone."""
_MOST = 0.1
"""At most this part of all roundings is taken out, but a few in any case."""
_FEW = 3


@dataclass(frozen=True)
class Hybrid:
    """Layers that are worth more bits."""

    layers: Mapping[str, Level]
    reasons: Mapping[str, str]
    """Why, for each of them."""
    before: float
    """Decibels of the outputs as they are."""
    expected: float
    """Decibels of the outputs without the roundings that these layers would lose."""
    refused: tuple[str, ...] = ()
    """Layers that are worth more bits and cannot have them on the machine."""


Choose = Callable[[str, Change], Level | None]
"""What a layer gets in place of a change: the change itself, other types that the machine runs, or None if it has none."""


def suggest(found: Measurements, choose: Choose = lambda layer, change: change.level) -> Hybrid:
    """The layers to give more bits; a rounding whose layers cannot all have what they need stays as it is."""
    costs: list[TensorMeasure | WeightMeasure] = [*found.tensors, *found.weights]
    costs = sorted((cost for cost in costs if cost.wide), key=lambda cost: -cost.noise)
    wanted: dict[str, Change] = {}
    reasons: dict[str, list[str]] = {}
    refused: dict[str, None] = {}
    gone = 0.0
    for cost in costs[: max(_FEW, int(_MOST * len(costs)))]:
        share = found.share(cost.noise)
        if share < _SHARE:
            break
        cannot = [name for name, change in cost.wide.items() if choose(name, change) is None]
        if cannot:
            refused.update(dict.fromkeys(cannot))
            continue
        gone += share
        what = "its weights" if isinstance(cost, WeightMeasure) else f"'{cost.name}'"
        for name, change in cost.wide.items():
            wanted[name] = wanted[name].also(change) if name in wanted else change
            reasons.setdefault(name, []).append(f"rounding {what} makes {percent(share)} of the noise")
    order = [result_names(op)[0] for op in found.source.ops if op.results]
    chosen = {name: choose(name, wanted[name]) for name in order if name in wanted}
    layers: dict[str, Level] = {name: level for name, level in chosen.items() if level is not None}
    before = decibels(found.output_noise)
    return Hybrid(
        layers,
        {name: "; ".join(reasons[name]) for name in layers},
        before,
        before + decibels(max(1 - gone, 1e-3)),
        tuple(refused),
    )


def hybrid_yaml(
    hybrid: Hybrid,
    found: Measurements,
    config: QuantizationConfig,
    given: Mapping[str, Level],
    comments: Sequence[str] = (),
) -> str:
    """The configuration: what was asked for, what layers got beyond that (`given`), and the suggestions."""
    lines = [f"# {comment}" for comment in comments]
    if "scheme" in config.model_fields_set:
        lines.append(_dump({"scheme": config.scheme}))
    if config.types:
        lines.append(_dump({"types": config.types}))
    if "ladder" in config.model_fields_set:
        lines.append(_dump({"ladder": config.ladder.model_dump(exclude_unset=True)}))
    entries = {name: (level, "") for name, level in config.layers.items()}
    entries |= {name: (level, "has it already") for name, level in given.items()}
    for name, level in hybrid.layers.items():
        # The later line of a file wins.
        entries.pop(name, None)
        entries[name] = (level, hybrid.reasons[name])
    lines.append("layers:" if entries else "layers: {}")
    for name, (level, reason) in entries.items():
        lines.append(f"  {_dump({name: level})}{f'  # {reason}' if reason else ''}")
    lines += [
        "",
        "# All tensors, by what their rounding costs at the outputs; entropy is 0 where nothing is lost:",
    ]
    for tensor in sorted(found.tensors, key=lambda one: -one.noise):
        share = percent(found.share(tensor.noise))
        kind = tensor.values.type.dtype.name
        lines.append(f"#   {share:>16}  entropy {tensor.entropy:.2f}  {kind:4} {_printable(tensor.name)}")
    return "\n".join(lines) + "\n"


def _dump(value: dict[str, Any]) -> str:
    """One line of YAML."""
    key, item = next(iter(value.items()))
    name, text = (
        yaml.safe_dump(part, default_flow_style=True, allow_unicode=True, width=1 << 20, sort_keys=False)
        .replace("\n...", "")
        .strip()
        for part in (key, item)
    )
    return f"{name}: {text}"


def _printable(name: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in name)
