"""The ladder: a pipeline of quantization algorithms, ordered by the accuracy that they gain for their run time.

Each step proposes a network based on the best one so far; the proposal is kept only if its outputs are closer to float on
validation samples, from which no step learns. A step is a class in its own folder under `quant/`, registered with `@step`.
"""

from typing import Any

from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.sequence import STEPS, Step, StepResult, run_steps, step
from npuc.registries import renamed

__all__ = ["STEPS", "Candidate", "QuantizationContext", "Step", "StepResult", "run_steps", "step"]


def __getattr__(name: str) -> Any:
    old = {"Rung": StepResult, "Workshop": QuantizationContext, "climb": run_steps}
    return renamed(__name__, name, old)
