"""The C header has the layout of the records, and stays within the codes of the kernels."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from npuc.program.isa import DTYPES, INSTRUCTIONS, KINDS
from npuc.program.isa_header import c_header, isa_page

ROOT = Path(__file__).parents[2]


def test_every_field_is_where_numpy_has_it() -> None:
    lines = ["#include <stddef.h>", c_header()]
    for instruction in INSTRUCTIONS:
        for name, place in (instruction.dtype.fields or {}).items():
            inside = name if name in {field.name for field in instruction.fields} else f"head.{name}"
            struct = f"npuc_i_{instruction.name}"
            lines.append(
                f'_Static_assert(offsetof({struct}, {inside}) == {place[1]}, "{instruction.name}.{name}");'
            )
            size = place[0].itemsize
            lines.append(
                f'_Static_assert(sizeof((({struct} *)0)->{inside}) == {size}, "{instruction.name}.{name}");'
            )
    command = ["gcc", "-xc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-"]
    done = subprocess.run(command, input="\n".join(lines), text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_codes_are_those_of_the_kernels() -> None:
    header = (ROOT / "native/include/npuc/kinds.h").read_text()
    for names, prefix in ((DTYPES, ""), (KINDS, "")):
        for code, name in enumerate(names):
            spelled = {"ui8": "U8"}.get(name, name.upper())
            assert re.search(rf"\bNPUC_{prefix}{spelled} = {code}\b", header), name


def test_the_page_has_every_field() -> None:
    page = "\n".join(isa_page())
    for instruction in INSTRUCTIONS:
        assert f"## `{instruction.name}`" in page
        assert all(f"`{field.name}`" in page for field in instruction.fields)
