"""A hybrid network: more bits for the few layers whose rounding costs most, as a configuration file that can be edited.

Tensors and weights are considered in the order of the noise that their rounding causes at the outputs. A tensor has 16 bits
only if the layers that write and read it compute with 16 bits, so one tensor can take several lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from npuc.ir import result_names
from npuc.quant.analysis.finding import percent
from npuc.quant.analysis.levels import SchemeChange
from npuc.quant.analysis.measurements import Measurements, TensorMeasure, WeightMeasure, decibels
from npuc.quant.config import Level, QuantizationConfig

_SHARE = 0.05
"""Roundings that cause a smaller share of the noise are left as they are."""
_MOST = 0.1
"""The largest share of all roundings that get more bits, but at least `_FEW` of them."""
_FEW = 3


@dataclass(frozen=True)
class Hybrid:
    """The layers that should get more bits."""

    layers: Mapping[str, Level]
    reasons: Mapping[str, str]
    """The reason for each of them."""
    before: float
    """The SQNR of the outputs now, in decibels."""
    expected: float
    """The expected SQNR of the outputs with the additional bits, in decibels."""
    refused: tuple[str, ...] = ()
    """Layers that should get more bits, but cannot on the target."""


Choose = Callable[[str, SchemeChange], Level | None]
"""The level that a layer gets for a change: the change itself, other types that the target supports, or None."""


def suggest(measurements: Measurements, choose: Choose = lambda layer, change: change.level) -> Hybrid:
    """The layers that should get more bits; a rounding stays as it is if not all of its layers can be changed."""
    costs: list[TensorMeasure | WeightMeasure] = [*measurements.tensors, *measurements.weights]
    costs = sorted((cost for cost in costs if cost.wide), key=lambda cost: -cost.noise)
    changes: dict[str, SchemeChange] = {}
    reasons: dict[str, list[str]] = {}
    refused: dict[str, None] = {}
    gone = 0.0
    for cost in costs[: max(_FEW, int(_MOST * len(costs)))]:
        share = measurements.share(cost.noise)
        if share < _SHARE:
            break
        cannot = [name for name, change in cost.wide.items() if choose(name, change) is None]
        if cannot:
            refused.update(dict.fromkeys(cannot))
            continue
        gone += share
        what = "its weights" if isinstance(cost, WeightMeasure) else f"'{cost.name}'"
        for name, change in cost.wide.items():
            changes[name] = changes[name].also(change) if name in changes else change
            reasons.setdefault(name, []).append(f"rounding {what} makes {percent(share)} of the noise")
    order = [result_names(op)[0] for op in measurements.source.ops if op.results]
    chosen = {name: choose(name, changes[name]) for name in order if name in changes}
    layers: dict[str, Level] = {name: level for name, level in chosen.items() if level is not None}
    before = decibels(measurements.output_noise)
    return Hybrid(
        layers,
        {name: "; ".join(reasons[name]) for name in layers},
        before,
        before + decibels(max(1 - gone, 1e-3)),
        tuple(refused),
    )


def hybrid_yaml(
    hybrid: Hybrid,
    measurements: Measurements,
    config: QuantizationConfig,
    given: Mapping[str, Level],
    comments: Sequence[str] = (),
) -> str:
    """The configuration file: the user's configuration, the levels that layers have beyond it (`given`), and the suggestions."""
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
    for tensor in sorted(measurements.tensors, key=lambda measure: -measure.noise):
        share = percent(measurements.share(tensor.noise))
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
