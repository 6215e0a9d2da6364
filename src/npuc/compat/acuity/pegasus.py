"""`pegasus`: one word says what to do, some have a second one that says with what."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import cast

from npuc.compat.acuity.import_command import FRAMEWORKS
from npuc.errors import UsageError

_HERE = "npuc.compat.acuity"
_COMMANDS = {
    "import": f"{_HERE}.import_command:main",
    "generate": f"{_HERE}.generate_command:main",
    "quantize": f"{_HERE}.quantize_command:main",
    "inference": f"{_HERE}.inference_command:main",
    "dump": f"{_HERE}.inference_command:dump",
    "export": f"{_HERE}.export_command:main",
    "measure": f"{_HERE}.tools:measure",
    "extractoutput": f"{_HERE}.tools:extract_output",
    "checkenv": f"{_HERE}.tools:checkenv",
}
_REFUSED = {
    "train": "'npuc train' trains networks for the integers of the machine",
    "prune": "'npuc train prune' removes channels by the cycles that they cost",
}
_HELP = f"""\
usage: pegasus COMMAND ...

  import {{{",".join(FRAMEWORKS)}}}
  generate {{inputmeta,postprocess-file}}
  quantize
  inference
  dump
  export {{ovxlib,tflite,onnx}}
  measure
  extractoutput
  checkenv
  --serial SERIAL       which --optimize value the serial code of a chip stands for

'pegasus COMMAND --help' shows the options of a command."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_HELP)
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    if name == "--serial":
        from npuc.compat.acuity.chips import optimize_value

        if len(rest) != 1:
            raise UsageError("--serial takes the serial code of /proc/cpuinfo", where="pegasus")
        print(f"--optimize {optimize_value(rest[0])}")
        return 0
    if name in _REFUSED:
        raise UsageError(
            f"pegasus {name} is not supported: no public document states its options", fix=_REFUSED[name]
        )
    if name not in _COMMANDS:
        near = get_close_matches(name, _COMMANDS, 1)
        hint = f"Did you mean '{near[0]}'? " if near else ""
        raise UsageError(f"pegasus has no command '{name}'", fix=f"{hint}There are: {', '.join(_COMMANDS)}")
    module, _, function = _COMMANDS[name].partition(":")
    command = cast("Callable[[list[str]], int]", getattr(import_module(module), function))
    return command(rest)
