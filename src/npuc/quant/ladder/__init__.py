"""The ladder: algorithms that lose less accuracy, in the order of what they yield for their time.

Each step proposes a network made of the best one so far; it is kept only if its outputs are closer to float on samples
that no step has seen. A step is a class in a folder of its own under `quant/`, registered with `@step`.
"""

from typing import Any

from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.sequence import STEPS, Step, StepResult, run_steps, step
from npuc.registries import renamed

__all__ = ["STEPS", "Candidate", "QuantizationContext", "Step", "StepResult", "run_steps", "step"]


def __getattr__(name: str) -> Any:
    old = {"Rung": StepResult, "Workshop": QuantizationContext, "climb": run_steps}
    return renamed(__name__, name, old)
