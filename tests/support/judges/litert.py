"""The judge: LiteRT with its reference kernels, and the comparison with graph mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuc.arrays import Array
from npuc.engine import FloatEngine, IntegerEngine
from npuc.export.tflite import TFLiteOptions, serialize, to_tflite
from npuc.ir import Graph


def run_reference(
    data: bytes | memoryview, inputs: Mapping[str, Array], kernels: str = "BUILTIN_REF"
) -> dict[str, Array]:
    """The outputs of a `.tflite` file by LiteRT's reference kernels, or by others."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType[kernels]
    interpreter = Interpreter(
        model_content=bytes(data), experimental_op_resolver_type=resolver, num_threads=1
    )
    runner = interpreter.get_signature_runner()
    return dict(runner(**inputs))


def run_by_position(data: bytes, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a `.tflite` file that may have no signature, by LiteRT's reference kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    interpreter.allocate_tensors()
    for entry, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(entry["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(entry["index"]) for entry in interpreter.get_output_details()]


def exported(graph: Graph, options: TFLiteOptions | None = None) -> bytes:
    """The bytes of a program as a `.tflite` file."""
    return bytes(serialize(to_tflite(graph, options)))


def codes(graph: Graph, options: TFLiteOptions | None = None) -> list[str]:
    """The operators of an exported program."""
    return [op.code for op in to_tflite(graph, options).operators]


def assert_equal_bits(graph: Graph, inputs: Mapping[str, Array], options: TFLiteOptions | None = None) -> int:
    """LiteRT's reference kernels and graph mode agree on every bit; returns how many outputs were compared."""
    expected = run_reference(exported(graph, options), inputs)
    actual = IntegerEngine(graph).run(inputs)
    assert list(expected) == sorted(actual) or set(expected) == set(actual)
    for name, array in actual.items():
        np.testing.assert_array_equal(expected[name], array, err_msg=name)
    return sum(array.size for array in actual.values())


def assert_close_reals(graph: Graph, inputs: Mapping[str, Array], tolerance: float = 1e-5) -> int:
    """LiteRT and the float engine agree to a tolerance, relative to the largest magnitude."""
    expected = FloatEngine(graph, threads=1).run(inputs)
    # Some operators of floats, such as ELU, have no reference kernel.
    actual = run_reference(exported(graph), inputs, "BUILTIN_WITHOUT_DEFAULT_DELEGATES")
    for name, array in expected.items():
        if array.dtype.kind == "f":
            scale = max(1.0, float(np.abs(array).max(initial=0.0)))
            np.testing.assert_allclose(
                actual[name], array, rtol=tolerance, atol=tolerance * scale, err_msg=name
            )
        else:
            np.testing.assert_array_equal(actual[name], array, err_msg=name)
    return sum(array.size for array in expected.values())
