"""ONNX defines many ops by a function body in primitives: the canonical form of the body is the op again."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.inliner
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.frontend.onnx import import_onnx
from npuc.ir import Graph
from npuc.transform import canonicalize
from support.graphs import assert_same_function
from support.passes import ops_of

SHAPE = (2, 4, 3, 5)
CASES: list[tuple[str, str, int, dict[str, Any], tuple[tuple[int, ...], ...]]] = [
    ("Gelu", "gelu", 21, {}, ()),
    ("Gelu", "gelu", 21, {"approximate": "tanh"}, ()),
    ("HardSwish", "hard_swish", 21, {}, ()),
    ("HardSigmoid", "hard_sigmoid", 21, {"alpha": 0.3, "beta": 0.4}, ()),
    ("Mish", "mish", 21, {}, ()),
    ("Softplus", "softplus", 21, {}, ()),
    ("Softsign", "softsign", 21, {}, ()),
    ("Swish", "silu", 24, {"alpha": 1.0}, ()),
    ("Elu", "elu", 21, {"alpha": 0.7}, ()),
    ("Elu", "elu", 21, {"alpha": 1.0}, ()),
    ("Selu", "selu", 21, {"alpha": 1.6, "gamma": 1.1}, ()),
    ("Celu", "celu", 21, {"alpha": 2.0}, ()),
    ("LeakyRelu", "leaky_relu", 21, {"alpha": 0.2}, ()),
    ("PRelu", "prelu", 21, {}, ((4, 1, 1),)),
    ("Relu", "relu", 21, {}, ()),
    ("Softmax", "softmax", 21, {"axis": 1}, ()),
    ("LogSoftmax", "log_softmax", 21, {"axis": 2}, ()),
    ("LayerNormalization", "layer_norm", 21, {"axis": 2}, ((3, 5), (3, 5))),
    ("LayerNormalization", "layer_norm", 21, {}, ((5,),)),
    ("GroupNormalization", "group_norm", 21, {"num_groups": 2}, ((4,), (4,))),
    ("RMSNormalization", "rms_norm", 23, {}, ((5,),)),
]


def body(op: str, version: int, attributes: dict[str, Any], parameters: tuple[tuple[int, ...], ...]) -> Graph:
    """The imported function body of an op, with constants for all operands but the first."""
    generator = np.random.default_rng(0)
    names = [f"p{index}" for index in range(len(parameters))]
    constants = [
        numpy_helper.from_array(generator.uniform(0.5, 1.5, shape).astype(np.float32), name)
        for name, shape in zip(names, parameters, strict=True)
    ]
    typed = [(name, TensorProto.FLOAT, shape) for name, shape in zip(names, parameters, strict=True)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], **attributes)],
        "body",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
        constants,
        value_info=[helper.make_tensor_value_info(*entry) for entry in typed],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    bodies = [
        ("", op),
        *(
            (("", "HardSigmoid"), ("", "Softplus"), ("", "Elu"))
            if op in ("HardSwish", "Mish", "Celu")
            else ()
        ),
    ]
    inlined = onnx.inliner.inline_selected_functions(model, bodies, inline_schema_functions=True)
    assert op not in {node.op_type for node in inlined.graph.node}
    return import_onnx(inlined)


@pytest.mark.parametrize("op, expected, version, attributes, parameters", CASES)
def test_the_body_becomes_the_op(
    op: str, expected: str, version: int, attributes: dict[str, Any], parameters: tuple[tuple[int, ...], ...]
) -> None:
    before = body(op, version, attributes, parameters)
    after = canonicalize(before)
    assert ops_of(after) == [expected]
    assert_same_function(before, after)
