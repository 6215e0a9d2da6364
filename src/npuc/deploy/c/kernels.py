"""The kernels of a model's custom instructions in an application: their C sources, and what registers them."""

from __future__ import annotations

from collections.abc import Sequence

from npuc.errors import ExportError
from npuc.program.custom_kernels import KERNELS, names_in
from npuc.program.model import CompiledModel

_HEADER = """\
/* The kernels of custom instructions: kernels.c. */
#ifndef KERNELS_H
#define KERNELS_H

/* To be called before the first run. */
void register_kernels(void);

#endif /* KERNELS_H */
"""


def kernel_files(entries: Sequence[CompiledModel]) -> dict[str, str]:
    """`kernels.c`, its header, and a source for each kernel; nothing but an empty function if no entry needs one."""
    names = sorted({name for entry in entries for name in names_in(entry)})
    missing = [name for name in names if name not in KERNELS or not KERNELS[name].c_source]
    if missing:
        known = missing[0] in KERNELS
        raise ExportError(
            f"its custom instruction '{missing[0]}' has no kernel in C",
            where=entries[0].name,
            fix="Give the plugin's kernel a c_source"
            if known
            else "Load the plugin that has the kernel (--plugin)",
        )
    kernels = [KERNELS[name] for name in names]
    lines = ["/* The kernels of the custom instructions of the model. */", '#include "kernels.h"', ""]
    if kernels:
        lines += ['#include "npu_kernel.h"', ""]
    lines += [f"int32_t {kernel.c_name}(const npu_kernel_call *call);" for kernel in kernels]
    lines += ["", "void register_kernels(void)", "{"]
    lines += [f'    npu_register_kernel("{kernel.name}", {kernel.c_name});' for kernel in kernels]
    lines += ["}", ""]
    files = {"kernels.c": "\n".join(lines).replace("\n\n\n", "\n\n"), "kernels.h": _HEADER}
    return files | {f"kernel_{kernel.c_name}.c": kernel.c_source for kernel in kernels}
