"""A requantization kind, added as CONTRIBUTING.md says: the patch beside this file, applied to a copy of the sources."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from support.tree_copy import environment_of

ROOT = Path(__file__).parents[2]
PATCH = Path(__file__).with_name("requantization_kind.patch")
KIND = "single_floor"
MOST_PYTHON_FILES = 8

_CHECKS = """
import numpy as np
import onnxruntime as ort
from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import scaling
from npuc.codegen.host import host_program
from npuc.ir import Graph, npu, parse_graph, print_graph, tensor_type
from npuc.ir.dtypes import QuantType
from npuc.kernels import Requant
from npuc.partition import Part
from npuc.program import isa
from npuc.program.kinds_header import kinds_header, kinds_page
from npuc.quant.config import _CHOICES
from npuc.quant.from_target import misfit, scheme_for
from npuc.schedule.rules.common import requantization_of
from npuc.target import load_target, Target

kind = Kind("single_floor")
assert isa.KINDS[kind.code] == kind and "NPUC_SINGLE_FLOOR = 5" in kinds_header() and kind in kinds_page("")
data = load_target("edge-1t").to_dict()
data["arithmetic"]["requantization"]["kinds"] = ["single_floor"]
target = Target.from_dict(data)
scheme = scheme_for(target)
assert scheme.requant is kind in _CHOICES["requant"] and misfit(scheme, target) is None
found = scaling(kind, 0.3)
Requant(kind, found.multiplier, found.shift, lo=-128, hi=127)
graph = Graph.empty([("x", tensor_type((1, 256), QuantType.of("i8", 0.3, 0)))])
op = npu.Requant.make(
    graph.inputs[0].value, to=QuantType.of("i8", 1.0, 0), kind=kind, lo=-128, hi=127, name="y",
    parameters=(int(found.multiplier[0]), int(found.shift[0])),
)
graph.block.add_op(op)
graph.set_outputs([("y", op.y)])
assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
assert requantization_of(op).stage({}).kind == 5
x = np.arange(-128, 128).astype(np.int8).reshape(1, 256)
part = Part("cpu", (op,), (graph.inputs[0].value,), (op.y,))
model, _ = host_program(graph, part, {graph.inputs[0].value: "x", op.y: "y"})
session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
wanted = kind.rescaled(x, found.multiplier[0], found.shift[0])
np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted)
print(kinds_header())
print("PARAMETERS", found.multiplier[0], found.shift[0], *wanted.ravel())
"""

_MAIN = """
#include <stdio.h>
#include "wide.h"
int main(void)
{
    const int32_t multiplier = %s, shift = %s;
    const npuc_requant rq = {.kind = NPUC_SINGLE_FLOOR, .count = 1, .multiplier = &multiplier, .shift = &shift,
                             .lo = -128, .hi = 127};
    for (int x = -128; x < 128; x++) {
        if (npuc_requantize(&rq, x, 0) != npuc_requantize_wide(&rq, x, 0)) return 1;
        printf("%%d ", npuc_requantize(&rq, x, 0));
    }
    return 0;
}
"""


def test_a_kind_is_added_by_the_patch(tmp_path: Path) -> None:
    touched = re.findall(r"^\+\+\+ b/(.*)$", PATCH.read_text(), re.M)
    assert sum(name.endswith(".py") for name in touched) <= MOST_PYTHON_FILES
    ignore = shutil.ignore_patterns("__pycache__", "_native")
    shutil.copytree(ROOT / "src" / "npuc", tmp_path / "src" / "npuc", ignore=ignore)
    shutil.copytree(ROOT / "native", tmp_path / "native")
    subprocess.run(["git", "apply", "--whitespace=nowarn", str(PATCH)], cwd=tmp_path, check=True)
    run = subprocess.run(
        [sys.executable, "-c", _CHECKS],
        cwd=tmp_path,
        env=environment_of(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    header, _, numbers = run.stdout.partition("PARAMETERS ")
    (tmp_path / "native/include/npuc/kinds.h").write_text(header)
    multiplier, shift, *wanted = numbers.split()
    (tmp_path / "main.c").write_text(_MAIN % (multiplier, shift))
    command = [
        "gcc",
        "-std=c11",
        "-Wall",
        "-Werror",
        "-Inative/include",
        "-Inative/src",
        "main.c",
        "-o",
        "main",
        "-lm",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    made = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert made.stdout.split() == wanted
