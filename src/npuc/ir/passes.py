"""Passes and pipelines: `a,b{c=1}` names passes and their options, as in MLIR.

A pass is a frozen dataclass whose fields are its options; `run` changes a graph in place. Modules register passes with
`@register_pass`. `run_pipeline` works on a copy, verifies after every pass, and tells an observer what happened.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from typing import Any, ClassVar, TypeVar, cast, get_args

from xdsl.ir import Block, Operation, Region
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern
from xdsl.transforms.dead_code_elimination import is_trivially_dead
from xdsl.utils.arg_spec import ArgSpecConvertible, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from npuc.errors import NpucError, PassError, PipelineError, VerificationError
from npuc.ir.graph import Graph
from npuc.plugin_code import fault_of
from npuc.registries import Registry

_LOG = logging.getLogger(__name__)

PASSES: Registry[str, type[Pass]] = Registry("a pass", table="passes")


@dataclass(frozen=True)
class Pass(ArgSpecConvertible):
    """One transformation; its docstring shows before and after."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, graph: Graph) -> None:
        """Change the graph in place; what it computes stays the same."""


@dataclass(frozen=True)
class PassEvent:
    """What an observer learns after each pass."""

    name: str
    graph: Graph
    seconds: float
    changed: bool


_PassT = TypeVar("_PassT", bound=type[Pass])


def register_pass(cls: _PassT) -> _PassT:
    """Class decorator that makes a pass available to pipelines under its `name`."""
    PASSES.add([cls.name], cls)
    return cls


def parse_passes(pipeline: str) -> list[Pass]:
    """The passes of a pipeline such as `fold-constants{limit=1024},fuse-relu`."""
    passes: list[Pass] = []
    try:
        specs = list(parse_pipeline(pipeline))
    except (ArgSpecParseError, ValueError) as error:
        # The message shows the text with a mark under it; its last line says what is wrong.
        reason = str(error).strip().splitlines()[-1].strip(" ^")
        raise PipelineError(
            f"'{pipeline}' is not a pipeline ({reason})",
            fix="Write it like 'fold-constants,fuse-relu{limit=1}'",
        ) from error
    for spec in specs:
        if spec.name not in PASSES:
            near = get_close_matches(spec.name, PASSES, 1)
            raise PipelineError(
                f"there is no pass '{spec.name}'",
                fix=f"Did you mean '{near[0]}'? 'npuc opt --list-passes' shows all"
                if near
                else f"The passes are: {', '.join(sorted(PASSES))}",
            )
        kind = PASSES[spec.name]
        try:
            # Reading options means resolving the annotations of the pass: not where there are none.
            passes.append(kind.from_spec(spec) if spec.parameters or dataclasses.fields(kind) else kind())
        except (ValueError, TypeError) as error:
            options = ", ".join(field.name for field in dataclasses.fields(kind)) or "none"
            raise PipelineError(f"pass '{spec.name}': {error}", fix=f"Its options are: {options}") from error
    return passes


def run_pipeline(
    graph: Graph,
    passes: Sequence[Pass] | str,
    observe: Callable[[PassEvent], None] | None = None,
    *,
    verify: bool = True,
) -> Graph:
    """Run passes over a copy of a graph and return it."""
    graph = graph.copy()
    run_passes(graph, passes, observe, verify=verify)
    return graph


def run_passes(
    graph: Graph,
    passes: Sequence[Pass] | str,
    observe: Callable[[PassEvent], None] | None = None,
    *,
    verify: bool = True,
) -> None:
    """Run passes over a graph that is nobody else's."""
    if isinstance(passes, str):
        passes = parse_passes(passes)
    for step in passes:
        start = time.perf_counter()
        try:
            step.run(graph)
            graph.refresh_signature()
            if verify:
                graph.verify()
        except VerificationError as error:
            raise PassError(f"pass '{step.name}' broke the program: {error.message}") from error
        except NpucError:
            raise
        except Exception as error:
            raise fault_of(error) or PassError(
                f"pass '{step.name}' failed: {type(error).__name__}: {error}"
            ) from error
        if _LOG.isEnabledFor(logging.DEBUG):
            count = sum(1 for _ in graph.ops)
            _LOG.debug("%s: %.1f ms, %d ops", step.name, 1e3 * (time.perf_counter() - start), count)
        if observe is not None:
            observe(PassEvent(step.name, graph, time.perf_counter() - start, True))


def apply_patterns(graph: Graph, patterns: Sequence[RewritePattern]) -> bool:
    """Apply rewrite patterns until none matches; dead ops go on the way. True if anything changed."""
    pattern = _ByKind(patterns)
    if not any(map(pattern.find, {type(op) for op in graph.ops})):
        return False
    return _Walker(pattern).rewrite_module(graph.module)


class _Walker(PatternRewriteWalker):
    """Begins with the ops that a pattern is for and those that nobody uses; the others come up when they change."""

    def _populate_worklist(self, op: Operation | Region | Block) -> None:
        assert isinstance(op, Region)
        find, push = cast(_ByKind, self.pattern).find, self._worklist.push
        for block in reversed(op.blocks):
            # It is a stack: the last op goes first, and what is in an op before it.
            inner = block.last_op
            while inner is not None:
                for region in reversed(inner.regions):
                    self._populate_worklist(region)
                if find(type(inner)) or all(result.first_use is None for result in inner.results):
                    push(inner)
                inner = inner.prev_op


class _ByKind(RewritePattern):
    """Patterns in order, each asked only about the kinds of op that it is for: most ops are weights, and most patterns
    are for one kind."""

    def __init__(self, patterns: Sequence[RewritePattern]) -> None:
        self._patterns = [(pattern, accepted_kinds(pattern)) for pattern in patterns]
        self._found: dict[type[Operation], list[RewritePattern]] = {}

    def find(self, kind: type[Operation]) -> list[RewritePattern]:
        """The patterns for a kind of op."""
        patterns = self._found.get(kind)
        if patterns is None:
            patterns = [
                pattern for pattern, kinds in self._patterns if kinds is None or issubclass(kind, kinds)
            ]
            self._found[kind] = patterns
        return patterns

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        """The first pattern that matches."""
        if not any(result.first_use for result in op.results) and is_trivially_dead(op):
            rewriter.erase(op)
            return
        for pattern in self.find(type(op)):
            pattern.match_and_rewrite(op, rewriter)
            if rewriter.has_done_action:
                return


def accepted_kinds(pattern: RewritePattern) -> tuple[type[Operation], ...] | None:
    """The kinds of op that a pattern is for: of its method under `@rewrites`, or its own `accepts`; None is all."""
    kinds: tuple[type[Operation], ...] | None = getattr(pattern, "accepts", None)
    return kinds if kinds is not None else getattr(pattern.match_and_rewrite, "accepts", None)


_PatternT = TypeVar("_PatternT", bound=RewritePattern)
_OpT = TypeVar("_OpT", bound=Operation)


def _named(text: str, names: Mapping[str, Any]) -> Any:
    """What a name of an annotation stands for, such as `MatMul` or `top.MatMul`."""
    first, *rest = text.strip().split(".")
    return reduce(getattr, rest, names[first])


def rewrites(
    function: Callable[[_PatternT, _OpT, PatternRewriter], None],
) -> Callable[[_PatternT, Operation, PatternRewriter], None]:
    """Decorate a pattern's `match_and_rewrite`: it is called with ops of the annotated kind (or kinds) only.

    `op_type_rewrite_pattern` of xDSL does that too, and evaluates the annotations of all its parameters for it, for each of
    eighty patterns whenever npuc is loaded.
    """
    name = function.__code__.co_varnames[1]
    text = function.__annotations__[name]
    named = (
        [_named(part, function.__globals__) for part in text.split("|")] if isinstance(text, str) else [text]
    )
    kinds: tuple[type[Operation], ...] = tuple(kind for part in named for kind in get_args(part) or (part,))

    def method(self: _PatternT, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, kinds):
            function(self, cast(Any, op), rewriter)

    setattr(method, "accepts", kinds)  # noqa: B010 (a function has no such name to mypy)
    return method


__all__ = [
    "PASSES",
    "Pass",
    "PassEvent",
    "PatternRewriter",
    "RewritePattern",
    "apply_patterns",
    "parse_passes",
    "register_pass",
    "rewrites",
    "run_passes",
    "run_pipeline",
]
