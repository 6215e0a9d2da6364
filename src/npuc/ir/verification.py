"""Rules of the user's own for programs: `@verifier("no-tanh")` above a function that yields what is wrong.

Every verification of a program asks them after its own checks: that of an import, of a pipeline, of a file that is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from npuc.errors import NpucError, VerificationError
from npuc.plugin_code import fault_of
from npuc.registries import Registry

if TYPE_CHECKING:
    from npuc.ir.graph import Graph

Verifier = Callable[["Graph"], Iterable[str]]

VERIFIERS: Registry[str, Verifier] = Registry("a verifier rule")
"""By name, in the order of registration."""


def verifier(name: str, *, replace: bool = False) -> Callable[[Verifier], Verifier]:
    """Register a rule; a sentence that it yields is an error, and names the layer."""
    return VERIFIERS.register(name, replace=replace)


def ask_verifiers(graph: Graph) -> None:
    """Raise `VerificationError` for the first thing that a rule finds."""
    for name, rule in VERIFIERS.items():
        try:
            problem = next(iter(rule(graph)), None)
        except NpucError:
            raise
        except Exception as error:
            raise fault_of(error) or VerificationError(
                f"the verifier rule '{name}' failed: {type(error).__name__}: {error}"
            ) from error
        if problem is not None:
            raise VerificationError(f"{problem} (verifier rule '{name}')")
