"""The simulators: programs for the machine, executed to the bit, proved free of races, and played cycle by cycle.

`Simulator` (or `run`) executes a compiled model, `sanitize` looks for reads of bytes that nobody wrote, accesses outside of
an allocation and races, `simulate` gives the timeline. docs/simulator.md and docs/cycles.md say what each of them does.
"""

from npuc.sim.cycles import Timeline, costs, simulate
from npuc.sim.functional import Simulator, run
from npuc.sim.sanitize import Finding, sanitize

__all__ = ["Finding", "Simulator", "Timeline", "costs", "run", "sanitize", "simulate"]
