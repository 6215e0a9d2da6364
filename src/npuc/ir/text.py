"""Programs as text: `model.mlir` with its weights beside it in `model.safetensors`.

The text is MLIR in generic form with locations, so any MLIR tool reads it. The attribute `top.weights` of the module
names the weight file, which must lie in the same folder.
"""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects import builtin, func
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Dialect
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError as XdslParseError
from xdsl.utils.exceptions import VerifyException

from npuc.errors import ParseError, VerificationError, WeightFileError
from npuc.files import existing_file, write_atomically
from npuc.ir import top as _top  # noqa: F401  (registers the ops)
from npuc.ir.definition import TOP_OPS
from npuc.ir.dtypes import OpaqueType
from npuc.ir.graph import Graph
from npuc.ir.weights import WeightStore, load_safetensors, save_safetensors

_WEIGHTS = "top.weights"
_MAX_TEXT = 1 << 30

Top = Dialect("top", list(TOP_OPS.values()), [OpaqueType])


def context() -> Context:
    """An xDSL context that knows the dialects of npuc."""
    ctx = Context()
    ctx.load_dialect(builtin.Builtin)
    ctx.load_dialect(func.Func)
    ctx.load_dialect(Top)
    return ctx


def print_graph(graph: Graph) -> str:
    """The program as MLIR text."""
    out = StringIO()
    Printer(out, print_generic_format=False, print_debuginfo=True).print_op(graph.module)
    return out.getvalue() + "\n"


def parse_graph(text: str, weights: WeightStore | None = None, *, name: str = "<text>") -> Graph:
    """Parse MLIR text; the result is verified."""
    try:
        module = Parser(context(), text, name).parse_module()
    except XdslParseError as error:
        span = error.span
        line = span.input.content.count("\n", 0, span.start) + 1
        raise ParseError(error.message, where=f"{name}, line {line}", fix="Check the text near that line") from error
    except (VerifyException, ValueError, KeyError, TypeError, RecursionError, AssertionError) as error:
        raise ParseError(str(error) or type(error).__name__, where=name) from error
    assert isinstance(module, ModuleOp)
    graph = Graph(module, weights if weights is not None else WeightStore())
    return graph


def save_graph(graph: Graph, path: Path | str) -> tuple[Path, Path]:
    """Write `path` and the weights beside it; returns both paths."""
    path = Path(path)
    weights = path.with_suffix(".safetensors")
    module = graph.module
    old = module.attributes.get(_WEIGHTS)
    module.attributes[_WEIGHTS] = StringAttr(weights.name)
    try:
        text = print_graph(graph)
    finally:
        if old is None:
            del module.attributes[_WEIGHTS]
        else:
            module.attributes[_WEIGHTS] = old
    save_safetensors(weights, graph.weights, graph.used_weights())
    with write_atomically(path) as out:
        out.write(text.encode())
    return path, weights


def load_graph(path: Path | str) -> Graph:
    """Read a program and map its weights; everything is verified."""
    path = existing_file(path)
    if path.stat().st_size > _MAX_TEXT:
        raise ParseError(f"is larger than {_MAX_TEXT} bytes", where=str(path))
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ParseError("is not text", where=str(path), fix="An .mlir file was expected") from error
    graph = parse_graph(text, name=path.name)
    entry = graph.module.attributes.get(_WEIGHTS)
    if isinstance(entry, StringAttr):
        name = entry.data
        if Path(name).name != name or name in ("", ".", ".."):
            raise WeightFileError(f"the weight file '{name}' must lie beside the text", where=str(path))
        file = path.parent / name
        if not file.is_file():
            raise WeightFileError(
                f"its weights '{name}' are missing", where=str(path), fix="Keep the two files together, or import again"
            )
        graph.weights = load_safetensors(file)
    try:
        graph.verify()
    except VerificationError as error:
        raise VerificationError(error.message, where=str(path)) from error
    return graph
