"""Accelerators beside the NPU that plugins bring: each claims ops, compiles the subgraphs that they form, and runs them.

    add_accelerator(Accelerator("dsp", claims, compile, run))

In a compiled model a subgraph of an accelerator is a CPU subgraph of one custom node that holds what `compile` made of it; the
runtime and the simulators hand that to `run` with the operands. Graph mode knows nothing of accelerators: what `run` gives has
to have the bits that graph mode has, as with any device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.activity import activity
from npuc.arrays import Array
from npuc.errors import CompileError, NpucError, PluginError
from npuc.ir import Graph, dtype_of, shape_of, shown_name
from npuc.ir.definition import TensorOp
from npuc.kernels.custom import Kernel, register_family
from npuc.plugin_code import fault_of
from npuc.registries import Registry
from npuc.target import Target

DOMAIN = "npuc.accelerator"
"""Of the nodes that stand for subgraphs of accelerators."""


@dataclass(frozen=True)
class Accelerator:
    """A device of a plugin."""

    name: str
    claims: Callable[[Any, Graph, Target], bool]
    """Whether it takes an op of an Npu program that is compiled for a target."""
    compile: Callable[[Graph], bytes]
    """A subgraph, as a program of its own with inputs and outputs, as whatever `run` understands."""
    run: Callable[[bytes, Sequence[Array]], Sequence[Array]] | None = None
    """The results of what was compiled, of arrays of logical shapes; integers stay integers. None: a plugin in C has the op of
    the domain `npuc.accelerator` and this name (npu_plugin.h), which gets the bytes as its first input."""


ACCELERATORS: Registry[str, Accelerator] = Registry("an accelerator")
"""By name, in the order in which they are asked."""


def add_accelerator(accelerator: Accelerator, *, replace: bool = False) -> None:
    """Register an accelerator."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", accelerator.name) or accelerator.name in (
        "npu",
        "cpu",
        "convert",
        "host",
    ):
        raise PluginError(
            f"an accelerator cannot be called '{accelerator.name}'",
            fix="Names are small letters, digits and underscores; npu, cpu, convert and host are npuc's own",
        )
    ACCELERATORS.add([accelerator.name], accelerator, replace=replace)


def claimant(op: TensorOp, graph: Graph, target: Target) -> str | None:
    """The accelerator that takes an op, or None."""
    for name, accelerator in ACCELERATORS.items():
        try:
            if accelerator.claims(op, graph, target):
                return name
        except Exception as error:
            raise fault_of(error) or CompileError(
                f"the accelerator '{name}' cannot say whether it takes it: {type(error).__name__}: {error}",
                where=f"layer '{shown_name(op)}'",
            ) from error
    return None


def accelerated(name: str, small: Graph) -> bytes:
    """A subgraph of an accelerator as the model of a CPU subgraph."""
    # Hardly any machine has one, and onnx takes long to load.
    from onnx import helper, numpy_helper

    try:
        with activity(f"the accelerator '{name}' compiles its subgraph"):
            program = bytes(ACCELERATORS[name].compile(small))
    except NpucError:
        raise
    except Exception as error:
        raise fault_of(error) or CompileError(
            f"the accelerator '{name}' cannot compile its subgraph: {type(error).__name__}: {error}",
            where=f"output '{small.outputs[0].name}'",
        ) from error
    ports = small.inputs, small.outputs
    inputs, outputs = (
        [
            helper.make_tensor_value_info(port.name, dtype_of(port.type).onnx, shape_of(port.value))
            for port in side
        ]
        for side in ports
    )
    taken = {port.name for side in ports for port in side}
    held = next(
        word for word in ("program", *(f"program{n}" for n in range(len(taken)))) if word not in taken
    )
    node = helper.make_node(
        name,
        [held, *(port.name for port in small.inputs)],
        [port.name for port in small.outputs],
        domain=DOMAIN,
    )
    weight = numpy_helper.from_array(np.frombuffer(program, np.uint8), held)
    graph = helper.make_graph([node], "main", inputs, outputs, [weight])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=imports, producer_name="npuc")
    model.ir_version = 10
    return bytes(model.SerializeToString(deterministic=True))


def _kernel(name: str) -> Kernel | None:
    accelerator = ACCELERATORS.get(name)
    if accelerator is None or accelerator.run is None:
        return None
    run = accelerator.run

    def compute(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
        return list(run(arrays[0].tobytes(), [np.ascontiguousarray(array) for array in arrays[1:]]))

    return compute


register_family(DOMAIN, _kernel)
