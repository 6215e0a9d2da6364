"""PyTorch models in, without a file between: `npuc.from_torch`, and ops of your own.

    import npuc
    graph = npuc.from_torch(model, (torch.zeros(1, 3, 224, 224),))      # ready for quantization

`custom_op` makes a Python function one op of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from npuc.frontend.options import ImportOptions
from npuc.frontend.torch import import_module
from npuc.frontend.torch.custom import custom_op

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


__all__ = ["custom_op", "from_torch"]
