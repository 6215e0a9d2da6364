"""A live torch module as a network: `npuc.from_torch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from npuc.frontend.options import ImportOptions
from npuc.frontend.torch import import_module

if TYPE_CHECKING:
    from npuc.ir import Graph
    from npuc.ir.passes import PassEvent


def from_torch(
    module: Any,
    example_inputs: Any,
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    options: ImportOptions | None = None,
    fuse_preprocess: bool = False,
    canonical: bool = True,
    observe: Callable[[PassEvent], None] | None = None,
) -> Graph:
    """Import a live model at the shapes of its example inputs, in canonical form.

    `module` is a `torch.nn.Module` (imported as in inference, and left in its mode), a function of tensors, a
    ScriptModule or an ExportedProgram. `example_inputs` is a tensor, or a tuple of the arguments of `forward`.

    >>> graph = from_torch(torch.nn.ReLU(), torch.zeros(1, 8))      # doctest: +SKIP
    """
    from npuc.flow import bring_in_form

    options = options or ImportOptions()
    graph = import_module(module, example_inputs, dict(example_kwargs or {}), options)
    return bring_in_form(
        graph, options, fuse_preprocess=fuse_preprocess, canonical=canonical, observe=observe
    )
