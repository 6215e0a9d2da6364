"""Six shared models by `npu.h`, two of them with layers on the CPU: Python's bits, or its numbers where the CPU computes reals.

`make prove-c` does it for all models, as applications that are built and run in every way.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from c_proof import OPTIONS, SIX, model_files
from npuc.calib.compiled import interface_of
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import CompileOptions
from npuc.frontend.options import ImportOptions
from npuc.program.model import CpuSubgraph
from npuc.sim import Simulator
from support.programs.c_applications import compiled
from support.programs.host_models import file_of, run_in_c


@pytest.mark.parametrize("name", SIX)
def test_a_model_runs_in_c(name: str, shared: Path) -> None:
    model = compiled(model_files()[name], OPTIONS.get(name, ImportOptions()), CompileOptions(0))
    on_cpu = [part for part in model.subgraphs if isinstance(part, CpuSubgraph)]
    assert bool(on_cpu) == (name in SIX[:2])
    inputs = random_inputs(interface_of(model))
    wanted = Simulator(model).run(inputs)
    outputs = {output: np.empty_like(wanted[output]) for output in model.outputs}
    assert run_in_c(file_of(model), {port: inputs[port] for port in model.inputs}, outputs) == ""
    for output, value in outputs.items():
        if on_cpu:
            np.testing.assert_allclose(value, wanted[output], rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(value, wanted[output])
