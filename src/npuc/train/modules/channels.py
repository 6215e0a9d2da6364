"""The channels of a user's torch module: which can be removed, what that does, and the module without them.

The module is imported as it is, batch norms and all, so that weights of the network have the names of its `state_dict`; the
dependency groups of the network say which slices of which tensors of the module go together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch

from npuc.arrays import Array
from npuc.errors import TrainingError
from npuc.integrations.torch.live import from_torch
from npuc.train.modules.resizing import fixed_tensors, with_state
from npuc.train.pruning.channels import Channels
from npuc.train.pruning.groups import DependencyGraph, RemainingChannels
from npuc.train.pruning.slimming import Selection, mask_arrays

_CLOSE = 1e-3
"""How far the slim module may be from the masked one, relative to the largest output."""


class ModuleChannels(Channels):
    """The groups of channels of a module.

    `inputs` is an example for its forward, a tensor or a tuple; `exclude` names submodules whose channels stay.
    """

    def __init__(self, module: Any, inputs: Any, exclude: Collection[str] = ()) -> None:
        self.module = module
        self.inputs = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
        graph = from_torch(unmasked(module), self.inputs, canonical=False)
        state = module.state_dict()
        self._names = _names_by_ref(module, graph.weights)
        self._fixed = fixed_tensors(module) | {
            ref: f"'{ref}' is no tensor of the module's state" for ref in graph.weights if ref not in state
        }
        self.dependencies = DependencyGraph(graph, (), self._fixed)
        if exclude:
            self.dependencies = self.excluding(exclude).dependencies

    def over(self, module: Any) -> ModuleChannels:
        """The same channels of another module with the same tensors, such as a copy with other weights."""
        other = ModuleChannels.__new__(ModuleChannels)
        other.__dict__.update(self.__dict__)
        other.module = module
        return other

    # Which channels

    def arrays(self) -> dict[str, Array]:
        """The tensors of the module, by the names of its weights in the network."""
        state = self.module.state_dict()
        return {
            ref: np.ascontiguousarray(state[ref].detach().cpu().numpy())
            for ref in self.dependencies.graph.weights
            if ref in state
        }

    def original(self) -> Any:
        """A copy of the module, without masks."""
        return unmasked(self.module)

    # The module without them

    def masks(self, selection: Selection) -> dict[str, Any]:
        """For each tensor of the module that removed channels touch, ones where it stays and zeros where it goes."""
        arrays = mask_arrays(self.dependencies, self.dependencies.removed(selection))
        return {
            name: torch.from_numpy(array)
            for ref, array in arrays.items()
            for name in self._names.get(ref, ())
        }

    def cut_state(self, selection: Selection, state: Mapping[str, Any]) -> dict[str, Any]:
        """A state_dict of the module without the selected channels."""
        left = self._left(selection)
        refs = {name: ref for ref, names in self._names.items() for name in names}
        return {
            name: _cut(tensor, left, refs[name]) if name in refs else tensor for name, tensor in state.items()
        }

    def masked(self, selection: Selection) -> Any:
        """A copy of the module with zeros for the selected channels, which training leaves zeros.

        Its `slim_state_dict()` is the state of the slim module, without them.
        """
        self._left(selection)
        copy = unmasked(self.module)
        masks = _MaskedTensors(self.masks(selection))
        masks(copy, ())
        copy.register_forward_pre_hook(masks)
        copy.slim_state_dict = _SlimState(copy, self, dict(selection))
        return copy

    def slim(self, selection: Selection) -> Any:
        """A copy of the module without the selected channels; it computes what the masked one does."""
        cut = with_state(unmasked(self.module), self.cut_state(selection, self.module.state_dict()))
        self._check(cut, selection)
        return cut

    def _check(self, cut: Any, selection: Selection) -> None:
        training = cut.training
        with torch.no_grad():
            try:
                results = _leaves(cut.eval()(*self.inputs))
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                raise TrainingError(
                    f"the module without its channels does not run: {str(error).splitlines()[0]}",
                    fix="Its forward states a size: write x.flatten(1) for view(-1, 512), or exclude the layer before it",
                ) from error
            expected = _leaves(self.masked(selection).eval()(*self.inputs))
        cut.train(training)
        for result, other in zip(results, expected, strict=True):
            far = float((result - other).abs().max()) if result.shape == other.shape else float("inf")
            if not far <= _CLOSE * max(1.0, float(other.abs().max())):
                raise TrainingError(
                    "the module without its channels computes something else than with zeros for them",
                    fix="Its forward depends on the sizes of its tensors; exclude the layers before that place",
                )


def unmasked(module: Any) -> Any:
    """A copy of the module; one that `masked` gave has its zeros still, but may learn there."""
    copy = deepcopy(module)
    for key in [key for key, hook in copy._forward_pre_hooks.items() if isinstance(hook, _MaskedTensors)]:
        del copy._forward_pre_hooks[key]
    copy.__dict__.pop("slim_state_dict", None)
    return copy


def _names_by_ref(module: Any, refs: Collection[str]) -> dict[str, tuple[str, ...]]:
    """For each weight of the network the names of the tensor in the state_dict: several, if submodules share it."""
    tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(
        module.named_buffers(remove_duplicate=False)
    )
    places: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        places.setdefault(id(tensor), []).append(name)
    return {ref: tuple(places[id(tensors[ref])]) for ref in refs if ref in tensors}


def _cut(tensor: Any, left: RemainingChannels, ref: str) -> Any:
    for axis, size in enumerate(tensor.shape):
        kept = left.weight_indices(ref, axis, size)
        if len(kept) != size:
            tensor = tensor.index_select(axis, torch.from_numpy(kept).to(tensor.device))
    return tensor.detach().clone()


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    return [leaf for part in parts for leaf in _leaves(part)]


class _MaskedTensors:
    """Sets masked parts of tensors to zero before each forward, whatever the optimizer has made of them."""

    def __init__(self, masks: Mapping[str, Any]) -> None:
        self.masks = dict(masks)

    def __call__(self, module: Any, args: Any) -> None:
        tensors = dict(module.named_parameters(remove_duplicate=False))
        with torch.no_grad():
            for name, mask in self.masks.items():
                if name in tensors:
                    tensors[name].data.mul_(mask.to(tensors[name]))


class _SlimState:
    """`slim_state_dict` of a masked module."""

    def __init__(self, module: Any, channels: ModuleChannels, selection: dict[str, Any]) -> None:
        self._module, self._channels, self._selection = [module], channels, selection

    def __call__(self) -> dict[str, Any]:
        return self._channels.cut_state(self._selection, self._module[0].state_dict())

    def __deepcopy__(self, memo: Any) -> _SlimState:
        """Of the copy of the module; what the channels are does not change."""
        return _SlimState(memo.get(id(self._module[0]), self._module[0]), self._channels, self._selection)

    def __reduce__(self) -> Any:
        """A saved module comes back without it: its channels are not written into the file."""
        return (_no_slim_state, ())


def _no_slim_state() -> Any:
    return None
