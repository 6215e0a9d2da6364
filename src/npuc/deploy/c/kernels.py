"""What plugins give a model, in an application: the C sources of operators and of kernels, and what registers them.

A library brings its whole source: every function in it, and its record, which `npu_add_plugin` takes. The records of several
libraries get names of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuc.errors import ExportError
from npuc.kernels.custom import custom_nodes, kernel_of
from npuc.program.custom_kernels import KERNELS, names_in
from npuc.program.model import CompiledModel, CpuSubgraph

_RECORD = "npu_plugin_entry"

_HEADER = """\
/* The kernels of custom instructions and the operators of plugins: kernels.c. */
#ifndef KERNELS_H
#define KERNELS_H

/* To be called before the model is loaded. */
void register_kernels(void);

#endif /* KERNELS_H */
"""


def plugin_sources(entries: Sequence[CompiledModel]) -> list[str]:
    """The C sources of the libraries whose operators or kernels a program has; `ExportError` for an operator without one."""
    from onnx import ModelProto

    sources: dict[str, None] = {}
    for entry in entries:
        for part in entry.subgraphs:
            if not isinstance(part, CpuSubgraph):
                continue
            proto = ModelProto.FromString(part.model)
            for node in (proto.graph.node[index] for index in custom_nodes(proto)):
                source = str(getattr(kernel_of(node.domain, node.op_type), "c_source", ""))
                if not source:
                    raise ExportError(
                        f"'{node.domain}:{node.op_type}' is an operator of a plugin, and has no source in C that an application "
                        "could bring with it",
                        where=entry.name,
                        fix="Load a library with the operator, and put its source beside it under its name (op.c, op.so). Or "
                        "link your program with libnpuc: npu_load_plugin, then npu_load",
                    )
                sources[source] = None
        kernels = (KERNELS[name] for name in names_in(entry) if name in KERNELS)
        sources |= dict.fromkeys(
            kernel.c_source for kernel in kernels if kernel.in_record and kernel.c_source
        )
    return list(sources)


def kernel_files(entries: Sequence[CompiledModel], libraries: Sequence[str] = ()) -> dict[str, str]:
    """`kernels.c`, its header, and a source for each kernel and each library; but an empty function if no entry needs one."""
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
    kernels = [KERNELS[name] for name in names if KERNELS[name].c_source not in libraries]
    lines = ["/* What plugins give the model. */", '#include "kernels.h"', ""]
    if kernels or libraries:
        lines += [f'#include "{"npu_plugin.h" if libraries else "npu_kernel.h"}"', ""]
    lines += [f"int32_t {kernel.c_name}(const npu_kernel_call *call);" for kernel in kernels]
    records = [f"{_RECORD}_{number}" for number in range(len(libraries))]
    lines += [f"const npu_plugin *{record}(void);" for record in records]
    lines += ["", "void register_kernels(void)", "{"]
    lines += [f'    npu_register_kernel("{kernel.name}", {kernel.c_name});' for kernel in kernels]
    lines += [f"    npu_add_plugin({record}());" for record in records]
    lines += ["}", ""]
    files = {"kernels.c": "\n".join(lines).replace("\n\n\n", "\n\n"), "kernels.h": _HEADER}
    files |= {f"kernel_{kernel.c_name}.c": kernel.c_source for kernel in kernels}
    for number, (record, source) in enumerate(zip(records, libraries, strict=True)):
        files[f"plugin_{number}.c"] = f"#define {_RECORD} {record} /* each library has one */\n{source}"
    return files
