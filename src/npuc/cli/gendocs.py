"""Write the generated pages of `docs/` (errors, ops, passes, commands, target fields, instructions, packages), each from the
code behind it, and the C headers of the instruction set, of the kinds and of the file format.

    python -m npuc.cli.gendocs [--check] [DIR]

`--check` writes nothing and fails if a page is not what it would write.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

_MARK = "<!-- Written by `make docs`. Do not edit: change the code that it describes. -->"


def main(arguments: list[str]) -> int:
    """Write or check the pages; returns the exit status."""
    check = "--check" in arguments
    rest = [argument for argument in arguments if argument != "--check"]
    folder = Path(rest[0]) if rest else Path("docs")
    stale = []
    for name, page in pages(folder).items():
        path = folder / name
        if path.is_file() and path.read_text() == page:
            continue
        stale.append(str(path))
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page)
            print(f"wrote {path}")
    if check and stale:
        print(f"these pages are not up to date: {', '.join(stale)}; run 'make docs'", file=sys.stderr)
        return 1
    return 0


def pages(folder: Path = Path("docs")) -> dict[str, str]:
    """File name, relative to the folder of pages, to text, for every generated page and the C headers."""
    from npuc.cli import architecture
    from npuc.detectors import networks_header
    from npuc.frontend.tflite.schema_source import schema_source
    from npuc.lang.generate import ops_source
    from npuc.program.file_header import file_header, file_rules
    from npuc.program.host_ops import host_header
    from npuc.program.instruction_source import instructions_source
    from npuc.program.isa_header import c_header, isa_page
    from npuc.program.kinds_header import kinds_header, kinds_page

    makers: dict[str, Callable[[], Iterator[str]]] = {
        "errors.md": _errors,
        "ops.md": _ops,
        "passes.md": _passes,
        "cli.md": _commands,
        "target-schema.md": _target_schema,
        "isa.md": isa_page,
        "frameworks.md": _frameworks,
        "formats.md": _formats,
        "host-ops.md": _host_ops,
    }
    texts = {name: "\n".join([_MARK, "", *make()]).rstrip() + "\n" for name, make in makers.items()}
    written = folder / "architecture.md"
    if written.is_file():  # people write the rest of that page
        texts["architecture.md"] = architecture.page(
            written.read_text(encoding="utf-8"), folder.parent / "src"
        )
    arithmetic = folder / "arithmetic.md"
    if arithmetic.is_file():
        texts["arithmetic.md"] = kinds_page(arithmetic.read_text(encoding="utf-8"))
    return texts | {
        "levels.svg": architecture.diagram(),
        "../native/include/npuc/isa.h": c_header(),
        "../native/include/npuc/kinds.h": kinds_header(),
        "../native/include/npu_networks.h": networks_header(),
        "../native/include/npuc/file.h": file_header(),
        "../native/include/npuc/host.h": host_header(),
        "../native/src/file_rules.h": file_rules(),
        "../src/npuc/frontend/tflite/schema.py": schema_source(),
        "../src/npuc/lang/ops.py": ops_source(),
        "../src/npuc/program/instructions.py": instructions_source(),
    }


def _text(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _errors() -> Iterator[str]:
    from npuc.errors import catalogue

    yield "# Errors\n"
    yield "Every error that npuc shows has a code that stays the same from release to release. Exit status 2 is for"
    yield "what the user can mend, 1 for a fault of npuc or of the machine.\n"
    for error in catalogue():
        yield f"## {error.code}: {error.title}\n"
        yield f"{_text(error)}\n"
        yield f"`{error.__name__}`, exit status {error.exit_status}\n"


def _ops() -> Iterator[str]:
    from npuc.ir import top as _registered  # noqa: F401
    from npuc.ir.definition import TOP_OPS
    from npuc.lang.generate import property_type

    yield "# Ops of the `top` dialect\n"
    yield f"{len(TOP_OPS)} ops, by name. Operands with `?` may be absent, with `*` there may be any number of them.\n"
    for name in sorted(TOP_OPS):
        op = TOP_OPS[name]
        definition = op.get_irdl_definition()
        yield f"## `{name}`\n"
        yield f"{_text(op)}\n"
        operands = [f"`{key}`{_arity(kind)}" for key, kind in definition.operands]
        results = [f"`{key}`{_arity(kind)}" for key, kind in definition.results]
        yield f"- operands: {', '.join(operands) or 'none'}"
        properties = [key for key in definition.properties if key != "operandSegmentSizes"]
        for key in properties:
            kind = property_type(op, key)
            default = f" = `{op.DEFAULTS[key]!r}`" if key in op.DEFAULTS else ""
            yield f"- property `{key}`: {kind}{default}"
        yield f"- results: {', '.join(results)}\n"
    yield from _op_parts()


def _op_parts() -> Iterator[str]:
    from dataclasses import astuple

    from npuc.inspect.op_parts import OPS, parts_of

    yield "## Where the parts of each op are\n"
    yield (
        "The functions that give each op of both dialects its forms, `module.function`. A new activation needs none of them:\n"
        "its record ([CONTRIBUTING](../CONTRIBUTING.md#add-an-op-in-one-sitting)) serves all.\n"
    )
    yield (
        "| op | formula (`ir/top`) | integers (`quant/lowering`) | graph mode (`engine/handlers`) | NPU layer (`schedule/rules`) "
        "| integers on the CPU (`partition/host`) | ONNX (`export/onnx/rules`) | TFLite (`export/tflite/rules`) |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for kind in OPS.values():
        name, *parts = astuple(parts_of(kind))
        yield f"| `{name}` | {' | '.join(f'`{part}`' if part else '–' for part in parts)} |"
    yield ""


def _arity(kind: Any) -> str:
    name = type(kind).__name__
    return "?" if name.startswith("Opt") else "*" if name.startswith("Var") else ""


def _passes() -> Iterator[str]:
    from npuc.ir.passes import PASSES
    from npuc.transform import CANONICAL

    yield "# Passes\n"
    yield "`npuc opt IN.mlir -p 'a,b{option=1}'` runs any of them. `npuc import` runs the canonical pipeline:\n"
    yield f"```\n{CANONICAL.replace(',', ',' + chr(10))}\n```\n"
    for name in sorted(PASSES):
        kind = PASSES[name]
        yield f"## `{name}`\n"
        yield f"{_text(kind)}\n"
        # The module of a pass shows before and after.
        story = _text(inspect.getmodule(kind))
        if story and story != _text(kind):
            yield f"{story}\n"
        for option in fields(kind):
            default = "" if option.default is MISSING else f" = `{option.default!r}`"
            words = option.metadata.get("help", "")
            yield f"- option `{option.name}`{default}{f': {words}' if words else ''}"
        if fields(kind):
            yield ""


def _target_schema() -> Iterator[str]:
    from npuc.target.reference import schema_page

    return schema_page()


def _frameworks() -> Iterator[str]:
    from npuc.cli.frameworks import frameworks_page

    return frameworks_page()


def _formats() -> Iterator[str]:
    from npuc.format_versions import FORMATS

    yield "# Versions of file formats\n"
    yield "Every file that one npuc writes and another reads states the version of its format. npuc reads every version from"
    yield "the oldest to the newest here, and refuses a later one by an error that names both; `tests/golden_files` has a"
    yield "small file of each version, which is read in the tests for ever. A version is raised when a reader of today"
    yield "would misread what is written; a field that may be absent does not raise it.\n"
    yield "| format | oldest | newest | stated in |\n|---|---|---|---|"
    for format_version in FORMATS:
        yield f"| {format_version.name} | {format_version.oldest} | {format_version.version} | {format_version.place} |"


def _host_ops() -> Iterator[str]:
    from npuc.codegen.host_ops import RULES
    from npuc.program.host_ops import HOST_KINDS, HOST_OPERATORS

    yield "# Host operators\n"
    yield "What a target cannot run, the CPU does. In Python that is ONNX Runtime; C programs (`npu.h`, `npuc export c`) have"
    yield "operators of their own, in portable C11 and without an allocator. The compiler writes each CPU subgraph in them"
    yield "(`.npu.host.S` of [the file](file-format.md)), with all shapes, constants and addresses, and C only computes.\n"
    yield "Results are those of ONNX Runtime within 2 ulp or 1e-6: sums of reals are in double precision, integers wrap as they"
    yield "do there. `tests/codegen/test_host_operators.py` compares every operator with it.\n"
    yield "## ONNX ops that C runs\n"
    yield ", ".join(f"`{name}`" for name in sorted(RULES)) + ".\n"
    yield "Element types are float32, float64, bool, and integers of 8 to 64 bits. A rule refuses what its operator does not"
    yield "cover, such as scales of blocks or a size that depends on the data; only `NonMaxSuppression` and what follows it, on"
    yield "its first axis, may have such a size. A subgraph with any other op (`Loop`, `Scan`, `If`, `Einsum`, `NonZero`, ops of"
    yield "Python plugins) is refused by `npuc export c` (E801) and by `npu_load` (`NPU_UNSUPPORTED`), with the op, its layer and"
    yield "the reason. The levers: cut the network before that layer (`npuc import --outputs`), or bring it to the NPU"
    yield "(`npuc inspect` says what would).\n"
    yield "## Operators\n"
    yield "| code | operator | operands | numbers | |\n|---|---|---|---|---|"
    for code, operator in enumerate(HOST_OPERATORS):
        yield f"| {code} | `{operator.name}` | {operator.operands} | {operator.numbers} | {operator.doc} |"
    yield "\nKinds, by code:\n"
    for name, kinds in HOST_KINDS.items():
        yield f"- `{name}`: {', '.join(kinds)}"


def _commands() -> Iterator[str]:
    import typer

    from npuc.cli.app import app

    yield "# Commands\n"
    yield "`npuc COMMAND --help` shows the same. Results go to stdout, notes and errors to stderr; the exit status is 0"
    yield "for success, 2 for an error of the user, 1 for a bug in npuc, 130 if it was interrupted.\n"
    yield "`-v` logs to stderr what the stages do, `-vv` more, such as every pass with its time; `--log-level` and the"
    yield "environment variable `NPUC_LOG` set the level by name. Programs get the log from Python's `logging` (logger `npuc`)."
    yield "Colours are used on a terminal, unless `NO_COLOR` is set or `--color` says otherwise; longer work shows a progress"
    yield "bar there, and a line now and then elsewhere. `npuc --install-completion` installs completion for the shell.\n"
    root: Any = typer.main.get_command(app)
    yield from _command(root, "npuc")


def _command(command: Any, path: str) -> Iterator[str]:
    children = getattr(command, "commands", None)
    parameters = [p for p in command.params if not getattr(p, "hidden", False)]
    arguments = [p for p in parameters if p.param_type_name == "argument"]
    if path != "npuc":
        yield f"{'##' if path.count(' ') == 1 else '###'} `{path}`\n"
        yield f"{_plain(command.help)}\n"
    if not children:
        words = [" ".join(_metavar(a) for a in arguments), "[OPTIONS]"]
        # Where the arguments are a command line of their own, options come before it.
        mixed = command.context_settings.get("allow_interspersed_args", True)
        words = words if mixed else ["[OPTIONS] --", words[0]]
        usage = " ".join([path, *filter(None, words)])
        yield f"```\n{usage}\n```\n"
        rows = [*(_row(_metavar(a), a) for a in arguments)]
        for option in parameters:
            if option.param_type_name == "option" and option.name != "help":
                spelled = ", ".join(f"`{text}`" for text in (*option.opts, *option.secondary_opts))
                value = "" if option.is_flag else f" `{_metavar(option)}`"
                rows.append(_row(f"{spelled}{value}", option, quoted=True))
        yield "| option | meaning |\n|---|---|"
        yield from rows
        yield ""
    for name, child in (children or {}).items():
        if not child.hidden:
            yield from _command(child, f"{path} {name}")


def _metavar(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    descriptor = getattr(parameter, "type_descriptor", None)
    choices = getattr(descriptor, "choices", None) or getattr(
        getattr(parameter, "type", None), "choices", None
    )
    if choices:
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    annotation = getattr(descriptor, "annotation", None)
    return str(getattr(annotation, "__name__", "VALUE")).upper()


def _row(name: str, parameter: Any, quoted: bool = False) -> str:
    default = parameter.default
    shown = getattr(default, "value", default)
    words = _plain(parameter.help)
    if isinstance(shown, bool):
        words += f" Default: {'on' if shown else 'off'}." if parameter.secondary_opts else ""
    elif shown not in (None, "", [], ()) and not callable(shown):
        words += f" Default: `{shown}`."
    label = name if quoted else f"`{name}`"
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (label, words)) + " |"


def _plain(text: str | None) -> str:
    return re.sub(r"[ \t]*\[default: ([^\]]*)\]", r" Default: \1.", inspect.cleandoc(text or ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
