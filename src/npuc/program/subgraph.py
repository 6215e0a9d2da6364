"""One subgraph of a compiled model as a model of its own: what it reads and makes are the inputs and outputs.

It has the instructions, weights and places of the whole, so what it computes and how long it takes is what it does there.
"""

from __future__ import annotations

from dataclasses import replace

from npuc.errors import UsageError
from npuc.program.model import CompiledModel, HostConversion


def only_subgraph(model: CompiledModel, name: str) -> CompiledModel:
    """The subgraph of this name, or number, alone; conversions, which the runtime does by itself, are none.

    Notes for debuggers, which count subgraphs, are left out.
    """
    for number, part in enumerate(model.subgraphs):
        if name in (part.name, str(number)) and not isinstance(part, HostConversion):
            return replace(
                model,
                name=f"{model.name}/{part.name}",
                subgraphs=(part,),
                inputs=part.inputs,
                outputs=part.outputs,
                debug=b"",
                states=(),
            )
    known = [part.name for part in model.subgraphs if not isinstance(part, HostConversion)]
    raise UsageError(
        f"the model has no subgraph '{name}' that computes",
        where=model.name,
        fix=f"It has: {', '.join(known)}",
    )
