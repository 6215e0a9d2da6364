"""What an import rule of these formats is.

A rule gets the context of its layer and returns what the layer makes: a value, or a list of them. It raises `NoForm`
where a layer cannot be expressed, and the layer is kept as a custom op. The first paragraph of a rule's docstring says
what is supported and within which limits: the tables in `docs/` show it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from npuc.frontend.layered.context import LayerContext
from npuc.ir import Value

ContextT = TypeVar("ContextT", bound=LayerContext)
Outcome = Value | Sequence[Value]
Rule = Callable[[ContextT], Outcome]
