"""Passes and pipelines: `a,b{c=1}` names passes and their options, as in MLIR.

A pass is a frozen dataclass whose fields are its options; `run` changes a graph in place. Modules register passes with
`@register_pass`. `run_pipeline` works on a copy, verifies after every pass, and tells an observer what happened.
"""

from __future__ import annotations

import dataclasses
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
)
from xdsl.pattern_rewriter import op_type_rewrite_pattern as rewrites
from xdsl.utils.arg_spec import ArgSpecConvertible, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from npuc.errors import NpucError, PassError, PipelineError, VerificationError
from npuc.ir.graph import Graph

PASSES: dict[str, type[Pass]] = {}


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
    assert cls.name not in PASSES, f"pass {cls.name} is defined twice"
    PASSES[cls.name] = cls
    return cls


def parse_passes(pipeline: str) -> list[Pass]:
    """The passes of a pipeline such as `fold-constants{limit=1024},fuse-relu`."""
    from npuc import transform as _transform  # noqa: F401  (registers the passes)

    found: list[Pass] = []
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
            raise PipelineError(
                f"there is no pass '{spec.name}'", fix=f"The passes are: {', '.join(sorted(PASSES))}"
            )
        kind = PASSES[spec.name]
        try:
            found.append(kind.from_spec(spec))
        except (ValueError, TypeError) as error:
            options = ", ".join(field.name for field in dataclasses.fields(kind)) or "none"
            raise PipelineError(f"pass '{spec.name}': {error}", fix=f"Its options are: {options}") from error
    return found


def run_pipeline(
    graph: Graph,
    passes: Sequence[Pass] | str,
    observe: Callable[[PassEvent], None] | None = None,
    *,
    verify: bool = True,
) -> Graph:
    """Run passes over a copy of a graph and return it."""
    if isinstance(passes, str):
        passes = parse_passes(passes)
    graph = graph.copy()
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
            raise PassError(f"pass '{step.name}' failed: {type(error).__name__}: {error}") from error
        if observe is not None:
            observe(PassEvent(step.name, graph, time.perf_counter() - start, True))
    return graph


def apply_patterns(graph: Graph, patterns: Sequence[RewritePattern]) -> bool:
    """Apply rewrite patterns until none matches; dead ops go on the way. True if anything changed."""
    pattern = GreedyRewritePatternApplier(list(patterns), dce_enabled=True)
    return PatternRewriteWalker(pattern).rewrite_module(graph.module)


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
    "run_pipeline",
]
