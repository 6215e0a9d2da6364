"""The tensors of an interpreter, as the delegate saw them: shapes that the runtime has inferred, digests of constants.

The delegate writes them to a file before it asks for a program (a hidden option of `npuc export litert`), one line a tensor:

    3 9 1x32x32x16 - model/conv2d/Relu
    4 9 16x3x3x16 7f83b1657ff1fc53 model/conv2d/kernel

number, TFLite's number of the type, shape (`-` for a scalar, `?` if it is open until the run), the first 16 digits of the SHA-256
of a constant, and the name with spaces and other rare characters written as %20. The model file has to agree with all of it:
a program made of another file than the one in the interpreter would compute something else without a word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

from npuc.errors import InputDataError, UsageError
from npuc.files import read_short
from npuc.frontend.tflite.reader import TfliteModel, TfliteTensor

_MAX_BYTES = 64 << 20
_RUNTIME_TYPES = {
    1: "FLOAT32", 2: "INT32", 3: "UINT8", 4: "INT64", 5: "STRING", 6: "BOOL", 7: "INT16", 8: "COMPLEX64", 9: "INT8",
    10: "FLOAT16", 11: "FLOAT64", 12: "COMPLEX128", 13: "UINT64", 14: "RESOURCE", 15: "VARIANT", 16: "UINT32", 17: "UINT16",
    18: "INT4", 19: "BFLOAT16",
}  # fmt: skip
"""Numbers of types in the runtime, which are not those of the file."""


@dataclass(frozen=True)
class RuntimeTensor:
    """One line of the file."""

    type_name: str
    shape: tuple[int, ...] | None
    """None: not known before the run."""
    digest: str
    name: str


def read_runtime_tensors(path: Path) -> dict[int, RuntimeTensor]:
    """The lines of the file by the number of the tensor."""
    tensors = {}
    for line in (
        read_short(path, _MAX_BYTES, "a list of tensors", InputDataError)
        .decode("ascii", "replace")
        .splitlines()
    ):
        try:
            index, kind, dims, digest, name = line.split(" ")
            shape = None if dims == "?" else tuple(int(dim) for dim in dims.split("x") if dims != "-")
            tensors[int(index)] = RuntimeTensor(
                _RUNTIME_TYPES.get(int(kind), f"type {kind}"), shape, digest.strip("-"), unquote(name)
            )
        except ValueError as error:
            raise InputDataError(
                f"has the line '{line[:80]}', which is no tensor", where=str(path)
            ) from error
    return tensors


def with_runtime_shapes(model: TfliteModel, tensors: dict[int, RuntimeTensor], path: Path) -> TfliteModel:
    """The model with the shapes that its interpreter has; `UsageError` if the interpreter runs another model."""
    shaped = []
    for tensor in model.main.tensors:
        actual = tensors.get(tensor.index)
        difference = "it is not there" if actual is None else _difference(tensor, actual)
        if difference or actual is None:
            raise UsageError(
                f"the interpreter runs another model than {path}: of tensor {tensor.index}, '{tensor.name}', {difference}",
                fix="Give the delegate the file that the interpreter has (option 'model')",
            )
        # An operator whose result has no known shape is left to the runtime.
        shape = (0,) if actual.shape is None else actual.shape
        shaped.append(tensor if tensor.weight is not None else replace(tensor, shape=shape, is_open=False))
    return replace(model, main=replace(model.main, tensors=tuple(shaped)))


def _difference(tensor: TfliteTensor, actual: RuntimeTensor) -> str:
    """In what a tensor of the file differs from the interpreter's; empty if in nothing."""
    if actual.type_name != tensor.type_name:
        return f"the type is {actual.type_name} there and {tensor.type_name} here"
    # Names that occur twice have got a number at their end.
    if not tensor.name.startswith(actual.name):
        return f"the name is '{actual.name}' there"
    if actual.digest and tensor.weight is not None and tensor.type_name not in ("INT4", "BOOL"):
        own = sha256(tensor.weight.array().tobytes()).hexdigest()[: len(actual.digest)]
        if own != actual.digest:
            return "the constant has other values"
    return ""
