"""A network drawn: DOT text, and SVG or PNG where graphviz is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from npuc.errors import EngineError, UsageError
from npuc.files import writable, write_atomically
from npuc.ir import Graph, shown_name
from npuc.ir.top import Onnx, WeightOp
from npuc.profile.summary import short_type

INSTALL = "graphviz is not installed ('apt install graphviz' or 'brew install graphviz')"

_COLORS = {
    "conv": "#cfe2f3", "deconv": "#cfe2f3", "matmul": "#cfe2f3", "attention": "#cfe2f3",
    "onnx": "#f4cccc", "max_pool": "#d9ead3", "avg_pool": "#d9ead3", "reduce": "#d9ead3",
}  # fmt: skip


def dot_text(graph: Graph) -> str:
    """The graph in the DOT language; weights are left out, what runs on the CPU is red."""
    lines = [
        "digraph network {",
        '  node [shape=box, style="rounded,filled", fillcolor="#f3f3f3", fontname="sans-serif"];',
    ]
    lines.append('  edge [fontname="sans-serif", fontsize=9];')
    names: dict[object, str] = {}
    for index, port in enumerate(graph.inputs):
        names[port.value] = f"in{index}"
        lines.append(f"  in{index} [label={_quote(port.name)}, shape=ellipse, fillcolor=white];")
    for index, op in enumerate(graph.ops):
        if isinstance(op, WeightOp):
            continue
        node = f"op{index}"
        kind = op.name.removeprefix("top.")
        label = f"{op.op_type} (CPU)" if isinstance(op, Onnx) else kind
        lines.append(
            f"  {node} [label={_quote(label, shown_name(op))}, fillcolor={_quote(_COLORS.get(kind, '#f3f3f3'))}];"
        )
        for value in op.operands:
            if value in names:
                lines.append(f"  {names[value]} -> {node} [label={_quote(short_type(value.type))}];")
        for result in op.results:
            names[result] = node
    for index, port in enumerate(graph.outputs):
        lines.append(f"  out{index} [label={_quote(port.name)}, shape=ellipse, fillcolor=white];")
        if port.value in names:
            lines.append(f"  {names[port.value]} -> out{index} [label={_quote(short_type(port.type))}];")
    return "\n".join([*lines, "}", ""])


def write_drawing(graph: Graph, path: Path) -> tuple[Path, str | None]:
    """Write `.dot`, `.svg` or `.png`; returns the path written and, if it is another than asked for, why."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("dot", "gv", "svg", "png"):
        raise UsageError(
            f"--graph '{path}' is not a .svg, .png or .dot file", fix=f"Name it {path.with_suffix('.svg')}"
        )
    writable(path)
    text = dot_text(graph).encode()
    if kind in ("dot", "gv"):
        return _write(path, text), None
    program = shutil.which("dot")
    if program is None:
        text_file = _write(path.with_suffix(".dot"), text)
        return text_file, f"{INSTALL}; then draw it with 'dot -T{kind} {text_file} -o {path}'"
    try:
        done = subprocess.run(
            [program, f"-T{kind}"], input=text, capture_output=True, timeout=300, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _write(path.with_suffix(".dot"), text), f"graphviz could not lay it out ({error})"
    if done.returncode or not done.stdout:
        reason = done.stderr.decode(errors="replace").strip() or "no output"
        raise EngineError(f"graphviz failed: {reason[:300]}", fix=f"Use --graph {path.with_suffix('.dot')}")
    return _write(path, done.stdout), None


def _write(path: Path, data: bytes) -> Path:
    with write_atomically(path) as out:
        out.write(data)
    return path


def _quote(*lines: str) -> str:
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines if line)
    return '"' + "\\n".join(escaped) + '"'
