"""Small commands: `checkenv.py`, `extractoutput.py` and `pegasus measure`."""

from __future__ import annotations

from pathlib import Path

from npuc.compat.acuity.layers import attached_names, layers_of, lid_of, names_of
from npuc.compat.acuity.model_files import open_model
from npuc.compat.acuity.options import parser
from npuc.doctor import examine
from npuc.files import writable, write_atomically
from npuc.partition.work import macs


def checkenv(arguments: list[str]) -> int:
    """Say whether all that is needed is installed."""
    parser("checkenv.py", "Check the installation.").parse(arguments)
    findings = examine()
    for finding in findings:
        print(f"{finding.name} {finding.found or '-'} {finding.status}")
    if any(finding.status == "missing" for finding in findings):
        print("Env Fail: something that is needed is missing; 'npuc doctor' says what to do")
        return 1
    print("Env Pass: Env check SUCCESS!!!")
    return 0


def extract_output(arguments: list[str]) -> int:
    """Write which layer gives each output, and the number of its tensor."""
    own = parser("extractoutput.py", "Write the names of outputs and their tensors.")
    own.add("model", help="the .json file of pegasus import")
    own.add("-o", "--output", default="outnamelist.txt", help="the file to write")
    options = own.parse(arguments)
    model = open_model(options.model)
    names = names_of(model.graph)
    attached = attached_names(model.graph)
    path = writable(Path(options.output))
    lines = [
        f"{port.name} {lid_of(names.vendor_name(port.name)) or port.name} {number} {attached[port.name]}"
        for number, port in enumerate(model.graph.outputs)
    ]
    with write_atomically(path) as out:
        out.write(("\n".join(lines) + "\n").encode())
    print(f"{len(lines)} outputs written to {path}")
    return 0


def measure(arguments: list[str]) -> int:
    """Print the multiply-accumulates and weights of each layer."""
    own = parser("pegasus measure", "Count the multiply-accumulates and weights of a model.")
    own.add("--model", required=True, help="the .json file of pegasus import")
    own.add("--model-data", help="the .data file beside it")
    options = own.parse(arguments)
    model = open_model(options.model, options.model_data)
    total, weights = 0, 0
    for layer in layers_of(model.graph):
        work = macs(layer.op)
        constants = [model.graph.constant(value) for value in layer.op.operands]
        count = sum(array.size for array in constants if array is not None)
        total, weights = total + work, weights + count
        if work or count:
            print(f"{layer.lid:<40} {work:>14,} macc {count:>12,} params")
    print(f"TOTAL {total / 1e6:.3f}M macc, {weights / 1e6:.3f}M params")
    return 0
