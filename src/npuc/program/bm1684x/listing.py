"""A `.bmodel` as text: what it takes and gives, and the commands of both engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from npuc.program.bm1684x.bmodel import Bmodel
from npuc.program.bm1684x.commands import Command, Engine, commands


def streams(model: Bmodel) -> dict[Engine, list[Command]]:
    """The commands of both engines."""
    return {
        "tiu": list(commands("tiu", model.tiu, model.tiu_count)),
        "gdma": list(commands("gdma", model.gdma, model.gdma_count)),
    }


def lines(model: Bmodel, with_commands: bool = True) -> Iterator[str]:
    """What `npuc objdump` prints."""
    yield f"{model.name} for {model.chip}"
    for title, ports in (("input", model.inputs), ("output", model.outputs)):
        for port in ports:
            shape = "x".join(map(str, port.shape))
            yield f"{title:8} {port.name} {port.dtype}[{shape}] at 0x{port.address:x}, {port.size:,} bytes"
    yield f"{'weights':8} {len(model.coefficients):,} bytes at 0x{model.coefficients_at:x}"
    yield f"{'memory':8} {model.activations:,} bytes of activations at 0x{model.activations_at:x}"
    for engine, stream in streams(model).items():
        counts = Counter(command.form.name for command in stream)
        yield ""
        yield f"{engine.upper()}: {len(stream)} commands, " + ", ".join(
            f"{name} {count}" for name, count in counts.items()
        )
        if with_commands:
            for command in stream:
                yield f"  {command}"


def as_json(model: Bmodel, with_commands: bool = True) -> dict[str, Any]:
    """The same as plain data."""
    data: dict[str, Any] = {
        "name": model.name,
        "chip": model.chip,
        "inputs": [asdict(port) for port in model.inputs],
        "outputs": [asdict(port) for port in model.outputs],
        "weights_bytes": len(model.coefficients),
        "activations_bytes": model.activations,
    }
    for engine, stream in streams(model).items():
        data[engine] = (
            [{"command": command.form.name, **command.values} for command in stream]
            if with_commands
            else len(stream)
        )
    return data
