"""The original of an import from PyTorch, run by torch.

Outputs come from the program as stored in the file; intermediate tensors come from the same program decomposed into the ops
that the importer reads.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import MissingExtraError, NpucError, OriginalError
from npuc.extras import require_torch
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import input_constant
from npuc.ir import Graph, dtype_of


class _TorchOriginal:
    """A program of torch with the inputs and outputs that a graph was imported with."""

    runtime = "PyTorch"
    mixed = 0

    def __init__(
        self,
        path: Path,
        graph: Graph,
        input_types: Mapping[str, Any],
        options: ImportOptions,
        threads: int | None = None,
    ) -> None:
        """`input_types` are the types of the inputs at import, before preprocessing was fused into the graph."""
        try:
            torch = require_torch()
        except MissingExtraError as error:
            raise OriginalError(f"{error.message}. {error.fix}") from error
        from npuc.frontend.torch.names import tensor_names

        self._path = path
        self._threads = threads
        try:
            self._program = self._load(path, options)
        except NpucError as error:
            raise OriginalError(error.message, where=str(path)) from error
        self._torch = torch
        self._names = tensor_names(self._program.graph, self._program.owners, self._program.inputs)
        self._given = list(input_types)
        self._outputs = [port.name for port in graph.outputs]
        numbers = self._program.numbers
        self._constants = {name: text for name, text in options.constants.items() if name not in numbers}
        self._whole = not (options.inputs or options.outputs or self._constants)
        self.random: set[str] = set()
        """Empty: ops that draw random numbers are imported as custom ops."""
        known = set(graph.tensor_names())
        computed = [
            name
            for node, name in self._names.items()
            if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)
        ]
        self.comparable = [name for name in dict.fromkeys(computed) if name in known]
        """The tensors of the original that the graph has too, in order."""

    def _load(self, path: Path, options: ImportOptions) -> Any:
        raise NotImplementedError

    def run(self, inputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
        """The values of some of its outputs and comparable tensors."""
        torch = self._torch
        before = torch.get_num_threads()
        try:
            if self._threads:
                torch.set_num_threads(self._threads)
            with torch.no_grad():
                return self._run(inputs, names)
        except (RuntimeError, ValueError, TypeError, KeyError, IndexError) as error:
            words = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            raise OriginalError(f"PyTorch cannot run it: {words}", where=str(self._path)) from error
        finally:
            torch.set_num_threads(before)

    def _run(self, inputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
        from npuc.frontend.torch.convert import to_array

        values: dict[str, Any] = {}
        if self._whole:
            tensors = [self._tensor(node, inputs[name]) for node, name in self._program.inputs.items()]
            values.update(zip(self._outputs, self._program.run(tensors), strict=True))
        if any(name not in values for name in names):
            values = {**self._every(inputs), **values}
        as_tensor = self._torch.as_tensor
        return {name: to_array(as_tensor(values[name])) for name in names}

    def _tensor(self, node: Any, array: Array) -> Any:
        copy = np.array(array)
        return self._torch.from_numpy(copy).to(node.meta["val"].dtype)

    def _every(self, inputs: Mapping[str, Array]) -> dict[str, Any]:
        """All tensors, computed op by op."""
        torch = self._torch
        values: dict[Any, Any] = dict(self._program.constants)
        by_name = {name: node for node, name in self._names.items() if node.op != "call_function"}
        by_name |= {
            name: node
            for node, name in self._names.items()
            if isinstance(node.meta.get("val"), torch.Tensor) and name not in by_name
        }
        for name, array in inputs.items():
            values[by_name[name]] = self._tensor(by_name[name], array)
        for name, text in self._constants.items():
            shape = tuple(by_name[name].meta["val"].shape)
            constant = input_constant(name, text, shape, dtype_of(np.float64))
            values[by_name[name]] = self._tensor(by_name[name], constant)
        for node in self._program.graph.nodes:
            if node.op != "call_function" or node in values:
                continue
            if any(used not in values for used in node.all_input_nodes):
                continue  # before the cut
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = (
                args[0][args[1]] if node.target is operator.getitem else node.target(*args, **kwargs)
            )
        titles = {title: node for title, node in self._program.outputs if title and node in values}
        return {
            **{title: values[node] for title, node in titles.items()},
            **{name: values[node] for name, node in by_name.items() if node in values},
        }


class ExportedOriginal(_TorchOriginal):
    """A `.pt2` file."""

    def _load(self, path: Path, options: ImportOptions) -> Any:
        from npuc.frontend.torch.sources import of_exported_file

        return of_exported_file(path, options)


class TorchScriptOriginal(_TorchOriginal):
    """A TorchScript file."""

    def _load(self, path: Path, options: ImportOptions) -> Any:
        from npuc.frontend.torch.sources import of_script_file

        return of_script_file(path, options)
