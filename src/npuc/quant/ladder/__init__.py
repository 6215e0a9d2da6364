"""The ladder: algorithms that lose less accuracy, in the order of what they yield for their time.

Each step proposes a network made of the best one so far; it is kept only if its outputs are closer to float on samples
that no step has seen. A step is a class in a folder of its own under `quant/`, registered with `@step`.
"""

from npuc.quant.ladder.climb import STEPS, Rung, Step, climb, step
from npuc.quant.ladder.workshop import Candidate, Workshop

__all__ = ["STEPS", "Candidate", "Rung", "Step", "Workshop", "climb", "step"]
