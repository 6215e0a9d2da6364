"""A call of a torch module as a network: its arguments and results by the names of the network's inputs and outputs.

    call = import_call(module, (torch.zeros(1, 3, 32, 32),), {})
    FloatEngine(call.graph).run(call.arrays(image))     # what module(image) gives, by name
    call.signature                                      # how results are put together again

The imported network is compared with torch on the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.errors import UsageError
from npuc.integrations.signature import CallSignature
from npuc.integrations.structure import Form, described, rebuilt
from npuc.integrations.torch.counting import rows_are_independent
from npuc.integrations.torch.live import from_torch
from npuc.integrations.torch.tensors import array_of
from npuc.ir import Graph
from npuc.words import counted

_CLOSE = 0.999
"""The cosine between the results of torch and of the import, at the least."""


@dataclass(frozen=True)
class ImportedCall:
    """A network, and how it is called as the module was."""

    graph: Graph
    signature: CallSignature

    def arrays(self, item: Any) -> dict[str, Array]:
        """A sample (a tensor, a tuple of arguments, or a mapping of them) as inputs of the network."""
        tensors = _tensors_of(item, self.signature.arguments)
        return dict(zip(self.signature.inputs, map(array_of, tensors), strict=True))


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch."""
    return isinstance(value, torch.Tensor)


def import_call(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, single_row: bool = False
) -> ImportedCall:
    """Import a module at the shapes of some arguments.

    With `single_row`, a module whose rows do not depend on each other is imported for one row of them.
    """
    form, tensors = described((args, kwargs), is_tensor)
    call = _flat_call(module, form)
    with torch.no_grad(), _InferenceMode(module):
        returned = _called(module, args, kwargs)
        rows_vary = _rows_vary(call, tensors)
        if single_row and rows_vary:
            tensors = [tensor[:1] for tensor in tensors]
            args, kwargs = rebuilt(form, tensors)
            returned = _called(module, args, kwargs)
    results, leaves = described(returned, is_tensor)
    if _is_plain(results, leaves):
        graph = from_torch(module, args, kwargs)
    else:
        graph = from_torch(_TensorResults(module, form), tuple(tensors))
    if len(graph.inputs) != len(tensors):
        raise UsageError(
            f"the network has {counted(len(graph.inputs), 'input')}, and the arguments have {counted(len(tensors), 'tensor')}",
            fix="Leave out arguments that the module does not use",
        )
    names = [port.name for port in graph.inputs]
    outputs = _outputs(graph, dict(zip(names, map(array_of, tensors), strict=True)), leaves)
    signature = CallSignature(
        form,
        results,
        tuple(names),
        tuple(outputs),
        tuple(tuple(leaf.shape) for leaf in leaves),
        tuple(str(leaf.dtype).removeprefix("torch.") for leaf in leaves),
        rows_vary,
    )
    return ImportedCall(graph, signature)


def arguments_of(item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A sample as arguments of `forward`."""
    if isinstance(item, Mapping):
        return (), {key: _as_tensor(value) for key, value in item.items()}
    if isinstance(item, tuple | list):
        return tuple(map(_as_tensor, item)), {}
    return (_as_tensor(item),), {}


def _as_tensor(value: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def _tensors_of(item: Any, form: Form) -> list[torch.Tensor]:
    args, kwargs = arguments_of(item)
    own, tensors = described((args, kwargs), is_tensor)
    if own != form:
        raise UsageError("samples of the calibration data have different structures")
    return tensors


def _called(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return module(*args, **kwargs)
    except (TypeError, RuntimeError) as error:
        raise UsageError(
            f"the module does not take a sample of the calibration data: {error}",
            fix="A sample is a tensor with its batch axis, a tuple of the arguments of forward, or a mapping of them; labels do "
            "not belong into it. The rows of one tensor are samples by tensor.split(1)",
        ) from error


class _TensorResults(torch.nn.Module):  # type: ignore[misc]
    """A module that returns the tensors of another one's results, each once: networks have neither numbers nor twins."""

    def __init__(self, module: Any, form: Form) -> None:
        super().__init__()
        self.module = module
        self._form = form

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the module."""
        args, kwargs = rebuilt(self._form, tensors)
        leaves = described(self.module(*args, **kwargs), is_tensor)[1]
        return tuple({id(leaf): leaf for leaf in leaves}.values())


def _is_plain(results: Form, leaves: Sequence[torch.Tensor]) -> bool:
    """Whether results are different tensors and nothing else."""
    return "value" not in _words(results) and len({id(leaf) for leaf in leaves}) == len(leaves)


def _words(form: Form) -> set[str]:
    [(word, content)] = form.items()
    parts = [pair[1] for pair in content] if word == "dict" else content if word in ("tuple", "list") else ()
    return {word}.union(*(_words(part) for part in parts))


class _InferenceMode:
    """A module in inference, and then in the mode that it was in."""

    def __init__(self, module: Any) -> None:
        parts = module.modules() if isinstance(module, torch.nn.Module) else ()
        self._training = [part for part in parts if part.training]

    def __enter__(self) -> None:
        for part in self._training:
            part.training = False

    def __exit__(self, *_: object) -> None:
        for part in self._training:
            part.training = True


def _flat_call(module: Any, form: Form) -> Callable[..., list[Any]]:
    def call(*tensors: torch.Tensor) -> list[Any]:
        args, kwargs = rebuilt(form, tensors)
        return described(module(*args, **kwargs), is_tensor)[1]

    return call


def _rows_vary(call: Callable[..., list[Any]], tensors: Sequence[torch.Tensor]) -> bool:
    """Whether rows of a batch are independent, by a run of two rows and more."""
    if not tensors or any(tensor.dim() == 0 for tensor in tensors):
        return False
    batch = list(tensors)
    if len(tensors[0]) < 2:
        batch = [torch.cat([tensor, tensor.flip(-1)]) for tensor in tensors]
    positions = range(len(batch))
    try:
        return rows_are_independent(call, batch, positions, ())
    except Exception:
        # A module with a fixed batch, such as one that was traced.
        return False


def _outputs(graph: Graph, inputs: Mapping[str, Array], leaves: Sequence[torch.Tensor]) -> list[str]:
    """For each tensor of the results, the output of the network: checked on a sample, in float."""
    outputs = FloatEngine(graph).run(inputs)
    names = [port.name for port in graph.outputs]
    unique = list({id(leaf): leaf for leaf in leaves}.values())
    if len(names) == len(leaves):
        chosen = names
    elif len(names) == len(unique):
        of_leaf = {id(leaf): name for leaf, name in zip(unique, names, strict=True)}
        chosen = [of_leaf[id(leaf)] for leaf in leaves]
    else:
        raise UsageError(
            f"the module returns {counted(len(leaves), 'tensor')}, and the network {counted(len(names), 'output')}",
            fix="Return each tensor once, and no arguments as they are",
        )
    for name, leaf in zip(chosen, leaves, strict=True):
        ours, theirs = np.ravel(outputs[name]).astype(np.float64), np.ravel(array_of(leaf)).astype(np.float64)
        size = float(np.linalg.norm(ours) * np.linalg.norm(theirs))
        if ours.shape != theirs.shape or (size and float(ours @ theirs) / size < _CLOSE):
            raise UsageError(
                f"output '{name}' of the imported network is not what torch computes",
                fix="Report it with the model; 'npuc import' on an exported program shows the first layer that differs",
            )
    return chosen
