"""The inputs of a compiled model in the form that data loading needs."""

from __future__ import annotations

from typing import Any

from npuc.arithmetic.dtypes import dtype_of
from npuc.errors import PreprocessError
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph
from npuc.ir.dtypes import tensor_type
from npuc.program.model import CompiledModel


def interface_of(compiled: CompiledModel) -> Graph:
    """A graph without ops that has the inputs of a compiled model, so that data can be read and checked for it."""
    ports = []
    for name in compiled.inputs:
        tensor = compiled.tensor(name)
        ports.append((name, tensor_type(tensor.shape, dtype_of(tensor.dtype))))
    graph = Graph.empty(ports, preprocess=_preprocess(compiled))
    graph.states = {state.input: state.output for state in compiled.states}
    return graph


def _preprocess(compiled: CompiledModel) -> dict[str, dict[str, Any]]:
    """The preprocessing of each input that states one; metadata of any other shape is ignored."""
    stated = compiled.metadata.get("preprocess")
    by_input: dict[str, dict[str, Any]] = {}
    for name in compiled.inputs:
        record = stated.get(name) if isinstance(stated, dict) else None
        if not isinstance(record, dict):
            continue
        try:
            by_input[name] = Preprocess.from_dict(record).to_dict()
        except PreprocessError as error:
            raise PreprocessError(error.message, where=f"input '{name}'", fix=error.fix) from error
    return by_input
