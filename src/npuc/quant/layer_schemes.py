"""What each layer of a network gets: its scheme, or None for a layer that stays float.

Choosing schemes is a chain of changes: a configuration gives the first, a target narrows them, a search widens some layers and
leaves others float. Each link is a new record, which can be asked (`schemes(op)`), compared, printed and read:

    >>> from npuc.ir import Graph, tensor_type, top
    >>> from npuc.quant.scheme import SCHEMES
    >>> graph = Graph.empty([("x", tensor_type((1, 4), "f32"))])
    >>> graph.block.add_op(op := top.Relu.make(graph.inputs[0].value, name="y"))
    >>> print(LayerSchemes.of(graph, SCHEMES["int8"]))
    int8: i8 affine activations, i8 symmetric weights per channel, single_rounding with 31-bit multipliers
      1 layer: y
    >>> print(LayerSchemes.of(graph, SCHEMES["int8"]).as_float([op]))
    float
      1 layer: y
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from npuc.arithmetic.kinds import Scales
from npuc.ir import Graph, shown_name, top
from npuc.ir.definition import TopOp
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.words import counted

SchemeOf = Callable[[Any], Scheme | None]
"""A function of an op, which a caller may give instead; `LayerSchemes.of` asks it once for every op."""

_SHOWN = 8
"""Layers of a scheme that are named when schemes are printed."""


@dataclass(frozen=True)
class LayerSchemes:
    """The scheme of every layer of a network."""

    by_op: Mapping[Any, Scheme | None]
    """Ops that are not here stay float."""

    @staticmethod
    def of(graph: Graph, schemes: Scheme | SchemeOf | LayerSchemes | None = None) -> LayerSchemes:
        """The schemes of a network's layers: one for all (int8 if none is said), or what a function gives for each."""
        if isinstance(schemes, LayerSchemes):
            return schemes
        layers = [op for op in graph.ops if isinstance(op, TopOp) and not isinstance(op, top.WeightOp)]
        if schemes is None or isinstance(schemes, Scheme):
            return LayerSchemes(dict.fromkeys(layers, schemes or SCHEMES["int8"]))
        return LayerSchemes({op: schemes(op) for op in layers})

    def __call__(self, op: Any) -> Scheme | None:
        """The scheme of a layer, None if it stays float."""
        return self.by_op.get(op)

    @property
    def has_powers_of_two(self) -> bool:
        """Whether scales of some layer are powers of two."""
        schemes = [scheme for scheme in self.by_op.values() if scheme is not None]
        return any(
            Scales.POWER_OF_TWO in (scheme.activation_scales, scheme.weight_scales) for scheme in schemes
        )

    def changed(self, change: Callable[[Any, Scheme], Scheme | None]) -> LayerSchemes:
        """Other schemes for the layers that have one."""
        return LayerSchemes(
            {op: scheme if scheme is None else change(op, scheme) for op, scheme in self.by_op.items()}
        )

    def as_float(self, ops: Iterable[Any]) -> LayerSchemes:
        """The same, but some layers stay float."""
        return LayerSchemes({**self.by_op, **dict.fromkeys(ops)})

    def by_scheme(self) -> dict[Scheme | None, list[str]]:
        """The names of the layers that each scheme has, in the order of the network."""
        layers: dict[Scheme | None, list[str]] = {}
        for op, scheme in self.by_op.items():
            if isinstance(op, TopOp) and not isinstance(op, top.WeightOp) and op.results:
                layers.setdefault(scheme, []).append(shown_name(op))
        return layers

    def __str__(self) -> str:
        lines = []
        for scheme, names in self.by_scheme().items():
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            lines.append("float" if scheme is None else str(scheme))
            lines.append(f"  {counted(len(names), 'layer')}: {', '.join(names[:_SHOWN])}{more}")
        return "\n".join(lines)
