"""The inputs of a compiled model, as what finds and checks data for it."""

from __future__ import annotations

from typing import Any

from npuc.arithmetic.dtypes import dtype_of
from npuc.errors import PreprocessError
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph
from npuc.ir.dtypes import tensor_type
from npuc.program.model import CompiledModel


def interface_of(compiled: CompiledModel) -> Graph:
    """The inputs of a compiled model as a program without ops: what finds and checks data for it."""
    ports = []
    for name in compiled.inputs:
        tensor = compiled.tensor(name)
        ports.append((name, tensor_type(tensor.shape, dtype_of(tensor.dtype))))
    return Graph.empty(ports, preprocess=_preprocess(compiled))


def _preprocess(compiled: CompiledModel) -> dict[str, dict[str, Any]]:
    """How pictures become inputs, as far as the file states it in a form that makes sense."""
    stated = compiled.metadata.get("preprocess")
    found: dict[str, dict[str, Any]] = {}
    for name in compiled.inputs:
        one = stated.get(name) if isinstance(stated, dict) else None
        if not isinstance(one, dict):
            continue
        try:
            found[name] = Preprocess.from_dict(one).to_dict()
        except PreprocessError as error:
            raise PreprocessError(error.message, where=f"input '{name}'", fix=error.fix) from error
    return found
