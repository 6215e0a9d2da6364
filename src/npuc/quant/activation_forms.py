"""Hardware forms of activations before quantization: those that a user asks for, or a target states, and what they cost.

The float network that is calibrated, quantized and compared with is the changed one; what the change itself costs is measured
here, on float against float.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from npuc.compare import find_slices, measure_outputs
from npuc.engine import float_engine
from npuc.ir import Graph
from npuc.transform.hardware_activations import HardwareActivations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npuc.arrays import Array
    from npuc.quant.config import QuantizationConfig
    from npuc.target import Target

_MOST_SAMPLES = 16


def with_activation_forms(
    graph: Graph, config: QuantizationConfig | None, target: Target | None
) -> tuple[Graph, tuple[str, ...]]:
    """The network with hardware forms of activations, and what changed in words; the same network if there are none.

    The configuration decides, if it says anything; otherwise the target does.
    """
    configured = None if config is None else config.activation_forms
    forms = configured if configured is not None else () if target is None else target.limits.activation_forms
    if not forms:
        return graph, ()
    changed = graph.copy()
    before = len(changed.notes)
    HardwareActivations(tuple(forms)).run(changed)
    changed.verify()
    notes = tuple(changed.notes[before:])
    return (changed, notes) if notes else (graph, ())


def cost_of_forms(
    graph: Graph, changed: Graph, samples: Sequence[Mapping[str, Array]], threads: int | None = None
) -> str:
    """What the changed forms do to the float outputs, in words."""
    chosen = list(samples[:_MOST_SAMPLES])
    exact = [float_engine(graph, threads=threads).run(sample) for sample in chosen]
    figures = measure_outputs(
        float_engine(changed, threads=threads).run, chosen, exact, find_slices(graph, exact)
    )
    worst = (
        ""
        if figures.worst is None
        else f", {figures.worst.sqnr:.1f} dB in the worst slice of the worst sample"
    )
    return (
        f"the hardware forms of activations leave the float outputs at {figures.mean:.1f} dB{worst}, before any integers; "
        "without them they are exact"
    )
