"""The packages of npuc on levels, and every import between them: the table and the diagram of docs/architecture.md.

A package imports packages of lower levels only, never one of its own level or above. `LEVELS` is the one statement of that;
`tests/test_architecture.py` holds every import of the source to it, and `make docs` writes the page from it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path


@dataclass(frozen=True)
class ArchitectureLevel:
    """Packages that do not import each other, and what they have in common."""

    title: str
    packages: tuple[str, ...]
    """Names below `npuc`, dotted where a part of a package stands on a level of its own."""


LEVELS = (
    ArchitectureLevel(
        "Errors and words", ("aliases", "arrays", "errors", "garbage", "listeners", "plain_yaml", "words")
    ),
    ArchitectureLevel(
        "Files, tables, numbers",
        (
            "activity",
            "archives",
            "arithmetic",
            "files",
            "format_versions",
            "native",
            "origins",
            "plugin_code",
            "registries",
        ),
    ),
    ArchitectureLevel(
        "Machines, networks, programs as data",
        ("detectors", "distribute", "extras", "images", "ir", "program", "target", "tensors"),
    ),
    ArchitectureLevel("Kernels, and Top IR as ONNX", ("export", "export.compass", "export.onnx", "kernels")),
    ArchitectureLevel("Networks run, host parts of programs run", ("engine", "export.exact", "host")),
    ArchitectureLevel("Programs simulated", ("sim",)),
    ArchitectureLevel(
        "Stages",
        (
            "calib",
            "export.qdq",
            "export.tflite",
            "export.torch",
            "frontend",
            "runtime",
            "schedule",
            "transform",
        ),
    ),
    ArchitectureLevel(
        "What stages need of each other", ("compare", "datasets", "deploy", "lang", "partition", "profile")
    ),
    ArchitectureLevel("Integers and programs", ("codegen", "metrics", "quant")),
    ArchitectureLevel("Extension, cost, proof of an import", ("import_check", "layer_costs", "plugins")),
    ArchitectureLevel("All stages in a row", ("flow",)),
    ArchitectureLevel("Around the compiler", ("debug", "doctor", "evaluate", "explore", "inspect")),
    ArchitectureLevel("Inside of frameworks", ("integrations",)),
    ArchitectureLevel("Training", ("train",)),
    ArchitectureLevel("Entrances from frameworks", ("keras", "tensorflow", "torch")),
    ArchitectureLevel("The page", ("studio",)),
    ArchitectureLevel("Commands of other vendors", ("compat",)),
    ArchitectureLevel("The command line", ("cli",)),
)
"""From the bottom up."""

LEVEL_OF = {name: number for number, level in enumerate(LEVELS) for name in level.packages}

NO_MODULES = frozenset({"npuc.torch", "npuc.keras", "npuc.tensorflow", "npuc.plugins"})
"""Strings that look like modules and are none where they stand alone: ONNX domains, and a group of entry points."""

BEGIN, END = "<!-- packages: written by `make docs` -->", "<!-- end of packages -->"


@dataclass(frozen=True)
class Import:
    """A module that another one imports."""

    importer: str
    line: int
    imported: str

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}, imports {self.imported}"


def package_of(module: str) -> str:
    """The package of `LEVELS` that a module belongs to; empty for `npuc` itself, which only fills tables.

    >>> package_of("npuc.export.onnx.rules.conv"), package_of("npuc.flow"), package_of("npuc")
    ('export.onnx', 'flow', '')
    """
    parts = module.split(".")[1:]
    for length in range(len(parts), 0, -1):
        if (name := ".".join(parts[:length])) in LEVEL_OF:
            return name
    return parts[0] if parts else ""


def modules(source: Path) -> dict[str, Path]:
    """Dotted names of all modules below a folder that holds the package `npuc`, in order."""
    paths = {}
    for path in sorted((source / "npuc").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def imports(name: str, text: str, known: Mapping[str, object]) -> Iterator[Import]:
    """The imports of a module from npuc: at its head, inside of functions, and modules that are named in strings.

    >>> text = "def f():" + chr(10) + "    import_module(f'npuc.quant.{x}')" + chr(10) + "    from npuc import flow"
    >>> [str(edge) for edge in imports("npuc.ir", text, {"npuc.flow": 0, "npuc.quant": 0})]
    ['npuc.ir, line 2, imports npuc.quant', 'npuc.ir, line 3, imports npuc.flow']
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # `from npuc import flow` names a module, `from npuc.flow import import_model` something in one.
            assert not node.level, f"{name} imports relatively"
            dotted = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [path if path in known else str(node.module) for path in dotted]
        elif isinstance(node, ast.JoinedStr) and isinstance(first := node.values[0], ast.Constant):
            names = [str(first.value).rpartition(".")[0]]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in NO_MODULES:
            names = [node.value]
        else:
            continue
        for imported in names:
            if imported.startswith("npuc.") and imported in known:
                yield Import(name, getattr(node, "lineno", 0), imported)


def all_imports(source: Path) -> list[Import]:
    """Every import between modules of npuc."""
    known = modules(source)
    return [
        edge
        for name, path in known.items()
        for edge in imports(name, path.read_text(encoding="utf-8"), known)
    ]


def between_packages(edges: list[Import]) -> dict[str, list[str]]:
    """Package to the packages that it imports."""
    pairs = {(package_of(edge.importer), package_of(edge.imported)) for edge in edges}
    return {
        name: sorted(imported for importer, imported in pairs if importer == name and imported != name)
        for name in LEVEL_OF
    }


def _summary(name: str, source: Path) -> str:
    """The first sentence of a package's docstring."""
    path = source / "npuc" / Path(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".")


def table(source: Path) -> Iterator[str]:
    """The table of docs/architecture.md, from the highest level down."""
    imported = between_packages(all_imports(source))
    yield "| level | package | what it is | imports |"
    yield "|---|---|---|---|"
    for number in reversed(range(len(LEVELS))):
        for name in LEVELS[number].packages:
            path = name.replace(".", "/")
            shown = f"{path}/" if (source / "npuc" / path).is_dir() else f"{path}.py"
            others = ", ".join(f"`{other}`" for other in imported[name]) or "nothing of npuc"
            if len(imported[name]) > 12:
                others = f"{len(imported[name])} packages below"
            yield f"| {number} | `{shown}` | {_summary(name, source)} | {others} |"


def page(text: str, source: Path) -> str:
    """The page with its generated part written again."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n" + "\n".join(table(source)) + f"\n{END}{tail}"


_WIDTH, _ROW, _LEFT = 1080, 40, 300


def diagram() -> str:
    """The levels as an SVG diagram: one band a level, the command line on top."""
    height = _ROW * len(LEVELS) + 16
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, level in enumerate(reversed(LEVELS)):
        y = 8 + number * _ROW
        tone = "#f2f5f9" if number % 2 else "#e6ecf3"
        lines.append(f'<rect x="8" y="{y}" width="{_WIDTH - 16}" height="{_ROW - 4}" rx="4" fill="{tone}"/>')
        title = f"{len(LEVELS) - 1 - number}  {level.title}"
        lines.append(f'<text x="20" y="{y + 23}" fill="#445566">{escape(title)}</text>')
        x: float = _LEFT
        for name in level.packages:
            shown = name.replace(".", "/")
            width = 16 + 7.6 * len(shown)
            lines.append(
                f'<rect x="{x:.0f}" y="{y + 5}" width="{width:.0f}" height="{_ROW - 14}" rx="3" fill="#ffffff" '
                'stroke="#7a8fa6"/>'
            )
            lines.append(
                f'<text x="{x + width / 2:.0f}" y="{y + 22}" text-anchor="middle" fill="#102030">{escape(shown)}</text>'
            )
            x += width + 8
    return "\n".join([*lines, "</svg>"]) + "\n"
