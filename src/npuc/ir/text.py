"""Programs as text: `model.mlir` with its weights beside it in `model.safetensors`.

The text is MLIR in generic form with locations, so any MLIR tool reads it. The attribute `top.weights` of the module
names the weight file, which must lie in the same folder; `top.version` is the version of the format.
"""

from __future__ import annotations

import re
from contextlib import suppress
from io import StringIO
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects import builtin, func
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Dialect
from xdsl.parser import Parser
from xdsl.parser.generic_parser import ParserState
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError as XdslParseError
from xdsl.utils.lexer import Input, Token
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken, MLIRTokenKind, StringLiteral

from npuc.errors import NpucError, ParseError, VerificationError, WeightFileError
from npuc.files import existing_file, final_place, write_atomically
from npuc.format_versions import PROGRAM_TEXT
from npuc.ir import top as _top  # noqa: F401  (registers the ops)
from npuc.ir.definition import TOP_OPS
from npuc.ir.dtypes import OpaqueType, QuantType, dtype_of
from npuc.ir.graph import Graph
from npuc.ir.npu import NPU_OPS
from npuc.ir.weights import WeightStore, load_safetensors, save_safetensors

_WEIGHTS = "top.weights"
_VERSION = "top.version"
_MAX_TEXT = 1 << 30
_MAY_DEFINE = re.compile(r"[#!][\w$.-]+\s*(?:=|//)")
_TOKEN = re.compile(
    r'(?P<program>^[ \t]*(?:builtin\.module\s*(?:\{|@|attributes\b)|"builtin\.module"\s*\(\s*\)))|"(?:[^"\\\n]|\\.)*"|'
    r"(?P<comment>//[^\n]*)|(?P<name>[#!][\w$.-]+)|(?P<equals>=)",
    re.MULTILINE,
)
_MAX_ALIAS = 1 << 16


class _Lexer(MLIRLexer):
    """xDSL takes a literal with escaped non-ASCII characters for bytes; to npuc all UTF-8 is text (layer names are).

    Its pattern of a literal repeats a repetition, `([^"]+|...)*`, which tries every way to cut n characters into runs, 2^n
    of them, when the closing quote is missing. Possessive repetitions (`++`, `*+`) keep the first way.
    """

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')

    def _lex_string_literal(self, start_pos: int) -> MLIRToken:
        token = super()._lex_string_literal(start_pos)
        if token.kind is MLIRTokenKind.BYTES_LIT:
            with suppress(UnicodeDecodeError):
                StringLiteral.from_span(token.span).bytes_contents.decode()
                return Token(MLIRTokenKind.STRING_LIT, token.span)
        return token


class _Parser(Parser):
    def __init__(self, ctx: Context, text: str, name: str) -> None:
        super().__init__(ctx, "", name)
        self._parser_state = ParserState(_Lexer(Input(text, name)))


def context() -> Context:
    """An xDSL context that knows the dialects of npuc, with the ops of plugins."""
    ctx = Context()
    ctx.load_dialect(builtin.Builtin)
    ctx.load_dialect(func.Func)
    ctx.load_dialect(Dialect("top", list(TOP_OPS.values()), [OpaqueType]))
    ctx.load_dialect(Dialect("npu", list(NPU_OPS.values()), [QuantType]))
    return ctx


def print_graph(graph: Graph) -> str:
    """The program as MLIR text."""
    out = StringIO()
    Printer(out, print_generic_format=False, print_debuginfo=True).print_op(graph.module)
    return out.getvalue() + "\n"


def parse_graph(text: str, weights: WeightStore | None = None, *, name: str = "<text>") -> Graph:
    """Parse MLIR text; the result is verified."""
    _check_aliases(text, name)
    try:
        module = _Parser(context(), text, name).parse_module()
    except XdslParseError as error:
        span = error.span
        line = span.input.content.count("\n", 0, span.start) + 1
        raise ParseError(
            error.msg, where=f"{name}, line {line}", fix="Check the text near that line"
        ) from error
    except Exception as error:
        # xDSL's parser is written for text that its own printer wrote; on other text it raises whatever it meets.
        raise ParseError(f"cannot be parsed ({error or type(error).__name__})", where=name) from error
    assert isinstance(module, ModuleOp)
    graph = Graph(module, weights if weights is not None else WeightStore())
    return graph


def _check_aliases(text: str, name: str) -> None:
    """Aliases of aliases, written out, stay of a size that somebody may have meant: each may name another several times."""
    if not _MAY_DEFINE.search(text):
        return
    sizes: dict[str, int] = {}
    alias = named = None
    end = 0
    for token in _TOKEN.finditer(text):
        kind, behind = token.lastgroup, not text[end : token.start()].strip()
        end = token.end()
        if kind == "comment" and behind:
            continue
        if kind == "equals" and named is not None and behind:
            alias = named
            sizes[alias] = 1
        elif kind == "program":
            alias = None  # which may use them as often as it likes
        named = token[0] if kind == "name" else None
        if named is not None and alias is not None:
            sizes[alias] += sizes.get(named, 0)
            if sizes[alias] > _MAX_ALIAS:
                raise ParseError(f"the alias '{alias}' stands for more than {_MAX_ALIAS} others", where=name)


def save_graph(graph: Graph, path: Path | str, weights_name: str | None = None) -> tuple[Path, Path]:
    """Write `path` and the weights beside it; returns both paths.

    The file of the weights has the name of the text with the suffix `.safetensors`, or `weights_name`.
    """
    given, path = Path(path), final_place(path)
    weights = path.with_suffix(".safetensors") if weights_name is None else path.with_name(weights_name)
    module = graph.module
    before = dict(module.attributes)
    module.attributes[_WEIGHTS] = StringAttr(weights.name)
    module.attributes[_VERSION] = IntegerAttr(PROGRAM_TEXT.version, i64)
    try:
        text = print_graph(graph)
    finally:
        module.attributes = before
    with write_atomically(path) as out:
        out.write(text.encode())
        # The text is on the disk before the weights get their name: a full disk leaves both files as they were.
        out.flush()
        save_safetensors(weights, graph.weights, graph.used_weights())
    return given, weights


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
    version = graph.module.attributes.get(_VERSION)
    stated = version.value.data if isinstance(version, IntegerAttr) else version
    PROGRAM_TEXT.check(stated, str(path), ParseError)
    entry = graph.module.attributes.get(_WEIGHTS)
    if isinstance(entry, StringAttr):
        name = entry.data
        if Path(name).name != name or name in ("", ".", ".."):
            raise WeightFileError(f"the weight file '{name}' must lie beside the text", where=str(path))
        file = path.parent / name
        if not file.is_file() and path.is_symlink():
            file = path.resolve().parent / name
        if not file.is_file():
            raise WeightFileError(
                f"its weights '{name}' are missing",
                where=str(path),
                fix="Keep the two files together, or import again",
            )
        graph.weights = load_safetensors(file)
    try:
        graph.verify()
        _check_ports(graph)
    except VerificationError as error:
        raise VerificationError(error.message, where=str(path)) from error
    except NpucError:
        raise
    except Exception as error:
        # The same for the verifiers: an attribute of another kind than its op reads.
        reason = f"{type(error).__name__}: {error}"
        raise VerificationError(f"the program makes no sense ({reason})", where=str(path)) from error
    return graph


def _check_ports(graph: Graph) -> None:
    """Every value is a tensor of a type that npuc has, and inputs have names of their own."""
    for op in graph.ops:
        for value in op.results:
            dtype_of(value.type)
    names = [port.name for port in graph.inputs]
    for port in (*graph.inputs, *graph.outputs):
        dtype_of(port.type)
        if not isinstance(port.name, str) or not isinstance(port.preprocess, dict | None):
            raise VerificationError(f"input or output '{port.name}' has malformed attributes")
    if len(set(names)) != len(names):
        raise VerificationError("two inputs have the same name")
